"""Convolutions, pooling and resampling.

Axes: c channels, o output channels, h × w the image, k × l the kernel, p × q the output; g groups.
Windows are arrays of positions: a forward gathers by them, and its VJP adds back to them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradcheck.spec import Convention, Dialect, Kink, OpSpec, Sample

Pair = tuple[int, int]

# ── windows ──────────────────────────────────────────────────────────────────────────────────


def reach(kernel: int, dilation: int) -> int:
    """Positions from the first to the last that a kernel touches."""
    return dilation * (kernel - 1) + 1


def windows(size: Pair, kernel: Pair, stride: Pair, dilation: Pair) -> Any:
    """Positions [p, q, k, l] in the flattened image that each output reads."""
    reads = []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        count = (n - reach(k, d)) // s + 1
        if count < 1:
            raise ValueError(f"a kernel of {k} that reaches {reach(k, d)} finds only {n} positions")
        reads.append(s * np.arange(count)[:, None] + d * np.arange(k))
    rows, columns = reads
    return rows[:, None, :, None] * size[1] + columns[None, :, None, :]


def padded(size: Pair, padding: Pair) -> Pair:
    """Size of an image with its padding on both sides."""
    return size[0] + 2 * padding[0], size[1] + 2 * padding[1]


def _pad(xp: Any, x: Any, padding: Pair, text: str = "0") -> Any:
    return xp.pad(xp.pad(x, -2, padding[0], padding[0], text), -1, padding[1], padding[1], text)


def _crop(x: Any, padding: Pair) -> Any:
    height, width = x.shape[-2:]
    return x[..., padding[0] : height - padding[0], padding[1] : width - padding[1]]


def _patches(
    xp: Any, x: Any, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, text: str = "0"
) -> Any:
    """The elements that each output of an image [c, h, w] reads, as [c, p, q, k, l]."""
    x = _pad(xp, x, padding, text)
    index = windows(x.shape[-2:], kernel, stride, dilation)
    return xp.gather(xp.reshape(x, (*x.shape[:-2], math.prod(x.shape[-2:]))), index)


def _fold(
    xp: Any, patches: Any, size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Any:
    """Adjoint of `_patches`: overlapping windows add up, gradients of padding are dropped."""
    whole = padded(size, padding)
    flat = xp.scatter_add(patches, windows(whole, kernel, stride, dilation), math.prod(whole))
    return _crop(xp.reshape(flat, (*flat.shape[:-1], *whole)), padding)


# ── conv_1d_1s, conv_1d_2s ───────────────────────────────────────────────────────────────────


def _line(xp: Any, x: Any, w: Any, stride: int) -> tuple[Any, Any, dict[str, Any]]:
    """A convolution along a line as one over an image of height 1, half a kernel padded."""
    width = w.shape[-1]
    if width % 2 == 0:
        raise ValueError(f"a kernel of {width} has no middle; conv_1d takes odd ones")
    attrs = {"stride": (1, stride), "padding": (0, width // 2)}
    return x[..., None, :], w[..., None, :], attrs


def _conv_1d(xp: Any, x: Any, w: Any, stride: int) -> Any:
    x, w, attrs = _line(xp, x, w, stride)
    return conv_2d_forward(xp, x, w, **attrs)[..., 0, :]


def _conv_1d_vjp(xp: Any, ct: Any, x: Any, w: Any, stride: int) -> tuple[Any, Any]:
    x, w, attrs = _line(xp, x, w, stride)
    dx, dw = conv_2d_vjp(xp, ct[..., None, :], x, w, **attrs)
    return dx[..., 0, :], dw[..., 0, :]


def conv_1d_1s_forward(xp, x, w):
    return _conv_1d(xp, x, w, 1)


def conv_1d_1s_vjp(xp, ct, x, w):
    return _conv_1d_vjp(xp, ct, x, w, 1)


def conv_1d_2s_forward(xp, x, w):
    return _conv_1d(xp, x, w, 2)


def conv_1d_2s_vjp(xp, ct, x, w):
    return _conv_1d_vjp(xp, ct, x, w, 2)


CONV_1D_SAMPLES = (
    Sample(
        name="typical",
        primals=lambda draw: (draw.normal(2, 7), draw.normal(5, 2, 3)),
        hunts="the kernel not flipped on its way back, c and o exchanged",
    ),
    Sample(
        name="square",
        primals=lambda draw: (draw.normal(3, 3), draw.normal(3, 3, 3)),
        hunts="channels taken for positions or for kernel elements",
    ),
    Sample(
        name="even-length",
        primals=lambda draw: (draw.normal(2, 8), draw.normal(3, 2, 3)),
        hunts="with stride 2, a last window that starts one position too late",
    ),
    Sample(
        name="kernel-5",
        primals=lambda draw: (draw.normal(2, 6), draw.normal(3, 2, 5)),
        hunts="the header's padding of 1 kept where the kernel is wider than 3",
    ),
    Sample(
        name="kernel-1",
        primals=lambda draw: (draw.normal(3, 5), draw.normal(2, 3, 1)),
        hunts="padding where there is none; with stride 2, positions that nothing reads",
    ),
    Sample(
        name="kernel-over-line",
        primals=lambda draw: (draw.normal(2, 2), draw.normal(3, 2, 7)),
        hunts="windows wider than the line",
    ),
    Sample(
        name="one-position",
        primals=lambda draw: (draw.normal(2, 1), draw.normal(3, 2, 3)),
        hunts="the kernel's ends, which touch padding only, with a gradient",
    ),
    Sample(
        name="batched",
        primals=lambda draw: (draw.normal(2, 2, 5), draw.normal(3, 2, 3)),
        hunts="dw of the last line only",
    ),
    Sample(
        name="empty-batch",
        primals=lambda draw: (np.zeros((0, 2, 4)), draw.normal(3, 2, 3)),
        hunts="dw of no line left unwritten; it is 0",
    ),
    Sample(
        name="tiles",
        primals=lambda draw: (draw.normal(35, 3), draw.normal(2, 35, 1)),
        hunts="more than 32 channels, of which the last ones are left out",
    ),
)

conv_1d_1s = OpSpec(
    name="conv_1d_1s",
    signature="(c,w),(o,c,l)->(o,q)",
    forward=conv_1d_1s_forward,
    vjp=conv_1d_1s_vjp,
    formula=r"y_{oq} = \sum_{cl} w_{ocl}\, x_{c,\, q + l - \lfloor L/2 \rfloor}",
    source="ggml_conv_1d_1s (kernel first there); odd kernels of length L, half of it padded",
    samples=CONV_1D_SAMPLES,
)

conv_1d_2s = OpSpec(
    name="conv_1d_2s",
    signature="(c,w),(o,c,l)->(o,q)",
    forward=conv_1d_2s_forward,
    vjp=conv_1d_2s_vjp,
    formula=r"y_{oq} = \sum_{cl} w_{ocl}\, x_{c,\, 2q + l - \lfloor L/2 \rfloor}",
    source="ggml_conv_1d_2s (kernel first there); odd kernels of length L, half of it padded",
    samples=CONV_1D_SAMPLES,
)

# ── conv_2d ──────────────────────────────────────────────────────────────────────────────────


def conv_2d_forward(xp, x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    patches = _patches(xp, x, w.shape[-2:], stride, padding, dilation)
    patches, w = _grouped(xp, patches, -5, groups), _grouped(xp, w, -4, groups)
    y = _joined(xp, xp.einsum("...gcpqkl,...gockl->...gopq", patches, w), -3)
    return y if b is None else y + b[..., None, None]


def conv_2d_vjp(xp, ct, x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    geometry = (w.shape[-2:], stride, padding, dilation)
    patches = _grouped(xp, _patches(xp, x, *geometry), -5, groups)
    g = _grouped(xp, ct, -3, groups)
    dpatches = xp.einsum("...gopq,...gockl->...gcpqkl", g, _grouped(xp, w, -4, groups))
    dx = _fold(xp, _joined(xp, dpatches, -5), x.shape[-2:], *geometry)
    dw = _joined(xp, xp.einsum("...gopq,...gcpqkl->...gockl", g, patches), -4)
    gradients = xp.reduce_to(dx, x), xp.reduce_to(dw, w)
    return gradients if b is None else (*gradients, xp.reduce_to(xp.sum(ct, axis=(-2, -1)), b))


def _grouped(xp: Any, x: Any, axis: int, groups: int) -> Any:
    """One axis as [groups, size / groups]."""
    axis %= x.ndim
    size = x.shape[axis] // groups
    return xp.reshape(x, (*x.shape[:axis], groups, size, *x.shape[axis + 1 :]))


def _joined(xp: Any, x: Any, axis: int) -> Any:
    """Adjoint of `_grouped`; `axis` counts in the result."""
    end = x.ndim + axis
    return xp.reshape(
        x, (*x.shape[: end - 1], x.shape[end - 1] * x.shape[end], *x.shape[end + 1 :])
    )


conv_2d = OpSpec(
    name="conv_2d",
    signature="(c,h,w),(o,c,k,l),(o)->(o,p,q)",
    forward=conv_2d_forward,
    vjp=conv_2d_vjp,
    formula=r"y_{opq} = b_o + \sum_{ckl} w_{ockl}\, x_{c,\, s p + d k - \pi,\, s q + d l - \pi}",
    source="LeCun et al. 1989, Neural Computation 1(4); torch.nn.functional.conv2d",
    dialects=(
        Dialect(name="bias", says="PyTorch: weight [o, c / groups, k, l] and a bias for each o"),
        Dialect(name="plain", says="ggml_conv_2d: no bias", without=("b",)),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 5, 4), draw.normal(3, 2, 3, 2), draw.normal(3)),
            hunts="the kernel not flipped on its way back, c and o exchanged, db averaged",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(2, 4, 4), draw.normal(2, 2, 2, 2), draw.normal(2)),
            hunts="a transposed kernel, c taken for o: only equal sizes forgive the shapes",
        ),
        Sample(
            name="stride",
            primals=lambda draw: (draw.normal(1, 7, 8), draw.normal(2, 1, 2, 3), draw.normal(2)),
            attrs={"stride": (2, 3)},
            hunts="stride 1 assumed, one stride for both axes, the tail that no window reads",
        ),
        Sample(
            name="stride-over-kernel",
            primals=lambda draw: (draw.normal(1, 6, 4), draw.normal(1, 1, 1, 2), draw.normal(1)),
            attrs={"stride": (3, 2)},
            hunts="positions between the windows that get what their neighbours should",
        ),
        Sample(
            name="padding",
            primals=lambda draw: (draw.normal(2, 3, 4), draw.normal(2, 2, 3, 2), draw.normal(2)),
            attrs={"padding": (1, 2)},
            hunts="padding left out, exchanged, or not cut off again",
        ),
        Sample(
            name="dilation",
            primals=lambda draw: (draw.normal(1, 6, 5), draw.normal(2, 1, 3, 2), draw.normal(2)),
            attrs={"dilation": (2, 3)},
            hunts="dilation left out, or the first one for both axes",
        ),
        Sample(
            name="everything",
            primals=lambda draw: (draw.normal(2, 7, 6), draw.normal(3, 2, 2, 3), draw.normal(3)),
            attrs={"stride": (3, 2), "padding": (2, 1), "dilation": (2, 3)},
            hunts="stride and dilation exchanged",
        ),
        Sample(
            name="groups",
            primals=lambda draw: (draw.normal(4, 4, 3), draw.normal(6, 2, 2, 2), draw.normal(6)),
            attrs={"groups": 2},
            hunts="every group reading the first one's channels, groups interleaved",
        ),
        Sample(
            name="pointwise",
            primals=lambda draw: (draw.normal(3, 2, 4), draw.normal(2, 3, 1, 1), draw.normal(2)),
            hunts="an axis of size 1 dropped with the kernel",
        ),
        Sample(
            name="kernel-fills-image",
            primals=lambda draw: (draw.normal(2, 3, 2), draw.normal(3, 2, 3, 2), draw.normal(3)),
            hunts="one output: positions counted from the end",
        ),
        Sample(
            name="kernel-over-image",
            primals=lambda draw: (draw.normal(1, 2, 3), draw.normal(2, 1, 4, 5), draw.normal(2)),
            attrs={"padding": (2, 1)},
            hunts="windows wider than the image, fitting only by its padding",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (
                draw.normal(2, 2, 3, 4),
                draw.normal(3, 2, 2, 2),
                draw.normal(3),
            ),
            hunts="dw and db of the last image only",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.signed(1, 1, 1), draw.signed(1, 1, 1, 1), draw.normal(1)),
            hunts="all axes of size 1 squeezed away",
        ),
        Sample(
            name="empty-batch",
            primals=lambda draw: (np.zeros((0, 2, 3, 3)), draw.normal(3, 2, 2, 2), draw.normal(3)),
            hunts="dw and db of no image left unwritten; they are 0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(35, 1, 2), draw.normal(3, 35, 1, 1), draw.normal(3)),
            dialects=("bias",),
            hunts="more than 32 channels, of which the last ones are left out",
        ),
    ),
)

# ── depthwise_conv_2d ────────────────────────────────────────────────────────────────────────


def depthwise_conv_2d_forward(xp, x, w, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
    patches = _patches(xp, x, w.shape[-2:], stride, padding, dilation)
    return xp.einsum("...cpqkl,...ckl->...cpq", patches, w)


def depthwise_conv_2d_vjp(xp, ct, x, w, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
    geometry = (w.shape[-2:], stride, padding, dilation)
    dpatches = xp.einsum("...cpq,...ckl->...cpqkl", ct, w)
    dx = _fold(xp, dpatches, x.shape[-2:], *geometry)
    dw = xp.einsum("...cpq,...cpqkl->...ckl", ct, _patches(xp, x, *geometry))
    return xp.reduce_to(dx, x), xp.reduce_to(dw, w)


depthwise_conv_2d = OpSpec(
    name="depthwise_conv_2d",
    signature="(c,h,w),(c,k,l)->(c,p,q)",
    forward=depthwise_conv_2d_forward,
    vjp=depthwise_conv_2d_vjp,
    formula=r"y_{cpq} = \sum_{kl} w_{ckl}\, x_{c,\, s p + d k - \pi,\, s q + d l - \pi}",
    source="Howard et al. 2017, arXiv:1704.04861; ggml_conv_2d_dw",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5, 4), draw.normal(3, 3, 2)),
            hunts="channels summed over, the kernel not flipped on its way back",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3, 3), draw.normal(3, 3, 3)),
            hunts="channels taken for rows",
        ),
        Sample(
            name="stride",
            primals=lambda draw: (draw.normal(2, 6, 7), draw.normal(2, 2, 3)),
            attrs={"stride": (3, 2)},
            hunts="stride 1 assumed, one stride for both axes",
        ),
        Sample(
            name="padding",
            primals=lambda draw: (draw.normal(2, 3, 4), draw.normal(2, 3, 2)),
            attrs={"padding": (1, 2)},
            hunts="padding left out, exchanged, or not cut off again",
        ),
        Sample(
            name="dilation",
            primals=lambda draw: (draw.normal(2, 5, 6), draw.normal(2, 2, 3)),
            attrs={"dilation": (3, 2)},
            hunts="dilation left out, or the first one for both axes",
        ),
        Sample(
            name="one-channel",
            primals=lambda draw: (draw.normal(1, 4, 3), draw.normal(1, 2, 2)),
            hunts="the channel's axis dropped",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 2, 3, 4), draw.normal(2, 2, 3)),
            hunts="dw of the last image only, images taken for channels",
        ),
        Sample(
            name="empty-batch",
            primals=lambda draw: (np.zeros((0, 2, 3, 3)), draw.normal(2, 2, 2)),
            hunts="dw of no image left unwritten; it is 0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(35, 2, 2), draw.normal(35, 1, 2)),
            hunts="more than 32 channels, of which the last ones are left out",
        ),
    ),
)

# ── conv_transpose_1d ────────────────────────────────────────────────────────────────────────


def conv_transpose_1d_forward(xp, x, w, *, stride=1, padding=0, dilation=1):
    attrs = {"stride": (1, stride), "padding": (0, padding), "dilation": (1, dilation)}
    return conv_transpose_2d_forward(xp, x[..., None, :], w[..., None, :], **attrs)[..., 0, :]


def conv_transpose_1d_vjp(xp, ct, x, w, *, stride=1, padding=0, dilation=1):
    attrs = {"stride": (1, stride), "padding": (0, padding), "dilation": (1, dilation)}
    dx, dw = conv_transpose_2d_vjp(xp, ct[..., None, :], x[..., None, :], w[..., None, :], **attrs)
    return dx[..., 0, :], dw[..., 0, :]


conv_transpose_1d = OpSpec(
    name="conv_transpose_1d",
    signature="(c,q),(c,o,l)->(o,w)",
    forward=conv_transpose_1d_forward,
    vjp=conv_transpose_1d_vjp,
    formula=r"y_{o,\, s q + d l - \pi} \mathrel{+}= w_{col}\, x_{cq}",
    source="torch.nn.functional.conv_transpose1d; ggml_conv_transpose_1d (kernel first there)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 5), draw.normal(2, 3, 4)),
            hunts="the kernel flipped, [c, o] read as [o, c]",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3), draw.normal(3, 3, 3)),
            hunts="[c, o] read as [o, c], which only equal sizes forgive",
        ),
        Sample(
            name="stride",
            primals=lambda draw: (draw.normal(2, 4), draw.normal(2, 3, 3)),
            attrs={"stride": 2},
            hunts="stride and dilation exchanged",
        ),
        Sample(
            name="stride-over-kernel",
            primals=lambda draw: (draw.normal(2, 3), draw.normal(2, 3, 2)),
            attrs={"stride": 5},
            hunts="gaps that no kernel reaches read as if they were there",
        ),
        Sample(
            name="padding",
            primals=lambda draw: (draw.normal(2, 5), draw.normal(2, 1, 3)),
            attrs={"padding": 2},
            hunts="the cotangent not padded where forward has cropped",
        ),
        Sample(
            name="dilation",
            primals=lambda draw: (draw.normal(2, 4), draw.normal(2, 3, 3)),
            attrs={"dilation": 3},
            hunts="dilation left out",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: (draw.normal(3, 1), draw.normal(3, 2, 4)),
            attrs={"stride": 3},
            hunts="a length computed as position times stride",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 2, 3), draw.normal(2, 3, 2)),
            hunts="dw of the last line only",
        ),
        Sample(
            name="empty-batch",
            primals=lambda draw: (np.zeros((0, 2, 3)), draw.normal(2, 3, 2)),
            hunts="dw of no line left unwritten; it is 0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 67), draw.normal(1, 1, 3)),
            hunts="a row of more than 64 pixels, whose tail is left out",
        ),
    ),
)

# ── conv_transpose_2d ────────────────────────────────────────────────────────────────────────


def _spread(
    size: Pair, kernel: Pair, stride: Pair, output_padding: Pair, dilation: Pair
) -> tuple[Any, Pair]:
    """Target positions of each input's kernel, [p, q, k, l], and the size of their image."""
    height, width = (
        (n - 1) * s + reach(k, d) + extra
        for n, k, s, extra, d in zip(size, kernel, stride, output_padding, dilation, strict=True)
    )
    index = windows((height, width), kernel, stride, dilation)
    return index[: size[0], : size[1]], (height, width)


