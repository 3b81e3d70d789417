"""Normalisations. Axes: t rows (tokens), d features, n items, c channels, s pixels, h heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Convention, Dialect, Kink, OpSpec, Sample

# ── rms_norm ─────────────────────────────────────────────────────────────────────────────────


def rms_norm_forward(xp, x, w=None, *, eps=1e-5, unit_offset=False):
    r = 1 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    return x * r if w is None else x * r * _gain(w, unit_offset)


def rms_norm_vjp(xp, ct, x, w=None, *, eps=1e-5, unit_offset=False):
    r = 1 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    n = x * r
    g = ct if w is None else ct * _gain(w, unit_offset)  # cotangent of n
    dx = r * (g - n * xp.mean(g * n, axis=-1, keepdims=True))
    return dx if w is None else (dx, xp.reduce_to(ct * n, w))


def _gain(w: Any, unit_offset: bool) -> Any:
    return 1 + w if unit_offset else w


def _row_scales(draw: Any) -> tuple[Any, ...]:
    rows = np.exp2([[-20.0], [-10.0], [0.0], [10.0]])
    return draw.normal(4, 5) * rows, draw.normal(5)


def _zero_row(draw: Any) -> tuple[Any, ...]:
    return np.concatenate([draw.normal(1, 5), np.zeros((1, 5)), draw.normal(1, 5)]), draw.normal(5)


def _one_huge(draw: Any) -> tuple[Any, ...]:
    x = draw.normal(3, 5)
    x[1, 2] = 64.0
    return x, draw.normal(5)


rms_norm = OpSpec(
    name="rms_norm",
    signature="(d),(d)->(d)",
    forward=rms_norm_forward,
    vjp=rms_norm_vjp,
    formula=r"y = \frac{x}{\sqrt{\frac{1}{d}\sum_i x_i^2 + \epsilon}}\,w",
    source="Zhang & Sennrich 2019, arXiv:1910.07467",
    dialects=(
        Dialect(name="weight", says="Llama and its trainers: times w, eps 1e-5"),
        Dialect(
            name="unit-offset",
            says="Gemma: times 1 + w, eps 1e-6",
            attrs={"eps": 1e-6, "unit_offset": True},
        ),
        Dialect(
            name="plain", says="ggml: no weight, eps 1e-6", attrs={"eps": 1e-6}, without=("w",)
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7), draw.normal(7)),
            hunts="a missing factor 1/rms, a missing projection term, dw averaged over rows",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(5)),
            hunts="dw summed over one batch axis instead of all",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(5, 5), draw.normal(5)),
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="single-row",
            primals=lambda draw: (draw.normal(1, 7), draw.normal(7)),
            hunts="dw of one row lost to a reduction that expects several",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), draw.normal(5)),
            hunts="no rows: dw is zeros, not nothing",
        ),
        Sample(
            name="row-length-1",  # small, because dx is nearly 0 where eps does not matter
            primals=lambda draw: (draw.away(0.0, 3, 1) * 2.0**-9, draw.signed(1)),
            hunts="eps left out of the projection: dx = 0 without it",
        ),
        Sample(
            name="width-64",
            primals=lambda draw: (draw.normal(2, 64), draw.normal(64)),
            hunts="1/d taken for 1/sqrt(d), a sum in several accumulators that drops one",
        ),
        Sample(
            name="tiny",
            primals=lambda draw: (draw.normal(3, 5, scale=2.0**-13), draw.normal(5)),
            hunts="eps left out of, or outside, the root",
        ),
        Sample(
            name="row-scales",
            primals=_row_scales,
            hunts="one rms for all rows, an exponent of 1/rms that is off by one",
        ),
        Sample(
            name="eps-0.1",
            primals=lambda draw: (draw.normal(3, 5, scale=0.25), draw.normal(5)),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="zero-gain",
            primals=lambda draw: (draw.normal(3, 5), np.array([0.0, -1.0, 0.5, 0.0, -1.0])),
            hunts="n recovered as y/w: 0/0 (w = -1 is the zero of 1 + w)",
        ),
        Sample(
            name="one-huge",
            primals=_one_huge,
            hunts="the projection dropped where one element makes up the norm",
        ),
        Sample(
            name="zero-row",
            primals=_zero_row,
            hunts="division by a norm of 0; dx = g/sqrt(eps) there",
        ),
        Sample(
            name="offset",
            primals=lambda draw: (100.0 + draw.normal(3, 5), draw.normal(5)),
            hunts="x centred as in layer_norm",
        ),
        Sample(
            name="unsolved",  # the log prints x as 0.000153; 10 / 2^16 gives all its digits
            primals=lambda draw: (np.array([[10 / 2**16]]), draw.normal(1)),
            exact=True,
            hunts="a checker whose step of 1e-4 is as large as x: its truncation error, "
            "h^2/(2 C eps) = 0.5% for rows of length C = 1, blames a right gradient",
            dialects=("plain",),
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (
                np.concatenate([np.sqrt(draw.swamped(1, 131)), draw.normal(1, 131)]),
                draw.normal(131),
            ),
            dialects=("weight",),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
        Sample(
            name="rows",
            primals=lambda draw: (draw.normal(35, 2), draw.normal(2)),
            dialects=("weight",),
            hunts="dw summed over blocks of 32 rows, the last one left out",
        ),
    ),
)

# ── layer_norm ───────────────────────────────────────────────────────────────────────────────


def layer_norm_forward(xp, x, w=None, b=None, *, eps=1e-5):
    n, _ = _normalise(xp, x, eps)
    return n if w is None else n * w + b


def layer_norm_vjp(xp, ct, x, w=None, b=None, *, eps=1e-5):
    n, r = _normalise(xp, x, eps)
    g = ct if w is None else ct * w  # cotangent of n
    g0 = xp.mean(g, axis=-1, keepdims=True)  # the part that centring removes
    g1 = xp.mean(g * n, axis=-1, keepdims=True)  # the part that scaling removes
    dx = r * (g - g0 - n * g1)
    return dx if w is None else (dx, xp.reduce_to(ct * n, w), xp.reduce_to(ct, b))


def _normalise(xp: Any, x: Any, eps: float) -> tuple[Any, Any]:
    """Centred and scaled rows, and the scale 1/sqrt(variance + eps)."""
    c = x - xp.mean(x, axis=-1, keepdims=True)
    r = 1 / xp.sqrt(xp.mean(c * c, axis=-1, keepdims=True) + eps)
    return c * r, r


def _constant_row(draw: Any) -> tuple[Any, ...]:
    rows = [draw.normal(1, 5), np.full((1, 5), 0.75), draw.normal(1, 5)]
    return np.concatenate(rows), draw.normal(5), draw.normal(5)


layer_norm = OpSpec(
    name="layer_norm",
    signature="(d),(d),(d)->(d)",
    forward=layer_norm_forward,
    vjp=layer_norm_vjp,
    formula=r"y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}\,w + b",
    source="Ba, Kiros & Hinton 2016, arXiv:1607.06450",
    dialects=(
        Dialect(name="affine", says="GPT-2: times w plus b, eps 1e-5"),
        Dialect(name="plain", says="ggml_norm: no weight, no bias", without=("w", "b")),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7), draw.normal(7), draw.normal(7)),
            hunts="a missing mean or projection term, dw and db exchanged or averaged",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(5), draw.normal(5)),
            hunts="dw and db summed over one batch axis instead of all",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(5, 5), draw.normal(5), draw.normal(5)),
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), draw.normal(5), draw.normal(5)),
            hunts="no rows: dw and db are zeros, not nothing",
        ),
        Sample(
            name="row-length-1",
            primals=lambda draw: (draw.normal(3, 1), draw.signed(1), draw.normal(1)),
            hunts="a variance over d - 1 = 0 elements; dx is exactly 0",
            dialects=("plain",),  # after a product with w right code may leave a rounding error
        ),
        Sample(
            name="row-length-2",
            primals=lambda draw: (
                draw.normal(3, 2, scale=2.0**-8),
                draw.normal(2),
                draw.normal(2),
            ),
            hunts="d - 1 in place of d, which is worst here; eps left out: dx = 0 without it",
        ),
        Sample(
            name="width-64",
            primals=lambda draw: (draw.normal(2, 64), draw.normal(64), draw.normal(64)),
            hunts="1/d taken for 1/sqrt(d), a sum in several accumulators that drops one",
        ),
        Sample(
            name="offset-100",
            primals=lambda draw: (100.0 + draw.normal(3, 7), draw.normal(7), draw.normal(7)),
            hunts="mean of squares minus square of the mean, which cancels",
        ),
        Sample(
            name="offset-1000",
            primals=lambda draw: (1000.0 + draw.normal(3, 7), draw.normal(7), draw.normal(7)),
            hunts="the same, where float32 keeps no digit of the difference",
        ),
        Sample(
            name="near-constant",
            primals=lambda draw: (
                1.0 + draw.normal(3, 5, scale=2.0**-10),
                draw.normal(5),
                draw.normal(5),
            ),
            hunts="eps left out of the root: the variance is a tenth of it",
        ),
        Sample(
            name="constant-row",
            primals=_constant_row,
            hunts="division by a variance of 0; dx = (g - mean g)/sqrt(eps) there",
        ),
        Sample(
            name="eps-0.1",
            primals=lambda draw: (
                draw.normal(3, 5, scale=0.25),
                draw.normal(5),
                draw.normal(5),
            ),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="zero-weight",
            primals=lambda draw: (
                draw.normal(3, 5),
                np.array([0.0, 1.0, -0.5, 0.0, 2.0]),
                draw.normal(5),
            ),
            hunts="n recovered as (y - b)/w: 0/0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (
                np.concatenate([np.sqrt(draw.swamped(1, 131)), draw.normal(1, 131)]),
                draw.normal(131),
                draw.normal(131),
            ),
            dialects=("affine",),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
    ),
)

# ── norm ─────────────────────────────────────────────────────────────────────────────────────


def norm_forward(xp, x, *, eps=1e-5):
    n, _ = _normalise(xp, x, eps)
    return n


def norm_vjp(xp, ct, x, *, eps=1e-5):
    n, r = _normalise(xp, x, eps)
    return r * (ct - xp.mean(ct, axis=-1, keepdims=True) - n * xp.mean(ct * n, -1, True))


# Samples that meet every normalisation of rows of one primal.
ROWS = (
    Sample(
        name="typical",
        primals=lambda draw: (draw.normal(3, 7),),
        hunts="a missing mean or projection term, d taken for d - 1",
    ),
    Sample(
        name="cube",
        primals=lambda draw: (draw.normal(2, 3, 5),),
        hunts="the statistics of one row used for all, the wrong axis",
    ),
    Sample(
        name="square",
        primals=lambda draw: (draw.normal(5, 5),),
        hunts="rows taken for columns, which only a square forgives",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (np.zeros((0, 5)),),
        hunts="no rows at all: a kernel that runs once anyway",
    ),
    Sample(
        name="width-65",
        primals=lambda draw: (draw.normal(2, 65),),
        hunts="a sum in blocks of 32 or 64 that drops or repeats the last element",
    ),
    Sample(
        name="scales",
        primals=lambda draw: (draw.normal(3, 5) * np.exp2([[0.0], [3.0], [10.0]]),),
        hunts="one scale for all rows, an exponent of 1/sigma that is off by one",
    ),
)

norm = OpSpec(
    name="norm",
    signature="(d)->(d)",
    forward=norm_forward,
    vjp=norm_vjp,
    formula=r"y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}",
    source="ggml_norm: along rows, eps 1e-5",
    samples=(
        *ROWS,
        Sample(
            name="constant-row",
            primals=lambda draw: (_constant_row(draw)[0],),
            hunts="division by a variance of 0",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(3, 1),),
            hunts="a gradient other than 0 for rows of one element",
        ),
        Sample(
            name="near-constant",
            primals=lambda draw: (1.0 + draw.normal(3, 5, scale=2.0**-10),),
            hunts="eps left out of the root: the variance is a tenth of it",
        ),
        Sample(
            name="eps-0.1",
            primals=lambda draw: (draw.normal(3, 5, scale=0.25),),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (
                np.concatenate([np.sqrt(draw.swamped(1, 131)), draw.normal(1, 131)]),
            ),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
    ),
)

# ── rms_norm_back ────────────────────────────────────────────────────────────────────────────


def rms_norm_back_forward(xp, g, x, *, eps=1e-6):
    return rms_norm_vjp(xp, g, x, eps=eps)


def rms_norm_back_vjp(xp, ct, g, x, *, eps=1e-6):
    r = 1 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    n = x * r
    gn = xp.mean(g * n, axis=-1, keepdims=True)
    cn = xp.mean(ct * n, axis=-1, keepdims=True)
    cg = xp.mean(ct * g, axis=-1, keepdims=True)
    dg = r * (ct - n * cn)  # self-adjoint in g
    dx = -r * r * (n * (cg - 3 * cn * gn) + ct * gn + g * cn)
    return dg, dx


rms_norm_back = OpSpec(
    name="rms_norm_back",
    signature="(d),(d)->(d)",
    forward=rms_norm_back_forward,
    vjp=rms_norm_back_vjp,
    formula=r"y = r\,\Bigl(g - n\,\tfrac{1}{d}\textstyle\sum_i g_i n_i\Bigr),\quad n = r x,\quad "
    r"r = \bigl(\tfrac{1}{d}\sum_i x_i^2 + \epsilon\bigr)^{-1/2}",
    source="ggml_rms_norm_back (its arguments: x first, then g)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7), draw.normal(3, 7)),
            hunts="one of the four terms of dx missing; the factor 3",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(2, 3, 5)),
            hunts="the statistics of one row used for all, the wrong axis",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(5, 5), draw.normal(5, 5)),
            hunts="rows taken for columns; g taken for x",
        ),
        Sample(
            name="row-length-1",  # eps must matter: the first derivative is 0 without it
            primals=lambda draw: (draw.signed(3, 1), draw.away(0.0, 3, 1) * 2.0**-9),
            hunts="eps left out of the projection: dg = 0 without it",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros((0, 5))),
            hunts="no rows at all: a kernel that runs once anyway",
        ),
        Sample(
            name="zero-row",
            primals=lambda draw: (draw.normal(3, 5), _zero_row(draw)[0]),
            hunts="division by a norm of 0; dg = ct/sqrt(eps) and dx = 0 there",
        ),
        Sample(
            name="scales",
            primals=lambda draw: (
                draw.normal(3, 5),
                draw.normal(3, 5) * np.exp2([[-3.0], [0.0], [6.0]]),
            ),
            hunts="r for r^2 in dx",
        ),
        Sample(
            name="tiny",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(3, 5, scale=2.0**-10)),
            hunts="eps left out of, or outside, the root",
        ),
        Sample(
            name="eps-0.1",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(3, 5, scale=0.25)),
            hunts="eps at its default in the double backward",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 131), np.sqrt(draw.swamped(1, 131))),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
    ),
)

# ── group_norm ───────────────────────────────────────────────────────────────────────────────


def group_norm_forward(xp, x, w=None, b=None, *, groups=2, eps=1e-5):
    n, _ = _group_normalise(xp, x, groups, eps)
    n = xp.reshape(n, x.shape)
    return n if w is None else n * w[..., None] + b[..., None]


def group_norm_vjp(xp, ct, x, w=None, b=None, *, groups=2, eps=1e-5):
    n, r = _group_normalise(xp, x, groups, eps)
    g = xp.reshape(ct if w is None else ct * w[..., None], n.shape)
    g0 = xp.mean(g, axis=-1, keepdims=True)
    g1 = xp.mean(g * n, axis=-1, keepdims=True)
    dx = xp.reshape(r * (g - g0 - n * g1), x.shape)
    if w is None:
        return dx
    dw = xp.sum(ct * xp.reshape(n, x.shape), axis=-1)
    return dx, xp.reduce_to(dw, w), xp.reduce_to(xp.sum(ct, axis=-1), b)


def _group_normalise(xp: Any, x: Any, groups: int, eps: float) -> tuple[Any, Any]:
    """Groups of neighbouring channels as rows, normalised, and their 1/sigma."""
    size = x.shape[-2] // groups * x.shape[-1]
    return _normalise(xp, xp.reshape(x, (*x.shape[:-2], groups, size)), eps)


def _channels(*shape: int, channels: int, scale: float = 1.0, offset: float = 0.0) -> Any:
    def primals(draw: Any) -> tuple[Any, ...]:
        x = offset + draw.normal(*shape, scale=scale)
        return x, draw.normal(channels), draw.normal(channels)

    return primals


def _constant_group(draw: Any) -> tuple[Any, ...]:
    x = draw.normal(2, 4, 3)
    x[1, 2:] = 0.75
    return x, draw.normal(4), draw.normal(4)


group_norm = OpSpec(
    name="group_norm",
    signature="(c,s),(c),(c)->(c,s)",
    forward=group_norm_forward,
    vjp=group_norm_vjp,
    formula=r"y_c = \frac{x_c - \mu_{g(c)}}{\sqrt{\sigma_{g(c)}^2 + \epsilon}}\,w_c + b_c,\quad "
    r"g(c) = \lfloor c\,G/C \rfloor",
    source="Wu & He 2018, arXiv:1803.08494",
    dialects=(
        Dialect(name="affine", says="PyTorch: times w plus b per channel, eps 1e-5"),
        Dialect(
            name="plain",
            says="ggml_group_norm: no weight, no bias, eps 1e-6",
            attrs={"eps": 1e-6},
            without=("w", "b"),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=_channels(3, 4, 5, channels=4),
            hunts="a mean over the channels alone or the pixels alone",
        ),
        Sample(
            name="three-groups",
            primals=_channels(2, 6, 5, channels=6),
            hunts="channels dealt out to the groups one by one (c mod G)",
            attrs={"groups": 3},
        ),
        Sample(
            name="one-group",
            primals=_channels(2, 3, 5, channels=3),
            hunts="the number of groups at its default",
            attrs={"groups": 1},
        ),
        Sample(
            name="instance",
            primals=_channels(2, 3, 5, channels=3),
            hunts="a group of one channel: what is left is instance norm",
            attrs={"groups": 3},
        ),
        Sample(
            name="square",
            primals=_channels(2, 4, 4, channels=4),
            hunts="channels taken for pixels, which only a square forgives",
        ),
        Sample(
            name="one-pixel",
            primals=_channels(3, 6, 1, channels=6),
            hunts="rows of one pixel: the statistics must come from the channels",
        ),
        Sample(
            name="one-item",
            primals=_channels(1, 4, 3, channels=4),
            hunts="dw of one item lost to a reduction that expects several",
        ),
        Sample(
            name="empty",
            primals=_channels(0, 4, 3, channels=4),
            hunts="no items: dw and db are zeros, not nothing",
        ),
        Sample(
            name="constant-group",
            primals=_constant_group,
            hunts="division by a variance of 0; dx = (g - mean g)/sqrt(eps) there",
        ),
        Sample(
            name="eps-0.1",
            primals=_channels(2, 4, 3, channels=4, scale=0.25),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="offset-100",
            primals=_channels(2, 4, 5, channels=4, offset=100.0),
            hunts="mean of squares minus square of the mean, which cancels",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 35, 2), draw.normal(35), draw.normal(35)),
            attrs={"groups": 5},
            dialects=("affine",),
            hunts="more than 32 channels, of which the last ones are left out",
        ),
    ),
)

# ── batch_norm ───────────────────────────────────────────────────────────────────────────────

ITEMS = (-3, -1)
"""The axes of a channel's statistics: all items and pixels."""


