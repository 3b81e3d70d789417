"""Linear maps. Axes: t rows, i inputs, o outputs; h heads, m a head's width, n outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

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
            primals=lambda draw: (
                draw.filled(draw.powers(3, 7)),
                draw.filled(draw.powers(5, 7)),
                draw.filled(draw.powers(5)),
            ),
            hunts="sums kept in a narrower type than the operands",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), draw.normal(3, 5), draw.normal(3)),
            hunts="no rows: dw and db must still be written, as zeros",
        ),
        Sample(
            name="empty-inner",
            primals=lambda draw: (np.zeros((3, 0)), np.zeros((2, 0)), draw.normal(2)),
            hunts="a sum over no inputs: y is b, and db its only gradient",
            no_features=True,
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(35, 1), draw.swamped(1, 67).T, draw.normal(67)),
            dialects=("bias",),
            hunts="a tile of 32 x 32 or 64 x 64 outputs whose edge is left out, dx summed in "
            "float16 or bfloat16",
        ),
        Sample(
            name="wide",
            primals=lambda draw: (draw.swamped(2, 131), draw.normal(3, 131), draw.normal(3)),
            dialects=("bias",),
            hunts="inputs behind 64 or 128 that no thread reads, a remainder of the inner loop",
        ),
        Sample(
            name="many",
            primals=lambda draw: (draw.positive(4099, 1), draw.normal(1, 1), draw.normal(1)),
            dialects=("bias",),
            hunts="dw and db summed in float16 or bfloat16: too coarse for 4096 terms",
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
            primals=lambda draw: (
                draw.filled(draw.powers(2, 3, 5)),
                draw.filled(draw.powers(3, 2, 5)),
            ),
            hunts="sums kept in a narrower type than the operands",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 3, 5)), draw.normal(3, 2, 5)),
            hunts="no rows: dw must still be written, as zeros",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(35, 2, 1), draw.normal(2, 67, 1)),
            hunts="a tile of outputs whose edge is left out, a sum that loses its tail behind "
            "32 or 64",
        ),
    ),
)

# ── mul_mat ──────────────────────────────────────────────────────────────────────────────────


def mul_mat_forward(xp, a, b):
    a, b = _grouped(xp, a, b)
    y = xp.matmul(b, xp.swapaxes(a, -1, -2))
    d, rd, c, rc, p, m = y.shape[-6:]
    return xp.reshape(y, (*y.shape[:-6], d * rd, c * rc, p, m))


def mul_mat_vjp(xp, ct, a, b):
    ag, bg = _grouped(xp, a, b)
    g = xp.reshape(ct, (*ct.shape[:-4], *bg.shape[-6:-1], ct.shape[-1]))
    # Summed over the matrices of b that met one of a's.
    da = xp.sum(xp.matmul(xp.swapaxes(g, -1, -2), bg), axis=(-5, -3))
    db = xp.matmul(g, ag)
    return (
        xp.reduce_to(da, a),
        xp.reduce_to(xp.reshape(db, (*db.shape[:-6], *b.shape[-4:])), b),
    )


def _grouped(xp: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Matrices of a, and the consecutive matrices of b that each meets, on facing axes."""
    d, c = a.shape[-4:-2]
    rd, rc = b.shape[-4] // d, b.shape[-3] // c
    return (
        a[..., :, None, :, None, :, :],
        xp.reshape(b, (*b.shape[:-4], d, rd, c, rc, *b.shape[-2:])),
    )


