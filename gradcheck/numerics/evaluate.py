"""Values of a forward at many perturbed copies of one primal: stacked where that is safe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Float, unit_roundoff
from gradcheck.numerics.time_budget import UNWATCHED, Watch

Array = NDArray[Any]
Function = Callable[..., tuple[Array, ...]]
CHUNK_BYTES: Final = 512 * 1024  # measured: within 12% of the best chunk on every operator tried
REFUSALS: Final = (Exception, SystemExit)
"""Exceptions by which a forward refuses a point away from its primals."""


@dataclass(frozen=True, slots=True)
class Point:
    """A forward and the primals at which it is differentiated.

    `forward(*primals)` returns a tuple of floating arrays and may be called with any floating
    primal perturbed. `core_ranks`, where known, counts each primal's core axes (gufunc notation).
    `watch` shows the progress of sweeps over copies.
    """

    forward: Function
    primals: tuple[Array, ...]
    core_ranks: tuple[int, ...] | None = None
    watch: Watch = UNWATCHED

    @property
    def differentiable(self) -> tuple[int, ...]:
        """Indices of the floating primals."""
        return tuple(i for i, p in enumerate(self.primals) if p.dtype.kind == "f")

    @property
    def u(self) -> float:
        """The unit roundoff of the first floating primal's dtype."""
        return unit_roundoff(self.primals[self.differentiable[0]].dtype)

    def outputs(self) -> tuple[Array, ...]:
        """Forward's values at copies of the primals."""
        with np.errstate(all="ignore"):
            return self.forward(*(p.copy() for p in self.primals))

    def values(self, primals: Sequence[Array]) -> Float | None:
        """All outputs at copies of other `primals`, end to end; None where forward refuses them."""
        try:
            with np.errstate(all="ignore"):
                return flatten(self.forward(*(p.copy() for p in primals)))
        except REFUSALS:
            return None


def flatten(outputs: Sequence[Array]) -> Float:
    """All outputs as one float64 vector [m]."""
    if not outputs:
        return np.zeros(0)
    return np.concatenate([np.asarray(o, dtype=np.float64).reshape(-1) for o in outputs])


