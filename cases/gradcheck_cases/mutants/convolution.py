"""Mutants of the operators in `gradcheck_cases.convolution`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec import OpSpec
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases.convolution import (
    Pair,
    avg_pool_2d,
    conv_1d_1s,
    conv_1d_2s,
    conv_2d,
    conv_transpose_1d,
    conv_transpose_2d,
    depthwise_conv_2d,
    im2col,
    max_pool_2d,
    upscale,
)

MUTANTS: tuple[Mutant, ...] = ()

PADDLE = "PaddlePaddle pull request 21225"
CANDLE = "huggingface/candle pull request 2337"
LBANN = "LBANN pull request 1022"
COURSE = "deep-learning-coursera pull request 34"

Geometry = tuple[Pair, Pair, Pair, Pair]


# ── windows at other places ──────────────────────────────────────────────────────────────────


def _places(size: Pair, count: Pair, geometry: Geometry) -> Any:
    """Positions [p, q, k, l] in the flattened image; h·w for those outside of it."""
    kernel, stride, padding, dilation = geometry
    rows, columns = (
        s * np.arange(n)[:, None] + d * np.arange(k) - p
        for n, k, s, p, d in zip(count, kernel, stride, padding, dilation, strict=True)
    )
    rows, columns = rows[:, None, :, None], columns[None, :, None, :]
    inside = (rows >= 0) & (rows < size[0]) & (columns >= 0) & (columns < size[1])
    return np.where(inside, rows * size[1] + columns, math.prod(size))


def _read(xp: Any, x: Any, count: Pair, geometry: Geometry) -> Any:
    """Patches [c, p, q, k, l] of an image, zeros outside of it."""
    flat = xp.reshape(x, (*x.shape[:-2], math.prod(x.shape[-2:])))
    return xp.gather(xp.pad(flat, -1, 0, 1), _places(x.shape[-2:], count, geometry))


def _written(xp: Any, patches: Any, size: Pair, geometry: Geometry, overwrite: bool) -> Any:
    """An image [c, h, w] to which patches are added, or into which they are written in turn."""
    index = _places(size, patches.shape[-4:-2], geometry)
    if overwrite:
        flat = xp.zeros((*patches.shape[:-4], math.prod(size) + 1))
        for place in np.ndindex(*index.shape):
            flat[..., index[place]] = patches[(..., *place)]
    else:
        flat = xp.scatter_add(patches, index, math.prod(size) + 1)
    return xp.reshape(flat[..., :-1], (*flat.shape[:-1], *size))


Change = Callable[[Geometry], Geometry]


def same(geometry: Geometry) -> Geometry:
    return geometry


def stride_ignored(geometry: Geometry) -> Geometry:
    kernel, _, padding, dilation = geometry
    return kernel, (1, 1), padding, dilation


def first_stride(geometry: Geometry) -> Geometry:
    kernel, stride, padding, dilation = geometry
    return kernel, (stride[0], stride[0]), padding, dilation


def kernel_for_stride(geometry: Geometry) -> Geometry:
    kernel, _, padding, dilation = geometry
    return kernel, kernel, padding, dilation


def padding_kept(geometry: Geometry) -> Geometry:
    kernel, stride, _, dilation = geometry
    return kernel, stride, (0, 0), dilation


def dilation_ignored(geometry: Geometry) -> Geometry:
    kernel, stride, padding, _ = geometry
    return kernel, stride, padding, (1, 1)


def first_dilation(geometry: Geometry) -> Geometry:
    kernel, stride, padding, dilation = geometry
    return kernel, stride, padding, (dilation[0], dilation[0])


def stride_for_dilation(geometry: Geometry) -> Geometry:
    kernel, stride, padding, dilation = geometry
    return kernel, dilation, padding, stride


# ── what is shared ───────────────────────────────────────────────────────────────────────────


def weights_read_as(vjp: Vjp, change: Callable[..., Any]) -> Vjp:
    """The first gradient is computed with `change(xp, w)` for the weights."""
    read = mutate.primal(vjp, 1, lambda xp, x, w, *rest, **attrs: change(xp, w))
    return mutate.replaced(vjp, 0, read)


def flipped(xp: Any, w: Any) -> Any:
    """The kernel turned by half a turn, or mirrored, if it lies along a line."""
    return xp.flip(w, -1) if w.ndim == 3 else xp.flip(xp.flip(w, -1), -2)


def exchanged(xp: Any, w: Any) -> Any:
    """Memory of [o, c, …] read as if it were [c, o, …]."""
    a, b, *kernel = w.shape
    return xp.swapaxes(xp.reshape(w, (b, a, *kernel)), 0, 1)


def shifted(xp: Any, dx: Any, by: int) -> Any:
    """The last axis moved to the right by `by`; zeros come in."""
    size = dx.shape[-1]
    if by < 0:
        return xp.pad(dx, -1, 0, -by)[..., -by:]
    return xp.pad(dx, -1, by, 0)[..., :size]


# ── conv_1d_1s ───────────────────────────────────────────────────────────────────────────────


def _header_padding(xp: Any, dx: Any, x: Any, w: Any) -> Any:
    return shifted(xp, dx, w.shape[-1] // 2 - 1) if w.shape[-1] > 1 else dx


def _middle_only(xp: Any, w: Any) -> Any:
    return xp.where(np.arange(w.shape[-1]) == w.shape[-1] // 2, w, 0)


def _line_mutants(spec: OpSpec) -> tuple[Mutant, ...]:
    op, vjp = spec.name, spec.vjp
    return mutant_table(
        op,
        {
            ("kernel-mirrored", "layout", "typical"): (
                "dx convolves with the mirrored kernel.",
                weights_read_as(vjp, flipped),
            ),
            ("channels-exchanged", "layout", "square"): (
                "dx reads the weights [o, c, l] as [c, o, l].",
                weights_read_as(vjp, exchanged),
            ),
            ("middle-only", "term", "typical"): (
                "dx takes the kernel's middle element only.",
                weights_read_as(vjp, _middle_only),
            ),
            ("padding-1", "index attribute", "kernel-5"): (
                "dx assumes a padding of 1, whatever the kernel.",
                mutate.output(vjp, 0, _header_padding),
            ),
            ("last-window-unread", "index", "even-length"): (
                "The loop over outputs stops one window early.",
                mutate.cotangent(vjp, mutate.cut(-1)),
            ),
            ("dw-of-last-line", "accumulation broadcast", "batched"): (
                "dw is overwritten by each line of the batch.",
                mutate.of_last(spec, 1),
            ),
            ("dw-kept", "accumulation", "typical"): (
                "dw is added to a buffer that is never cleared.",
                {"modelled_on": LBANN, "make": mutate.accumulated(vjp, 1)},
            ),
        },
    )


MUTANTS += _line_mutants(conv_1d_1s)

# ── conv_1d_2s ───────────────────────────────────────────────────────────────────────────────


def conv_1d_2s_as_1s_vjp(xp, ct, x, w):
    _, dw = conv_1d_2s.vjp(xp, ct, x, w)
    wide = xp.pad(ct, -1, 0, x.shape[-1] - ct.shape[-1])  # position q stays at q, not at 2q
    return conv_1d_1s.vjp(xp, wide, x, w)[0], dw


def conv_1d_2s_late_vjp(xp, ct, x, w):
    dx, dw = conv_1d_2s.vjp(xp, ct, x, w)
    return shifted(xp, dx, 1), dw


MUTANTS += _line_mutants(conv_1d_2s)
MUTANTS += mutant_table(
    "conv_1d_2s",
    {
        ("stride-1", "index attribute", "typical"): (
            "dx lays the windows side by side: the backward of conv_1d_1s.",
            conv_1d_2s_as_1s_vjp,
            {"modelled_on": COURSE},
        ),
        ("one-late", "index", "even-length"): (
            "Window q starts at 2q + 1 in dx.",
            conv_1d_2s_late_vjp,
        ),
    },
)

# ── conv_2d ──────────────────────────────────────────────────────────────────────────────────


def conv_2d_dx(change: Change, overwrite: bool = False) -> Vjp:
    """A VJP whose dx puts the windows where `change` says."""

    def vjp(xp, ct, x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
        attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        _, *others = conv_2d.vjp(xp, ct, x, w, b, **attrs)
        if b is None:
            others = others[:1]
        lead, (p, q), per = ct.shape[:-3], ct.shape[-2:], w.shape[-3]
        g = xp.reshape(ct, (*lead, groups, ct.shape[-3] // groups, p, q))
        grouped = xp.reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
        patches = xp.einsum("...gopq,gockl->...gcpqkl", g, grouped)
        patches = xp.reshape(patches, (*lead, groups * per, p, q, *w.shape[-2:]))
        geometry = change((w.shape[-2:], stride, padding, dilation))
        return (_written(xp, patches, x.shape[-2:], geometry, overwrite), *others)

    return vjp


def conv_2d_dw(change: Change) -> Vjp:
    """A VJP whose dw reads the windows where `change` says; ungrouped cases only."""

    def vjp(xp, ct, x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
        attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        dx, dw, *others = conv_2d.vjp(xp, ct, x, w, b, **attrs)
        if groups == 1:
            geometry = change((w.shape[-2:], stride, padding, dilation))
            patches = _read(xp, x, ct.shape[-2:], geometry)
            dw = xp.reduce_to(xp.einsum("...opq,...cpqkl->...ockl", ct, patches), w)
        return (dx, dw, *others)

    return vjp


def conv_2d_tail_vjp(
    xp, ct, x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1
):
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    dx, *others = conv_2d.vjp(xp, ct, x, w, b, **attrs)
    axes = zip(x.shape[-2:], w.shape[-2:], stride, padding, dilation, strict=True)
    tail = [(n + 2 * p - d * (k - 1) - 1) % s for n, k, s, p, d in axes]
    return (np.roll(dx, tail, axis=(-2, -1)), *others)


def conv_2d_first_group_vjp(
    xp, ct, x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1
):
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    dx, _, *others = conv_2d.vjp(xp, ct, x, w, b, **attrs)
    first = x[..., : w.shape[-3], :, :]
    read = xp.concatenate([first] * groups, axis=-3)
    return (dx, conv_2d.vjp(xp, ct, read, w, b, **attrs)[1], *others)


def conv_2d_interleaved_vjp(
    xp, ct, x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1
):
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    dx, *others = conv_2d.vjp(xp, ct, x, w, b, **attrs)
    order = np.arange(x.shape[-3]).reshape(groups, -1).T.reshape(-1)
    return (xp.moveaxis(xp.gather(xp.moveaxis(dx, -3, -1), order), -1, -3), *others)


def _over_positions(xp: Any, x: Any, w: Any, b: Any, **attrs: Any) -> Any:
    y = conv_2d.forward(xp, x, w, b, **attrs)
    return 1 / max(y.shape[-1] * y.shape[-2], 1)


FLAGGEMS = "FlagGems pull request 1576"


def padding_exchanged(geometry: Geometry) -> Geometry:
    kernel, stride, padding, dilation = geometry
    return kernel, stride, padding[::-1], dilation


MUTANTS += mutant_table(
    "conv_2d",
    {
        ("kernel-flipped", "layout", "typical"): (
            "dx convolves with the kernel turned by half a turn: forward's correlation again.",
            weights_read_as(conv_2d.vjp, flipped),
        ),
        ("kernel-transposed", "layout", "square"): (
            "dx reads the kernel [k, l] as [l, k].",
            weights_read_as(
                conv_2d.vjp,
                lambda xp, w: xp.reshape(
                    xp.swapaxes(xp.reshape(w, (*w.shape[:-2], w.shape[-1], w.shape[-2])), -1, -2),
                    w.shape,
                ),
            ),
        ),
        ("windows-overwrite", "accumulation", "typical"): (
            "Overlapping windows overwrite each other in dx.",
            conv_2d_dx(same, overwrite=True),
        ),
        ("stride-ignored", "attribute index", "stride"): (
            "dx lays the windows side by side, whatever the stride.",
            conv_2d_dx(stride_ignored),
            {"modelled_on": COURSE},
        ),
        ("first-stride", "index attribute", "stride"): (
            "The stride of the rows is used for the columns too.",
            conv_2d_dx(first_stride),
            {"modelled_on": PADDLE},
        ),
        ("stride-for-dilation", "index attribute", "everything"): (
            "Stride and dilation are exchanged in dw.",
            conv_2d_dw(stride_for_dilation),
            {"modelled_on": CANDLE},
        ),
        ("dilation-ignored", "attribute index", "dilation"): (
            "dw reads windows without gaps, whatever the dilation.",
            conv_2d_dw(dilation_ignored),
        ),
        ("first-dilation", "index attribute", "dilation"): (
            "The dilation of the rows is used for the columns too.",
            conv_2d_dx(first_dilation),
        ),
        ("padding-kept", "index attribute", "padding"): (
            "dx begins with its padding, which should have been cut off.",
            conv_2d_dx(padding_kept),
        ),
        ("padding-exchanged", "index attribute", "padding"): (
            "dw pads rows by the columns' padding and columns by the rows'.",
            conv_2d_dw(padding_exchanged),
        ),
        ("tail-in-front", "shape index", "stride"): (
            "Rows and columns that no window reads are taken to be the first, not the last.",
            conv_2d_tail_vjp,
            {"modelled_on": FLAGGEMS},
        ),
        ("first-group", "index saved-value", "groups"): (
            "Every group's dw reads the first group's channels.",
            conv_2d_first_group_vjp,
        ),
        ("groups-interleaved", "layout index", "groups"): (
            "dx takes the groups' channels to be interleaved.",
            conv_2d_interleaved_vjp,
        ),
        ("db-averaged", "reduction", "typical"): (
            "db is the mean over positions in place of the sum.",
            mutate.scaled(conv_2d.vjp, 2, _over_positions),
            {"dialects": ("bias",)},
        ),
        ("db-of-last-image", "accumulation broadcast", "batched"): (
            "db is overwritten by each image of the batch.",
            mutate.of_last(conv_2d, 2),
            {"dialects": ("bias",)},
        ),
        ("dw-kept", "accumulation", "typical"): (
            "dw is added to a buffer that is never cleared.",
            {"modelled_on": LBANN, "make": mutate.accumulated(conv_2d.vjp, 1)},
        ),
        ("first-position", "cotangent", "typical"): (
            "The cotangent of the first position is used for all.",
            mutate.cotangent(conv_2d.vjp, mutate.first_for_all(-2, -1)),
        ),
    },
)

# ── depthwise_conv_2d ────────────────────────────────────────────────────────────────────────


def depthwise_dx(change: Change, overwrite: bool = False) -> Vjp:
    """A VJP whose dx puts the windows where `change` says."""

    def vjp(xp, ct, x, w, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
        attrs = {"stride": stride, "padding": padding, "dilation": dilation}
        _, dw = depthwise_conv_2d.vjp(xp, ct, x, w, **attrs)
        patches = xp.einsum("...cpq,ckl->...cpqkl", ct, w)
        geometry = change((w.shape[-2:], stride, padding, dilation))
        return _written(xp, patches, x.shape[-2:], geometry, overwrite), dw

    return vjp


def _over_channels(xp: Any, dw: Any, *primals: Any, **attrs: Any) -> Any:
    return xp.broadcast_to(xp.sum(dw, axis=0, keepdims=True), dw.shape) + 0


MUTANTS += mutant_table(
    "depthwise_conv_2d",
    {
        ("kernel-flipped", "layout", "typical"): (
            "dx convolves with the kernel turned by half a turn.",
            weights_read_as(depthwise_conv_2d.vjp, lambda xp, w: xp.flip(xp.flip(w, -1), -2)),
        ),
        ("first-channel", "index saved-value", "typical"): (
            "Every channel's dx reads the first channel's kernel.",
            weights_read_as(depthwise_conv_2d.vjp, mutate.first_for_all(0)),
        ),
        ("channels-summed", "broadcast", "square"): (
            "dw is summed over the channels, as if they shared a kernel.",
            mutate.output(depthwise_conv_2d.vjp, 1, _over_channels),
        ),
        ("stride-ignored", "attribute index", "stride"): (
            "dx lays the windows side by side, whatever the stride.",
            depthwise_dx(stride_ignored),
        ),
        ("first-dilation", "index attribute", "dilation"): (
            "The dilation of the rows is used for the columns too.",
            depthwise_dx(first_dilation),
        ),
        ("padding-kept", "index attribute", "padding"): (
            "dx begins with its padding, which should have been cut off.",
            depthwise_dx(padding_kept),
        ),
        ("windows-overwrite", "accumulation", "typical"): (
            "Overlapping windows overwrite each other in dx.",
            depthwise_dx(same, overwrite=True),
        ),
        ("dw-of-last-image", "accumulation broadcast", "batched"): (
            "dw is overwritten by each image of the batch.",
            mutate.of_last(depthwise_conv_2d, 1),
        ),
    },
)

# ── conv_transpose_2d ────────────────────────────────────────────────────────────────────────


def transpose_2d(dx: Change = same, dw: Change = same) -> Vjp:
    """A VJP whose gradients read the cotangent where `dx` and `dw` say."""

    def vjp(xp, ct, x, w, *, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1)):
        geometry = (w.shape[-2:], stride, padding, dilation)
        for_dx, for_dw = (_read(xp, ct, x.shape[-2:], change(geometry)) for change in (dx, dw))
        return (
            xp.einsum("...opqkl,cokl->...cpq", for_dx, w),
            xp.reduce_to(xp.einsum("...opqkl,...cpq->...cokl", for_dw, x), w),
        )

    return vjp


def transpose_2d_extra_in_front_vjp(
    xp, ct, x, w, *, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1)
):
    moved = np.roll(ct, [-extra for extra in output_padding], axis=(-2, -1))
    attrs = {
        "stride": stride, "padding": padding, "output_padding": output_padding,
        "dilation": dilation,
    }  # fmt: skip
    return conv_transpose_2d.vjp(xp, moved, x, w, **attrs)


MUTANTS += mutant_table(
    "conv_transpose_2d",
    {
        ("stride-for-dilation", "index attribute", "stride"): (
            "Stride and dilation are exchanged in dw.",
            transpose_2d(dw=stride_for_dilation),
            {"modelled_on": CANDLE},
        ),
        ("kernel-flipped", "layout", "typical"): (
            "dx correlates with the kernel turned by half a turn.",
            weights_read_as(conv_transpose_2d.vjp, flipped),
        ),
        ("channels-exchanged", "layout", "square"): (
            "dx reads the weights [c, o, k, l] as [o, c, k, l], the layout of conv_2d.",
            weights_read_as(conv_transpose_2d.vjp, exchanged),
        ),
        ("padding-forgotten", "attribute index", "padding"): (
            "The cotangent is not padded where forward has cropped.",
            transpose_2d(padding_kept, padding_kept),
        ),
        ("extra-in-front", "index", "output-padding"): (
            "The rows and columns of output_padding are taken to be the first.",
            transpose_2d_extra_in_front_vjp,
        ),
        ("first-stride", "index attribute", "stride"): (
            "The stride of the rows is used for the columns too.",
            transpose_2d(dx=first_stride),
            {"modelled_on": PADDLE},
        ),
        ("dilation-ignored", "attribute index", "dilation"): (
            "dx reads the cotangent without gaps, whatever the dilation.",
            transpose_2d(dx=dilation_ignored),
        ),
        ("dw-of-last-image", "accumulation broadcast", "batched"): (
            "dw is overwritten by each image of the batch.",
            mutate.of_last(conv_transpose_2d, 1),
        ),
    },
)

# ── conv_transpose_1d ────────────────────────────────────────────────────────────────────────


def transpose_1d(dx: Change = same, dw: Change = same) -> Vjp:
    """As `transpose_2d`, along a line."""

    def vjp(xp, ct, x, w, *, stride=1, padding=0, dilation=1):
        attrs = {"stride": (1, stride), "padding": (0, padding), "dilation": (1, dilation)}
        gx, gw = transpose_2d(dx, dw)(
            xp, ct[..., None, :], x[..., None, :], w[..., None, :], **attrs
        )
        return gx[..., 0, :], gw[..., 0, :]

    return vjp


MUTANTS += mutant_table(
    "conv_transpose_1d",
    {
        ("stride-for-dilation", "index attribute", "stride"): (
            "Stride and dilation are exchanged in dw.",
            transpose_1d(dw=stride_for_dilation),
            {"modelled_on": CANDLE},
        ),
        ("stride-ignored", "attribute index", "stride-over-kernel"): (
            "dx reads the windows side by side, whatever the stride.",
            transpose_1d(dx=stride_ignored),
        ),
        ("kernel-mirrored", "layout", "typical"): (
            "dx correlates with the mirrored kernel.",
            weights_read_as(conv_transpose_1d.vjp, flipped),
        ),
        ("channels-exchanged", "layout", "square"): (
            "dx reads the weights [c, o, l] as [o, c, l], the layout of conv_1d.",
            weights_read_as(conv_transpose_1d.vjp, exchanged),
        ),
        ("padding-forgotten", "attribute index", "padding"): (
            "The cotangent is not padded where forward has cropped.",
            transpose_1d(padding_kept, padding_kept),
        ),
        ("dilation-ignored", "attribute index", "dilation"): (
            "dw reads the cotangent without gaps, whatever the dilation.",
            transpose_1d(dw=dilation_ignored),
        ),
        ("end-unread", "index", "one-position"): (
            "The kernel's reach over the line's end is not read.",
            mutate.cotangent(conv_transpose_1d.vjp, mutate.cut(-1)),
        ),
        ("dw-of-last-line", "accumulation broadcast", "batched"): (
            "dw is overwritten by each line of the batch.",
            mutate.of_last(conv_transpose_1d, 1),
        ),
    },
)

# ── im2col ───────────────────────────────────────────────────────────────────────────────────


def col2im(change: Change = same, overwrite: bool = False, averaged: bool = False) -> Vjp:
    """A VJP that puts the windows where `change` says, or treats overlaps in another way."""

    def vjp(
        xp, ct, x, *, kernel=(3, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1), columns=False
    ):
        geometry = (kernel, stride, padding, dilation)
        patches = _in_windows(xp, ct, x, geometry, columns)
        dx = _written(xp, patches, x.shape[-2:], change(geometry), overwrite)
        if averaged:
            ones = xp.zeros_like(patches) + 1
            times = _written(xp, ones, x.shape[-2:], change(geometry), overwrite)
            dx = dx / xp.maximum(times, 1)
        return dx

    return vjp


def _in_windows(xp: Any, ct: Any, x: Any, geometry: Geometry, columns: bool) -> Any:
    """The cotangent of im2col as [c, p, q, k, l]."""
    kernel, stride, padding, dilation = geometry
    p, q = (
        (n + 2 * pad - d * (k - 1) - 1) // s + 1
        for n, k, s, pad, d in zip(x.shape[-2:], kernel, stride, padding, dilation, strict=True)
    )
    if columns:
        patches = xp.reshape(ct, (*x.shape[:-2], *kernel, p, q))
        return xp.moveaxis(xp.moveaxis(patches, -1, -4), -1, -4)
    return xp.moveaxis(xp.reshape(ct, (*x.shape[:-3], p, q, x.shape[-3], *kernel)), -3, -5)


def im2col_other_layout_vjp(
    xp, ct, x, *, kernel=(3, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1), columns=False
):
    geometry = (kernel, stride, padding, dilation)
    patches = _in_windows(xp, ct, x, geometry, not columns)
    return _written(xp, patches, x.shape[-2:], geometry, overwrite=False)


def im2col_kernel_axes_vjp(
    xp, ct, x, *, kernel=(3, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1), columns=False
):
    geometry = (kernel, stride, padding, dilation)
    patches = _in_windows(xp, ct, x, geometry, columns)
    read = xp.reshape(patches, (*patches.shape[:-2], kernel[1], kernel[0]))
    return _written(xp, xp.swapaxes(read, -1, -2), x.shape[-2:], geometry, overwrite=False)


MUTANTS += mutant_table(
    "im2col",
    {
        ("windows-overwrite", "accumulation", "typical"): (
            "Overlapping windows overwrite each other.",
            col2im(overwrite=True),
        ),
        ("overlaps-averaged", "reduction", "typical"): (
            "An element that several windows read gets their mean, which inverts im2col.",
            col2im(averaged=True),
        ),
        ("other-layout", "layout attribute", "typical"): (
            "Rows are read as columns, and columns as rows.",
            im2col_other_layout_vjp,
        ),
        ("kernel-axes", "layout", "square"): (
            "The kernel's elements are read column by column.",
            im2col_kernel_axes_vjp,
        ),
        ("stride-ignored", "attribute index", "stride"): (
            "Windows are laid side by side, whatever the stride.",
            col2im(stride_ignored),
        ),
        ("kernel-for-stride", "index attribute", "typical"): (
            "Windows are taken to be disjoint: the kernel is used as the stride.",
            col2im(kernel_for_stride),
        ),
        ("stride-for-dilation", "index attribute", "everything"): (
            "Stride and dilation are exchanged.",
            col2im(stride_for_dilation),
        ),
        ("padding-kept", "index attribute", "padding"): (
            "The padding is not cut off again.",
            col2im(padding_kept),
        ),
        ("buffer-kept", "accumulation", "batched"): (
            "dx is added to a buffer that is never cleared.",
            {"make": mutate.accumulated(im2col.vjp, 0)},
        ),
    },
)

# ── max_pool_2d ──────────────────────────────────────────────────────────────────────────────


def unpool(
    chosen: Callable[..., Any],
    change: Change = same,
    overwrite: bool = False,
    outside: str = "-inf",
) -> Vjp:
    """A VJP that gives ct times `chosen(xp, windows [c, p, q, k l])` to each window's elements."""

    def vjp(xp, ct, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), dilation=(1, 1)):
        geometry = (kernel, stride, padding, dilation)
        flat = xp.reshape(x, (*x.shape[:-2], math.prod(x.shape[-2:])))
        index = _places(x.shape[-2:], ct.shape[-2:], change(geometry))
        read = xp.gather(xp.pad(flat, -1, 0, 1, outside), index)
        cells = xp.reshape(read, (*ct.shape, math.prod(kernel)))
        patches = xp.reshape(ct[..., None] * chosen(xp, cells), read.shape)
        if overwrite:  # where it is not chosen it writes nothing
            return _last_chosen(xp, patches, index, x)
        return _written(xp, patches, x.shape[-2:], change(geometry), overwrite=False)

    return vjp