def batch_norm_forward(xp, x, w=None, b=None, *, eps=1e-5):
    n, _ = _batch_normalise(xp, x, eps)
    return n if w is None else n * w[..., None, :, None] + b[..., None, :, None]


def batch_norm_vjp(xp, ct, x, w=None, b=None, *, eps=1e-5):
    n, r = _batch_normalise(xp, x, eps)
    g = ct if w is None else ct * w[..., None, :, None]
    g0 = xp.mean(g, axis=ITEMS, keepdims=True)
    g1 = xp.mean(g * n, axis=ITEMS, keepdims=True)
    dx = r * (g - g0 - n * g1)
    if w is None:
        return dx
    dw, db = xp.sum(ct * n, axis=ITEMS), xp.sum(ct, axis=ITEMS)
    return dx, xp.reduce_to(dw, w), xp.reduce_to(db, b)


def _batch_normalise(xp: Any, x: Any, eps: float) -> tuple[Any, Any]:
    """Channels centred and scaled by the statistics of this batch, and their 1/sigma."""
    c = x - xp.mean(x, axis=ITEMS, keepdims=True)
    r = 1 / xp.sqrt(xp.mean(c * c, axis=ITEMS, keepdims=True) + eps)
    return c * r, r


def _constant_channel(draw: Any) -> tuple[Any, ...]:
    x = draw.normal(3, 3, 2)
    x[:, 1] = 0.75
    return x, draw.normal(3), draw.normal(3)


