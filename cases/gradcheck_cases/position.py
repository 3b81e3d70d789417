"""Positions: rotary embedding and its backward, ALiBi, ggml's diagonal masks.

Axes: t positions (queries), s slots (keys), h heads, d features of a head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Dialect, OpSpec, Sample

# ── rope ─────────────────────────────────────────────────────────────────────────────────────


def rope_forward(xp, x, *, base=10000.0, offset=0, n_dims=0, half_split=False, skip_past=False):
    cos, sin = _rotation(xp, x, base, offset, n_dims, skip_past)
    return _turn(xp, x, cos, sin, half_split)


def rope_vjp(xp, ct, x, *, base=10000.0, offset=0, n_dims=0, half_split=False, skip_past=False):
    cos, sin = _rotation(xp, x, base, offset, n_dims, skip_past)
    return _turn(xp, ct, cos, -sin, half_split)  # a rotation's transpose is its inverse


def _rotation(
    xp: Any, x: Any, base: float, offset: int, n_dims: int, skip_past: bool
) -> tuple[Any, Any]:
    """Cosines and sines [t, 1, pairs] of pos · base^(−2i/size), pair i of `size` features.

    Positions count from `offset`; with `skip_past` the first `offset` rows are there, and stay.
    """
    size = n_dims or x.shape[-1]
    if size % 2:
        raise ValueError(f"rope turns pairs of features: it cannot rotate {size} of them")
    exponents = xp.positions(size // 2) * -2 / size
    frequencies = xp.exp(xp.log(xp.asarray(base)) * exponents)
    t = xp.positions(x.shape[-3])
    positions = xp.where(t >= offset, t, 0) if skip_past else t + offset
    angles = positions[:, None, None] * frequencies
    return xp.cos(angles), xp.sin(angles)


def _turn(xp: Any, x: Any, cos: Any, sin: Any, half_split: bool) -> Any:
    pairs = cos.shape[-1]
    rotated, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if half_split:
        a, b = rotated[..., :pairs], rotated[..., pairs:]
    else:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
    turned = [a * cos - b * sin, a * sin + b * cos]
    if half_split:
        return xp.concatenate([*turned, rest], axis=-1)
    return xp.concatenate([xp.reshape(xp.stack(turned, axis=-1), rotated.shape), rest], axis=-1)


ROPE_DIALECTS = (
    Dialect(
        name="interleaved",
        says="the Llama trainer and ggml mode 0: pair i is features 2i and 2i + 1",
    ),
    Dialect(
        name="half-split",
        says="Gemma, GPT-NeoX and ggml mode 2: pair i is features i and i + d/2",
        attrs={"half_split": True},
    ),
)

# Samples of both directions: the same mistakes are possible.
ROPE_SAMPLES = (
    Sample(
        name="typical",
        primals=lambda draw: (draw.normal(5, 2, 6),),
        hunts="backward that rotates the same way again, pairs taken from the other layout",
    ),
    Sample(
        name="square",
        primals=lambda draw: (draw.normal(4, 4, 4),),
        hunts="angles that follow the head instead of the position",
    ),
    Sample(
        name="one-pair",
        primals=lambda draw: (draw.normal(4, 1, 2),),
        hunts="a frequency other than 1 for pair 0, a head axis of size 1 dropped",
    ),
    Sample(
        name="batched",
        primals=lambda draw: (draw.normal(2, 3, 1, 4),),
        hunts="angles that follow the batch, or run on from one sequence to the next",
    ),
    Sample(
        name="offset",
        primals=lambda draw: (draw.normal(3, 2, 4),),
        attrs={"offset": 3},
        hunts="backward that forgets the offset of a cached context",
    ),
    Sample(
        name="one-row",
        primals=lambda draw: (draw.normal(1, 3, 4),),
        attrs={"offset": 5},
        hunts="decoding one token: position 0 instead of the offset",
    ),
    Sample(
        # Two pairs: the second turns by about 1, so that float32 still knows its angle.
        name="far",
        primals=lambda draw: (draw.normal(3, 1, 4),),
        attrs={"offset": 100},
        hunts="angles from an approximation that is good for small arguments only",
    ),
    Sample(
        name="base-100",
        primals=lambda draw: (draw.normal(4, 2, 6),),
        attrs={"base": 100.0},
        hunts="backward with the base 10000 built in",
    ),
    Sample(
        name="partial",
        primals=lambda draw: (draw.normal(3, 2, 7),),
        attrs={"n_dims": 4},
        hunts="unrotated features that lose their gradient, base^(-2i/d) over all of d",
    ),
    Sample(
        name="partial-offset",
        primals=lambda draw: (draw.normal(2, 1, 6),),
        attrs={"n_dims": 4, "offset": 2, "base": 100.0},
        hunts="attributes handed to backward in another order",
    ),
    Sample(
        name="skip-past",
        primals=lambda draw: (draw.normal(5, 2, 4),),
        attrs={"offset": 2, "skip_past": True},
        hunts="ggml's mode & 1: rows of the past rotated again, or without their gradient",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (np.zeros((0, 2, 4)),),
        hunts="no position at all",
    ),
)

rope = OpSpec(
    name="rope",
    signature="(t,h,d)->(t,h,d)",
    forward=rope_forward,
    vjp=rope_vjp,
    formula=r"\begin{pmatrix} y_a \\ y_b \end{pmatrix} = "
    r"\begin{pmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{pmatrix}"
    r"\begin{pmatrix} x_a \\ x_b \end{pmatrix},\quad "
    r"\theta_{t,i} = (t + \mathrm{offset})\,\mathrm{base}^{-2i/d}",
    source="Su et al. 2021, arXiv:2104.09864; ggml, ggml_rope (n_past, n_dims, mode)",
    dialects=ROPE_DIALECTS,
    samples=ROPE_SAMPLES,
)

# ── rope_back ────────────────────────────────────────────────────────────────────────────────


def rope_back_forward(
    xp, g, *, base=10000.0, offset=0, n_dims=0, half_split=False, skip_past=False
):
    cos, sin = _rotation(xp, g, base, offset, n_dims, skip_past)
    return _turn(xp, g, cos, -sin, half_split)


def rope_back_vjp(
    xp, ct, g, *, base=10000.0, offset=0, n_dims=0, half_split=False, skip_past=False
):
    cos, sin = _rotation(xp, g, base, offset, n_dims, skip_past)
    return _turn(xp, ct, cos, sin, half_split)


rope_back = OpSpec(
    name="rope_back",
    signature="(t,h,d)->(t,h,d)",
    forward=rope_back_forward,
    vjp=rope_back_vjp,
    formula=r"\begin{pmatrix} y_a \\ y_b \end{pmatrix} = "
    r"\begin{pmatrix} \cos\theta & \sin\theta \\ -\sin\theta & \cos\theta \end{pmatrix}"
    r"\begin{pmatrix} g_a \\ g_b \end{pmatrix}",
    source="ggml, ggml_rope_back: rotation by minus the position",
    dialects=ROPE_DIALECTS,
    samples=ROPE_SAMPLES,
)

# ── alibi ────────────────────────────────────────────────────────────────────────────────────


def alibi_forward(xp, x, *, n_past=0, n_head=0, bias_max=8.0):
    slopes = _alibi_slopes(xp, x.shape[-3], n_head or x.shape[-3], bias_max)
    return x + slopes[:, None, None] * (xp.positions(x.shape[-1]) - n_past)


def alibi_vjp(xp, ct, x, *, n_past=0, n_head=0, bias_max=8.0):
    return ct


def _alibi_slopes(xp: Any, count: int, n_head: int, bias_max: float) -> Any:
    """Slopes of the first `count` of `n_head` heads.

    With n the largest power of two up to n_head: m0^(h+1), m0 = 2^(−bias_max/n), for h < n, and
    m1^(2(h−n)+1), m1 = 2^(−bias_max/2n), after: between those of the first n.
    """
    n = 1 << (n_head.bit_length() - 1)
    two = xp.asarray(2.0)
    m0, m1 = xp.power(two, xp.asarray(-bias_max / n)), xp.power(two, xp.asarray(-bias_max / 2 / n))
    h = xp.positions(count)
    return xp.where(h < n, xp.power(m0, h + 1), xp.power(m1, 2 * (h - n) + 1))


alibi = OpSpec(
    name="alibi",
    signature="(h,t,s)->(h,t,s)",
    forward=alibi_forward,
    vjp=alibi_vjp,
    formula=r"y_{hts} = x_{hts} + m_h\,(s - n_{\mathrm{past}}),\quad "
    r"m_h = 2^{-b(h+1)/n}\ (h < n),\quad 2^{-b(2(h-n)+1)/(2n)}\ (h \ge n)",
    source="Press, Smith & Lewis 2021, arXiv:2108.12409; ggml, ggml_alibi",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 2, 5),),
            hunts="the slope taken for a factor of x; 3 heads are no power of two",
        ),
        Sample(
            name="power-of-two",
            primals=lambda draw: (draw.normal(4, 3, 2),),
            hunts="slopes of 2n heads where n are right",
        ),
        Sample(
            name="seven-heads",
            primals=lambda draw: (draw.normal(7, 2, 3),),
            hunts="heads beyond the power of two left out",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3, 3),),
            hunts="heads and queries exchanged",
        ),
        Sample(
            name="past",
            primals=lambda draw: (draw.normal(2, 1, 5),),
            attrs={"n_past": 4},
            hunts="slots of the past that lose their gradient",
        ),
        Sample(
            name="some-heads",
            primals=lambda draw: (draw.normal(2, 3, 3),),
            attrs={"n_head": 6},
            hunts="a share of the heads (tensor parallelism): n_head counted from x",
        ),
        Sample(
            name="bias-16",
            primals=lambda draw: (draw.normal(3, 2, 3),),
            attrs={"bias_max": 16.0},
            hunts="bias_max in the gradient",
        ),
        Sample(
            name="one-head",
            primals=lambda draw: (draw.normal(1, 2, 3),),
            hunts="an axis of size 1 dropped, a logarithm of 0",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 2, 2),),
            hunts="heads counted through the batch",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((2, 0, 3)),),
            hunts="no query at all",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 2, 131),),
            hunts="columns behind 64 or 128 without their bias",
        ),
    ),
)

# ── diag_mask_inf ────────────────────────────────────────────────────────────────────────────


def diag_mask_inf_forward(xp, x, *, n_past=0):
    return xp.where(_up_to_diagonal(x, n_past), x, xp.const("-inf"))


def diag_mask_inf_vjp(xp, ct, x, *, n_past=0):
    return xp.where(_up_to_diagonal(x, n_past), ct, 0.0)


def _up_to_diagonal(x: Any, n_past: int) -> Any:
    """Booleans [t, s]: s ≤ n_past + t."""
    return np.arange(x.shape[-1]) <= n_past + np.arange(x.shape[-2])[:, None]


MASK_SAMPLES = (
    Sample(
        name="typical",
        primals=lambda draw: (draw.normal(3, 5),),
        hunts="hidden elements with a gradient, the other triangle",
    ),
    Sample(
        name="square",
        primals=lambda draw: (draw.normal(4, 4),),
        hunts="a strict mask, which hides the diagonal; rows taken for columns",
    ),
    Sample(
        name="past",
        primals=lambda draw: (draw.normal(3, 7),),
        attrs={"n_past": 2},
        hunts="the diagonal at 0 whatever n_past, or one beside it",
    ),
    Sample(
        name="all-seen",
        primals=lambda draw: (draw.normal(2, 3),),
        attrs={"n_past": 3},
        hunts="a mask where nothing is hidden",
    ),
    Sample(
        name="tall",
        primals=lambda draw: (draw.normal(5, 2),),
        hunts="the diagonal aligned with the last row, as a cached context would have it",
    ),
    Sample(
        name="batched",
        primals=lambda draw: (draw.normal(2, 3, 3, 3),),
        hunts="a mask for the first head only, a diagonal through the batch",
    ),
    Sample(
        name="one-row",
        primals=lambda draw: (draw.normal(1, 5),),
        attrs={"n_past": 1},
        hunts="decoding one token: its row taken for row 0",
    ),
    Sample(
        name="single",
        primals=lambda draw: (draw.normal(1, 1),),
        hunts="a strict mask, which hides a position from itself",
    ),
    Sample(
        name="loud",
        primals=lambda draw: (draw.normal(3, 3, scale=2.0**60),),
        hunts="a mask that is multiplied by x, or added to it",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (np.zeros((0, 3)),),
        hunts="no row at all",
    ),
    Sample(
        name="tiles",
        primals=lambda draw: (draw.normal(33, 35),),
        hunts="a tile of 32 x 32 whose rows or columns over the edge are left out",
    ),
)

diag_mask_inf = OpSpec(
    name="diag_mask_inf",
    signature="(t,s)->(t,s)",
    forward=diag_mask_inf_forward,
    vjp=diag_mask_inf_vjp,
    formula=r"y_{ts} = x_{ts}\ (s \le n_{\mathrm{past}} + t),\quad -\infty\ "
    r"(s > n_{\mathrm{past}} + t)",
    source="ggml, ggml_diag_mask_inf",
    samples=MASK_SAMPLES,
)

# ── diag_mask_zero ───────────────────────────────────────────────────────────────────────────


def diag_mask_zero_forward(xp, x, *, n_past=0):
    return xp.where(_up_to_diagonal(x, n_past), x, 0.0)


def diag_mask_zero_vjp(xp, ct, x, *, n_past=0):
    return xp.where(_up_to_diagonal(x, n_past), ct, 0.0)


diag_mask_zero = OpSpec(
    name="diag_mask_zero",
    signature="(t,s)->(t,s)",
    forward=diag_mask_zero_forward,
    vjp=diag_mask_zero_vjp,
    formula=r"y_{ts} = x_{ts}\ (s \le n_{\mathrm{past}} + t),\quad 0\ "
    r"(s > n_{\mathrm{past}} + t)",
    source="ggml, ggml_diag_mask_zero: the backward of ggml_diag_mask_inf",
    samples=MASK_SAMPLES,
)