def conv_transpose_2d_forward(
    xp, x, w, *, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1)
):
    index, whole = _spread(x.shape[-2:], w.shape[-2:], stride, output_padding, dilation)
    stamps = xp.einsum("...cpq,...cokl->...opqkl", x, w)
    flat = xp.scatter_add(stamps, index, math.prod(whole))
    return _crop(xp.reshape(flat, (*flat.shape[:-1], *whole)), padding)


def conv_transpose_2d_vjp(
    xp, ct, x, w, *, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1)
):
    index, whole = _spread(x.shape[-2:], w.shape[-2:], stride, output_padding, dilation)
    g = _pad(xp, ct, padding)
    stamps = xp.gather(xp.reshape(g, (*g.shape[:-2], math.prod(whole))), index)
    dx = xp.einsum("...opqkl,...cokl->...cpq", stamps, w)
    dw = xp.einsum("...opqkl,...cpq->...cokl", stamps, x)
    return xp.reduce_to(dx, x), xp.reduce_to(dw, w)


conv_transpose_2d = OpSpec(
    name="conv_transpose_2d",
    signature="(c,p,q),(c,o,k,l)->(o,h,w)",
    forward=conv_transpose_2d_forward,
    vjp=conv_transpose_2d_vjp,
    formula=r"y_{o,\, s p + d k - \pi,\, s q + d l - \pi} \mathrel{+}= w_{cokl}\, x_{cpq}",
    source="Zeiler et al. 2010, CVPR; torch conv_transpose2d; ggml_conv_transpose_2d_p0",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 3, 4), draw.normal(2, 3, 2, 3)),
            hunts="the kernel flipped, [c, o] read as [o, c]",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(2, 3, 3), draw.normal(2, 2, 2, 2)),
            hunts="[c, o] read as [o, c], which only equal sizes forgive",
        ),
        Sample(
            name="stride",
            primals=lambda draw: (draw.normal(2, 2, 3), draw.normal(2, 1, 3, 2)),
            attrs={"stride": (2, 3)},
            hunts="stride and dilation exchanged (huggingface/candle pull request 2337)",
        ),
        Sample(
            name="padding",
            primals=lambda draw: (draw.normal(1, 3, 4), draw.normal(1, 2, 3, 4)),
            attrs={"padding": (1, 2)},
            hunts="the cotangent not padded where forward has cropped",
        ),
        Sample(
            name="output-padding",
            primals=lambda draw: (draw.normal(1, 2, 3), draw.normal(1, 2, 2, 2)),
            attrs={"stride": (2, 3), "output_padding": (1, 2)},
            hunts="rows that no kernel reaches shift the others",
        ),
        Sample(
            name="dilation",
            primals=lambda draw: (draw.normal(1, 3, 2), draw.normal(1, 2, 2, 3)),
            attrs={"dilation": (3, 2)},
            hunts="dilation left out, or the first one for both axes",
        ),
        Sample(
            name="everything",
            primals=lambda draw: (draw.normal(2, 3, 2), draw.normal(2, 1, 3, 2)),
            attrs={
                "stride": (2, 3),
                "padding": (1, 2),
                "output_padding": (1, 0),
                "dilation": (1, 2),
            },
            hunts="attributes of the two axes exchanged",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 2, 2, 3), draw.normal(2, 3, 2, 2)),
            hunts="dw of the last image only",
        ),
        Sample(
            name="empty-batch",
            primals=lambda draw: (np.zeros((0, 2, 2, 3)), draw.normal(2, 3, 2, 2)),
            hunts="dw of no image left unwritten; it is 0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(35, 2, 1), draw.normal(35, 1, 1, 1)),
            hunts="more than 32 channels, of which the last ones are left out",
        ),
    ),
)

