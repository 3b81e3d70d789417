"""Windows that slide over an array: padding, dilation, convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Array = NDArray[Any]


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