mul_mat = OpSpec(
    name="mul_mat",
    signature="(d,c,m,n),(e,f,p,n)->(e,f,p,m)",
    forward=mul_mat_forward,
    vjp=mul_mat_vjp,
    formula=r"y_{efpm} = \sum_n b_{efpn}\,a_{\lfloor e/r_d\rfloor \lfloor f/r_c\rfloor mn},"
    r"\quad r_d = e_{\max}/d_{\max},\ r_c = f_{\max}/c_{\max}",
    source="ggml_mul_mat: a [m, n] times b [p, n] gives [p, m]; consecutive b share one a",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(1, 1, 3, 5), draw.normal(1, 1, 7, 5)),
            hunts="an operand transposed, the two gradients exchanged",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(1, 1, 4, 4), draw.normal(1, 1, 4, 4)),
            hunts="an operand transposed, which raises no error on a square",
        ),
        Sample(
            name="one-to-one",
            primals=lambda draw: (draw.normal(2, 3, 2, 3), draw.normal(2, 3, 5, 3)),
            hunts="the first matrix used for all",
        ),
        Sample(
            name="repeat-inner",
            primals=lambda draw: (draw.normal(1, 2, 3, 2), draw.normal(1, 6, 2, 2)),
            hunts="consecutive matrices of b sent to different ones of a: tiles, not groups",
        ),
        Sample(
            name="repeat-outer",
            primals=lambda draw: (draw.normal(2, 1, 3, 2), draw.normal(4, 1, 5, 2)),
            hunts="the outermost axis not reduced",
        ),
        Sample(
            name="repeat-both",
            primals=lambda draw: (draw.normal(2, 1, 3, 2), draw.normal(4, 3, 2, 2)),
            hunts="one of two broadcast axes reduced, the mean over a group",
        ),
        Sample(
            name="one-row",
            primals=lambda draw: (draw.normal(1, 1, 5, 3), draw.normal(1, 2, 1, 3)),
            hunts="p = 1, one token at a time: a vector special case without the outer product",
        ),
        Sample(
            name="one-column",
            primals=lambda draw: (draw.normal(1, 1, 3, 1), draw.normal(1, 1, 5, 1)),
            hunts="a stride taken from the axis of size 1",
        ),
        Sample(
            name="many-magnitudes",
            primals=lambda draw: (
                draw.filled(draw.powers(1, 1, 3, 7)),
                draw.filled(draw.powers(1, 2, 5, 7)),
            ),
            hunts="sums kept in a narrower type than the operands",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (draw.normal(1, 1, 3, 5), np.zeros((1, 2, 0, 5))),
            hunts="no rows: the gradient of a must still be written, as zeros",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 1, 35, 1), draw.normal(1, 1, 67, 1)),
            hunts="a tile of outputs whose edge is left out, a sum that loses its tail behind "
            "32 or 64",
        ),
        Sample(
            name="wide",
            primals=lambda draw: (draw.normal(1, 1, 2, 131), draw.normal(1, 1, 3, 131)),
            hunts="inputs behind 64 or 128 that no thread reads",
        ),
    ),
)

# ── outer_product ────────────────────────────────────────────────────────────────────────────


def outer_product_forward(xp, a, b):
    return xp.matmul(xp.swapaxes(b, -1, -2), a)


def outer_product_vjp(xp, ct, a, b):
    da = xp.matmul(b, ct)
    db = xp.matmul(a, xp.swapaxes(ct, -1, -2))
    return xp.reduce_to(da, a), xp.reduce_to(db, b)


outer_product = OpSpec(
    name="outer_product",
    signature="(n,m),(n,p)->(p,m)",
    forward=outer_product_forward,
    vjp=outer_product_vjp,
    formula=r"y_{pm} = \sum_n b_{np}\,a_{nm}",
    source="ggml_out_prod, the gradient of its mul_mat; one row: numpy.outer(b, a)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(3, 7)),
            hunts="the operands exchanged, rows averaged",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), draw.normal(4, 4)),
            hunts="an operand transposed, which raises no error on a square",
        ),
        Sample(
            name="one-row",
            primals=lambda draw: (draw.normal(1, 5), draw.normal(1, 3)),
            hunts="the plain outer product, with the two vectors in each other's place",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 2, 3), draw.normal(2, 3, 2, 5)),
            hunts="the batch summed although both operands have it",
        ),
        Sample(
            name="broadcast",
            primals=lambda draw: (draw.normal(2, 3), draw.normal(3, 2, 5)),
            hunts="the gradient of the shared operand from the last batch only",
        ),
        Sample(
            name="broadcast-both",
            primals=lambda draw: (draw.normal(2, 1, 2, 3), draw.normal(1, 3, 2, 2)),
            hunts="a batch axis of size 1 not reduced, in either operand",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1), draw.normal(1, 1)),
            hunts="the two gradients exchanged, where nothing else can go wrong",
        ),
        Sample(
            name="many-magnitudes",
            primals=lambda draw: (draw.filled(draw.powers(7, 3)), draw.filled(draw.powers(7, 5))),
            hunts="sums kept in a narrower type than the operands",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 3)), np.zeros((0, 5))),
            hunts="a sum over no rows",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(2, 35), draw.normal(2, 67)),
            hunts="a tile of outputs whose edge is left out, a sum that loses its tail behind "
            "32 or 64",
        ),
    ),
)

