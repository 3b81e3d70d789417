"""JAX's convolutions, windows and resampling; they take one batch axis."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax


def _batched(function, x, core):
    """`function` of `x` with all axes but the last `core` as one batch axis."""
    batch = x.shape[:-core]
    y = function(x.reshape(math.prod(batch), *x.shape[-core:]))
    return y.reshape(*batch, *y.shape[1:])


def _pairs(padding):
    return [(p, p) for p in padding]


def _conv(x, w, stride, padding, dilation, groups=1):
    """Batch and channels first; the kernel is [out, in, …]."""
    axes = "HW"[: w.ndim - 2]
    numbers = (f"NC{axes}", f"OI{axes}", f"NC{axes}")
    return _batched(
        lambda x: lax.conv_general_dilated(
            x, w, stride, _pairs(padding), rhs_dilation=dilation,
            dimension_numbers=numbers, feature_group_count=groups,
        ),
        x, w.ndim - 1,
    )  # fmt: skip


def conv_1d_1s(x, w):
    return _conv(x, w, (1,), (w.shape[-1] // 2,), (1,))


def conv_1d_2s(x, w):
    return _conv(x, w, (2,), (w.shape[-1] // 2,), (1,))


def conv_2d(x, w, b=None, *, stride, padding, dilation, groups):
    y = _conv(x, w, stride, padding, dilation, groups)
    return y if b is None else y + b[:, None, None]


def depthwise_conv_2d(x, w, *, stride, padding, dilation):
    return _conv(x, w[:, None], stride, padding, dilation, groups=x.shape[-3])


def _transposed(x, w, stride, padding, dilation, extra):
    """The input spread by its stride, then a convolution with the flipped kernel [in, out, …]."""
    axes = "HW"[: w.ndim - 2]
    kernel = jnp.flip(w, range(2, w.ndim))
    ends = [
        (d * (k - 1) - p, d * (k - 1) - p + e)
        for k, p, d, e in zip(w.shape[2:], padding, dilation, extra, strict=True)
    ]
    return _batched(
        lambda x: lax.conv_general_dilated(
            x, kernel, (1,) * len(axes), ends, lhs_dilation=stride, rhs_dilation=dilation,
            dimension_numbers=(f"NC{axes}", f"IO{axes}", f"NC{axes}"),
        ),
        x, w.ndim - 1,
    )  # fmt: skip


def conv_transpose_1d(x, w, *, stride, padding, dilation):
    return _transposed(x, w, (stride,), (padding,), (dilation,), (0,))


def conv_transpose_2d(x, w, *, stride, padding, output_padding, dilation):
    return _transposed(x, w, stride, padding, dilation, output_padding)


def im2col(x, *, kernel, stride, padding, dilation, columns):
    patches = _batched(
        lambda x: lax.conv_general_dilated_patches(
            x, kernel, stride, _pairs(padding), rhs_dilation=dilation
        ),
        x,
        3,
    )
    if columns:
        return patches.reshape(*patches.shape[:-2], math.prod(patches.shape[-2:]))
    return jnp.moveaxis(patches, -3, -1)


def _windows(x, kernel, stride, padding, dilation):
    lead = x.ndim - 2
    return {
        "window_dimensions": (1,) * lead + tuple(kernel),
        "window_strides": (1,) * lead + tuple(stride),
        "padding": [(0, 0)] * lead + _pairs(padding),
        "window_dilation": (1,) * lead + tuple(dilation),
    }


def max_pool_2d(x, *, kernel, stride, padding, dilation):
    """reduce_window; JAX differentiates it without dilation only, so that becomes patches."""
    if tuple(dilation) == (1, 1):
        return lax.reduce_window(
            x, -jnp.inf, lax.max, **_windows(x, kernel, stride, padding, dilation)
        )
    widths = [(0, 0)] * (x.ndim - 2) + _pairs(padding)
    x = jnp.pad(x, widths, constant_values=-jnp.inf)
    rows, columns = (
        jnp.arange(0, n - d * (k - 1), s)[:, None] + d * jnp.arange(k)
        for n, k, s, d in zip(x.shape[-2:], kernel, stride, dilation, strict=True)
    )
    windows = x[..., rows[:, None, :, None], columns[None, :, None, :]]
    windows = windows.reshape(*windows.shape[:-2], math.prod(kernel))
    first = jnp.argmax(windows, axis=-1)[..., None]
    return jnp.take_along_axis(windows, first, axis=-1)[..., 0]


def avg_pool_2d(x, *, kernel, stride, padding, count_include_pad):
    windows = _windows(x, kernel, stride, padding, (1, 1))
    total = lax.reduce_window(x, 0.0, lax.add, **windows)
    if count_include_pad:
        return total / math.prod(kernel)
    return total / lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, **windows)


def upscale(x, *, factor):
    """The nearest pixel; jax.image.resize centres pixels, which is the same for whole factors."""
    shape = (*x.shape[:-2], *(n * f for n, f in zip(x.shape[-2:], factor, strict=True)))
    return jax.image.resize(x, shape, "nearest")