def _last_chosen(xp: Any, patches: Any, index: Any, x: Any) -> Any:
    flat = xp.zeros((*patches.shape[:-4], math.prod(x.shape[-2:]) + 1))
    for place in np.ndindex(*index.shape):
        value = patches[(..., *place)]
        flat[..., index[place]] = xp.where(value != 0, value, flat[..., index[place]])
    return xp.reshape(flat[..., :-1], x.shape)


def _first(xp: Any, cells: Any) -> Any:
    return xp.asarray(xp.is_index(xp.argmax(cells, axis=-1), cells.shape[-1]))


def _all_ties(xp: Any, cells: Any) -> Any:
    return xp.asarray(cells == xp.max(cells, axis=-1, keepdims=True))


def _nearly(xp: Any, cells: Any) -> Any:
    return xp.asarray(xp.max(cells, axis=-1, keepdims=True) - cells < 2.0**-7)


def _sole(xp: Any, cells: Any) -> Any:
    ties = _all_ties(xp, cells)
    return xp.where(xp.sum(ties, axis=-1, keepdims=True) == 1, ties, 0)


def _each(xp: Any, cells: Any) -> Any:
    return xp.zeros_like(cells) + 1 / cells.shape[-1]


def max_pool_2d_position_vjp(
    xp, ct, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), dilation=(1, 1)
):
    geometry = (kernel, stride, padding, dilation)
    flat = xp.reshape(x, (*x.shape[:-2], math.prod(x.shape[-2:])))
    index = _places(x.shape[-2:], ct.shape[-2:], geometry)
    cells = xp.gather(xp.pad(flat, -1, 0, 1, "-inf"), index)
    inside = xp.argmax(xp.reshape(cells, (*ct.shape, math.prod(kernel))), axis=-1)
    inside = np.reshape(inside, (*ct.shape[:-2], math.prod(ct.shape[-2:])))
    values = xp.reshape(ct, inside.shape)
    return xp.reshape(xp.add_along(values, inside % flat.shape[-1], flat, -1), x.shape)


