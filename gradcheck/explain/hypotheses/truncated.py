"""Truncated: the code looks at a part of an axis only, and the rest never takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.closeness import SAME
from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.hypotheses.places import BLOCKS
from gradcheck.explain.probe import Array, Float, Probe

PROBES: Final = 2
"""Failing probes of which some, and not all, must take part."""
TELLING: Final = 4
"""Elements that must agree."""

End = Callable[[int], int]


def truncated(scene: Observations) -> Iterator[Suspicion]:
    """The gradient of the same function of a shorter operand, where that operand is."""
    name = scene.output
    for axis in range(-scene.first.right[name].ndim, 0):
        lengths = [p.right[name].shape[axis] for p in scene.failing if p.right[name].ndim >= -axis]
        for label, says, end in _ends():
            if sum(0 < end(n) < n for n in lengths) < PROBES:
                continue  # nothing would be left nearly everywhere
            yield Suspicion(
                label=label,
                says=f"{scene.gradient} is right for an operand without {says} along axis {axis}",
                fits=partial(_fits, name, axis, end),
            )


def _ends() -> Iterator[tuple[str, str, End]]:
    for block in BLOCKS:
        yield "W", f"what lies beyond the first {block}", partial(min, block)
        yield "W", f"what is left over after whole blocks of {block}", partial(_whole, block)
    yield "I", "the last", lambda n: n - 1


def _whole(block: int, n: int) -> int:
    return n // block * block


def _fits(name: str, axis: int, end: End, probe: Probe) -> bool:
    """Whether the first part is that of the shorter operand; of the rest nothing is said."""
    right = probe.right[name]
    if right.ndim < -axis or name not in probe.got:
        return False
    n = right.shape[axis]
    kept = max(end(n), 0)
    if kept >= n:
        return not probe.fails(name)
    if kept == 0:
        got = probe.got[name]  # nothing took part
        return not got.any() or not np.isfinite(got).all()
    found = _shorter(probe, name, axis, kept)
    if found is None:
        return False
    got, wrong = _head(probe.got[name], axis, kept), _head(right, axis, kept)
    bound = SAME[probe.dtype] * float(np.max(np.abs(found), initial=0.0))
    agrees = got.shape == found.shape and bool(np.all(np.abs(got - found) <= bound))
    tells = int((np.abs(wrong - found) > 100 * bound).sum()) >= min(TELLING, found.size)
    return agrees and tells


def _head(array: Array, axis: int, kept: int) -> Array:
    index = [slice(None)] * array.ndim
    index[axis] = slice(kept)
    return array[tuple(index)]


def _shorter(probe: Probe, name: str, axis: int, kept: int) -> Float | None:
    """The true gradient of the shorter operand; a cotangent as long as it was is cut alike."""
    x = probe.primal(name)
    primals = {name: _head(x, axis, kept)}
    for other, p in zip(probe.names, probe.primals, strict=True):
        if other != name and p.shape == x.shape:
            primals[other] = _head(p, axis, kept)
    ct = tuple(_head(c, axis, kept) if c.shape == x.shape else c for c in probe.ct)
    found = probe.vjp(ct=ct, primals=primals)
    return None if found is None else found.get(name)