class Evaluator:
    """`forward` as a function of one primal, at many copies of it at once.

    Copies are stacked on a leading axis if two stacked copies give bit by bit the values of the
    same two copies one by one.
    """

    def __init__(self, point: Point, index: int, outputs: Sequence[Array] | None = None) -> None:
        """Find a layout for primal `index` of `point`.

        If `outputs` of forward at the point are given, they are trusted, and `first_values` finds
        the layout.
        """
        self.point = point
        self.index = index
        self.x: Array = point.primals[index]
        self.layout: Layout | None = None
        self._sure = outputs is None
        self._single: list[bool] = []
        known = self._call(self.x) if outputs is None else outputs
        self.shapes = tuple(np.shape(o) for o in known)
        self.base = flatten(known)
        if outputs is None:
            self.layout = self._find_layout()

    @property
    def u(self) -> float:
        """The unit roundoff of the primal's dtype."""
        return unit_roundoff(self.x.dtype)

    @property
    def stacked(self) -> bool:
        """Whether copies are evaluated together."""
        return self.layout is not None

    def sweep(
        self, count: int, fill: Callable[[slice, Array], None], group: int = 1
    ) -> Iterator[tuple[slice, Float]]:
        """Yield values [k, m] for chunks of `count` copies; a chunk holds whole groups.

        `fill(rows, copies)` perturbs `copies[k, *shape]`, fresh copies of the primal, in place.
        """
        width = self.x.itemsize * max(self.x.size, self.base.size, 1)
        step = max(1, CHUNK_BYTES // (width * group)) * group
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            size = rows.stop - rows.start
            copies = np.repeat(self.x[None], size, axis=0)
            fill(rows, copies)
            yield rows, self.values(copies)
            self.point.watch.show(rows.stop, count)

    def first_values(self, copies: Array, still: int) -> Float:
        """`values` at first copies; chooses the first layout that gets copy `still` right.

        Copy `still` is the primal itself, whose known values must come out bit by bit. All others
        must be moved, and must not cancel in a mean. `still` must not be the first or last copy: a
        forward that reads x[0] or x[−1] would give that copy's right values for all. Call `be_sure`
        before a result of this layout counts against a gradient.
        """
        for layout in self._layouts():
            try:
                values = self._stacked(copies, layout)
            except REFUSALS:  # try the next layout
                continue
            if _same(values[still], self.base) and self._sees(values[0], copies[0]):
                self.layout, self._sure = layout, False
                return values
        return self.values(copies)

    def _sees(self, values: Float, copy: Array) -> bool:
        """Whether `values` are those at a moved copy.

        Evaluated where the primal proves little: if `values` equal the base's, or the base has
        zeros, which may hide a factor from another copy.
        """
        if values.tobytes() != self.base.tobytes() and self.base.all():
            return True
        alone = self._try(copy)
        return alone is not None and _same(flatten(alone), values)

    def be_sure(self) -> None:
        """Replace a layout that `first_values` chose by one that two random copies prove."""
        if not self._sure:
            self.layout, self._sure = self._find_layout(), True

    def pairs(
        self, cells: NDArray[np.int64], above: Array, below: Array
    ) -> Iterator[tuple[slice, Float]]:
        """Yield f(above) − f(below), [k, m], for chunks of the rows of `cells` [c, blocks].

        A row's elements (flat indices) move together, to `above` and `below`, [c, blocks] too.
        One buffer serves all chunks: if two copies fill a chunk, writing them costs more than
        evaluating them.
        """
        n, count = self.x.size, len(cells)
        # Forward's temporaries are about as large as its largest input or output.
        largest = max([self.base.size, *(p.size for p in self.point.primals)])
        width = 2 * self.x.itemsize * max(largest, 1)
        step = min(max(1, CHUNK_BYTES // width), count)
        buffer = np.empty((2, step, n), dtype=self.x.dtype)
        buffer[:] = self.x.reshape(-1)
        shown = buffer.view()
        shown.flags.writeable = False  # forward must not write where the next chunk reads
        alone = cells.shape[1] == 1 and count == n and bool(np.all(np.diff(cells[:, 0]) == 1))
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            size = rows.stop - rows.start
            at = _diagonal(rows, n) if alone else (np.arange(size)[:, None], cells[rows])
            parts = [side[:size].reshape(-1) if alone else side for side in buffer]
            moved = (rows, 0) if alone else rows
            parts[0][at], parts[1][at] = above[moved], below[moved]
            some = shown if size == step else shown[:, :size]
            values = self.values(some.reshape(2 * size, *self.x.shape), owned=False)
            yield rows, values[:size] - values[size:]
            self.point.watch.show(2 * rows.stop, 2 * count)
            if rows.stop < count:
                still = self.x.reshape(-1)[rows if alone else cells[rows]]
                parts[0][at], parts[1][at] = still, still

    def values(self, copies: Array, *, owned: bool = True) -> Float:
        """Outputs [k, m] at `copies[k, *shape]`; NaN where forward refuses a point.

        Unless `owned`, they may lie in memory that forward reuses.
        """
        if self.layout is not None:
            try:
                return self._stacked(copies, self.layout, owned=owned)
            except REFUSALS:  # at one of the copies: evaluate one by one
                pass
        rows = np.empty((len(copies), self.base.size))
        for k, copy in enumerate(copies):
            try:
                outputs = self._call(copy)
                same = tuple(np.shape(o) for o in outputs) == self.shapes
                rows[k] = flatten(outputs) if same else np.nan
            except REFUSALS:
                rows[k] = np.nan  # outside the domain: the caller drops the step
        return rows

    def _call(self, x: Array) -> tuple[Array, ...]:
        primals = [p.copy() for p in self.point.primals]
        primals[self.index] = x.copy()
        with np.errstate(all="ignore"):
            return self.point.forward(*primals)

    def _stacked(self, copies: Array, layout: Layout, *, owned: bool = True) -> Float:
        with np.errstate(all="ignore"):
            outputs = self.point.forward(*layout(self.point, self.index, copies))
        count = len(copies)
        shapes = [(count, *s) for s in self.shapes]
        self._single = [np.shape(o) != s for o, s in zip(outputs, shapes, strict=False)]
        if any(self._single) or len(outputs) != len(shapes):
            outputs = tuple(np.broadcast_to(o, (count, *np.shape(o)[1:])) for o in outputs)
        flat = [
            np.asarray(o, dtype=np.float64).reshape(count, math.prod(shape))
            for o, shape in zip(outputs, self.shapes, strict=True)
        ]
        if len(flat) == 1:
            return flat[0].copy() if owned else flat[0]
        return np.concatenate(flat, axis=1) if flat else np.zeros((count, 0))

    def _find_layout(self) -> Layout | None:
        if self.x.size == 0:
            return None
        rng = np.random.default_rng(self.x.size)
        wobble = 1 + rng.uniform(-1e-3, 1e-3, (2, *self.x.shape))
        copies = (self.x * wobble + rng.uniform(-1e-6, 1e-6, wobble.shape)).astype(self.x.dtype)
        singles = [self._try(copy) for copy in copies]
        if any(single is None for single in singles):
            return None
        expected = np.stack([flatten(single) for single in singles if single is not None])
        for layout in self._layouts():
            try:
                stacked = self._stacked(copies, layout)
                if _same(stacked, expected) and self._stays_still(rng):
                    return layout
            except REFUSALS:  # try the next layout
                continue
        return None

    def _stays_still(self, rng: np.random.Generator) -> bool:
        """Whether each output with one value for the whole stack keeps it far from the primal.

        One value is right only if the output does not depend on the primal; rounded to a few
        digits, outputs at neighbouring copies may be equal by accident.
        """
        if not any(self._single):
            return True
        far = self.x * rng.uniform(0.6, 1.6, self.x.shape) + rng.uniform(-0.3, 0.3, self.x.shape)
        alone = self._try(far.astype(self.x.dtype))
        if alone is None:
            return False
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = zip(self._single, alone, np.split(self.base, ends), strict=True)
        return all(_same(flatten([new]), old) for single, new, old in parts if single)

    def _layouts(self) -> tuple[Layout, ...]:
        if self.point.core_ranks is not None:
            return (_gufunc, _lone, _padded, _all)
        # Copies of a primal with fewer axes than others rarely line up as they are.
        short = self.x.ndim < max(p.ndim for p in self.point.primals)
        return (_padded, _lone, _all) if short else (_lone, _padded, _all)

    def _try(self, x: Array) -> tuple[Array, ...] | None:
        try:
            outputs = self._call(x)
        except REFUSALS:
            return None
        return outputs if tuple(np.shape(o) for o in outputs) == self.shapes else None


def _same(a: Array, b: Array) -> bool:
    """Whether all numbers are equal, NaN to NaN; comparing bits first is faster."""
    return a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=True)


def _diagonal(rows: slice, n: int) -> slice:
    """Of copies [k, n], flattened, the element of each that carries its own number."""
    return slice(rows.start, (rows.stop - rows.start) * n + rows.start, n + 1)


def along(point: Point, moved: Sequence[Array]) -> Float | None:
    """Values [k, m] where all primals move at once; None where forward refuses a point.

    `moved` holds the k copies of each primal. They are stacked if the first and the last copy
    come out bit by bit as they do alone.
    """
    count = len(moved[0])
    ends = [point.values([copies[k] for copies in moved]) for k in (0, -1)]
    if ends[0] is None or ends[1] is None or ends[0].shape != ends[1].shape:
        return None
    stacked = _together(point, moved)
    if stacked is not None and np.array_equal(
        stacked[[0, -1]], np.stack([ends[0], ends[1]]), equal_nan=True
    ):
        return stacked
    rows = [point.values([copies[k] for copies in moved]) for k in range(count)]
    known = [row for row in rows if row is not None and row.shape == ends[0].shape]
    return np.stack(known) if len(known) == len(rows) else None


def _together(point: Point, moved: Sequence[Array]) -> Float | None:
    shapes = _aligned(point, point.core_ranks or [p.ndim for p in point.primals])
    stacked = [c.reshape((len(c), *s)) for c, s in zip(moved, shapes, strict=True)]
    try:
        with np.errstate(all="ignore"):
            outputs = point.forward(*stacked)
        return np.concatenate([np.reshape(o, (len(moved[0]), -1)) for o in outputs], axis=1)
    except REFUSALS:  # try the next layout
        return None


Layout = Callable[[Point, int, Array], list[Array]]


def _aligned(point: Point, core_ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """Shapes of the primals with leading 1s, so that all have the same number of loop axes."""
    loops = [p.ndim - core for p, core in zip(point.primals, core_ranks, strict=True)]
    return [(1,) * (max(loops) - n) + p.shape for n, p in zip(loops, point.primals, strict=True)]


def _in_front(
    point: Point, index: int, copies: Array, shapes: Sequence[tuple[int, ...]]
) -> list[Array]:
    """One axis of copies in front of every shape; only the perturbed primal has several."""
    stacked = [p.reshape((1, *s)) for p, s in zip(point.primals, shapes, strict=True)]
    stacked[index] = copies.reshape((len(copies), *shapes[index]))
    return stacked


def _gufunc(point: Point, index: int, copies: Array) -> list[Array]:
    """Loop axes padded to a common rank, then one axis of copies in front."""
    assert point.core_ranks is not None
    return _in_front(point, index, copies, _aligned(point, point.core_ranks))


def _lone(point: Point, index: int, copies: Array) -> list[Array]:
    """Only the perturbed primal has an axis of copies."""
    stacked = list(point.primals)
    stacked[index] = copies
    return stacked


def _padded(point: Point, index: int, copies: Array) -> list[Array]:
    """All primals padded to a common rank, then one axis of copies in front."""
    return _in_front(point, index, copies, _aligned(point, [0] * len(point.primals)))


def _all(point: Point, index: int, copies: Array) -> list[Array]:
    """Every primal has an axis of copies."""
    count = len(copies)
    stacked = [np.broadcast_to(p, (count, *p.shape)) for p in point.primals]
    stacked[index] = copies
    return stacked


ARENA: Final = 31 << 20


@cache
def keep_pages() -> None:
    """Let glibc reuse the memory of freed arrays.

    By default it maps arrays above 128 KiB to fresh pages, which the kernel must clear each time (a
    third of a large sweep). Freeing one unused block of 31 MiB raises the thresholds to that size
    for the life of the process. No effect with other allocators.
    """
    np.empty(ARENA, dtype=np.uint8)