def max_pool_2d_first_image_vjp(
    xp, ct, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), dilation=(1, 1)
):
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    read = x if x.ndim == 3 or not len(x) else xp.broadcast_to(x[:1], x.shape)
    return max_pool_2d.vjp(xp, ct, read, **attrs)


THEANO = "Theano issue 5248"


FLUX = "Flux.jl issue 1197"


MNI = "mni-ml/framework pull request 22"


MUTANTS += mutant_table(
    "max_pool_2d",
    {
        ("all-ties", "kink", "ties"): (
            "Each of several equal maxima gets the whole cotangent.",
            unpool(_all_ties),
            {"modelled_on": THEANO},
        ),
        ("nearly-equal", "kink eps", "ties"): (
            "Elements within 1/128 of the maximum are taken for it.",
            unpool(_nearly),
            {"modelled_on": MNI},
        ),
        ("no-tie", "kink", "ties"): (
            "A window with several equal maxima gets no gradient.",
            unpool(_sole),
        ),
        ("averaged", "derivative", "typical"): (
            "The cotangent is spread evenly, as by average pooling.",
            unpool(_each),
        ),
        ("position-in-window", "index", "typical"): (
            "The maximum's position in its window is taken for the one in the image.",
            max_pool_2d_position_vjp,
        ),
        ("one-window-each", "accumulation", "overlapping"): (
            "An element that is largest in several windows gets the last one's cotangent only.",
            unpool(_first, overwrite=True),
            {"modelled_on": FLUX},
        ),
        ("kernel-for-stride", "attribute index", "gaps"): (
            "Windows are taken to be adjacent: the kernel is used as the stride.",
            unpool(_first, kernel_for_stride),
        ),
        ("padding-of-zeros", "index saved-value", "padding"): (
            "Padding counts as 0, and swallows the cotangent of windows that are negative.",
            unpool(_first, outside="0"),
        ),
        ("dilation-ignored", "attribute index", "dilation"): (
            "Windows without gaps are searched, whatever the dilation.",
            unpool(_first, dilation_ignored),
        ),
        ("first-image", "index saved-value", "batched"): (
            "The maxima of the batch's first image are used for all.",
            max_pool_2d_first_image_vjp,
        ),
    },
)

