"""Mutants of the operators in `gradcheck_cases.linear`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases import linear

MUTANTS: tuple[Mutant, ...] = ()


# ── parts ────────────────────────────────────────────────────────────────────────────────────


def _without_last_row(vjp: Vjp, index: int) -> Vjp:
    """Gradient `index` of all rows of the cotangent but the last of an odd number."""
    even = mutate.cut(lambda rows: rows // 2 * 2, axis=-2)
    return mutate.replaced(vjp, index, mutate.cotangent(vjp, even))


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


MUTANTS += mutant_table(
    "matmul",
    {
        ("input-transposed", "layout", "square"): (
            "dx is ct times the weight's transpose.",
            matmul_input_transposed_vjp,
        ),
        ("weight-transposed", "layout", "square"): (
            "dw comes out [in, out].",
            matmul_weight_transposed_vjp,
        ),
        ("weight-of-last-batch", "accumulation broadcast", "batched"): (
            "Each batch overwrites dw.",
            mutate.of_last(linear.matmul, 1),
        ),
        ("input-never-cleared", "accumulation", "typical"): (
            "dx is added to a buffer that is never cleared.",
            {"make": mutate.accumulated(linear.matmul_vjp, 0)},
        ),
        ("bias-mean", "reduction", "typical"): (
            "db is the mean over the rows.",
            mutate.scaled(
                linear.matmul_vjp, 2, lambda xp, x, w, b: 1 / max(x.size // x.shape[-1], 1)
            ),
            {"dialects": ("bias",)},
        ),
        ("bias-unreduced", "broadcast", "typical"): (
            "db is returned in the shape of y.",
            matmul_bias_unreduced_vjp,
            {"dialects": ("bias",)},
        ),
        ("odd-row-dropped", "shape accumulation", "one-row"): (
            "dw takes the rows two by two and forgets the last of an odd number.",
            _without_last_row(linear.matmul_vjp, 1),
        ),
        ("upstream-row", "cotangent", "typical"): (
            "The cotangent's first row stands for all.",
            mutate.cotangent(linear.matmul_vjp, mutate.first_for_all(-2)),
        ),
        ("half-sum", "precision", "many-magnitudes"): ("dw is summed in float16.", matmul_half_vjp),
    },
)

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


MUTANTS += mutant_table(
    "multi_head_matmul",
    {
        ("heads-averaged", "reduction", "typical"): (
            "dx is divided by the number of heads, as if y were their mean.",
            mutate.scaled(linear.multi_head_matmul_vjp, 0, lambda xp, x, w: 1 / x.shape[-2]),
        ),
        ("first-head-for-all", "index saved-value", "typical"): (
            "dx of every head reads head 0's weight.",
            multi_head_matmul_first_head_vjp,
        ),
        ("head-major", "layout", "typical"): (
            "dw reads x as if it lay [h, t, m].",
            multi_head_matmul_head_major_vjp,
        ),
        ("unmoved", "layout", "cube"): (
            "dx is written [h, t, m] into a tensor that is [t, h, m].",
            multi_head_matmul_unmoved_vjp,
        ),
        ("heads-pooled", "broadcast", "typical"): (
            "Every head gets the sum of all heads' dw.",
            multi_head_matmul_pooled_vjp,
        ),
        ("weight-of-last-batch", "accumulation broadcast", "batched"): (
            "Each batch overwrites dw.",
            mutate.of_last(linear.multi_head_matmul, 1),
        ),
        ("last-head-dropped", "index", "one-head"): (
            "The loop over heads stops one short: dw of the last head is 0.",
            mutate.output(
                linear.multi_head_matmul_vjp,
                1,
                mutate.cut(-1, axis=-3),
            ),
        ),
    },
)

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


MUTANTS += mutant_table(
    "mul_mat",
    {
        ("swapped", "slot", "square"): (
            "The two gradients stand in each other's place.",
            mutate.swapped(linear.mul_mat_vjp, 0, 1),
        ),
        ("tiles-for-groups", "broadcast index layout", "repeat-inner"): (
            "da takes matrix f of b for one of a's f mod c; consecutive ones belong together.",
            mul_mat_tiled_vjp,
        ),
        ("mean-of-group", "reduction", "repeat-both"): (
            "da is the mean over the matrices of b that meet one of a.",
            mutate.scaled(linear.mul_mat_vjp, 0, _group_size),
        ),
        ("last-of-group", "accumulation broadcast", "repeat-inner"): (
            "Each matrix of b overwrites what its group has added to da.",
            mul_mat_last_of_group_vjp,
        ),
        ("inner-axis-only", "broadcast accumulation", "repeat-outer"): (
            "da sums over the repeats of the inner outer axis only.",
            mul_mat_inner_only_vjp,
        ),
        ("first-matrix-for-all", "index saved-value", "one-to-one"): (
            "db reads a's first matrix everywhere: its outer strides are missing.",
            mul_mat_first_matrix_vjp,
        ),
        ("strides-ignored", "layout", "typical"): (
            "da reads b's memory as if b were transposed.",
            mul_mat_strides_vjp,
        ),
        ("unwritten-when-empty", "accumulation shape", "empty"): (
            "Without rows nothing is written to da, which keeps what its memory held.",
            mul_mat_unwritten_vjp,
        ),
    },
)

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


MUTANTS += mutant_table(
    "outer_product",
    {
        ("swapped", "slot", "single"): (
            "The two gradients stand in each other's place.",
            mutate.swapped(linear.outer_product_vjp, 0, 1),
        ),
        ("rows-averaged", "reduction", "typical"): (
            "da is divided by the number of rows.",
            mutate.scaled(linear.outer_product_vjp, 0, lambda xp, a, b: 1 / max(a.shape[-2], 1)),
        ),
        ("cotangent-transposed", "layout", "square"): (
            "da reads the cotangent [m, p].",
            outer_product_transposed_vjp,
        ),
        ("unreduced", "broadcast", "broadcast-both"): (
            "Neither gradient is summed over the axes along which its operand was repeated.",
            outer_product_unreduced_vjp,
        ),
        ("last-batch", "accumulation broadcast", "broadcast"): (
            "Each batch overwrites the shared operand's gradient.",
            mutate.of_last(linear.outer_product, 0),
        ),
        ("last-row-dropped", "index", "one-row"): (
            "The loop over rows stops one short: db of the last row is 0.",
            mutate.output(linear.outer_product_vjp, 1, mutate.cut(-1, axis=-2)),
        ),
        ("diagonal-only", "derivative index", "typical"): (
            "Only the diagonal of the cotangent is read, as for an element-wise product.",
            outer_product_diagonal_vjp,
        ),
        ("negated", "sign", "typical"): (
            "db has the wrong sign.",
            mutate.negated(linear.outer_product_vjp, 1),
        ),
    },
)

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


MUTANTS += mutant_table(
    "batched_matmul",
    {
        ("transpose-x-ignored", "attribute layout", "transpose-x"): (
            "The flag of the first operand is ignored.",
            mutate.attribute(linear.batched_matmul_vjp, transpose_x=False),
        ),
        ("transpose-y-ignored", "attribute layout", "transpose-y-square"): (
            "The flag of the second operand is ignored.",
            mutate.attribute(linear.batched_matmul_vjp, transpose_y=False),
        ),
        ("flags-exchanged", "attribute layout", "transpose-y-square"): (
            "Each operand is turned by the other one's flag.",
            mutate.attribute(
                linear.batched_matmul_vjp,
                transpose_x=lambda transpose_x, transpose_y: transpose_y,
                transpose_y=lambda transpose_x, transpose_y: transpose_x,
            ),
        ),
        ("left-turned", "layout attribute", "transpose-x"): (
            "dx is returned in the orientation of op(x).",
            batched_matmul_left_turned_vjp,
        ),
        ("operand-not-transposed", "layout", "square"): (
            "dx is ct times y, not its transpose.",
            batched_matmul_order_vjp,
        ),
        ("shared-y-of-last-batch", "accumulation broadcast", "shared-y"): (
            "Each batch overwrites the gradient of an operand that all share.",
            mutate.of_last(linear.batched_matmul, 1),
        ),
        ("one-batch-axis", "broadcast accumulation", "shared-x"): (
            "dx of a shared operand is summed over the inner of two batch axes only.",
            batched_matmul_one_axis_vjp,
        ),
        ("mean-of-repeats", "reduction", "broadcast-both"): (
            "dx is the mean over the axes along which x is repeated.",
            mutate.scaled(linear.batched_matmul_vjp, 0, _stretched),
        ),
        ("first-batch-for-all", "index saved-value", "typical"): (
            "dx of every batch reads the first batch's y.",
            batched_matmul_first_batch_vjp,
        ),
    },
)

# ── low_rank_linear ──────────────────────────────────────────────────────────────────────────


def _in_half(vjp: Vjp) -> Vjp:
    """All operands and gradients in float16."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        gradients = vjp(xp, ct, *(mutate.half(xp, p) for p in primals), **attrs)
        return tuple(mutate.half(xp, g) for g in gradients)

    return functools.wraps(vjp)(body)


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