# ── batched_matmul ───────────────────────────────────────────────────────────────────────────


def batched_matmul_forward(xp, x, y, *, transpose_x=False, transpose_y=False):
    return xp.matmul(_turned(xp, x, transpose_x), _turned(xp, y, transpose_y))


def batched_matmul_vjp(xp, ct, x, y, *, transpose_x=False, transpose_y=False):
    dx = xp.matmul(ct, xp.swapaxes(_turned(xp, y, transpose_y), -1, -2))
    dy = xp.matmul(xp.swapaxes(_turned(xp, x, transpose_x), -1, -2), ct)
    return (
        xp.reduce_to(_turned(xp, dx, transpose_x), x),
        xp.reduce_to(_turned(xp, dy, transpose_y), y),
    )


def _turned(xp: Any, x: Any, turn: bool) -> Any:
    return xp.swapaxes(x, -1, -2) if turn else x


batched_matmul = OpSpec(
    name="batched_matmul",
    signature="(t,i),(i,o)->(t,o)",
    forward=batched_matmul_forward,
    vjp=batched_matmul_vjp,
    formula=r"z = \mathrm{op}(x)\,\mathrm{op}(y),\quad \mathrm{op}(x) \in \{x, x^\top\}",
    source="torch.bmm, torch.matmul; BLAS xGEMM with its flags transa and transb",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(2, 5, 7)),
            hunts="an operand transposed, the batch summed",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3, 3), draw.normal(3, 3, 3)),
            hunts="operands in the other order, which raises no error on a square",
        ),
        Sample(
            name="transpose-x",
            primals=lambda draw: (draw.normal(2, 5, 3), draw.normal(2, 5, 2)),
            hunts="dx left transposed, or the flag ignored",
            attrs={"transpose_x": True},
        ),
        Sample(
            name="transpose-y",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(2, 2, 5)),
            hunts="dy left transposed, or the flag ignored",
            attrs={"transpose_y": True},
        ),
        Sample(
            name="transpose-both",
            primals=lambda draw: (draw.normal(2, 5, 3), draw.normal(2, 2, 5)),
            hunts="the two flags exchanged or combined wrongly",
            attrs={"transpose_x": True, "transpose_y": True},
        ),
        Sample(
            name="transpose-y-square",
            primals=lambda draw: (draw.normal(2, 3, 3), draw.normal(2, 3, 3)),
            hunts="the flag ignored where no shape tells",
            attrs={"transpose_y": True},
        ),
        Sample(
            name="shared-y",
            primals=lambda draw: (draw.normal(3, 2, 5), draw.normal(5, 3)),
            hunts="dy of the last batch only: overwritten, not accumulated",
        ),
        Sample(
            name="shared-x",
            primals=lambda draw: (draw.normal(2, 3), draw.normal(2, 3, 3, 2)),
            hunts="dx reduced over one batch axis instead of all",
        ),
        Sample(
            name="broadcast-both",
            primals=lambda draw: (draw.normal(2, 1, 2, 3), draw.normal(1, 3, 3, 2)),
            hunts="a batch axis of size 1 not reduced, in either operand",
        ),
        Sample(
            name="one-inner",
            primals=lambda draw: (draw.normal(2, 3, 1), draw.normal(2, 1, 5)),
            hunts="a stride taken from the axis of size 1",
        ),
        Sample(
            name="many-magnitudes",
            primals=lambda draw: (
                draw.filled(draw.powers(2, 3, 7)),
                draw.filled(draw.powers(2, 7, 2)),
            ),
            hunts="sums kept in a narrower type than the operands",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 3, 5)), draw.normal(5, 2)),
            hunts="no batch at all: dy must still be written, as zeros",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 35, 1), draw.normal(1, 1, 67)),
            hunts="a tile of outputs whose edge is left out, a sum that loses its tail behind "
            "32 or 64",
        ),
    ),
)