batch_norm = OpSpec(
    name="batch_norm",
    signature="(n,c,s),(c),(c)->(n,c,s)",
    forward=batch_norm_forward,
    vjp=batch_norm_vjp,
    formula=r"y_{n,c,s} = \frac{x_{n,c,s} - \mu_c}{\sqrt{\sigma_c^2 + \epsilon}}\,w_c + b_c",
    source="Ioffe & Szegedy 2015, arXiv:1502.03167: training mode, the variance divided by n s",
    dialects=(
        Dialect(name="affine", says="times w plus b per channel, eps 1e-5"),
        Dialect(name="plain", says="no weight, no bias", without=("w", "b")),
    ),
    samples=(
        Sample(
            name="typical",
            primals=_channels(5, 3, 2, channels=3),
            hunts="the statistics taken for constants, as in evaluation mode",
        ),
        Sample(
            name="no-pixels",
            primals=_channels(7, 3, 1, channels=3),
            hunts="plain features: a mean over pixels alone leaves nothing",
        ),
        Sample(
            name="cubic",
            primals=_channels(3, 3, 3, channels=3),
            hunts="items, channels and pixels exchanged, which only a cube forgives",
        ),
        Sample(
            name="one-item",
            primals=_channels(1, 3, 5, channels=3),
            hunts="a batch of one: the statistics must come from the pixels",
        ),
        Sample(
            name="one-channel",
            primals=_channels(5, 1, 2, channels=1),
            hunts="dw and db summed into a scalar",
        ),
        Sample(
            name="two-items",
            primals=_channels(2, 3, 1, channels=3, scale=2.0**-8),
            hunts="n - 1 in place of n, which is worst here; eps left out: dx = 0 without it",
        ),
        Sample(
            name="no-channels",
            primals=_channels(3, 0, 2, channels=0),
            hunts="no channels: nothing to normalise, nothing to differentiate",
            dialects=("plain",),  # PyTorch refuses a weight without elements
            no_features=True,
        ),
        Sample(
            name="constant-channel",
            primals=_constant_channel,
            hunts="division by a variance of 0; dx = (g - mean g)/sqrt(eps) there",
        ),
        Sample(
            name="eps-0.1",
            primals=_channels(5, 3, 2, channels=3, scale=0.25),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="offset-100",
            primals=_channels(5, 3, 2, channels=3, offset=100.0),
            hunts="mean of squares minus square of the mean, which cancels",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(67, 2, 1), draw.normal(2), draw.normal(2)),
            dialects=("affine",),
            hunts="a batch reduced in blocks of 32 or 64, the last one left out",
        ),
    ),
)

