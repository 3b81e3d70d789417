"""Mutants of the operators in `gradcheck_cases.linear`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant
from gradcheck_cases import linear

# ── parts ────────────────────────────────────────────────────────────────────────────────────


def _without_last_row(vjp: Vjp, index: int) -> Vjp:
    """Gradient `index` of all rows of the cotangent but the last of an odd number."""
    even = mutate.cut(lambda rows: rows // 2 * 2, axis=-2)
    return mutate.replaced(vjp, index, mutate.cotangent(vjp, even))


def _in_half(vjp: Vjp) -> Vjp:
    """All operands and gradients in float16."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        gradients = vjp(xp, ct, *(mutate.half(xp, p) for p in primals), **attrs)
        return tuple(mutate.half(xp, g) for g in gradients)

    return functools.wraps(vjp)(body)


# ── matmul ───────────────────────────────────────────────────────────────────────────────────


def matmul_input_transposed_vjp(xp, ct, x, w, b=None):
    _, *rest = linear.matmul_vjp(xp, ct, x, w, b)
    return xp.matmul(ct, xp.swapaxes(w, -1, -2)), *rest


def matmul_weight_transposed_vjp(xp, ct, x, w, b=None):
    dx, dw, *rest = linear.matmul_vjp(xp, ct, x, w, b)
    return dx, xp.swapaxes(dw, -1, -2), *rest


def matmul_bias_unreduced_vjp(xp, ct, x, w, b=None):
    dx, dw, *_ = linear.matmul_vjp(xp, ct, x, w, b)
    return (dx, dw) if b is None else (dx, dw, ct)


def matmul_half_vjp(xp, ct, x, w, b=None):
    dx, _, *rest = linear.matmul_vjp(xp, ct, x, w, b)
    rows = (ct[..., :, None] * x[..., None, :]).reshape(-1, *w.shape)
    dw = np.zeros(w.shape, np.float16)
    for row in rows:
        dw = (dw + row).astype(np.float16)
    return dx, dw.astype(w.dtype), *rest


# ── multi_head_matmul ────────────────────────────────────────────────────────────────────────


def multi_head_matmul_first_head_vjp(xp, ct, x, w):
    first = xp.broadcast_to(w[..., :1, :, :], w.shape)
    return (
        linear.multi_head_matmul_vjp(xp, ct, x, first)[0],
        linear.multi_head_matmul_vjp(xp, ct, x, w)[1],
    )


def multi_head_matmul_head_major_vjp(xp, ct, x, w):
    dx, _ = linear.multi_head_matmul_vjp(xp, ct, x, w)
    t, h, m = x.shape[-3:]
    as_if = xp.reshape(x, (*x.shape[:-3], h, t, m))
    g = ct[..., None, :, :]
    return dx, xp.reduce_to(xp.matmul(xp.swapaxes(g, -1, -2), as_if), w)


def multi_head_matmul_unmoved_vjp(xp, ct, x, w):
    _, dw = linear.multi_head_matmul_vjp(xp, ct, x, w)
    return xp.reshape(xp.matmul(ct[..., None, :, :], w), x.shape), dw


def multi_head_matmul_pooled_vjp(xp, ct, x, w):
    dx, dw = linear.multi_head_matmul_vjp(xp, ct, x, w)
    return dx, xp.broadcast_to(xp.sum(dw, axis=-3, keepdims=True), w.shape)


# ── mul_mat ──────────────────────────────────────────────────────────────────────────────────