# ── avg_pool_2d ──────────────────────────────────────────────────────────────────────────────


def spread_evenly(change: Change = same, overwrite: bool = False) -> Vjp:
    """A VJP that puts the windows where `change` says."""

    def vjp(xp, ct, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), count_include_pad=True):
        geometry = (kernel, stride, padding, (1, 1))
        share = ct / _divisor(xp, ct, x, geometry, count_include_pad)
        patches = xp.broadcast_to(share[..., None, None], (*ct.shape, *kernel))
        return _written(xp, patches, x.shape[-2:], change(geometry), overwrite)

    return vjp


def _divisor(xp: Any, ct: Any, x: Any, geometry: Geometry, include_pad: bool) -> Any:
    if include_pad:
        return math.prod(geometry[0])
    inside = _places(x.shape[-2:], ct.shape[-2:], geometry) < math.prod(x.shape[-2:])
    return xp.asarray(inside.sum(axis=(-2, -1)))


def _kernel_area(xp: Any, x: Any, *, kernel: Pair, **attrs: Any) -> float:
    return math.prod(kernel)


def _kernel_width(xp: Any, x: Any, *, kernel: Pair, **attrs: Any) -> float:
    return kernel[1]


MUTANTS += mutant_table(
    "avg_pool_2d",
    {
        ("summed", "reduction", "typical"): (
            "The cotangent is not divided by the window's size.",
            mutate.scaled(avg_pool_2d.vjp, 0, _kernel_area),
        ),
        ("one-side", "scale reduction", "typical"): (
            "The divisor is the window's height in place of its size.",
            mutate.scaled(avg_pool_2d.vjp, 0, _kernel_width),
        ),
        ("other-divisor", "attribute reduction", "padding"): (
            "count_include_pad is taken for its opposite.",
            mutate.attribute(
                avg_pool_2d.vjp,
                count_include_pad=lambda count_include_pad, **attrs: not count_include_pad,
            ),
        ),
        ("windows-overwrite", "accumulation", "overlapping"): (
            "Overlapping windows overwrite each other.",
            spread_evenly(overwrite=True),
        ),
        ("kernel-for-stride", "attribute index", "gaps"): (
            "Windows are taken to be adjacent: the kernel is used as the stride.",
            spread_evenly(kernel_for_stride),
        ),
        ("first-stride", "index attribute", "padding-strided"): (
            "The stride of the rows is used for the columns too.",
            spread_evenly(first_stride),
            {"modelled_on": PADDLE},
        ),
        ("padding-kept", "index attribute", "padding"): (
            "The padding is not cut off again.",
            spread_evenly(padding_kept),
        ),
        ("first-position", "cotangent", "typical"): (
            "The cotangent of the first position is used for all.",
            mutate.cotangent(avg_pool_2d.vjp, mutate.first_for_all(-2, -1)),
        ),
    },
)

