"""All floating primals end to end: values, a gradient, and a direction through all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.direction import NARROW, magnitude

Array = NDArray[Any]
Float = NDArray[np.float64]

CRAMPED: Final = 1 / 16
"""A tensor moves by the spread of its elements, and at least by this part of their size."""
SQUARES: Final = (1e-280, 1e280)
"""Mean squares in between have neither underflown nor overflown."""
ONE: Final = np.array([0])


class PackedPrimals:
    """T floating tensors, flat and end to end, in float64: `x`, `g` and `d` are [N].

    Tensor k begins at `starts[k]` and is `x[runs[k]]`; t = 1 moves it by `units[k]` times the run
    `r` of signs and magnitudes. x and d are the rows of `line` [2, N]: (1, t) · line = x + t·d.
    """

    __slots__ = ("d", "g", "line", "r", "runs", "shapes", "sizes", "starts", "units", "x")

    def __init__(self, primals: Sequence[Array], gradient: Float, r: Float) -> None:
        """Copy the primals; `gradient` and `r` are [N]. Callers ignore overflows."""
        self.line = np.empty((2, gradient.size))
        self.x, self.d = self.line
        np.concatenate(primals, axis=None, out=self.x)
        self.g, self.r = gradient, r
        self.shapes = [p.shape for p in primals]
        self.sizes = [p.size for p in primals]
        ends = [0, *accumulate(self.sizes)]
        self.starts = np.array(ends[:-1])
        self.runs = [*map(slice, ends, ends[1:])]
        self.units = [_unit(self.x[run]) for run in self.runs]
        for run, unit in zip(self.runs, self.units, strict=True):
            np.multiply(r[run], unit, out=self.d[run])

    def alone(self, k: int, d: Float) -> PackedPrimals:
        """Tensor k, and another direction for it."""
        one = PackedPrimals.__new__(PackedPrimals)
        one.line = np.stack([self.part(self.x, k), d])
        one.x, one.d = one.line
        one.g, one.r = self.part(self.g, k), d
        one.shapes, one.sizes, one.units = [self.shapes[k]], [d.size], [1.0]
        one.starts, one.runs = ONE, [slice(0, d.size)]
        return one

    def part(self, of: Float, k: int) -> Float:
        """Tensor k's run of an array [..., N]."""
        return of[..., self.runs[k]]

    def weigh(self, faint: float) -> tuple[list[float], list[float], list[float]]:
        """Per tensor ⟨g, d⟩, ‖g∘d‖², and the least |g∘d| of what is not `faint`; 0 if all is."""
        terms = self.g * self.d
        size = np.abs(terms)
        products = np.add.reduceat(terms, self.starts).tolist()
        largest = np.maximum.reduceat(size, self.starts).tolist()
        least = np.minimum.reduceat(size, self.starts).tolist()
        squares = []
        for k, run in enumerate(self.runs):
            own = size[run]
            squares.append(float(own.dot(own)))
            if not least[k] > faint * largest[k]:
                seen = own[self.counts(k, faint)]
                least[k] = float(np.minimum.reduce(seen)) if seen.size else 0.0
        return products, squares, least

    def counts(self, k: int, faint: float) -> NDArray[np.bool_]:
        """Which elements of tensor k have more than the part `faint` of its largest |g∘d| or |g|.

        A row that moves by its own small size has a small g∘d; its gradient need not be small.
        """
        g = self.part(self.g, k)
        moved, size = np.abs(g * self.part(self.d, k)), np.abs(g)
        found: NDArray[np.bool_] = moved > faint * np.maximum.reduce(moved)
        found |= size > faint * np.maximum.reduce(size)
        return found


def _unit(x: Float) -> float:
    """How far t = 1 moves a tensor: how far its elements lie apart, roughly."""
    mean, both = float(np.add.reduce(x)) / x.size, float(x.dot(x)) / x.size
    if not SQUARES[0] < both < SQUARES[1]:
        return magnitude(x)
    return math.sqrt(max(both - mean * mean, both * CRAMPED**2))


def by_rows(x: Float, shape: tuple[int, ...]) -> Float:
    """The root mean square of each row (last axis), per element: [n]; rows may differ by far.

    A row of zeros, or one far below the largest, counts as large as that, or as its 2⁻²⁴th part.
    """
    rows = x.reshape(-1, shape[-1])
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0)  # no underflow on the way
    size = scale * np.sqrt(np.mean((rows / scale) ** 2, axis=1, keepdims=True))
    top = float(size.max()) or 1.0
    size = np.where(largest > 0, np.maximum(size, NARROW**2 * top), top)
    return np.broadcast_to(size, rows.shape).reshape(-1)


def end_to_end(arrays: Sequence[Array]) -> Array:
    """A flat copy of all of them."""
    if len(arrays) == 1:
        return arrays[0].flatten()
    return np.concatenate(arrays, axis=None)