# ── l2_normalize ─────────────────────────────────────────────────────────────────────────────


def l2_normalize_forward(xp, x, *, eps=1e-12, inside=False):
    squares = xp.sum(x * x, axis=-1, keepdims=True)
    return x / (xp.sqrt(squares + eps) if inside else xp.maximum(xp.sqrt(squares), eps))


def l2_normalize_vjp(xp, ct, x, *, eps=1e-12, inside=False):
    return _l2_normalize_slope(xp, ct, x, eps, inside, 1.0)


def _l2_normalize_slope(xp: Any, ct: Any, x: Any, eps: float, inside: bool, at_bound: Any) -> Any:
    """The VJP in which the norm has slope `at_bound` where it equals eps."""
    squares = xp.sum(x * x, axis=-1, keepdims=True)
    length = xp.sqrt(squares + eps) if inside else xp.maximum(xp.sqrt(squares), eps)
    n = x / length
    shrinks = n * xp.sum(ct * n, axis=-1, keepdims=True)
    if not inside:
        root = xp.sqrt(squares)
        shrinks = shrinks * xp.where(root > eps, 1.0, xp.where(root < eps, 0.0, at_bound))
    return (ct - shrinks) / length


def l2_normalize_half_vjp(xp, ct, x, *, eps=1e-12, inside=False):
    return _l2_normalize_slope(xp, ct, x, eps, inside, 0.5)