MUTANTS += mutant_table(
    "low_rank_linear",
    {
        ("swapped", "slot", "square"): (
            "The gradients of the two factors stand in each other's place.",
            mutate.swapped(linear.low_rank_linear_vjp, 1, 2),
        ),
        ("factors-in-the-other-order", "layout slot", "square"): (
            "dx passes through B first, then A.",
            low_rank_linear_order_vjp,
        ),
        ("stale-intermediate", "saved-value", "typical"): (
            "dA reads an intermediate that was computed again after b had been updated.",
            low_rank_linear_stale_vjp,
        ),
        ("zero-factor-skipped", "slot", "zero-factor"): (
            "The path is skipped where A is 0, so dA is 0 and A stays 0 for ever.",
            low_rank_linear_skipped_vjp,
        ),
        ("factor-misread", "layout", "typical"): (
            "dB reads A's memory as [r, o].",
            low_rank_linear_swapped_factors_vjp,
        ),
        ("over-rank", "scale reduction", "typical"): (
            "dA is divided by the rank.",
            mutate.scaled(linear.low_rank_linear_vjp, 1, _rank),
        ),
        ("last-batch", "accumulation broadcast", "batched"): (
            "Each batch overwrites dB.",
            mutate.of_last(linear.low_rank_linear, 2),
        ),
        ("half", "precision", "many-magnitudes"): (
            "The gradients are rounded to float16.",
            _in_half(linear.low_rank_linear_vjp),
        ),
    },
)

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


