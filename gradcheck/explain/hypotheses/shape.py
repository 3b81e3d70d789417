"""Shapes: a gradient that is missing, or of another shape or dtype."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.engine import where_wrong
from gradcheck.explain.hypothesis import Observations
from gradcheck.explain.probe import Probe, near
from gradcheck.results.finding import Diagnosis

Array = NDArray[Any]
Float = NDArray[np.float64]

RULE: Final = "form"
MAX_PERMUTED_AXES: Final = 6


def malformed(output: str, probes: Sequence[Probe]) -> Diagnosis | None:
    """Why the gradient of the primal `output` has no right form; None where it has one.

    A diagnosis of another shape holds at every probe with a wrong shape.
    """
    faulty = [probe for probe in probes if _faulty(probe, output)]
    if not faulty:
        return None
    obs = Observations(output, faulty, [p for p in probes if not _faulty(p, output)])
    if all(probe.raw[output] is None for probe in faulty):
        return _missing(obs)
    shaped = [_Shaped(probe, output) for probe in faulty if _misshapen(probe, output)]
    return _of_shape(obs, shaped) if shaped else _of_dtype(obs)


def _faulty(probe: Probe, output: str) -> bool:
    if output not in probe.raw:
        return False  # unknown what was returned
    raw = probe.raw[output]
    return raw is None or raw.dtype.name != probe.dtype or _misshapen(probe, output)


def _misshapen(probe: Probe, output: str) -> bool:
    raw = probe.raw[output]
    return raw is not None and raw.shape != probe.primal(output).shape


def _missing(obs: Observations) -> Diagnosis:
    return Diagnosis(
        label="G",
        says=f"{obs.gradient} is not returned: {obs.output} gets no gradient",
        rule=RULE,
        evidence=(where_wrong(obs),),
    )


def _of_dtype(obs: Observations) -> Diagnosis:
    probe = next(p for p in obs.failing if p.raw[obs.output] is not None)
    raw = probe.raw[obs.output]
    assert raw is not None
    return Diagnosis(
        label="O",
        says=f"{obs.gradient} comes in {raw.dtype.name}, {obs.output} in {probe.dtype}: "
        "its precision changes on the way",
        rule=RULE,
        evidence=(where_wrong(obs),),
    )


class _Shaped:
    """A gradient of another shape than its primal's, and the right one."""

    def __init__(self, probe: Probe, output: str) -> None:
        raw = probe.raw[output]
        assert raw is not None
        self.probe = probe
        with np.errstate(all="ignore"):
            self.raw: Float = np.asarray(raw, dtype=np.float64)
        self.right: Float = np.asarray(probe.right[output])

    def near(self, guess: Float, to: Float) -> bool:
        """Whether two arrays of one shape agree to rounding."""
        return guess.shape == to.shape and near(guess, to, self.probe.dtype)

    # ── what it may be ───────────────────────────────────────────────────────────────────────

    def unreduced(self) -> bool:
        """Whether sums over the axes along which the primal was repeated give the gradient."""
        return any(self.near(summed, self.right) for summed in _sums(self.raw, self.right.shape))

    def overreduced(self) -> bool:
        """Whether it is the gradient summed over some of its axes."""
        return self.raw.size < self.right.size and any(
            self.near(self.raw.reshape(-1), self.right.sum(axis=axes).reshape(-1))
            for axes in _some(self.right.ndim)
        )

    def cotangent(self) -> bool:
        """Whether it is a part of the cotangent, in the shape of the output."""
        return any(self.near(self.raw, part) for part in self.probe.ct)

    def standing(self, other: str) -> bool:
        """Whether it is another primal's gradient."""
        return other in self.probe.right and self.near(self.raw, self.probe.right[other])

    def reshaped(self) -> bool:
        """Whether it holds the right numbers in the right order."""
        return self.near(self.raw.reshape(-1), self.right.reshape(-1))

    def turned(self) -> bool:
        """Whether it is the gradient with its axes in another order."""
        return sorted(self.raw.shape) == sorted(self.right.shape) and any(
            self.near(self.raw.transpose(order), self.right) for order in _orders(self.raw.ndim)
        )

    def cut(self) -> bool:
        """Whether one axis is too short and another too long, as where the wrong one was cut."""
        pairs = zip(self.raw.shape, self.right.shape, strict=False)
        signs = [np.sign(a - b) for a, b in pairs if a != b]
        return self.raw.ndim == self.right.ndim and sorted(signs) == [-1, 1]


def _sums(raw: Float, shape: tuple[int, ...]) -> Iterator[Float]:
    """Sums of `raw` that have `shape`: over leading axes, and over repetitions along the others.

    A repetition may follow its element (as repeat does) or its whole axis (as tile does).
    """
    lead = raw.ndim - len(shape)
    if lead < 0:
        return
    base = raw.sum(axis=tuple(range(lead)))
    if any(b == 0 or a % b for a, b in zip(base.shape, shape, strict=True)):
        return
    counts = [(a // b, b) for a, b in zip(base.shape, shape, strict=True)]
    tiled = [c for count, size in counts for c in (count, size)]
    repeated = [c for count, size in counts for c in (size, count)]
    yield base.reshape(tiled).sum(axis=tuple(range(0, 2 * len(shape), 2)))
    yield base.reshape(repeated).sum(axis=tuple(range(1, 2 * len(shape), 2)))


def _some(rank: int) -> Iterator[tuple[int, ...]]:
    for count in range(1, rank + 1):
        yield from itertools.combinations(range(rank), count)


def _orders(rank: int) -> Iterator[tuple[int, ...]]:
    if rank <= MAX_PERMUTED_AXES:
        yield from itertools.permutations(range(rank))


def _of_shape(obs: Observations, shaped: Sequence[_Shaped]) -> Diagnosis:
    own = obs.gradient
    first = shaped[0]
    shapes = f"{own} has shape {first.raw.shape} where {obs.output} has {first.right.shape}"
    ranks = {probe.primal(obs.output).ndim for probe in obs.passing}
    lone = bool(ranks) and max(ranks) < min(s.right.ndim for s in shaped)
    hypotheses: tuple[tuple[str, str, Callable[[_Shaped], bool]], ...] = (
        (
            "B",
            f"{own} is not summed over the axes along which {obs.output} is repeated",
            _Shaped.unreduced,
        ),
        ("L", f"{own} is the right gradient in another shape", _Shaped.reshaped),
        (
            "L",
            f"{own} is the cotangent itself: it is left in the output's shape",
            _Shaped.cotangent,
        ),
        *(
            ("G", f"{own} is the gradient of {other}: it stands in the wrong place",
             functools.partial(_Shaped.standing, other=other))
            for other in first.probe.right
        ),
        ("I", f"{own} has its axes in another order where there are batch axes: they are counted "
              "with them", lambda s: lone and s.turned()),
        ("L", f"{own} is the right gradient with its axes in another order", _Shaped.turned),
        ("B", f"{own} is summed over axes that {obs.output} has", _Shaped.overreduced),
        ("I", f"{own} is cut along another axis than forward cuts", _Shaped.cut),
    )  # fmt: skip
    for label, says, holds in hypotheses:
        if all(map(holds, shaped)):
            return Diagnosis(label=label, says=says, rule=RULE, evidence=(shapes, where_wrong(obs)))
    return Diagnosis(label="", says=f"{own}: no known pattern", evidence=(shapes, where_wrong(obs)))
