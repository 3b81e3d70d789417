"""Values of a forward at points along one direction through its primals, in one call if possible.

Copies of the primals are stacked on a leading axis. Whether forward takes that axis for a batch is
proved at every call: one copy must come out, bit by bit, as it does alone. Where no layout of the
copies passes, they are evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference.evaluate import CHUNK_BYTES, REFUSALS

Array = NDArray[Any]
Float = NDArray[np.float64]
Forward = Callable[..., tuple[Array, ...]]

FEW: Final = 8
"""Copies that are stacked although they exceed a chunk: two calls cost more."""


class Abreast:
    """A forward at many points around its primals (float64; integer ones stay).

    `forward(*primals)` returns a tuple of arrays; `base` are its values at the primals themselves.
    Callers ignore floating-point warnings.
    """

    __slots__ = ("_forward", "_primals", "_shapes", "base", "evaluations")

    def __init__(self, forward: Forward, primals: Sequence[Array], base: Sequence[Array]) -> None:
        """Evaluate nothing yet."""
        self._forward = forward
        self._primals = [_wide(p) for p in primals]
        self._shapes = [o.shape for o in base]
        self.base = _flat(base)
        self.evaluations = 0

    @property
    def count(self) -> int:
        """Number of primals."""
        return len(self._primals)

    def changes(self, moved: Sequence[Float | None]) -> Float | None:
        """f(copy) − f(x) for each of the k copies, [k, m]; None if forward refuses any.

        `moved` holds copies [k, n] per primal, contiguous; None for one that stays.
        """
        k, width = 0, 8 * self.base.size
        for m in moved:
            if m is not None:
                k = len(m)
                width += m.nbytes // k
                m.setflags(write=False)  # a forward that writes must not move the next point
        step = CHUNK_BYTES // width
        if step >= k or (k <= FEW and step * 4 >= k):
            step = k
        if step < 2:
            return self._singly(moved, k)
        if step >= k:
            values = self._stacked(moved, k)
            return self._singly(moved, k) if values is None else values
        out = np.empty((k, self.base.size))
        for start in range(0, k, step):
            part = [m if m is None else m[start : start + step] for m in moved]
            size = min(step, k - start)
            values = self._stacked(part, size)
            if values is None:
                return self._singly(moved, k)
            out[start : start + size] = values
        return out

    def _single(self, moved: Sequence[Float | None], row: int) -> tuple[Array, ...] | None:
        """Outputs at one copy; None where forward refuses it."""
        point = [
            p.copy() if m is None else m[row].reshape(p.shape).copy()
            for p, m in zip(self._primals, moved, strict=True)
        ]
        self.evaluations += 1
        try:
            outputs = self._forward(*point)
        except REFUSALS:
            return None
        return outputs if [o.shape for o in outputs] == self._shapes else None

    def _singly(self, moved: Sequence[Float | None], k: int) -> Float | None:
        out = np.empty((k, self.base.size))
        for row in range(k):
            outputs = self._single(moved, row)
            if outputs is None:
                return None
            np.subtract(_flat(outputs), self.base, out=out[row])
        return out

    def _stacked(self, moved: Sequence[Float | None], k: int) -> Float | None:
        """All copies in one call; None if no layout gives one of them what it gives alone."""
        row = k // 2  # in the middle, where sums along the copies show from either end
        outputs = self._single(moved, row)
        if outputs is None:
            return None
        alone = [(o.shape, o.dtype, o.tobytes()) for o in outputs]  # its buffer may be used again
        for layout in self._layouts(moved, k):
            self.evaluations += k
            try:
                outputs = self._forward(*layout)
            except REFUSALS:  # a layout that the function refuses is no layout
                continue
            if _proved(outputs, alone, k, row):
                flat = outputs[0].reshape(k, -1)
                if len(outputs) > 1:
                    flat = np.concatenate([o.reshape(k, -1) for o in outputs], axis=1)
                change: Float = flat - self.base
                return change
        return None

    def _layouts(self, moved: Sequence[Float | None], k: int) -> Iterator[list[Array]]:
        """Ways to put an axis of copies in front of the primals."""
        primals = self._primals
        rank = max([p.ndim for p in primals])
        ragged = min([p.ndim for p in primals]) < rank
        stays = any([m is None for m in moved])
        for pad in (True, False) if ragged else (True,):
            shapes = [(1,) * (rank - p.ndim if pad else 0) + p.shape for p in primals]
            pairs = [*zip(primals, moved, shapes, strict=True)]
            yield [m.reshape(k, *s) if m is not None else p.reshape(1, *s) for p, m, s in pairs]
            if stays:
                yield [p if m is None else m.reshape(k, *s) for p, m, s in pairs]
                yield [
                    np.repeat(p.reshape(1, *s), k, axis=0) if m is None else m.reshape(k, *s)
                    for p, m, s in pairs
                ]


def _proved(
    outputs: Sequence[Array], alone: Sequence[tuple[Any, ...]], k: int, row: int
) -> bool:
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


def _wide(primal: Array) -> Array:
    """A floating primal in float64."""
    return primal.astype(np.float64) if primal.dtype == np.float32 else primal
