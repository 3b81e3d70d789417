"""Arrays between margins of known numbers, in which stray reads and writes show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import is_float

Array = NDArray[Any]

MARGIN: Final = 64
"""Elements on each side of an array, at least."""
PADDED: Final = 3
"""Elements by which a row is followed in a wider array."""
CANARY: Final = 0.71875
"""What margins hold: a short number, so that every dtype tells when it changes."""
NOISE: Final = (1.625, -0.875, 2.25, -1.375)
"""What lies between the elements of a view: nothing that a sum would forgive."""


@dataclass(frozen=True, slots=True)
class Framed:
    """An array, and the memory around it."""

    array: Array
    whole: Array
    before: Array

    @property
    def strayed(self) -> int | None:
        """The first element, counted from the array's start, that was written outside of it."""
        changed = np.flatnonzero(_bytes(self.whole) != _bytes(self.before))
        places = changed // self.whole.itemsize - MARGIN
        outside = places[(places < 0) | (places >= self.array.size)]
        return int(outside[0]) if outside.size else None


def framed(values: Array) -> Framed:
    """A writable C-ordered copy of `values` between two margins."""
    whole = np.full(values.size + 2 * MARGIN, CANARY, dtype=values.dtype)
    array = whole[MARGIN : MARGIN + values.size].reshape(values.shape)
    array[...] = values
    return Framed(array, whole, whole.copy())


def _bytes(array: Array) -> NDArray[np.uint8]:
    return array.view(np.uint8)


def layouts(values: Array) -> Iterator[tuple[str, Array]]:
    """Read-only views that hold `values` otherwise than in C order, or in the middle of memory."""
    if not values.size:
        return
    yield "an offset view", _view(values, values.shape, slice(None))
    if values.ndim > 1 and min(values.shape) > 1:
        turned = _view(values.T, values.shape[::-1], slice(None))
        yield "in Fortran order", turned.T
        wide = (*values.shape[:-1], values.shape[-1] + PADDED)
        yield "rows of a wider array", _view(values, wide, slice(0, values.shape[-1]))
    if values.ndim and values.shape[-1] > 1:
        wide = (*values.shape[:-1], 2 * values.shape[-1])
        yield "every second element", _view(values, wide, slice(0, None, 2))
        yield "with a negative stride", _view(values, values.shape, slice(None, None, -1))


def expanded(values: Array) -> Iterator[tuple[str, Array]]:
    """Read-only views with stride 0 along one axis, or along all, that repeat elements of `values`.

    The last axis comes first: along the rows, code that reads flat memory reads the right row
    again.
    """
    if values.size < 2:
        return
    for axis in reversed(range(values.ndim)):
        if values.shape[axis] > 1:
            kept = np.take(values, [0], axis=axis)
            inner = _view(kept, kept.shape, slice(None))
            yield f"expanded along axis {axis}", np.broadcast_to(inner, values.shape)
    if values.ndim:
        one = values.reshape(-1)[:1].reshape((1,) * values.ndim)
        inner = _view(one, one.shape, slice(None))
        yield "expanded along all axes", np.broadcast_to(inner, values.shape)


def _view(values: Array, shape: tuple[int, ...], last: slice) -> Array:
    """`values` along a part of the last axis of an array of `shape`, amid noise.

    Code that reads `values` as if it were contiguous stays in bounds, in either direction.
    """
    size = int(np.prod(shape))
    # A view that repeats its elements is as large as what it stands for: at most a few thousand.
    margin = max(MARGIN, 4096, 2 * size)
    whole = _noise(size + 2 * margin, values.dtype)
    inner = whole[margin : margin + size].reshape(shape)
    view = inner[..., last] if inner.ndim else inner
    view[...] = values
    view.flags.writeable = False
    return view


def _noise(count: int, dtype: np.dtype[Any]) -> Array:
    if not is_float(dtype):
        return np.zeros(count, dtype=dtype)  # an index that is read there stays in bounds
    return np.resize(np.asarray(NOISE), count).astype(dtype)
