"""What NumPy has no function for: running results, stable orders, triangular systems, pivots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

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


def padded(
    x: Array, pads: Sequence[tuple[int, int]], fill: Any, dilations: Sequence[int] | None = None
) -> Array:
    """`x` with `fill` between its elements and around them; a negative pad cuts elements off."""
    steps = dilations or (1,) * x.ndim
    sizes = [max(0, (n - 1) * step + 1) for n, step in zip(x.shape, steps, strict=True)]
    whole = [
        size + max(low, 0) + max(high, 0) for size, (low, high) in zip(sizes, pads, strict=True)
    ]
    out = np.full(whole, fill, dtype=object)
    places = tuple(
        slice(max(low, 0), max(low, 0) + size, step)
        for size, step, (low, _) in zip(sizes, steps, pads, strict=True)
    )
    out[places] = np.asarray(x, dtype=object)
    cut = tuple(
        slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(whole, pads, strict=True)
    )
    return out[cut]


def windows(
    x: Array, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Array:
    """Every window over the last axes of `x`, a read-only view: [..., places, sizes]."""
    kept = x.ndim - len(sizes)
    reach = [(size - 1) * step + 1 for size, step in zip(sizes, dilations, strict=True)]
    places = [
        max(0, (n - span) // stride + 1)
        for n, span, stride in zip(x.shape[kept:], reach, strides, strict=True)
    ]
    moves = [s * stride for s, stride in zip(x.strides[kept:], strides, strict=True)]
    within = [s * step for s, step in zip(x.strides[kept:], dilations, strict=True)]
    return as_strided(
        x, (*x.shape[:kept], *places, *sizes), (*x.strides[:kept], *moves, *within), writeable=False
    )


def convolved(
    x: Array, w: Array, strides: Sequence[int], dilations: Sequence[int], groups: int
) -> tuple[Array, Array, tuple[int, ...]]:
    """A convolution as one product of matrices: its two factors, and how to see the product.

    Of x [batch, channels, places] (padded already) and w [outputs, channels / groups, sizes]; the
    product [groups, batch · places, outputs / groups] is `grouped` to [batch, outputs, places].
    """
    space = w.ndim - 2
    seen = windows(x, w.shape[2:], strides, dilations)
    batch, channels, places = x.shape[0], x.shape[1], seen.shape[2 : 2 + space]
    seen = seen.reshape(batch, groups, channels // groups, *places, *w.shape[2:])
    seen = np.moveaxis(seen, 2, 2 + space)  # batch, groups, places, channels, sizes
    rows = np.moveaxis(seen, 1, 0).reshape(groups, batch * int(np.prod(places)), -1)
    columns = np.swapaxes(w.reshape(groups, w.shape[0] // groups, -1), 1, 2)
    return rows, columns, (batch, *places)


def ungrouped(product: Array, seen: tuple[int, ...]) -> Array:
    """The product of `convolved` matrices as [batch, outputs, places]."""
    groups, _, outputs = product.shape
    batch, *places = seen
    split = product.reshape(groups, batch, *places, outputs)
    return np.moveaxis(np.moveaxis(split, 0, 1), -1, 2).reshape(batch, groups * outputs, *places)
