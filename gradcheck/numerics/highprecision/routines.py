"""Functions that the frameworks share and NumPy lacks: running results, orders, windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gradcheck.numerics.highprecision.array import big, raw

Array = Any  # NumPy's types know no big numbers


def running(step: Callable[[Any, Any], Any]) -> Callable[[Array, int], Array]:
    """The function that accumulates `step` along an axis."""

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


def ordered(
    x: Array, axis: int, count: int | None = None, *, descending: bool = False
) -> tuple[Array, Array]:
    """The first `count` elements along an axis in sorted order (None: all), and their positions."""
    order = ranked(-x if descending else x, axis=axis)
    order = order if count is None else np.take(order, range(count), axis)
    return np.take_along_axis(x, order, axis), order


def softmax(x: Array, axis: Any) -> Array:
    """exp(x), divided by its sum along `axis`."""
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return powers / np.sum(powers, axis=axis, keepdims=True)


def log_softmax(x: Array, axis: Any) -> Array:
    """The logarithm of `softmax`."""
    away = x - np.max(x, axis=axis, keepdims=True)
    return away - np.log(np.sum(np.exp(away), axis=axis, keepdims=True))


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


def convolution(
    x: Array,
    w: Array,
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    x_dilation: Sequence[int],
    w_dilation: Sequence[int],
    groups: int,
) -> Array:
    """A convolution (correlation, as in deep learning) as one product of matrices.

    Shapes:
        `x` [batch, channels, *sizes], `w` [outputs, channels / groups, *window]; the result is
        [batch, outputs, *places]. All other arguments have one entry per space axis.
    """
    space = w.ndim - 2
    wide = padded(raw(x), [(0, 0), (0, 0), *pads], big(0.0)[()], (1, 1, *x_dilation))
    seen = windows(wide, w.shape[2:], strides, w_dilation)
    batch, channels, places = x.shape[0], x.shape[1], seen.shape[2 : 2 + space]
    seen = seen.reshape(batch, groups, channels // groups, *places, *w.shape[2:])
    seen = np.moveaxis(seen, 2, 2 + space)  # batch, groups, places, channels, window
    rows = np.moveaxis(seen, 1, 0).reshape(groups, batch * int(np.prod(places)), -1)
    columns = np.swapaxes(w.reshape(groups, w.shape[0] // groups, -1), 1, 2)
    product = np.matmul(big(rows), big(columns)).reshape(
        groups, batch, *places, w.shape[0] // groups
    )
    out = np.moveaxis(np.moveaxis(product, 0, 1), -1, 2)
    return out.reshape(batch, w.shape[0], *places)