# ── im2col ───────────────────────────────────────────────────────────────────────────────────


def im2col_forward(
    xp, x, *, kernel=(3, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1), columns=False
):
    patches = _patches(xp, x, kernel, stride, padding, dilation)
    *batch, channels, p, q = patches.shape[:-2]
    row = channels * math.prod(kernel)
    if columns:  # [c, k, l, p, q]
        ordered = xp.moveaxis(xp.moveaxis(patches, -4, -1), -4, -1)
        return xp.reshape(ordered, (*batch, row, p * q))
    return xp.reshape(xp.moveaxis(patches, -5, -3), (*batch, p, q, row))


def im2col_vjp(
    xp, ct, x, *, kernel=(3, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1), columns=False
):
    *batch, channels, height, width = x.shape
    p, q = windows(padded((height, width), padding), kernel, stride, dilation).shape[:2]
    if columns:
        ordered = xp.reshape(ct, (*batch, channels, *kernel, p, q))
        patches = xp.moveaxis(xp.moveaxis(ordered, -1, -4), -1, -4)
    else:
        patches = xp.moveaxis(xp.reshape(ct, (*batch, p, q, channels, *kernel)), -3, -5)
    return _fold(xp, patches, (height, width), kernel, stride, padding, dilation)


im2col = OpSpec(
    name="im2col",
    signature="(c,h,w)->(p,q,n)",  # `columns` gives (n, p q)
    forward=im2col_forward,
    vjp=im2col_vjp,
    formula=r"y_{pq,\,(ckl)} = x_{c,\, s p + d k - \pi,\, s q + d l - \pi}",
    source="Chellapilla, Puri & Simard 2006, IWFHR; ggml_im2col; torch.nn.functional.unfold",
    dialects=(
        Dialect(name="rows", says="ggml: a row of c·k·l for each position, [p, q, c·k·l]"),
        Dialect(
            name="columns",
            says="PyTorch's unfold: a column for each position, [c·k·l, p·q]",
            attrs={"columns": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 5, 4),),
            hunts="overlapping windows that overwrite, k and l exchanged",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(2, 4, 4),),
            attrs={"kernel": (2, 2)},
            hunts="rows taken for columns of the image, positions for kernel elements",
        ),
        Sample(
            name="stride",
            primals=lambda draw: (draw.normal(2, 6, 7),),
            attrs={"stride": (2, 3)},
            hunts="one stride for both axes, the tail that no window reads",
        ),
        Sample(
            name="disjoint",
            primals=lambda draw: (draw.normal(2, 6, 4),),
            attrs={"stride": (3, 2)},
            hunts="positions scaled by the kernel instead of the stride pass here, not elsewhere",
        ),
        Sample(
            name="padding",
            primals=lambda draw: (draw.normal(2, 2, 3),),
            attrs={"padding": (1, 2)},
            hunts="padding left out, exchanged, or not cut off again",
        ),
        Sample(
            name="dilation",
            primals=lambda draw: (draw.normal(1, 6, 5),),
            attrs={"dilation": (2, 3)},
            hunts="dilation left out, or the first one for both axes",
        ),
        Sample(
            name="everything",
            primals=lambda draw: (draw.normal(2, 5, 4),),
            attrs={"stride": (3, 2), "padding": (2, 1), "dilation": (2, 3)},
            hunts="stride and dilation exchanged",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 2, 4, 3),),
            hunts="images that share one buffer, which is never cleared",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1, 1),),
            attrs={"kernel": (1, 1)},
            hunts="all axes of size 1 squeezed away",
        ),
        Sample(
            name="empty-batch",
            primals=lambda draw: (np.zeros((0, 2, 4, 3)),),
            hunts="a division of the sizes by 0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 3, 67),),
            dialects=("rows",),
            hunts="a row of more than 64 pixels, whose tail is left out",
        ),
    ),
)

