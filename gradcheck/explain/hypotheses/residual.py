"""Residuals: what is left over lies, in every row, along one known direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.explain.hypothesis import (
    Hypothesis,
    Observations,
    applied,
    read_output,
    read_primal,
)
from gradcheck.explain.probe import Array, Float, Probe, agree

MAX_OFF_DIRECTION: Final = 1e-8
"""1 − R² up to which a row lies along a direction."""
MIN_ROW_LENGTH: Final = 4
MIN_ROWS: Final = 6
MIN_FREE_ELEMENTS: Final = 256
"""Elements of them, less one for each row, that do instead."""
MIN_SHARE: Final = 0.5
"""Share of failing probes that must have such rows, and of a probe's rows that must be wrong."""

Direction = Callable[[Probe], Array | None]


def residual(obs: Observations) -> Iterator[Hypothesis]:
    """Along ones, an argument, the output or its exponential; along the last axis, then others."""
    name, own = obs.output, obs.gradient
    if any(name not in p.got or not np.isfinite(p.got[name]).all() for p in obs.failing):
        return
    if not _linear(obs.first, name):
        return
    ndim = obs.first.right[name].ndim
    for axis in range(ndim - 1, -1, -1):
        where = "in every row" if axis == ndim - 1 else f"along axis {axis}"
        for word, direction in _directions(obs):
            found = _along(obs.failing, name, direction, axis - ndim)
            if found is None or not found.enough(obs.failing):
                continue
            what, how = "one number", "a mean is missing or mis-weighted"
            if word:
                kind = "projection" if found.lacking else "term"
                what = f"a multiple of {word}"
                how = f"a {kind} along it is missing or mis-weighted"
            yield Hypothesis(
                label="T",
                says=f"{own} is off by {what} {where}: {how}",
                fits=_lies(name, direction, axis - ndim),
                evidence=(f"the residual lies along it {where}: 1 − R² ≤ {found.worst:.1g}",),
            )


def _lies(name: str, direction: Direction, axis: int) -> Callable[[Probe], bool]:
    def fits(probe: Probe) -> bool:
        return not probe.fails(name) or _along([probe], name, direction, axis) is not None

    return fits


def _directions(obs: Observations) -> Iterator[tuple[str, Direction]]:
    """Directions that a residual may lie along, by name; "" is a constant row."""
    probe = obs.first
    shape = probe.right[obs.output].shape
    pairs = zip(probe.names, probe.primals, strict=True)
    names = [n for n, p in pairs if p.dtype.kind == "f" and p.shape == shape]
    yield "", lambda p: np.ones(p.right[obs.output].shape)
    for name in names:
        yield name, read_primal(name)
    for k, out in enumerate(probe.outputs):
        if out.shape == shape:
            word = "the output" if len(probe.outputs) == 1 else f"output {k}"
            yield word, read_output(k)
            yield f"exp of {word}", applied(np.exp, read_output(k))
    for name in names:
        yield f"softmax of {name}", applied(_softmax, read_primal(name))
        yield f"what marks the largest of {name}", applied(_largest, read_primal(name))


def _softmax(x: Float) -> Float:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return np.asarray(e / np.sum(e, axis=-1, keepdims=True))


def _largest(x: Float) -> Float:
    return np.asarray(x == np.max(x, axis=-1, keepdims=True), dtype=np.float64)


def _linear(probe: Probe, name: str) -> bool:
    """Whether the gradient doubles with the cotangent."""
    twice = probe.ask(tuple(2 * part for part in probe.ct)).get(name)
    return twice is not None and agree(twice, 2 * probe.got[name], 1e-6)


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows that lie along a direction: the worst 1 − R², and whether right rows have no such part.

    `rows` of `probes` were long enough to show it, with `free` elements that no factor of a row
    explains.
    """

    worst: float
    lacking: bool
    rows: int
    free: int
    probes: int

    def enough(self, failing: Sequence[Probe]) -> bool:
        """Whether they are no coincidence."""
        many = self.rows >= MIN_ROWS or self.free >= MIN_FREE_ELEMENTS
        return many and self.probes >= MIN_SHARE * len(failing)


def _along(probes: Sequence[Probe], name: str, direction: Direction, axis: int) -> _Found | None:
    """Rows that lie along it; None if some wrong row does not, or if right rows do."""
    worst, rows, free, seen, lacking = 0.0, 0, 0, 0, True
    for probe in probes:
        along, right = direction(probe), probe.right[name]
        if along is None or along.shape != right.shape or right.ndim < -axis:
            return None
        if right.shape[axis] < MIN_ROW_LENGTH:
            continue
        v, n, r = (_rows(x, axis) for x in (along, right, probe.got[name] - right))
        wrong = _rows(probe.wrong(name), axis).any(axis=-1)
        if not np.mean(wrong) >= MIN_SHARE:  # it matters which row it is
            return None
        v, n, r = v[wrong], n[wrong], r[wrong]
        off, other = _unlike(r, v), _unlike(n, v)
        # what is right along it, too, is off by a factor
        lies = np.max(off, initial=0.0) <= MAX_OFF_DIRECTION < np.max(other, initial=0.0)
        if not lies:
            return None
        worst, rows, seen = max(worst, float(np.max(off))), rows + len(r), seen + 1
        free += r.size - len(r)
        lacking = lacking and bool((other >= 1 - MAX_OFF_DIRECTION).all())
    return _Found(worst, lacking, rows, free, seen)


def _rows(x: Array, axis: int) -> Array:
    return np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])


def _unlike(x: Float, v: Float) -> Float:
    """1 − R² of each row of x along that of v."""
    with np.errstate(all="ignore"):
        share = np.sum(x * v, -1) ** 2 / (np.sum(x * x, -1) * np.sum(v * v, -1))
        return np.asarray(np.nan_to_num(1.0 - share, nan=1.0))
