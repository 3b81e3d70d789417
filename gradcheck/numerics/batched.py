"""Values of a forward at points along one direction through all its primals at once.

`PackedPrimals` holds the floating primals end to end with a gradient and a direction through them.
`BatchedForward` evaluates forward at several points of that line, in one call if possible: copies
of the primals are stacked on a leading axis, and at every call one copy must come out bit by bit
as it does alone. Where no layout of the copies passes, they are evaluated one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Array, Float
from gradcheck.numerics.direction import NARROW, magnitude
from gradcheck.numerics.evaluate import CHUNK_BYTES, REFUSALS, keep_pages

Forward = Callable[..., tuple[Array, ...]]
Form = tuple[tuple[int, ...], np.dtype[Any], bytes]
"""An output's shape, dtype and bits."""


MAX_PER_CHUNK_STACK: Final = 8
"""Up to this many copies are stacked only if they fit in one chunk; two calls gain nothing."""
LEAST_SPREAD: Final = 1 / 16
"""The least spread of a tensor's elements, as a part of their size."""
SAFE_SQUARES: Final = (1e-280, 1e280)
"""Mean squares in this range have neither underflowed nor overflowed."""
FIRST_START: Final = np.array([0])


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
        one.starts, one.runs = FIRST_START, [slice(0, d.size)]
        return one

    def part(self, of: Float, k: int) -> Float:
        """Tensor k's run of an array [..., N]."""
        return of[..., self.runs[k]]

    def weigh(self, faint: float) -> tuple[list[float], list[float], list[float]]:
        """Per tensor ⟨g, d⟩, ‖g∘d‖², and the least |g∘d| of elements above `faint` (0: none)."""
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
        """The elements of tensor k above the part `faint` of its largest |g∘d| or |g|.

        A row that moves by its own small size has a small g∘d; its gradient need not be small.
        """
        g = self.part(self.g, k)
        moved, size = np.abs(g * self.part(self.d, k)), np.abs(g)
        found: NDArray[np.bool_] = moved > faint * np.maximum.reduce(moved)
        found |= size > faint * np.maximum.reduce(size)
        return found


def _unit(x: Float) -> float:
    """The displacement of a tensor at t = 1: roughly the spread of its elements."""
    mean, both = float(np.add.reduce(x)) / x.size, float(x.dot(x)) / x.size
    if not SAFE_SQUARES[0] < both < SAFE_SQUARES[1]:
        return magnitude(x)
    return math.sqrt(max(both - mean * mean, both * LEAST_SPREAD**2))


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
    """A flat copy of all arrays, end to end."""
    if len(arrays) == 1:
        return arrays[0].flatten()
    return np.concatenate(arrays, axis=None)