MUTANTS += mutant_table(
    "lora_linear",
    {
        ("base-path-only", "term", "typical"): (
            "dx lacks the path through the adapter.",
            lora_linear_base_only_vjp,
        ),
        ("adapter-twice", "term scale", "typical"): (
            "dx counts the adapter twice: it is merged into W and still added.",
            lora_linear_merged_vjp,
        ),
        ("unscaled", "scale attribute", "typical"): (
            "dA lacks the factor of A B.",
            lora_linear_unscaled_vjp,
        ),
        ("scaled-twice", "scale", "s-0.75"): (
            "dB has the factor s once more.",
            mutate.scaled(linear.lora_linear_vjp, 3, _factor),
        ),
        ("s-default", "attribute", "s-0.75"): (
            "s is 2, whatever forward was given.",
            mutate.attribute(linear.lora_linear_vjp, s=2.0),
        ),
        ("s-0-is-default", "attribute", "s-0"): (
            "`s or 2.0`: an s of 0 counts as not given.",
            mutate.attribute(linear.lora_linear_vjp, s=lambda s, per: s or 2.0),
        ),
        ("s-magnitude", "sign attribute", "s-negative"): (
            "|s| in place of s.",
            mutate.attribute(linear.lora_linear_vjp, s=lambda s, per: abs(s)),
        ),
        ("rank-ignored", "attribute scale", "typical"): (
            "s is not divided by the rank or its root.",
            mutate.attribute(linear.lora_linear_vjp, per="one"),
            {"dialects": ("lora", "rslora")},
        ),
        ("rank-for-its-root", "attribute scale", "rank-5"): (
            "alpha over the rank where forward takes alpha over its root.",
            mutate.attribute(linear.lora_linear_vjp, per="rank"),
            {"dialects": ("rslora",)},
        ),
        ("outputs-for-rank", "index scale", "typical"): (
            "The rank is read from the wrong axis of A.",
            lora_linear_out_for_rank_vjp,
            {"dialects": ("lora",)},
        ),
        ("asleep", "slot derivative", "fresh"): (
            "dA is 0 where A is 0, so a fresh adapter never learns.",
            lora_linear_asleep_vjp,
        ),
        ("frozen", "slot", "typical"): (
            "No gradient for W, as if it were always frozen.",
            mutate.output(linear.lora_linear_vjp, 1, mutate.nothing),
        ),
        ("swapped", "slot", "square"): (
            "The gradients of A and B stand in each other's place.",
            mutate.swapped(linear.lora_linear_vjp, 2, 3),
        ),
    },
)