def _length_gap(xp: Any, x: Any, *, eps: float = 1e-12, inside: bool = False) -> Any:
    """Distance of the row's norm from eps, for each element (the form inside has no bound)."""
    if inside:
        return xp.full(x.shape, "1")
    root = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    return xp.broadcast_to(xp.abs(root - eps), x.shape)


l2_normalize = OpSpec(
    name="l2_normalize",
    signature="(d)->(d)",
    forward=l2_normalize_forward,
    vjp=l2_normalize_vjp,
    formula=r"y = \frac{x}{\max(\lVert x \rVert,\, \epsilon)} \quad\text{or}\quad "
    r"\frac{x}{\sqrt{\lVert x \rVert^2 + \epsilon}}",
    source="torch.nn.functional.normalize; with eps in the root as in linear attention",
    dialects=(
        Dialect(name="max", says="PyTorch, ggml_l2_norm: the norm, but at least eps"),
        Dialect(
            name="inside",
            says="flash-linear-attention: eps 1e-6 in the root",
            attrs={"eps": 1e-6, "inside": True},
        ),
    ),
    kinks=(
        Kink(
            name="norm = eps",
            gap=_length_gap,
            source="On the sphere of radius eps both formulas hold, one on each side",
            conventions=(
                Convention(name="outer", systems=("PyTorch",), vjp=l2_normalize_vjp),
                Convention(name="half", systems=("JAX",), vjp=l2_normalize_half_vjp),
            ),
        ),
    ),
    samples=(
        *ROWS,
        Sample(
            name="row-length-1",
            primals=lambda draw: (draw.signed(3, 1),),
            hunts="a sign is all that is left: dx is 0, but for eps",
            attrs={"eps": 0.25},
            dialects=("inside",),
        ),
        Sample(
            name="inner",
            primals=lambda draw: (
                draw.filled([[0.25, -0.5, 0.125], [0.0, 0.0, 0.0], [2.0, 1.0, 3.0]]),
            ),
            hunts="the projection kept where eps is the length; a zero row",
            attrs={"eps": 1.0},
        ),
        Sample(
            name="eps-0.1",
            primals=lambda draw: (draw.away(0.0, 3, 5),),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="on-the-sphere",
            primals=lambda draw: (
                np.array(
                    [[0.375, -0.5, 0.0], [2.0, -1.0, 0.5], [0.0, 0.0, 0.625], [0.0, 0.0, 0.0]]
                ),
            ),
            hunts="more or less than the two sides allow where the norm is eps",
            attrs={"eps": 0.625},
            dialects=("max",),
            at_kink=True,
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (
                np.concatenate([np.sqrt(draw.swamped(1, 131)), draw.normal(1, 131)]),
            ),
            dialects=("max",),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
    ),
)

# ── qk_norm ──────────────────────────────────────────────────────────────────────────────────


def qk_norm_forward(xp, q, k, wq, wk, *, eps=1e-6, unit_offset=False):
    return (
        rms_norm_forward(xp, q, wq, eps=eps, unit_offset=unit_offset),
        rms_norm_forward(xp, k, wk, eps=eps, unit_offset=unit_offset),
    )


def qk_norm_vjp(xp, ct, q, k, wq, wk, *, eps=1e-6, unit_offset=False):
    dq, dwq = rms_norm_vjp(xp, ct[0], q, wq, eps=eps, unit_offset=unit_offset)
    dk, dwk = rms_norm_vjp(xp, ct[1], k, wk, eps=eps, unit_offset=unit_offset)
    return dq, dk, dwq, dwk


def _heads(
    *, tokens: int, heads: int, groups: int, width: int, keys: int = 0, scale: float = 1.0
) -> Any:
    def primals(draw: Any) -> tuple[Any, ...]:
        return (
            draw.normal(tokens, heads, width, scale=scale),
            draw.normal(keys or tokens, groups, width, scale=scale),
            draw.normal(width),
            draw.normal(width),
        )

    return primals


def _zero_head(draw: Any) -> tuple[Any, ...]:
    q, k, wq, wk = _heads(tokens=2, heads=3, groups=2, width=5)(draw)
    q[0, 1] = k[1, 0] = 0.0
    wq[2] = wk[3] = 0.0
    return q, k, wq, wk


qk_norm = OpSpec(
    name="qk_norm",
    signature="(t,h,d),(u,g,d),(d),(d)->(t,h,d),(u,g,d)",
    forward=qk_norm_forward,
    vjp=qk_norm_vjp,
    formula=r"q' = \mathrm{rms\_norm}(q)\,w_q,\quad k' = \mathrm{rms\_norm}(k)\,w_k",
    source="Henry et al. 2020, arXiv:2010.04245; per head and with RMS as in Qwen3 and Gemma 3",
    dialects=(
        Dialect(name="weight", says="Qwen3: times w, eps 1e-6"),
        Dialect(
            name="unit-offset", says="Gemma 3: times 1 + w, eps 1e-6", attrs={"unit_offset": True}
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=_heads(tokens=3, heads=4, groups=2, width=5),
            hunts="q normalised with k's weight; the statistics of all heads together",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (
                draw.normal(2, 3, 2, 3),
                draw.normal(2, 3, 1, 3),
                draw.normal(3),
                draw.normal(3),
            ),
            hunts="weights summed over tokens or heads alone",
        ),
        Sample(
            name="square",
            primals=_heads(tokens=3, heads=3, groups=3, width=3),
            hunts="tokens, heads and features exchanged, which only a cube forgives",
        ),
        Sample(
            name="one-head",
            primals=_heads(tokens=3, heads=1, groups=1, width=5),
            hunts="nothing of the heads: where per head and all together agree",
        ),
        Sample(
            name="cached-keys",
            primals=_heads(tokens=1, keys=5, heads=2, groups=2, width=3),
            hunts="as many keys as queries taken for granted",
        ),
        Sample(
            name="empty",
            primals=_heads(tokens=0, heads=2, groups=2, width=3),
            hunts="no tokens: the weights' gradients are zeros, not nothing",
        ),
        Sample(
            name="tiny",
            primals=_heads(tokens=2, heads=2, groups=1, width=5, scale=2.0**-10),
            hunts="eps left out of, or outside, the root",
        ),
        Sample(
            name="zero-head",
            primals=_zero_head,
            hunts="a head of zeros divided by its norm; n recovered as y/w at w = 0",
        ),
        Sample(
            name="eps-0.1",
            primals=_heads(tokens=2, heads=3, groups=2, width=5, scale=0.25),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (
                draw.normal(1, 1, 67),
                draw.normal(1, 1, 67),
                draw.normal(67),
                draw.normal(67),
            ),
            dialects=("weight",),
            hunts="blocks of 64 features whose tail is left out",
        ),
    ),
)