# ── upscale ──────────────────────────────────────────────────────────────────────────────────


def upscale_tiled_vjp(xp, ct, x, *, factor=(2, 2)):
    height, width = x.shape[-2:]
    tiles = xp.reshape(ct, (*x.shape[:-2], factor[0], height, factor[1], width))
    return xp.sum(tiles, axis=(-4, -2))


def upscale_corner_vjp(xp, ct, x, *, factor=(2, 2)):
    return ct[..., :: factor[0], :: factor[1]] + 0


def upscale_factor_2_vjp(xp, ct, x, *, factor=(2, 2)):
    height, width = x.shape[-2:]
    read = ct[..., : 2 * height, : 2 * width]  # the whole block where a factor is 1
    missing = 2 * height - read.shape[-2], 2 * width - read.shape[-1]
    read = xp.pad(xp.pad(read, -2, 0, missing[0]), -1, 0, missing[1])
    return upscale.vjp(xp, read, x)


def upscale_exchanged_vjp(xp, ct, x, *, factor=(2, 2)):
    size = x.shape[-2] * factor[0], x.shape[-1] * factor[1]
    rows, columns = np.arange(size[0]) // factor[1], np.arange(size[1]) // factor[0]
    index = (rows[:, None] * x.shape[-1] + columns) % max(math.prod(x.shape[-2:]), 1)
    return xp.reshape(xp.scatter_add(ct, index, math.prod(x.shape[-2:])), x.shape)