class BatchedForward:
    """A forward at many points around its primals (float64; integer ones stay).

    `forward(*primals)` returns a tuple of arrays; `base` [m] are its values at the primals
    themselves, all outputs end to end. `evaluations` counts points, `forward` at the primals not
    among them. Callers ignore floating-point warnings.
    """

    __slots__ = ("_forward", "_primals", "_seen", "_shapes", "_width", "base", "evaluations")

    def __init__(self, forward: Forward, primals: Sequence[Array], base: Sequence[Array]) -> None:
        """Evaluate nothing yet."""
        self._forward = forward
        self._primals = [p.astype(np.float64) if p.dtype == np.float32 else p for p in primals]
        self._shapes = [o.shape for o in base]
        self.base = _flat(base)
        self._width = 8 * (self.base.size + sum([p.size for p in primals]))
        self._seen: list[Form] | None = None
        self.evaluations = 0

    def along(
        self, bundle: PackedPrimals, places: Sequence[int], steps: Float, pairs: int
    ) -> tuple[Float, list[float]] | None:
        """f(x + t·d) − f(x) for each t, and its prediction by the bundle's gradient.

        Tensor k of the bundle is primal `places[k]`. The `steps` [s, 2], a row (1, t) for each,
        begin with `pairs` of t and −t. None if forward refuses any point.

        Returns:
            Changes [s, m], and ⟨g, x₊ − x₋⟩ per pair, as the machine rounded the points.
        """
        count = len(steps)
        step = CHUNK_BYTES // self._width & -2
        if step >= count:
            stack = steps.dot(bundle.line)
            given = (stack[0 : 2 * pairs : 2] - stack[1 : 2 * pairs : 2]).dot(bundle.g)
            change = self._stacked(bundle, places, stack)
            if change is None:
                change = self._singly(bundle, places, stack)
            return None if change is None else (change, given.tolist())
        keep_pages()
        together = count > MAX_PER_CHUNK_STACK and step > 0
        step = step if together else 2
        changes, products = np.empty((count, self.base.size)), []
        for start in range(0, count, step):
            stack = steps[start : start + step].dot(bundle.line)
            own = min(len(stack), 2 * pairs - start)
            if own > 0:
                products += (stack[0:own:2] - stack[1:own:2]).dot(bundle.g).tolist()
            change = self._stacked(bundle, places, stack) if together else None
            if change is None:
                together = False
                change = self._singly(bundle, places, stack)
            if change is None:
                return None
            changes[start : start + len(stack)] = change
        return changes, products

    def _single(
        self, bundle: PackedPrimals, places: Sequence[int], point: Float
    ) -> tuple[Array, ...] | None:
        """Outputs at one point [N]; None where forward refuses it."""
        primals = [*self._primals]
        for k, place in enumerate(places):
            primals[place] = bundle.part(point, k).reshape(bundle.shapes[k]).copy()
        for k, primal in enumerate(primals):
            if primal is self._primals[k]:
                primals[k] = primal.copy()
        self.evaluations += 1
        try:
            outputs = self._forward(*primals)
        except REFUSALS:
            return None
        return outputs if [o.shape for o in outputs] == self._shapes else None

    def _singly(self, bundle: PackedPrimals, places: Sequence[int], stack: Float) -> Float | None:
        """The points one by one; None if forward refuses one, or gives other bits than before."""
        out = np.empty((len(stack), self.base.size))
        seen, self._seen = self._seen, None
        for row, point in enumerate(stack):
            outputs = self._single(bundle, places, point)
            if outputs is None:
                return None
            if seen is not None and row == len(stack) // 2 and _forms(outputs) != seen:
                return None
            np.subtract(_flat(outputs), self.base, out=out[row])
        return out

    def _stacked(self, bundle: PackedPrimals, places: Sequence[int], stack: Float) -> Float | None:
        """All points in one call; None if no layout gives one copy the bits that it has alone."""
        k = len(stack)
        row = k // 2  # in the middle, where cumulative sums over copies show from either end
        outputs = self._single(bundle, places, stack[row])
        if outputs is None:
            return None
        alone = _forms(outputs)  # forward may reuse the buffer
        moved: list[Float | None] = [None] * len(self._primals)
        for tensor, place in enumerate(places):
            moved[place] = one = np.ascontiguousarray(bundle.part(stack, tensor))
            one.setflags(write=False)  # a forward that writes must not move the next layout
        for layout in self._layouts(moved, k, len(places) < len(moved)):
            self.evaluations += k
            try:
                outputs = self._forward(*layout)
            except REFUSALS:  # try the next layout
                continue
            if _proved(outputs, alone, k, row):
                flat = outputs[0].reshape(k, -1)
                if len(outputs) > 1:
                    flat = np.concatenate([o.reshape(k, -1) for o in outputs], axis=1)
                change: Float = flat - self.base
                return change
        self._seen = alone
        return None

    def _layouts(self, moved: Sequence[Float | None], k: int, stays: bool) -> Iterator[list[Array]]:
        """Ways to put an axis of copies in front of the primals; some may stay."""
        primals = self._primals
        ranks = [p.ndim for p in primals]
        rank = max(ranks)
        for pad in (True, False) if min(ranks) < rank else (True,):
            layout = []
            for p, m in zip(primals, moved, strict=True):
                shape = (1,) * (rank - p.ndim) + p.shape if pad else p.shape
                layout.append(p.reshape(1, *shape) if m is None else m.reshape(k, *shape))
            yield layout
            if stays:
                each = [*zip(primals, moved, layout, strict=True)]
                yield [p if m is None else one for p, m, one in each]
                yield [np.repeat(one, k, axis=0) if m is None else one for _, m, one in each]


def _forms(outputs: Sequence[Array]) -> list[Form]:
    return [(o.shape, o.dtype, o.tobytes()) for o in outputs]


def _proved(outputs: Sequence[Array], alone: Sequence[Form], k: int, row: int) -> bool:
    """Whether k stacked outputs have the form of single ones, and in `row` the bits of one."""
    if len(outputs) != len(alone):
        return False
    for o, (shape, dtype, bits) in zip(outputs, alone, strict=True):
        if o.shape != (k, *shape) or o.dtype != dtype or o[row].tobytes() != bits:
            return False
    return True


def _flat(outputs: Sequence[Array]) -> Float:
    """All outputs as one float64 vector."""
    if len(outputs) == 1:
        return np.asarray(outputs[0], dtype=np.float64).reshape(-1)
    return np.concatenate([np.asarray(o, dtype=np.float64).reshape(-1) for o in outputs])
