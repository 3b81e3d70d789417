"""What NumPy has no function for: running results, stable orders, triangular systems, pivots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.numerics.highprecision.array import big

Array = Any  # NumPy's types know no big numbers


def running(step: Callable[[Any, Any], Any]) -> Callable[[Array, int], Array]:
    """`step` of all elements so far, along an axis."""

    def along(x: Array, axis: int) -> Array:
        rows = np.moveaxis(x, axis, 0)
        out = rows.copy()
        for i in range(1, len(rows)):
            out[i] = step(out[i - 1], rows[i])
        return np.moveaxis(out, 0, axis)

    return along


def ranked(*keys: Array, axis: int) -> Array:
    """Positions along an axis that sort by the first key, then by the next; stable."""
    rows = [np.moveaxis(np.asarray(key), axis, -1) for key in keys]
    out: Array = np.empty(rows[0].shape, dtype=np.int64)
    for at in np.ndindex(out.shape[:-1]):
        lists = [row[at].tolist() for row in rows]
        out[at] = sorted(range(out.shape[-1]), key=lambda i: tuple(each[i] for each in lists))
    return np.moveaxis(out, -1, axis)


def substituted(a: Array, b: Array, *, lower: bool, unit: bool) -> Array:
    """The solution of triangular systems, stacked: a x = b."""
    n = a.shape[-1]
    out = np.array(
        np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))
    )
    out = big(out)
    for i in range(n) if lower else reversed(range(n)):
        known = slice(0, i) if lower else slice(i + 1, n)
        if i != (0 if lower else n - 1):
            row = big(a[..., i : i + 1, known])
            out[..., i, :] = out[..., i, :] - np.matmul(row, out[..., known, :])[..., 0, :]
        if not unit:
            out[..., i, :] = out[..., i, :] / a[..., i, i, None]
    return out


def eliminated(a: Array) -> tuple[Array, Array, Array]:
    """LU with partial pivoting, as LAPACK holds it: the factors in one, the swaps, the order."""
    lu, (m, n) = big(np.array(a)), a.shape[-2:]
    k = min(m, n)
    pivots = np.empty((*a.shape[:-2], k), dtype=np.int32)
    order = np.broadcast_to(np.arange(m, dtype=np.int32), (*a.shape[:-2], m)).copy()
    for at in np.ndindex(a.shape[:-2]):
        rows, swaps = lu[at], order[at]
        for j in range(k):
            sizes = np.absolute(rows[j:, j]).tolist()
            best = j + max(range(len(sizes)), key=sizes.__getitem__)
            pivots[(*at, j)] = best
            rows[[j, best]], swaps[[j, best]] = rows[[best, j]], swaps[[best, j]]
            if rows[j, j] != 0:
                rows[j + 1 :, j] = rows[j + 1 :, j] / rows[j, j]
                rows[j + 1 :, j + 1 :] = (
                    rows[j + 1 :, j + 1 :] - rows[j + 1 :, j, None] * rows[None, j, j + 1 :]
                )
        lu[at], order[at] = rows, swaps
    return lu, pivots, order
