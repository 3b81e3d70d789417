"""Linearity: what the code returns is no linear function of the cotangent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.probe import Cotangent, Float, Probe
from gradcheck.explain.rules.cotangent import asked
from gradcheck.explain.same import near
from gradcheck.explain.suspicion import Scene, Suspicion

GROSS: Final = 0.05
"""Share of the largest element beyond which no rounding, and no threshold, explains it."""
SMALL: Final = 2.0**-10
"""Factor that makes a cotangent so small that nothing clips it."""

Question = Callable[[str, Probe], bool]


def linearity(scene: Scene) -> Iterator[Suspicion]:
    """Another answer for 30u - 7v than 30 and -7 times those for u and v: how, if that shows."""
    if not _nonlinear(scene.output, scene.first):
        return
    for label, words, holds in READINGS:
        yield Suspicion(
            label=label,
            says=f"{scene.gradient} {words}",
            fits=partial(_where_it_fails, holds, scene.output),
        )


def _where_it_fails(holds: Question, name: str, probe: Probe) -> bool:
    """Where it is right, nothing is asked: a large cotangent alone may be clipped."""
    return not probe.fails(name) or (steady(name, probe) and holds(name, probe))


def steady(name: str, probe: Probe) -> bool:
    """Whether the same question has the same finite answer."""
    found = _answer(name, probe, probe.ct)
    return found is not None and np.array_equal(found, probe.got[name])


def _answer(name: str, probe: Probe, ct: Cotangent) -> Float | None:
    found = asked(probe, ct).get(name)
    return found if found is not None and np.isfinite(found).all() else None


def _times(by: float, ct: Cotangent) -> Cotangent:
    return tuple(by * part for part in ct)


def _other(ct: Cotangent) -> Cotangent:
    """Another cotangent: the values in other places, half of them negated."""
    signs = [(-1.0) ** np.arange(part.size).reshape(part.shape) for part in ct]
    return tuple(np.roll(c, 1) * s for c, s in zip(ct, signs, strict=True))


def _nonlinear(name: str, probe: Probe) -> bool:
    if name not in probe.got or not steady(name, probe):
        return False
    u, v = probe.ct, _other(probe.ct)
    both = tuple(30 * a - 7 * b for a, b in zip(u, v, strict=True))
    of_u, of_v, of_both = (_answer(name, probe, ct) for ct in (u, v, both))
    if of_u is None or of_v is None or of_both is None:
        return False
    size = np.max(np.abs(30 * of_u) + np.abs(7 * of_v), initial=0.0)
    return bool(np.max(np.abs(of_both - (30 * of_u - 7 * of_v)), initial=0.0) > GROSS * size)


def _uncleared(name: str, probe: Probe) -> bool:
    """One number, for any cotangent, in all those elements that should be 0."""
    zero = _answer(name, probe, _times(0.0, probe.ct))
    if zero is None or not zero.any():
        return False
    held = zero != 0
    alone = np.ptp(zero[held]) == 0 and not probe.right[name][held].any()
    return bool(alone and probe.reproduces(probe.right[name] + zero, name))


def _shifted(name: str, probe: Probe) -> bool:
    """What comes for a cotangent of zeros is what is too much."""
    zero = _answer(name, probe, _times(0.0, probe.ct))
    if zero is None or not zero.any():
        return False
    return probe.reproduces(probe.right[name] + zero, name)


def _clipped(name: str, probe: Probe) -> bool:
    """Small cotangents give what is right."""
    found = _answer(name, probe, _times(SMALL, probe.ct))
    return found is not None and near(found / SMALL, probe.right[name], probe.dtype)


def _even(name: str, probe: Probe) -> bool:
    return _answers(name, probe, -1.0, 1.0)


def _unscaled(name: str, probe: Probe) -> bool:
    return _answers(name, probe, 2.0, 1.0)


def _squared(name: str, probe: Probe) -> bool:
    return _answers(name, probe, 2.0, 4.0)


def _answers(name: str, probe: Probe, asked_for: float, times: float) -> bool:
    """Whether a multiple of the cotangent gives such a multiple of the gradient."""
    found = _answer(name, probe, _times(asked_for, probe.ct))
    return found is not None and near(found, times * probe.got[name], probe.dtype)


READINGS: Final[tuple[tuple[str, str, Question], ...]] = (
    ("A", "holds one number where 0 belongs, whatever the cotangent: it was not cleared",
     _uncleared),
    ("T", "has a term too many, which does not depend on the cotangent", _shifted),
    ("NL", "is not linear in the cotangent: right for small ones, cut off for large ones",
     _clipped),
    ("NL", "is not linear in the cotangent: the same for its negative", _even),
    ("NL", "is not linear in the cotangent: the same for twice as much", _unscaled),
    ("NL", "is not linear in the cotangent: twice as much gives four times the gradient",
     _squared),
)  # fmt: skip
"""Class, words and test. That it is not linear, and no more, names nothing: a cotangent that is
written over before it is read shows itself so, too."""