def mul_mat_tiled_vjp(xp, ct, a, b):
    _, db = linear.mul_mat_vjp(xp, ct, a, b)
    products = xp.matmul(xp.swapaxes(ct, -1, -2), b)  # [e, f, m, n], one per matrix of b
    d, c = a.shape[-4:-2]
    e, f, m, n = products.shape[-4:]
    tiles = xp.reshape(products, (*products.shape[:-4], e // d, d, f // c, c, m, n))
    return xp.sum(tiles, axis=(-6, -4)), db


def mul_mat_last_of_group_vjp(xp, ct, a, b):
    _, db = linear.mul_mat_vjp(xp, ct, a, b)
    products = xp.matmul(xp.swapaxes(ct, -1, -2), b)
    d, c = a.shape[-4:-2]
    rd, rc = b.shape[-4] // d, b.shape[-3] // c
    return products[..., rd - 1 :: rd, rc - 1 :: rc, :, :], db


def mul_mat_inner_only_vjp(xp, ct, a, b):
    _, db = linear.mul_mat_vjp(xp, ct, a, b)
    d, c = a.shape[-4:-2]
    rd, rc = b.shape[-4] // d, b.shape[-3] // c
    products = xp.matmul(xp.swapaxes(ct, -1, -2), b)[..., ::rd, :, :, :]
    return xp.sum(xp.reshape(products, (*products.shape[:-3], c, rc, *a.shape[-2:])), axis=-3), db


def mul_mat_first_matrix_vjp(xp, ct, a, b):
    da, _ = linear.mul_mat_vjp(xp, ct, a, b)
    return da, xp.matmul(ct, a[..., :1, :1, :, :])


def mul_mat_strides_vjp(xp, ct, a, b):
    # Reads b's rows as if b lay transposed in memory.
    p, n = b.shape[-2:]
    turned = xp.swapaxes(xp.reshape(b, (*b.shape[:-2], n, p)), -1, -2)
    da, _ = linear.mul_mat_vjp(xp, ct, a, turned)
    return da, linear.mul_mat_vjp(xp, ct, a, b)[1]


def mul_mat_unwritten_vjp(xp, ct, a, b):
    da, db = linear.mul_mat_vjp(xp, ct, a, b)
    return (da if b.size else da + 1), db


def _group_size(xp: Any, a: Any, b: Any) -> Any:
    return a.shape[-3] * a.shape[-4] / (b.shape[-3] * b.shape[-4])


# ── outer_product ────────────────────────────────────────────────────────────────────────────


def outer_product_transposed_vjp(xp, ct, a, b):
    return xp.matmul(b, xp.swapaxes(ct, -1, -2)), linear.outer_product_vjp(xp, ct, a, b)[1]


def outer_product_unreduced_vjp(xp, ct, a, b):
    return xp.matmul(b, ct), xp.matmul(a, xp.swapaxes(ct, -1, -2))


def outer_product_diagonal_vjp(xp, ct, a, b):
    # As if y were the element-wise product: only the diagonal of the cotangent is read.
    p, m = ct.shape[-2:]
    on = np.eye(p, m, dtype=bool)
    return linear.outer_product_vjp(xp, xp.where(on, ct, 0.0), a, b)


# ── batched_matmul ───────────────────────────────────────────────────────────────────────────


def batched_matmul_order_vjp(xp, ct, x, y, *, transpose_x=False, transpose_y=False):
    _, dy = linear.batched_matmul_vjp(
        xp, ct, x, y, transpose_x=transpose_x, transpose_y=transpose_y
    )
    b = xp.swapaxes(y, -1, -2) if transpose_y else y
    dx = xp.matmul(ct, b)
    return xp.reduce_to(xp.swapaxes(dx, -1, -2) if transpose_x else dx, x), dy


def batched_matmul_left_turned_vjp(xp, ct, x, y, *, transpose_x=False, transpose_y=False):
    dx, dy = linear.batched_matmul_vjp(
        xp, ct, x, y, transpose_x=transpose_x, transpose_y=transpose_y
    )
    return (xp.swapaxes(dx, -1, -2) if transpose_x else dx), dy


def batched_matmul_one_axis_vjp(xp, ct, x, y, *, transpose_x=False, transpose_y=False):
    dx, dy = linear.batched_matmul_vjp(
        xp, ct, x, y, transpose_x=transpose_x, transpose_y=transpose_y
    )
    if ct.ndim - x.ndim > 1:
        some = ct[:1]  # the sum runs over the inner of two batch axes only
        dx, _ = linear.batched_matmul_vjp(
            xp, some, x, y[:1], transpose_x=transpose_x, transpose_y=transpose_y
        )
    return dx, dy


def batched_matmul_first_batch_vjp(xp, ct, x, y, *, transpose_x=False, transpose_y=False):
    _, dy = linear.batched_matmul_vjp(
        xp, ct, x, y, transpose_x=transpose_x, transpose_y=transpose_y
    )
    first = xp.broadcast_to(y[:1], y.shape) if y.ndim > 2 else y
    dx, _ = linear.batched_matmul_vjp(
        xp, ct, x, first, transpose_x=transpose_x, transpose_y=transpose_y
    )
    return dx, dy


def _stretched(xp: Any, x: Any, y: Any, **attrs: Any) -> float:
    """One over the size of the axes along which x is repeated."""
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return int(np.prod(x.shape[:-2])) / max(int(np.prod(lead)), 1)


# ── low_rank_linear ──────────────────────────────────────────────────────────────────────────


def low_rank_linear_order_vjp(xp, ct, x, a, b, *, merged=False):
    _, da, db = linear.low_rank_linear_vjp(xp, ct, x, a, b, merged=merged)
    return xp.matmul(xp.matmul(ct, b), a), da, db


def low_rank_linear_stale_vjp(xp, ct, x, a, b, *, merged=False):
    # h is computed again after an optimiser has already moved b.
    dx, _, db = linear.low_rank_linear_vjp(xp, ct, x, a, b, merged=merged)
    moved = b - 0.125 * db
    return dx, linear.low_rank_linear_vjp(xp, ct, x, a, moved, merged=merged)[1], db


def low_rank_linear_skipped_vjp(xp, ct, x, a, b, *, merged=False):
    dx, da, db = linear.low_rank_linear_vjp(xp, ct, x, a, b, merged=merged)
    return dx, (da if np.any(a) else xp.zeros_like(da)), db


def low_rank_linear_swapped_factors_vjp(xp, ct, x, a, b, *, merged=False):
    dx, da, _ = linear.low_rank_linear_vjp(xp, ct, x, a, b, merged=merged)
    dh = xp.matmul(ct, xp.reshape(a, (a.shape[-1], a.shape[-2])).T)  # a read as [r, o]
    return dx, da, xp.reduce_to(xp.matmul(xp.swapaxes(dh, -1, -2), x), b)


def _rank(xp: Any, x: Any, a: Any, b: Any, **attrs: Any) -> Any:
    return 1 / a.shape[-1]


# ── lora_linear ──────────────────────────────────────────────────────────────────────────────


def lora_linear_base_only_vjp(xp, ct, x, w, a, b, *, s=2.0, per="one"):
    _, *rest = linear.lora_linear_vjp(xp, ct, x, w, a, b, s=s, per=per)
    return xp.matmul(ct, w), *rest


def lora_linear_unscaled_vjp(xp, ct, x, w, a, b, *, s=2.0, per="one"):
    dx, dw, _, db = linear.lora_linear_vjp(xp, ct, x, w, a, b, s=s, per=per)
    return dx, dw, linear.low_rank_linear_vjp(xp, ct, x, a, b)[1], db


def lora_linear_out_for_rank_vjp(xp, ct, x, w, a, b, *, s=2.0, per="one"):
    if per != "rank":
        return linear.lora_linear_vjp(xp, ct, x, w, a, b, s=s, per=per)
    return linear.lora_linear_vjp(xp, ct, x, w, a, b, s=s / a.shape[-2], per="one")


def lora_linear_asleep_vjp(xp, ct, x, w, a, b, *, s=2.0, per="one"):
    dx, dw, da, db = linear.lora_linear_vjp(xp, ct, x, w, a, b, s=s, per=per)
    return dx, dw, xp.where(a != 0, da, 0.0), db


def lora_linear_merged_vjp(xp, ct, x, w, a, b, *, s=2.0, per="one"):
    # dx from a weight into which the adapter has been merged twice.
    dx, *rest = linear.lora_linear_vjp(xp, ct, x, w, a, b, s=s, per=per)
    return 2 * dx - xp.matmul(ct, w), *rest


def _factor(xp: Any, x: Any, w: Any, a: Any, b: Any, *, s: float, per: str) -> float:
    return s


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        op="matmul",
        name="input-transposed",
        label="L",
        killer="square",
        says="dx is ct times the weight's transpose.",
        vjp=matmul_input_transposed_vjp,
    ),
    Mutant(
        op="matmul",
        name="weight-transposed",
        label="L",
        killer="square",
        says="dw comes out [in, out].",
        vjp=matmul_weight_transposed_vjp,
    ),
    Mutant(
        op="matmul",
        name="weight-of-last-batch",
        label="A",
        also=("B",),
        killer="batched",
        says="Each batch overwrites dw.",
        vjp=mutate.of_last(linear.matmul, 1),
    ),
    Mutant(
        op="matmul",
        name="input-never-cleared",
        label="A",
        killer="typical",
        says="dx is added to a buffer that is never cleared.",
        make=mutate.accumulated(linear.matmul_vjp, 0),
    ),
    Mutant(
        op="matmul",
        name="bias-mean",
        label="R",
        killer="typical",
        says="db is the mean over the rows.",
        dialects=("bias",),
        vjp=mutate.scaled(
            linear.matmul_vjp, 2, lambda xp, x, w, b: 1 / max(x.size // x.shape[-1], 1)
        ),
    ),
    Mutant(
        op="matmul",
        name="bias-unreduced",
        label="B",
        killer="typical",
        says="db is returned in the shape of y.",
        dialects=("bias",),
        vjp=matmul_bias_unreduced_vjp,
    ),
    Mutant(
        op="matmul",
        name="odd-row-dropped",
        label="W",
        also=("A",),
        killer="one-row",
        says="dw takes the rows two by two and forgets the last of an odd number.",
        vjp=_without_last_row(linear.matmul_vjp, 1),
    ),
    Mutant(
        op="matmul",
        name="upstream-row",
        label="U",
        killer="typical",
        says="The cotangent's first row stands for all.",
        vjp=mutate.cotangent(linear.matmul_vjp, mutate.first_for_all(-2)),
    ),
    Mutant(
        op="matmul",
        name="half-sum",
        label="O",
        killer="many-magnitudes",
        says="dw is summed in float16.",
        vjp=matmul_half_vjp,
    ),
    Mutant(
        op="multi_head_matmul",
        name="heads-averaged",
        label="R",
        killer="typical",
        says="dx is divided by the number of heads, as if y were their mean.",
        vjp=mutate.scaled(linear.multi_head_matmul_vjp, 0, lambda xp, x, w: 1 / x.shape[-2]),
    ),
    Mutant(
        op="multi_head_matmul",
        name="first-head-for-all",
        label="I",
        also=("V",),
        killer="typical",
        says="dx of every head reads head 0's weight.",
        vjp=multi_head_matmul_first_head_vjp,
    ),
    Mutant(
        op="multi_head_matmul",
        name="head-major",
        label="L",
        killer="typical",
        says="dw reads x as if it lay [h, t, m].",
        vjp=multi_head_matmul_head_major_vjp,
    ),
    Mutant(
        op="multi_head_matmul",
        name="unmoved",
        label="L",
        killer="cube",
        says="dx is written [h, t, m] into a tensor that is [t, h, m].",
        vjp=multi_head_matmul_unmoved_vjp,
    ),
    Mutant(
        op="multi_head_matmul",
        name="heads-pooled",
        label="B",
        killer="typical",
        says="Every head gets the sum of all heads' dw.",
        vjp=multi_head_matmul_pooled_vjp,
    ),
    Mutant(
        op="multi_head_matmul",
        name="weight-of-last-batch",
        label="A",
        also=("B",),
        killer="batched",
        says="Each batch overwrites dw.",
        vjp=mutate.of_last(linear.multi_head_matmul, 1),
    ),
    Mutant(
        op="multi_head_matmul",
        name="last-head-dropped",
        label="I",
        killer="one-head",
        says="The loop over heads stops one short: dw of the last head is 0.",
        vjp=mutate.output(
            linear.multi_head_matmul_vjp,
            1,
            mutate.cut(-1, axis=-3),
        ),
    ),
    Mutant(
        op="mul_mat",
        name="swapped",
        label="G",
        killer="square",
        says="The two gradients stand in each other's place.",
        vjp=mutate.swapped(linear.mul_mat_vjp, 0, 1),
    ),
    Mutant(
        op="mul_mat",
        name="tiles-for-groups",
        label="B",
        also=("I", "L"),
        killer="repeat-inner",
        says="da takes matrix f of b for one of a's f mod c; consecutive ones belong together.",
        vjp=mul_mat_tiled_vjp,
    ),
    Mutant(
        op="mul_mat",
        name="mean-of-group",
        label="R",
        killer="repeat-both",
        says="da is the mean over the matrices of b that meet one of a.",
        vjp=mutate.scaled(linear.mul_mat_vjp, 0, _group_size),
    ),
    Mutant(
        op="mul_mat",
        name="last-of-group",
        label="A",
        also=("B",),
        killer="repeat-inner",
        says="Each matrix of b overwrites what its group has added to da.",
        vjp=mul_mat_last_of_group_vjp,
    ),
    Mutant(
        op="mul_mat",
        name="inner-axis-only",
        label="B",
        also=("A",),
        killer="repeat-outer",
        says="da sums over the repeats of the inner outer axis only.",
        vjp=mul_mat_inner_only_vjp,
    ),
    Mutant(
        op="mul_mat",
        name="first-matrix-for-all",
        label="I",
        also=("V",),
        killer="one-to-one",
        says="db reads a's first matrix everywhere: its outer strides are missing.",
        vjp=mul_mat_first_matrix_vjp,
    ),
    Mutant(
        op="mul_mat",
        name="strides-ignored",
        label="L",
        killer="typical",
        says="da reads b's memory as if b were transposed.",
        vjp=mul_mat_strides_vjp,
    ),
    Mutant(
        op="mul_mat",
        name="unwritten-when-empty",
        label="A",
        also=("W",),
        killer="empty",
        says="Without rows nothing is written to da, which keeps what its memory held.",
        vjp=mul_mat_unwritten_vjp,
    ),
    Mutant(
        op="outer_product",
        name="swapped",
        label="G",
        killer="single",
        says="The two gradients stand in each other's place.",
        vjp=mutate.swapped(linear.outer_product_vjp, 0, 1),
    ),
    Mutant(
        op="outer_product",
        name="rows-averaged",
        label="R",
        killer="typical",
        says="da is divided by the number of rows.",
        vjp=mutate.scaled(linear.outer_product_vjp, 0, lambda xp, a, b: 1 / max(a.shape[-2], 1)),
    ),
    Mutant(
        op="outer_product",
        name="cotangent-transposed",
        label="L",
        killer="square",
        says="da reads the cotangent [m, p].",
        vjp=outer_product_transposed_vjp,
    ),
    Mutant(
        op="outer_product",
        name="unreduced",
        label="B",
        killer="broadcast-both",
        says="Neither gradient is summed over the axes along which its operand was repeated.",
        vjp=outer_product_unreduced_vjp,
    ),
    Mutant(
        op="outer_product",
        name="last-batch",
        label="A",
        also=("B",),
        killer="broadcast",
        says="Each batch overwrites the shared operand's gradient.",
        vjp=mutate.of_last(linear.outer_product, 0),
    ),
    Mutant(
        op="outer_product",
        name="last-row-dropped",
        label="I",
        killer="one-row",
        says="The loop over rows stops one short: db of the last row is 0.",
        vjp=mutate.output(linear.outer_product_vjp, 1, mutate.cut(-1, axis=-2)),
    ),
    Mutant(
        op="outer_product",
        name="diagonal-only",
        label="D",
        also=("I",),
        killer="typical",
        says="Only the diagonal of the cotangent is read, as for an element-wise product.",
        vjp=outer_product_diagonal_vjp,
    ),
    Mutant(
        op="outer_product",
        name="negated",
        label="S",
        killer="typical",
        says="db has the wrong sign.",
        vjp=mutate.negated(linear.outer_product_vjp, 1),
    ),
    Mutant(
        op="batched_matmul",
        name="transpose-x-ignored",
        label="P",
        also=("L",),
        killer="transpose-x",
        says="The flag of the first operand is ignored.",
        vjp=mutate.attribute(linear.batched_matmul_vjp, transpose_x=False),
    ),
    Mutant(
        op="batched_matmul",
        name="transpose-y-ignored",
        label="P",
        also=("L",),
        killer="transpose-y-square",
        says="The flag of the second operand is ignored.",
        vjp=mutate.attribute(linear.batched_matmul_vjp, transpose_y=False),
    ),
    Mutant(
        op="batched_matmul",
        name="flags-exchanged",
        label="P",
        also=("L",),
        killer="transpose-y-square",
        says="Each operand is turned by the other one's flag.",
        vjp=mutate.attribute(
            linear.batched_matmul_vjp,
            transpose_x=lambda transpose_x, transpose_y: transpose_y,
            transpose_y=lambda transpose_x, transpose_y: transpose_x,
        ),
    ),
    Mutant(
        op="batched_matmul",
        name="left-turned",
        label="L",
        also=("P",),
        killer="transpose-x",
        says="dx is returned in the orientation of op(x).",
        vjp=batched_matmul_left_turned_vjp,
    ),
    Mutant(
        op="batched_matmul",
        name="operand-not-transposed",
        label="L",
        killer="square",
        says="dx is ct times y, not its transpose.",
        vjp=batched_matmul_order_vjp,
    ),
    Mutant(
        op="batched_matmul",
        name="shared-y-of-last-batch",
        label="A",
        also=("B",),
        killer="shared-y",
        says="Each batch overwrites the gradient of an operand that all share.",
        vjp=mutate.of_last(linear.batched_matmul, 1),
    ),
    Mutant(
        op="batched_matmul",
        name="one-batch-axis",
        label="B",
        also=("A",),
        killer="shared-x",
        says="dx of a shared operand is summed over the inner of two batch axes only.",
        vjp=batched_matmul_one_axis_vjp,
    ),
    Mutant(
        op="batched_matmul",
        name="mean-of-repeats",
        label="R",
        killer="broadcast-both",
        says="dx is the mean over the axes along which x is repeated.",
        vjp=mutate.scaled(linear.batched_matmul_vjp, 0, _stretched),
    ),
    Mutant(
        op="batched_matmul",
        name="first-batch-for-all",
        label="I",
        also=("V",),
        killer="typical",
        says="dx of every batch reads the first batch's y.",
        vjp=batched_matmul_first_batch_vjp,
    ),
    Mutant(
        op="low_rank_linear",
        name="swapped",
        label="G",
        killer="square",
        says="The gradients of the two factors stand in each other's place.",
        vjp=mutate.swapped(linear.low_rank_linear_vjp, 1, 2),
    ),
    Mutant(
        op="low_rank_linear",
        name="factors-in-the-other-order",
        label="L",
        also=("G",),
        killer="square",
        says="dx passes through B first, then A.",
        vjp=low_rank_linear_order_vjp,
    ),
    Mutant(
        op="low_rank_linear",
        name="stale-intermediate",
        label="V",
        killer="typical",
        says="dA reads an intermediate that was computed again after b had been updated.",
        vjp=low_rank_linear_stale_vjp,
    ),
    Mutant(
        op="low_rank_linear",
        name="zero-factor-skipped",
        label="G",
        killer="zero-factor",
        says="The path is skipped where A is 0, so dA is 0 and A stays 0 for ever.",
        vjp=low_rank_linear_skipped_vjp,
    ),
    Mutant(
        op="low_rank_linear",
        name="factor-misread",
        label="L",
        killer="typical",
        says="dB reads A's memory as [r, o].",
        vjp=low_rank_linear_swapped_factors_vjp,
    ),
    Mutant(
        op="low_rank_linear",
        name="over-rank",
        label="F",
        also=("R",),
        killer="typical",
        says="dA is divided by the rank.",
        vjp=mutate.scaled(linear.low_rank_linear_vjp, 1, _rank),
    ),
    Mutant(
        op="low_rank_linear",
        name="last-batch",
        label="A",
        also=("B",),
        killer="batched",
        says="Each batch overwrites dB.",
        vjp=mutate.of_last(linear.low_rank_linear, 2),
    ),
    Mutant(
        op="low_rank_linear",
        name="half",
        label="O",
        killer="many-magnitudes",
        says="The gradients are rounded to float16.",
        vjp=_in_half(linear.low_rank_linear_vjp),
    ),
    Mutant(
        op="lora_linear",
        name="base-path-only",
        label="T",
        killer="typical",
        says="dx lacks the path through the adapter.",
        vjp=lora_linear_base_only_vjp,
    ),
    Mutant(
        op="lora_linear",
        name="adapter-twice",
        label="T",
        also=("F",),
        killer="typical",
        says="dx counts the adapter twice: it is merged into W and still added.",
        vjp=lora_linear_merged_vjp,
    ),
    Mutant(
        op="lora_linear",
        name="unscaled",
        label="F",
        also=("P",),
        killer="typical",
        says="dA lacks the factor of A B.",
        vjp=lora_linear_unscaled_vjp,
    ),
    Mutant(
        op="lora_linear",
        name="scaled-twice",
        label="F",
        killer="s-0.75",
        says="dB has the factor s once more.",
        vjp=mutate.scaled(linear.lora_linear_vjp, 3, _factor),
    ),
    Mutant(
        op="lora_linear",
        name="s-default",
        label="P",
        killer="s-0.75",
        says="s is 2, whatever forward was given.",
        vjp=mutate.attribute(linear.lora_linear_vjp, s=2.0),
    ),
    Mutant(
        op="lora_linear",
        name="s-0-is-default",
        label="P",
        killer="s-0",
        says="`s or 2.0`: an s of 0 counts as not given.",
        vjp=mutate.attribute(linear.lora_linear_vjp, s=lambda s, per: s or 2.0),
    ),
    Mutant(
        op="lora_linear",
        name="s-magnitude",
        label="S",
        also=("P",),
        killer="s-negative",
        says="|s| in place of s.",
        vjp=mutate.attribute(linear.lora_linear_vjp, s=lambda s, per: abs(s)),
    ),
    Mutant(
        op="lora_linear",
        name="rank-ignored",
        label="P",
        also=("F",),
        killer="typical",
        says="s is not divided by the rank or its root.",
        dialects=("lora", "rslora"),
        vjp=mutate.attribute(linear.lora_linear_vjp, per="one"),
    ),
    Mutant(
        op="lora_linear",
        name="rank-for-its-root",
        label="P",
        also=("F",),
        killer="rank-5",
        says="alpha over the rank where forward takes alpha over its root.",
        dialects=("rslora",),
        vjp=mutate.attribute(linear.lora_linear_vjp, per="rank"),
    ),
    Mutant(
        op="lora_linear",
        name="outputs-for-rank",
        label="I",
        also=("F",),
        killer="typical",
        says="The rank is read from the wrong axis of A.",
        dialects=("lora",),
        vjp=lora_linear_out_for_rank_vjp,
    ),
    Mutant(
        op="lora_linear",
        name="asleep",
        label="G",
        also=("D",),
        killer="fresh",
        says="dA is 0 where A is 0, so a fresh adapter never learns.",
        vjp=lora_linear_asleep_vjp,
    ),
    Mutant(
        op="lora_linear",
        name="frozen",
        label="G",
        killer="typical",
        says="No gradient for W, as if it were always frozen.",
        vjp=mutate.output(linear.lora_linear_vjp, 1, mutate.nothing),
    ),
    Mutant(
        op="lora_linear",
        name="swapped",
        label="G",
        killer="square",
        says="The gradients of A and B stand in each other's place.",
        vjp=mutate.swapped(linear.lora_linear_vjp, 2, 3),
    ),
)
