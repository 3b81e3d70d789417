"""Residuals: what is left over lies, in every row, along one known direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.probe import Array, Float, Probe

ALIKE: Final = 1e-8
"""1 − R² up to which a row lies along a direction."""
LONG: Final = 4
"""Elements of a row below which a direction is no evidence."""
ROWS: Final = 6
"""Rows, over all probes, that must be wrong."""
WIDE: Final = 256
"""Elements of them, less one for each row, that do instead."""
ENOUGH: Final = 0.5
"""Share of failing probes that must have such rows, and of a probe's rows that must be wrong."""

Direction = Callable[[Probe], Array | None]


def residual(scene: Observations) -> Iterator[Suspicion]:
    """Along ones, an argument, the output or its exponential; along the last axis, then others."""
    name, own = scene.output, scene.gradient
    if any(name not in p.got or not np.isfinite(p.got[name]).all() for p in scene.failing):
        return
    if not _linear(scene.first, name):
        return
    ndim = scene.first.right[name].ndim
    for axis in range(ndim - 1, -1, -1):
        where = "in every row" if axis == ndim - 1 else f"along axis {axis}"
        for word, direction in _directions(scene):
            found = _along(scene.failing, name, direction, axis - ndim)
            if found is None or not found.enough(scene.failing):
                continue
            what, how = "one number", "a mean is missing or mis-weighted"
            if word:
                kind = "projection" if found.lacking else "term"
                what = f"a multiple of {word}"
                how = f"a {kind} along it is missing or mis-weighted"
            yield Suspicion(
                label="T",
                says=f"{own} is off by {what} {where}: {how}",
                fits=_lies(name, direction, axis - ndim),
                evidence=(f"the residual lies along it {where}: 1 − R² ≤ {found.worst:.1g}",),
            )


def _lies(name: str, direction: Direction, axis: int) -> Callable[[Probe], bool]:
    def fits(probe: Probe) -> bool:
        return not probe.fails(name) or _along([probe], name, direction, axis) is not None

    return fits


def _directions(scene: Observations) -> Iterator[tuple[str, Direction]]:
    """What a residual may lie along, in words: nothing stands for ones."""
    probe = scene.first
    shape = probe.right[scene.output].shape
    pairs = zip(probe.names, probe.primals, strict=True)
    names = [n for n, p in pairs if p.dtype.kind == "f" and p.shape == shape]
    yield "", lambda p: np.ones(p.right[scene.output].shape)
    for name in names:
        yield name, _primal(name)
    for k, out in enumerate(probe.outputs):
        if out.shape == shape:
            word = "the output" if len(probe.outputs) == 1 else f"output {k}"
            yield word, _output(k, lambda y: y)
            yield f"exp of {word}", _output(k, np.exp)
    for name in names:
        yield f"softmax of {name}", _function(name, _softmax)
        yield f"what marks the largest of {name}", _function(name, _largest)


def _primal(name: str) -> Direction:
    return lambda probe: probe.primal(name)


def _function(name: str, function: Callable[[Float], Float]) -> Direction:
    return lambda probe: function(probe.primal(name))


def _softmax(x: Float) -> Float:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return np.asarray(e / np.sum(e, axis=-1, keepdims=True))


def _largest(x: Float) -> Float:
    return np.asarray(x == np.max(x, axis=-1, keepdims=True), dtype=np.float64)


def _output(k: int, function: Callable[[Float], Float]) -> Direction:
    return lambda probe: function(probe.outputs[k])


def _linear(probe: Probe, name: str) -> bool:
    """Whether the gradient doubles with the cotangent: what is added to it does not."""
    twice = probe.ask(tuple(2 * part for part in probe.ct)).get(name)
    return twice is not None and bool(_close(twice, 2 * probe.got[name]).all())


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows that lie along a direction: the worst 1 − R², and whether what is right has none of it.

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
        many = self.rows >= ROWS or self.free >= WIDE
        return many and self.probes >= ENOUGH * len(failing)


def _along(probes: Sequence[Probe], name: str, direction: Direction, axis: int) -> _Found | None:
    """Rows that lie along it; None where some wrong row does not, or where what is right does."""
    worst, rows, free, told, lacking = 0.0, 0, 0, 0, True
    for probe in probes:
        along, right = direction(probe), probe.right[name]
        if along is None or along.shape != right.shape or right.ndim < -axis:
            return None
        if right.shape[axis] < LONG:
            continue
        v, n, r = (_rows(x, axis) for x in (along, right, probe.got[name] - right))
        wrong = _rows(probe.wrong(name), axis).any(axis=-1)
        if not np.mean(wrong) >= ENOUGH:  # it matters which row it is
            return None
        v, n, r = v[wrong], n[wrong], r[wrong]
        off, other = _unlike(r, v), _unlike(n, v)
        # what is right along it, too, is off by a factor
        lies = np.max(off, initial=0.0) <= ALIKE < np.max(other, initial=0.0)
        if not lies:
            return None
        worst, rows, told = max(worst, float(np.max(off))), rows + len(r), told + 1
        free += r.size - len(r)
        lacking = lacking and bool((other >= 1 - ALIKE).all())
    return _Found(worst, lacking, rows, free, told)


def _rows(x: Array, axis: int) -> Array:
    return np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])


def _unlike(x: Float, v: Float) -> Float:
    """1 − R² of each row of x along that of v."""
    with np.errstate(all="ignore"):
        share = np.sum(x * v, -1) ** 2 / (np.sum(x * x, -1) * np.sum(v * v, -1))
        return np.asarray(np.nan_to_num(1.0 - share, nan=1.0))


def _close(a: Float, b: Float) -> Array:
    return np.asarray(np.abs(a - b) <= 1e-6 * np.max(np.abs(b), initial=0.0))
