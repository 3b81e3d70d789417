"""Rotary position embedding: rope. Axes: t positions, h heads, d features of a head."""

from __future__ import annotations

from gradcheck.spec import Dialect, OpSpec, Sample

# ── rope ─────────────────────────────────────────────────────────────────────────────────────


def rope_forward(xp, x, *, base=10000.0, offset=0, n_dims=0, half_split=False):
    cos, sin = _rotation(xp, x, base, offset, n_dims)
    return _turn(xp, x, cos, sin, half_split)


def rope_vjp(xp, ct, x, *, base=10000.0, offset=0, n_dims=0, half_split=False):
    cos, sin = _rotation(xp, x, base, offset, n_dims)
    return _turn(xp, ct, cos, -sin, half_split)  # a rotation's transpose is its inverse


def _rotation(xp, x, base, offset, n_dims):
    """Cosines and sines [t, 1, pairs] of pos · base^(−2i/size), pair i of `size` features."""
    size = n_dims or x.shape[-1]
    if size % 2:
        raise ValueError(f"rope turns pairs of features: it cannot rotate {size} of them")
    exponents = xp.positions(size // 2) * -2 / size
    frequencies = xp.exp(xp.log(xp.asarray(base)) * exponents)
    angles = (xp.positions(x.shape[-3]) + offset)[:, None, None] * frequencies
    return xp.cos(angles), xp.sin(angles)


def _turn(xp, x, cos, sin, half_split):
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


rope = OpSpec(
    name="rope",
    signature="(t,h,d)->(t,h,d)",
    forward=rope_forward,
    vjp=rope_vjp,
    formula=r"\begin{pmatrix} y_a \\ y_b \end{pmatrix} = "
    r"\begin{pmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{pmatrix}"
    r"\begin{pmatrix} x_a \\ x_b \end{pmatrix},\quad "
    r"\theta_{t,i} = (t + \mathrm{offset})\,\mathrm{base}^{-2i/d}",
    source="Su et al. 2021, arXiv:2104.09864",
    dialects=(
        Dialect(
            name="interleaved",
            says="the Llama trainer and ggml mode 0: pair i is features 2i and 2i + 1",
        ),
        Dialect(
            name="half-split",
            says="Gemma, GPT-NeoX and ggml mode 2: pair i is features i and i + d/2",
            attrs={"half_split": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 2, 6),),
            hunts="backward that rotates forwards, pairs taken from the other layout",
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
    ),
)

OPERATORS = (rope,)