# ── low_rank_linear ──────────────────────────────────────────────────────────────────────────


def low_rank_linear_forward(xp, x, a, b, *, merged=False):
    if merged:
        return xp.matmul(x, xp.swapaxes(xp.matmul(a, b), -1, -2))
    return _through(xp, _through(xp, x, b), a)


def low_rank_linear_vjp(xp, ct, x, a, b, *, merged=False):
    if merged:
        dx = xp.matmul(ct, xp.matmul(a, b))
        dw = xp.matmul(xp.swapaxes(ct, -1, -2), x)
        da = xp.matmul(dw, xp.swapaxes(b, -1, -2))
        db = xp.matmul(xp.swapaxes(a, -1, -2), dw)
    else:
        h = _through(xp, x, b)
        dh = xp.matmul(ct, a)
        dx = xp.matmul(dh, b)
        da = xp.matmul(xp.swapaxes(ct, -1, -2), h)
        db = xp.matmul(xp.swapaxes(dh, -1, -2), x)
    return dx, xp.reduce_to(da, a), xp.reduce_to(db, b)


def _through(xp: Any, x: Any, w: Any) -> Any:
    return xp.matmul(x, xp.swapaxes(w, -1, -2))


low_rank_linear = OpSpec(
    name="low_rank_linear",
    signature="(t,i),(o,r),(r,i)->(t,o)",
    forward=low_rank_linear_forward,
    vjp=low_rank_linear_vjp,
    formula=r"y = x\,(A B)^\top",
    source="ggml's baby-llama, its model with every big matrix C split into A B = C",
    dialects=(
        Dialect(name="factored", says="baby-llama: by B to rank r, then by A"),
        Dialect(name="merged", says="the product A B formed first", attrs={"merged": True}),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(7, 2), draw.normal(2, 5)),
            hunts="the gradient of one factor without the other one in it",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3), draw.normal(3, 3), draw.normal(3, 3)),
            hunts="A B for B A, a factor transposed, dA and dB exchanged",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(3, 2), draw.normal(2, 5)),
            hunts="a factor's gradient of the last batch only",
        ),
        Sample(
            name="twice-batched",
            primals=lambda draw: (draw.normal(2, 3, 2, 3), draw.normal(5, 2), draw.normal(2, 3)),
            hunts="a factor's gradient summed over one batch axis instead of all",
        ),
        Sample(
            name="rank-1",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(2, 1), draw.normal(1, 5)),
            hunts="the rank axis squeezed away",
        ),
        Sample(
            name="rank-above-width",
            primals=lambda draw: (draw.normal(3, 2), draw.normal(3, 5), draw.normal(5, 2)),
            hunts="the rank taken for the smaller of the widths",
        ),
        Sample(
            name="one-row",
            primals=lambda draw: (draw.normal(1, 5), draw.normal(3, 2), draw.normal(2, 5)),
            hunts="T = 1: a vector special case without the outer product",
        ),
        Sample(
            name="zero-factor",
            primals=lambda draw: (draw.normal(3, 5), np.zeros((7, 2)), draw.normal(2, 5)),
            hunts="dA = 0 where A = 0: a path skipped because it adds nothing",
        ),
        Sample(
            name="many-magnitudes",
            primals=lambda draw: (
                draw.filled(draw.powers(3, 5)),
                draw.filled(draw.powers(5, 3)),
                draw.filled(draw.powers(3, 5)),
            ),
            hunts="the intermediate kept in a narrower type than the operands",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), draw.normal(3, 2), draw.normal(2, 5)),
            hunts="no rows: both factors' gradients must still be written, as zeros",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(35, 1), draw.normal(67, 1), draw.normal(1, 1)),
            dialects=("factored",),
            hunts="a tile of outputs whose edge is left out, a sum that loses its tail behind "
            "32 or 64",
        ),
    ),
)

# ── lora_linear ──────────────────────────────────────────────────────────────────────────────


def lora_linear_forward(xp, x, w, a, b, *, s=2.0, per="one"):
    return _through(xp, x, w) + _strength(xp, a, s, per) * _through(xp, _through(xp, x, b), a)


