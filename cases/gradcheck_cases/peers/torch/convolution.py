"""PyTorch's convolutions, pooling and resampling, which take exactly one batch axis."""

from __future__ import annotations

import math

import torch.nn.functional as F


def batched(function, x, core):
    """`function` of `x` with all axes but the last `core` as one batch axis."""
    batch = x.shape[:-core]
    y = function(x.reshape(math.prod(batch), *x.shape[-core:]))
    return y.reshape(*batch, *y.shape[1:])


def conv_1d_1s(x, w):
    return batched(lambda x: F.conv1d(x, w, padding=w.shape[-1] // 2), x, 2)


def conv_1d_2s(x, w):
    return batched(lambda x: F.conv1d(x, w, stride=2, padding=w.shape[-1] // 2), x, 2)


def conv_2d(x, w, b=None, *, stride, padding, dilation, groups):
    return batched(lambda x: F.conv2d(x, w, b, stride, padding, dilation, groups), x, 3)


def depthwise_conv_2d(x, w, *, stride, padding, dilation):
    """F.conv2d with one group for each channel."""
    attrs = (stride, padding, dilation, x.shape[-3])
    return batched(lambda x: F.conv2d(x, w[:, None], None, *attrs), x, 3)


def conv_transpose_1d(x, w, *, stride, padding, dilation):
    def one(x):
        return F.conv_transpose1d(x, w, None, stride, padding, dilation=dilation)

    return batched(one, x, 2)


def conv_transpose_2d(x, w, *, stride, padding, output_padding, dilation):
    def one(x):
        return F.conv_transpose2d(x, w, None, stride, padding, output_padding, 1, dilation)

    return batched(one, x, 3)


def im2col(x, *, kernel, stride, padding, dilation, columns):
    """F.unfold; transposed, and with its positions in two axes, for rows."""
    y = batched(lambda x: F.unfold(x, kernel, dilation, padding, stride), x, 3)
    if columns:
        return y
    p, q = (
        (n + 2 * pad - d * (k - 1) - 1) // s + 1
        for n, k, s, pad, d in zip(x.shape[-2:], kernel, stride, padding, dilation, strict=True)
    )
    return y.transpose(-1, -2).unflatten(-2, (p, q))


def max_pool_2d(x, *, kernel, stride, padding, dilation):
    return batched(lambda x: F.max_pool2d(x, kernel, stride, padding, dilation), x, 3)


def avg_pool_2d(x, *, kernel, stride, padding, count_include_pad):
    def one(x):
        return F.avg_pool2d(x, kernel, stride, padding, False, count_include_pad)

    return batched(one, x, 3)


def upscale(x, *, factor):
    factor = tuple(float(f) for f in factor)
    return batched(lambda x: F.interpolate(x[:, None], scale_factor=factor)[:, 0], x, 2)