# ── max_pool_2d ──────────────────────────────────────────────────────────────────────────────


def _pool_patches(
    xp: Any, x: Any, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Any:
    """Windows [c, p, q, k l]; −∞ outside the image."""
    patches = _patches(xp, x, kernel, stride, padding, dilation, "-inf")
    return xp.reshape(patches, (*patches.shape[:-2], math.prod(kernel)))


def max_pool_2d_forward(xp, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), dilation=(1, 1)):
    return xp.max(_pool_patches(xp, x, kernel, stride, padding, dilation), axis=-1)


def max_pool_2d_vjp(xp, ct, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), dilation=(1, 1)):
    patches = _pool_patches(xp, x, kernel, stride, padding, dilation)
    first = xp.is_index(xp.argmax(patches, axis=-1), math.prod(kernel))
    return _unpool(xp, first, ct, x, kernel, stride, padding, dilation)


def _unpool(
    xp: Any, taken: Any, ct: Any, x: Any, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Any:
    """Adds ct into the elements of each window that `taken` [c, p, q, k l] marks."""
    dpatches = xp.where(taken, ct[..., None], 0)
    dpatches = xp.reshape(dpatches, (*ct.shape, *kernel))
    return _fold(xp, dpatches, x.shape[-2:], kernel, stride, padding, dilation)


def max_pool_2d_split_vjp(
    xp, ct, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), dilation=(1, 1)
):
    patches = _pool_patches(xp, x, kernel, stride, padding, dilation)
    largest = xp.max(patches, axis=-1, keepdims=True)
    ones = xp.where(patches == largest, xp.zeros_like(patches) + 1, 0)
    share = ct / xp.sum(ones, axis=-1)
    return _unpool(xp, patches == largest, share, x, kernel, stride, padding, dilation)