def lora_linear_vjp(xp, ct, x, w, a, b, *, s=2.0, per="one"):
    h = _through(xp, x, b)
    g = _strength(xp, a, s, per) * ct  # cotangent of the low-rank path
    dh = xp.matmul(g, a)
    dx = xp.matmul(ct, w) + xp.matmul(dh, b)
    dw = xp.matmul(xp.swapaxes(ct, -1, -2), x)
    da = xp.matmul(xp.swapaxes(g, -1, -2), h)
    db = xp.matmul(xp.swapaxes(dh, -1, -2), x)
    return dx, xp.reduce_to(dw, w), xp.reduce_to(da, a), xp.reduce_to(db, b)


def _strength(xp: Any, a: Any, s: float, per: str) -> Any:
    """The factor of A B, from s and the rank."""
    rank = a.shape[-1]
    divisors = {"one": 1, "rank": rank, "root": xp.sqrt_of(rank)}
    return xp.const(str(s)) / divisors[per]


lora_linear = OpSpec(
    name="lora_linear",
    signature="(t,i),(o,i),(o,r),(r,i)->(t,o)",
    forward=lora_linear_forward,
    vjp=lora_linear_vjp,
    formula=r"y = x\,(W + \sigma A B)^\top,\quad \sigma \in \{s,\ s/r,\ s/\sqrt r\}",
    source="Hu et al. 2021, arXiv:2106.09685 (its B is our A); Kalajdzievski 2023, "
    "arXiv:2312.03732",
    dialects=(
        Dialect(name="scale", says="times s, whatever the rank"),
        Dialect(name="lora", says="LoRA, PEFT: times alpha over the rank", attrs={"per": "rank"}),
        Dialect(name="rslora", says="rsLoRA: times alpha over its root", attrs={"per": "root"}),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _adapter(draw, 3, 5, 7, 3),
            hunts="s missing from one gradient, a path missing from dx",
        ),
        Sample(
            name="square",
            primals=lambda draw: _adapter(draw, 3, 3, 3, 3),
            hunts="A B for B A, a factor transposed, dA and dB exchanged",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 2, 5), *_adapter(draw, 1, 5, 3, 2)[1:]),
            hunts="a gradient of the last batch only",
        ),
        Sample(
            name="fresh",  # the usual start of an adapter: A is zero, so B has no gradient
            primals=lambda draw: (
                draw.normal(3, 5),
                draw.normal(2, 5),
                np.zeros((2, 3)),
                draw.normal(3, 5),
            ),
            hunts="dA = 0 where A = 0: an adapter that never starts to learn",
        ),
        Sample(
            name="rank-1",
            primals=lambda draw: _adapter(draw, 3, 5, 2, 1),
            hunts="the rank axis squeezed away; the rank taken from another axis",
        ),
        Sample(
            name="rank-5",
            primals=lambda draw: _adapter(draw, 2, 3, 2, 5),
            hunts="the rank at its default, or that of another layer",
        ),
        Sample(
            name="s-0.75",
            primals=lambda draw: _adapter(draw, 3, 5, 2, 3),
            hunts="s at its default in the backward, s squared",
            attrs={"s": 0.75},
        ),
        Sample(
            name="s-negative",
            primals=lambda draw: _adapter(draw, 3, 5, 2, 3),
            hunts="an adapter taken out (s < 0): |s|, or a root of s",
            attrs={"s": -1.5},
        ),
        Sample(
            name="s-0",
            primals=lambda draw: _adapter(draw, 3, 5, 2, 3),
            hunts="an adapter switched off by s = 0 replaced by the default; a division by s",
            attrs={"s": 0.0},
        ),
        Sample(
            name="one-row",
            primals=lambda draw: _adapter(draw, 1, 5, 3, 2),
            hunts="T = 1: a vector special case without the outer product",
        ),
        Sample(
            name="empty",
            primals=lambda draw: _adapter(draw, 0, 5, 3, 2),
            hunts="no rows: the weights' gradients must still be written, as zeros",
        ),
    ),
)


def _adapter(draw: Any, t: int, i: int, o: int, r: int) -> tuple[Any, ...]:
    return draw.normal(t, i), draw.normal(o, i), draw.normal(o, r), draw.normal(r, i)
