"""Linear maps. Axes: t rows, i inputs, o outputs; h heads, m a head's width, n outputs."""

from __future__ import annotations

from gradcheck.spec import Dialect, OpSpec, Sample

# ── matmul ───────────────────────────────────────────────────────────────────────────────────


def matmul_forward(xp, x, w, b=None):
    y = xp.matmul(x, xp.swapaxes(w, -1, -2))
    return y if b is None else y + b[..., None, :]


def matmul_vjp(xp, ct, x, w, b=None):
    dx = xp.matmul(ct, w)
    dw = xp.reduce_to(xp.matmul(xp.swapaxes(ct, -1, -2), x), w)
    return (dx, dw) if b is None else (dx, dw, xp.reduce_to(xp.sum(ct, axis=-2), b))


matmul = OpSpec(
    name="matmul",
    signature="(t,i),(o,i),(o)->(t,o)",
    forward=matmul_forward,
    vjp=matmul_vjp,
    formula=r"y = x W^\top + b",
    source="llmgo matmulForward; gemma.cpp MatMulVJPT; torch.nn.functional.linear",
    dialects=(
        Dialect(name="bias", says="GPT-2: weight [out, in], plus b"),
        Dialect(name="no-bias", says="Gemma, Llama: weight [out, in]", without=("b",)),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(7, 5), draw.normal(7)),
            hunts="an operand transposed, db averaged over rows",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), draw.normal(4, 4), draw.normal(4)),
            hunts="an operand transposed, which raises no error on a square",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(4, 5), draw.normal(4)),
            hunts="dw or db of the last batch only: overwritten, not accumulated",
        ),
        Sample(
            name="twice-batched",
            primals=lambda draw: (draw.normal(2, 3, 2, 3), draw.normal(5, 3), draw.normal(5)),
            hunts="dw or db summed over one batch axis instead of all",
        ),
        Sample(
            name="one-row",
            primals=lambda draw: (draw.normal(1, 5), draw.normal(3, 5), draw.normal(3)),
            hunts="T = 1: a vector special case without the outer product",
        ),
        Sample(
            name="one-input",
            primals=lambda draw: (draw.normal(3, 1), draw.normal(5, 1), draw.normal(5)),
            hunts="a stride taken from the axis of size 1",
        ),
        Sample(
            name="one-output",
            primals=lambda draw: (draw.normal(5, 3), draw.normal(1, 3), draw.normal(1)),
            hunts="db of one output lost to a reduction over everything",
        ),
        Sample(
            name="many-magnitudes",
            primals=lambda draw: (draw.powers(3, 7), draw.powers(5, 7), draw.powers(5)),
            hunts="sums kept in a narrower type than the operands",
        ),
    ),
)

# ── multi_head_matmul ────────────────────────────────────────────────────────────────────────


def multi_head_matmul_forward(xp, x, w):
    return xp.sum(xp.matmul(_heads_first(xp, x), xp.swapaxes(w, -1, -2)), axis=-3)


def multi_head_matmul_vjp(xp, ct, x, w):
    g = ct[..., None, :, :]  # every head gets the whole cotangent
    dx = xp.moveaxis(xp.matmul(g, w), -3, -2)
    return dx, xp.reduce_to(xp.matmul(xp.swapaxes(g, -1, -2), _heads_first(xp, x)), w)


def _heads_first(xp, x):
    return xp.moveaxis(x, -2, -3)  # [t, h, m] → [h, t, m]


multi_head_matmul = OpSpec(
    name="multi_head_matmul",
    signature="(t,h,m),(h,n,m)->(t,n)",
    forward=multi_head_matmul_forward,
    vjp=multi_head_matmul_vjp,
    formula=r"y_{tn} = \sum_h \sum_m x_{thm}\,w_{hnm}",
    source="gemma.cpp MultiHeadMatMulVJPT",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 2, 5), draw.normal(2, 7, 5)),
            hunts="heads averaged, or one head's weight used for all",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(3, 3, 3), draw.normal(3, 3, 3)),
            hunts="axes t, h, m exchanged, which raises no error where they are equal",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 2, 3), draw.normal(2, 5, 3)),
            hunts="dw of the last batch only: overwritten, not accumulated",
        ),
        Sample(
            name="one-head",
            primals=lambda draw: (draw.normal(3, 1, 5), draw.normal(1, 2, 5)),
            hunts="a head axis that is squeezed away",
        ),
        Sample(
            name="one-row",
            primals=lambda draw: (draw.normal(1, 3, 5), draw.normal(3, 2, 5)),
            hunts="T = 1: the row stride (h*m) taken for m",
        ),
        Sample(
            name="one-wide",
            primals=lambda draw: (draw.normal(5, 3, 1), draw.normal(3, 2, 1)),
            hunts="a stride taken from the axis of size 1",
        ),
        Sample(
            name="many-magnitudes",
            primals=lambda draw: (draw.powers(2, 3, 5), draw.powers(3, 2, 5)),
            hunts="sums kept in a narrower type than the operands",
        ),
    ),
)

OPERATORS = (matmul, multi_head_matmul)
