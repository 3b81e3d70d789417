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


def copies(x: Array, direction: Float, t: Float) -> Float:
    """x + t·direction for each t of a column [k, 1], each flat: [k, n]; both float64, flat."""
    out = np.multiply(t, direction)
    out += x
    out.setflags(write=False)  # a forward that writes must not move the next point
    return out


class Abreast:
    """A forward at many points around its primals (float64; integer ones stay).

    `forward(*primals)` returns a tuple of arrays; `base` are its values at the primals themselves.
    Callers ignore floating-point warnings.
    """

    __slots__ = ("_base", "_count", "_forward", "_order", "_primals", "_shapes", "evaluations")

    def __init__(self, forward: Forward, primals: Sequence[Array], base: Sequence[Array]) -> None:
        """Evaluate nothing yet."""
        self._forward, self._primals = forward, primals
        self._shapes = [o.shape for o in base]
        self._base = _flat(base)
        self._count = self._base.size
        self._order: list[int] | None = None
        self.evaluations = 0

    def changes(self, moved: Sequence[Float | None]) -> Float | None:
        """f(copy) − f(x) for each of the k copies, [k, m]; None if forward refuses any.

        `moved` holds copies [k, n] per primal, contiguous; None for one that stays.
        """
        k = next(len(m) for m in moved if m is not None)
        width = 8 * (self._count + sum(m.shape[1] for m in moved if m is not None))
        step = CHUNK_BYTES // (width or 1)
        if step >= k or (k <= FEW and step * 4 >= k):
            step = k
        if step < 2:
            return self._singly(moved, k)
        if step >= k:
            values = self._stacked(moved, k)
            return self._singly(moved, k) if values is None else values
        out = np.empty((k, self._count))
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
        out = np.empty((k, self._count))
        for row in range(k):
            outputs = self._single(moved, row)
            if outputs is None:
                return None
            np.subtract(_flat(outputs), self._base, out=out[row])
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
            if len(outputs) == len(alone) and all(
                o.shape == (k, *shape) and o.dtype == dtype and o[row].tobytes() == bits
                for o, (shape, dtype, bits) in zip(outputs, alone, strict=True)
            ):
                if len(outputs) == 1:
                    return np.subtract(outputs[0].reshape(k, -1), self._base)
                flat = np.concatenate([o.reshape(k, -1) for o in outputs], axis=1)
                return np.subtract(flat, self._base)
        return None

    def _layouts(self, moved: Sequence[Float | None], k: int) -> Iterator[list[Array]]:
        """Ways to put an axis of copies in front of the primals."""
        primals = self._primals
        rank = max(p.ndim for p in primals)
        stays = any(m is None for m in moved)
        ragged = any(p.ndim < rank for p in primals)
        for pad in (True, False) if ragged else (True,):
            ones = [(1,) * (rank - p.ndim if pad else 0) for p in primals]
            stacks = [
                p if m is None else m.reshape((k, *one, *p.shape))
                for p, m, one in zip(primals, moved, ones, strict=True)
            ]
            if not stays:
                yield stacks
                continue
            shapes = [(1, *one, *p.shape) for one, p in zip(ones, primals, strict=True)]
            pairs = [*zip(stacks, shapes, moved, strict=True)]
            yield [s.reshape(shape) if m is None else s for s, shape, m in pairs]
            yield stacks
            yield [np.repeat(s.reshape(h), k, axis=0) if m is None else s for s, h, m in pairs]


def _flat(outputs: Sequence[Array]) -> Float:
    """All outputs as one float64 vector."""
    if len(outputs) == 1:
        return np.asarray(outputs[0], dtype=np.float64).reshape(-1)
    return np.concatenate([np.asarray(o, dtype=np.float64).reshape(-1) for o in outputs])