def _margin(xp: Any, x: Any, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
    """Distance of each element from a tie for the largest in one of its windows."""
    patches = _pool_patches(xp, x, kernel, stride, padding, dilation)
    largest = xp.max(patches, axis=-1, keepdims=True)
    first = xp.is_index(xp.argmax(patches, axis=-1), math.prod(kernel))
    second = xp.max(xp.where(first, xp.const("-inf"), patches), axis=-1, keepdims=True)
    gaps = largest - xp.where(first, second, patches)
    whole = padded(x.shape[-2:], padding)
    index = windows(whole, kernel, stride, dilation)
    least = np.broadcast_to(xp.const("inf"), (*x.shape[:-2], math.prod(whole))).copy()
    places: Any = (..., index)
    np.minimum.at(least, places, np.reshape(gaps, (*gaps.shape[:-1], *kernel)))
    return _crop(np.reshape(least, (*x.shape[:-2], *whole)), padding)


def _distinct(draw: Any, *shape: int) -> Any:
    """Values that differ by 3/16 or more: no two windows' elements tie."""
    count = math.prod(shape)
    steps = (draw.permutation(count).reshape(shape) - count // 2) / 4.0
    return steps + draw.uniform(-(2.0**-5), 2.0**-5, *shape)


def _ties(draw: Any) -> tuple[Any, ...]:
    """Windows of 2 × 3 (first channel): no tie, two, three and six equal maxima, one ulp apart."""
    x = _distinct(draw, 2, 4, 7)
    above = np.nextafter(np.float32(3.0), np.float32(9.0))
    x[0] = [
        [1.0, 2.0, 0.5, 5.0, 1.0, 5.0, 7.0],
        [0.0, -1.0, 1.5, 4.0, 0.0, -2.0, 8.0],
        [3.0, above, -1.0, 0.25, 0.25, 0.25, 9.0],
        [0.5, 3.0, 2.0, 0.25, 0.25, 0.25, 6.0],
    ]
    return (x,)


max_pool_2d = OpSpec(
    name="max_pool_2d",
    signature="(c,h,w)->(c,p,q)",
    forward=max_pool_2d_forward,
    vjp=max_pool_2d_vjp,
    formula=r"y_{cpq} = \max_{kl} x_{c,\, s p + d k - \pi,\, s q + d l - \pi}",
    source="Ranzato et al. 2007, CVPR; ggml_pool_2d (the largest, padding counts as -inf)",
    kinks=(
        Kink(
            name="tie",
            gap=_margin,
            source="one-sided derivatives: any convex split of ct between the equal maxima",
            conventions=(
                Convention(
                    name="first",
                    systems=("PyTorch", "JAX (reduce_window)", "ggml", "TensorFlow"),
                    vjp=max_pool_2d_vjp,
                ),
                Convention(
                    name="split",
                    systems=("JAX (jnp.max over patches)",),
                    vjp=max_pool_2d_split_vjp,
                ),
            ),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (_distinct(draw, 2, 4, 9),),
            hunts="the position in the window taken for the one in the image",
        ),
        Sample(
            name="square",
            primals=lambda draw: (_distinct(draw, 2, 4, 4),),
            attrs={"kernel": (2, 2), "stride": (2, 2)},
            hunts="rows taken for columns",
        ),
        Sample(
            name="overlapping",
            primals=lambda draw: (_distinct(draw, 1, 5, 6),),
            attrs={"kernel": (3, 3), "stride": (1, 2)},
            hunts="an element that is largest in several windows and gets one cotangent only",
        ),
        Sample(
            name="gaps",
            primals=lambda draw: (_distinct(draw, 2, 5, 7),),
            attrs={"kernel": (2, 2), "stride": (3, 4)},
            hunts="the kernel taken for the stride; elements between the windows",
        ),
        Sample(
            name="tail",
            primals=lambda draw: (_distinct(draw, 1, 5, 8),),
            hunts="a last window that hangs over the edge",
        ),
        Sample(
            name="padding",
            primals=lambda draw: (_distinct(draw, 1, 4, 5) - 6.0,),
            attrs={"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1)},
            hunts="zeros as padding, which win over negative elements",
        ),
        Sample(
            name="dilation",
            primals=lambda draw: (_distinct(draw, 1, 5, 6),),
            attrs={"stride": (1, 1), "dilation": (3, 2)},
            hunts="dilation left out, or the first one for both axes",
        ),
        Sample(
            name="pointwise",
            primals=lambda draw: (_distinct(draw, 2, 3, 2),),
            attrs={"kernel": (1, 1), "stride": (1, 1)},
            hunts="an identity with anything in its way",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (_distinct(draw, 2, 2, 2, 6),),
            hunts="the first image's maxima used for all",
        ),
        Sample(
            name="empty-batch",
            primals=lambda draw: (np.zeros((0, 2, 4, 3)),),
            hunts="a maximum over nothing",
        ),
        Sample(
            name="ties",
            primals=_ties,
            hunts="the whole cotangent given to each of several equal maxima",
            at_kink=True,
        ),
        Sample(
            name="ties-overlapping",
            primals=lambda draw: (np.array([[[1.0, 3.0, 3.0, 0.0], [3.0, 2.0, -1.0, 0.5]]]),),
            attrs={"kernel": (2, 2), "stride": (1, 1)},
            hunts="ties in several windows at once",
            at_kink=True,
        ),
        Sample(
            name="flat",
            primals=lambda draw: (np.zeros((1, 3, 4)),),
            attrs={"kernel": (2, 2), "stride": (1, 2), "padding": (1, 1)},
            hunts="a shared maximum of an image that is 0 everywhere, padding among the ties",
            at_kink=True,
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (_distinct(draw, 1, 2, 67),),
            hunts="a row of more than 64 pixels, whose tail is left out",
        ),
    ),
)

# ── avg_pool_2d ──────────────────────────────────────────────────────────────────────────────


def avg_pool_2d_forward(
    xp, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), count_include_pad=True
):
    patches = _patches(xp, x, kernel, stride, padding, (1, 1))
    count = _counted(xp, x.shape[-2:], kernel, stride, padding, count_include_pad)
    return xp.sum(patches, axis=(-2, -1)) / count


def avg_pool_2d_vjp(
    xp, ct, x, *, kernel=(2, 3), stride=(2, 3), padding=(0, 0), count_include_pad=True
):
    size = x.shape[-2:]
    share = ct / _counted(xp, size, kernel, stride, padding, count_include_pad)
    dpatches = xp.broadcast_to(share[..., None, None], (*ct.shape, *kernel))
    return _fold(xp, dpatches, size, kernel, stride, padding, (1, 1))


def _counted(
    xp: Any, size: Pair, kernel: Pair, stride: Pair, padding: Pair, include_pad: bool
) -> Any:
    """The divisor of each window: its size, or its elements within the image."""
    if include_pad:
        return math.prod(kernel)
    inside = np.pad(np.ones(size), [(p, p) for p in padding]).reshape(-1)
    index = windows(padded(size, padding), kernel, stride, (1, 1))
    return xp.asarray(inside[index].sum(axis=(-2, -1)))


avg_pool_2d = OpSpec(
    name="avg_pool_2d",
    signature="(c,h,w)->(c,p,q)",
    forward=avg_pool_2d_forward,
    vjp=avg_pool_2d_vjp,
    formula=r"y_{cpq} = \frac{1}{n_{pq}} \sum_{kl} x_{c,\, s p + k - \pi,\, s q + l - \pi}",
    source="LeCun et al. 1990, NIPS 2; torch avg_pool2d; ggml_pool_2d (average)",
    dialects=(
        Dialect(name="with-pad", says="PyTorch, ggml: n is the window's size"),
        Dialect(
            name="without-pad",
            says="TensorFlow, ONNX's default: n counts the elements within the image",
            attrs={"count_include_pad": False},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 4, 9),),
            hunts="a sum instead of the average, 1/k instead of 1/(k l)",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(2, 4, 4),),
            attrs={"kernel": (2, 2), "stride": (2, 2)},
            hunts="rows taken for columns",
        ),
        Sample(
            name="overlapping",
            primals=lambda draw: (draw.normal(1, 5, 6),),
            attrs={"kernel": (3, 2), "stride": (1, 1)},
            hunts="overlapping windows that overwrite",
        ),
        Sample(
            name="gaps",
            primals=lambda draw: (draw.normal(2, 5, 7),),
            attrs={"kernel": (2, 2), "stride": (3, 4)},
            hunts="the kernel taken for the stride; elements between the windows",
        ),
        Sample(
            name="tail",
            primals=lambda draw: (draw.normal(1, 5, 8),),
            hunts="a last window that hangs over the edge",
        ),
        Sample(
            name="padding",
            primals=lambda draw: (draw.normal(2, 3, 4),),
            attrs={"kernel": (2, 4), "stride": (1, 2), "padding": (1, 2)},
            hunts="the other divisor on the border, padding not cut off again",
        ),
        Sample(
            name="padding-strided",
            primals=lambda draw: (draw.normal(1, 5, 7),),
            attrs={"kernel": (3, 3), "stride": (2, 3), "padding": (1, 0)},
            hunts="padding or stride of the two axes exchanged",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 2, 2, 6),),
            hunts="images that share one buffer, which is never cleared",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1, 1),),
            attrs={"kernel": (1, 1), "stride": (1, 1)},
            hunts="an identity with anything in its way",
        ),
        Sample(
            name="empty-batch",
            primals=lambda draw: (np.zeros((0, 2, 4, 3)),),
            hunts="an average over nothing",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 2, 67),),
            dialects=("with-pad",),
            hunts="a row of more than 64 pixels, whose tail is left out",
        ),
    ),
)

