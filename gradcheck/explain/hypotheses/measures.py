"""Numbers for each element of a gradient: what stands beside it, in its row, in its matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np

from gradcheck.explain.probe import Array, Float, Probe

Field = Callable[[Probe], Array | None]

ROWS: Final = (("row", 1), ("column", -2), ("matrix", 2), ("array", 0))
"""What an element belongs to, and how many of the last axes that spans (0: all)."""
OVER: Final[tuple[tuple[str, Callable[[Float], Float]], ...]] = (
    ("the least {0} of its {1}", lambda x: x.min(axis=-1)),
    ("the largest {0} of its {1}", lambda x: x.max(axis=-1)),
    ("the spread of {0} in its {1}", lambda x: x.max(axis=-1) - x.min(axis=-1)),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number for each element of the gradient: what messages call it, and how to have it."""

    words: str
    of: Field


def measures(values: Iterable[Measure], name: str) -> Iterator[Measure]:
    """Values beside an element; then of its row, of its matrix, and of all."""
    values = [*values]
    for measure in values:
        yield Measure(measure.words, partial(_beside, measure.of, name))
    for words, axes in ROWS:
        for measure in values:
            for told, over in OVER:
                yield Measure(
                    told.format(measure.words, words),
                    partial(_over, measure.of, name, axes, over),
                )


def primals(probe: Probe) -> Iterator[Measure]:
    """Primals, their magnitudes and their differences."""
    for name in probe.names:
        yield Measure(name, partial(_primal, name))
        yield Measure(f"|{name}|", partial(_magnitude, partial(_primal, name)))
    for a, b in combinations(probe.names, 2):
        if probe.primal(a).shape == probe.primal(b).shape:
            yield Measure(f"{a} - {b}", partial(_difference, a, b))


def others(probe: Probe) -> Iterator[Measure]:
    """Outputs, cotangents and right gradients."""
    for i in range(len(probe.ct)):
        words = "the output" if len(probe.ct) == 1 else f"output {i + 1}"
        yield Measure(words, partial(_output, i))
        yield Measure(f"the magnitude of {words}", partial(_magnitude, partial(_output, i)))
        words = "the cotangent" if len(probe.ct) == 1 else f"cotangent {i + 1}"
        yield Measure(words, partial(_cotangent, i))
    for name in probe.right:
        yield Measure(f"the right d{name}", partial(_right, name))


def _magnitude(of: Callable[[Probe], Array], probe: Probe) -> Array:
    return np.asarray(np.abs(of(probe)))


def _output(i: int, probe: Probe) -> Array:
    return probe.outputs[i]


def _cotangent(i: int, probe: Probe) -> Array:
    return probe.ct[i]


def _right(name: str, probe: Probe) -> Array | None:
    return probe.right.get(name)


def _primal(name: str, probe: Probe) -> Array:
    return probe.primal(name)


def _difference(a: str, b: str, probe: Probe) -> Array | None:
    x, y = probe.primal(a), probe.primal(b)
    return np.asarray(x - y) if x.shape == y.shape else None


def _beside(of: Field, name: str, probe: Probe) -> Float | None:
    """A value in the gradient's shape; None where it does not fit."""
    value, shape = of(probe), probe.right[name].shape
    if value is None or value.ndim > len(shape):
        return None
    try:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
    except ValueError:
        return None


def _over(
    of: Field, name: str, axes: int, over: Callable[[Float], Float], probe: Probe
) -> Float | None:
    """One number per row, spread over the gradient's elements."""
    with np.errstate(all="ignore"):
        return _spread(of, name, axes, over, probe)


def _spread(
    of: Field, name: str, axes: int, over: Callable[[Float], Float], probe: Probe
) -> Float | None:
    value, shape = of(probe), probe.right[name].shape
    if value is None or not value.ndim or not value.size:
        return None
    if axes < 0:
        if value.ndim < -axes:
            return None
        value, axes = np.moveaxis(value, axes, -1), 1
        found = _reduced(value, 1, over)
        back = np.moveaxis(np.broadcast_to(found, value.shape), -1, -2)
        return np.asarray(back) if back.shape == shape else None
    found = _reduced(value, axes or value.ndim, over)
    if axes == 0:
        return np.full(shape, found.ravel()[0])
    if found.ndim != len(shape):
        return None
    try:
        return np.broadcast_to(found, shape)
    except ValueError:
        return None


def _reduced(value: Array, axes: int, over: Callable[[Float], Float]) -> Float:
    lead = value.shape[: max(value.ndim - axes, 0)]
    found = over(np.asarray(value, dtype=np.float64).reshape(*lead, -1))
    return found.reshape(*lead, *(1,) * (value.ndim - len(lead)))