def _block(xp: Any, x: Any, *, factor: Pair) -> float:
    return 1 / math.prod(factor)


MUTANTS += mutant_table(
    "upscale",
    {
        ("averaged", "reduction", "typical"): (
            "A block's cotangents are averaged in place of added.",
            mutate.scaled(upscale.vjp, 0, _block),
        ),
        ("corner-only", "broadcast accumulation", "typical"): (
            "The first cotangent of each block is taken: the nearest neighbour, backwards.",
            upscale_corner_vjp,
        ),
        ("tiled", "layout index", "square"): (
            "Elements are taken to be repeated as whole images, not one by one.",
            upscale_tiled_vjp,
        ),
        ("factor-2", "attribute index", "factor-3"): (
            "The factor is 2, whatever was asked for.",
            upscale_factor_2_vjp,
        ),
        ("factors-exchanged", "index attribute", "uneven"): (
            "The factors of rows and columns are exchanged.",
            upscale_exchanged_vjp,
        ),
        ("last-column-unread", "index", "single"): (
            "The loop over the output's columns stops one early.",
            mutate.cotangent(upscale.vjp, mutate.cut(-1)),
        ),
        ("buffer-kept", "accumulation", "typical"): (
            "dx is added to a buffer that is never cleared.",
            {"make": mutate.accumulated(upscale.vjp, 0)},
        ),
    },
)