# ── upscale ──────────────────────────────────────────────────────────────────────────────────


def upscale_forward(xp, x, *, factor=(2, 2)):
    height, width = x.shape[-2:]
    rows, columns = np.arange(height * factor[0]), np.arange(width * factor[1])
    index = (rows // factor[0])[:, None] * width + columns // factor[1]
    return xp.gather(xp.reshape(x, (*x.shape[:-2], height * width)), index)


def upscale_vjp(xp, ct, x, *, factor=(2, 2)):
    height, width = x.shape[-2:]
    blocks = xp.reshape(ct, (*x.shape[:-2], height, factor[0], width, factor[1]))
    return xp.sum(blocks, axis=(-3, -1))


upscale = OpSpec(
    name="upscale",
    signature="(h,w)->(p,q)",
    forward=upscale_forward,
    vjp=upscale_vjp,
    formula=r"y_{pq} = x_{\lfloor p / f_h \rfloor,\, \lfloor q / f_w \rfloor}",
    source="ggml_upscale (nearest, one factor for both axes); torch interpolate(mode='nearest')",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="the average of a block instead of its sum, one element instead of all",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3),),
            hunts="rows taken for columns; tiles (x, y, x, y) for repeats (x, x, y, y)",
        ),
        Sample(
            name="factor-3",
            primals=lambda draw: (draw.normal(2, 4),),
            attrs={"factor": (3, 3)},
            hunts="factor 2 whatever was asked for",
        ),
        Sample(
            name="uneven",
            primals=lambda draw: (draw.normal(4, 2),),
            attrs={"factor": (2, 5)},
            hunts="one factor for both axes, the two exchanged",
        ),
        Sample(
            name="one-axis",
            primals=lambda draw: (draw.normal(3, 4),),
            attrs={"factor": (1, 3)},
            hunts="a factor of 1 taken for none at all",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1),),
            hunts="one element: its gradient is the sum of all",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 2, 3),),
            hunts="images and channels mixed",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 3, 2)),),
            hunts="a division of the sizes by 0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(2, 67),),
            hunts="a row of more than 64 pixels, whose tail is left out",
        ),
    ),
)
