"""Mutants of the operators in `gradcheck_cases.reduction`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases.reduction import (
    cumprod_vjp,
    cumsum_vjp,
    l2_norm_vjp,
    logsumexp_vjp,
    max_vjp,
    mean_vjp,
    prod_vjp,
    repeat_vjp,
    sort_vjp,
    sum_rows_vjp,
    sum_vjp,
    top_k_vjp,
    variance_vjp,
)

MUTANTS: tuple[Mutant, ...] = ()


# ── What several of them share ───────────────────────────────────────────────────────────────


# ── sum ──────────────────────────────────────────────────────────────────────────────────────


def sum_across_vjp(xp, ct, x, *, axis=None, keepdims=False):
    if axis == 0 and x.shape[0] == x.shape[1]:
        return xp.broadcast_to(ct[:, None], x.shape)
    return sum_vjp(xp, ct, x, axis=axis, keepdims=keepdims)


def sum_of_squares_vjp(xp, ct, x, *, axis=None, keepdims=False):
    return sum_vjp(xp, ct, x, axis=axis, keepdims=keepdims) * x * 2


MUTANTS += mutant_table(
    "sum",
    {
        ("mean", "reduction", "typical"): (
            "The cotangent is divided by the number of elements.",
            mutate.scaled(sum_vjp, 0, lambda xp, x, **attrs: 1 / max(x.size, 1)),
        ),
        ("upstream-scalar", "cotangent index", "last-axis"): (
            "The first number of the cotangent is used for every row.",
            mutate.cotangent(sum_vjp, mutate.first_for_all()),
        ),
        ("upstream-ones", "cotangent", "typical"): (
            "The gradient is all ones: what comes from above is ignored.",
            mutate.cotangent(sum_vjp, mutate.ones),
        ),
        ("other-axis", "index layout", "square-first-axis"): (
            "The cotangent of a sum over axis 0 is spread along axis 1 where shapes allow it.",
            sum_across_vjp,
        ),
        ("first-matrix", "shape index", "batched"): (
            "Of a tensor of rank 3, only the first matrix gets a gradient.",
            mutate.output(sum_vjp, 0, mutate.first_entry(2)),
        ),
        ("kept-twice", "broadcast reduction", "kept-axes"): (
            "With keepdims the cotangent is summed over the kept axes before it is spread.",
            mutate.scaled(
                sum_vjp,
                0,
                lambda xp, x, *, axis=None, keepdims=False: x.shape[1] if keepdims else 1,
            ),
        ),
        ("of-squares", "derivative", "typical"): (
            "The slope is 2x, that of a sum of squares.",
            sum_of_squares_vjp,
        ),
        ("last-column", "index", "typical"): (
            "The loop ends one column too early.",
            mutate.output(sum_vjp, 0, mutate.cut(-1)),
        ),
        ("never-cleared", "accumulation", "typical"): (
            "The gradient is added to a buffer that outlives the call.",
            {"make": mutate.accumulated(sum_vjp)},
        ),
    },
)

# ── sum_rows ─────────────────────────────────────────────────────────────────────────────────


def sum_rows_outermost_vjp(xp, ct, x):
    return xp.broadcast_to(ct[:1] if x.ndim > 3 else ct, x.shape)


def sum_rows_next_row_vjp(xp, ct, x):
    return xp.broadcast_to(xp.concatenate([ct[..., 1:, :], ct[..., -1:, :]], axis=-2), x.shape)


MUTANTS += mutant_table(
    "sum_rows",
    {
        ("mean", "reduction", "typical"): (
            "The cotangent is divided by the length of the row.",
            mutate.scaled(sum_rows_vjp, 0, lambda xp, x: 1 / x.shape[-1]),
        ),
        ("first-row", "cotangent index", "typical"): (
            "All rows get the first row's cotangent.",
            mutate.cotangent(sum_rows_vjp, mutate.first_for_all(-2)),
        ),
        ("next-row", "index", "typical"): (
            "Each row gets the cotangent of the row behind it.",
            sum_rows_next_row_vjp,
        ),
        ("down-columns", "layout index", "square"): (
            "The cotangent is spread down the columns where the matrix is square.",
            mutate.output(sum_rows_vjp, 0, mutate.transposed),
        ),
        ("outermost-axis", "shape index", "rank-4"): (
            "Of rank 4, the outermost index is not added to the cotangent's address.",
            sum_rows_outermost_vjp,
        ),
        ("tail-of-block", "shape accumulation", "width-67"): (
            "Columns behind the last whole block of 32 get nothing.",
            mutate.output(
                sum_rows_vjp,
                0,
                mutate.cut(lambda columns: columns // 32 * 32 or columns),
            ),
        ),
        ("never-cleared", "accumulation", "typical"): (
            "The gradient is added to a buffer that outlives the call.",
            {"make": mutate.accumulated(sum_rows_vjp)},
        ),
    },
)

# ── mean ─────────────────────────────────────────────────────────────────────────────────────


def _lengths(x: Any, axis: Any) -> list[int]:
    return [x.shape[a] for a in ((axis,) if isinstance(axis, int) else axis)]


MUTANTS += mutant_table(
    "mean",
    {
        ("sum", "reduction", "typical"): (
            "The factor 1/n is missing.",
            mutate.scaled(mean_vjp, 0, lambda xp, x, *, axis=-1: math.prod(_lengths(x, axis))),
        ),
        ("last-axis-length", "index reduction", "first-axis"): (
            "The length of the last axis is divided by, whatever the axis.",
            mutate.scaled(
                mean_vjp, 0, lambda xp, x, *, axis=-1: math.prod(_lengths(x, axis)) / x.shape[-1]
            ),
        ),
        ("one-of-two-axes", "scale reduction", "two-axes"): (
            "Of two axes, only the length of the last one is divided by.",
            mutate.scaled(mean_vjp, 0, lambda xp, x, *, axis=-1: math.prod(_lengths(x, axis)[:-1])),
        ),
        ("less-one", "scale reduction", "typical"): (
            "n - 1 is divided by.",
            mutate.scaled(
                mean_vjp,
                0,
                lambda xp, x, *, axis=-1: (n := math.prod(_lengths(x, axis))) / max(n - 1, 1),
            ),
        ),
        ("whole-tensor", "reduction", "typical"): (
            "The number of elements of the whole tensor is divided by.",
            mutate.scaled(
                mean_vjp, 0, lambda xp, x, *, axis=-1: math.prod(_lengths(x, axis)) / max(x.size, 1)
            ),
        ),
        ("first-row", "cotangent index", "typical"): (
            "All rows get the first row's cotangent.",
            mutate.cotangent(mean_vjp, mutate.first_for_all(-1)),
        ),
        ("block-of-64", "shape accumulation", "width-67"): (
            "Columns from 64 on get nothing.",
            mutate.output(mean_vjp, 0, mutate.cut(64)),
        ),
    },
)

# ── repeat ───────────────────────────────────────────────────────────────────────────────────


def _copies(xp: Any, ct: Any, x: Any, counts: Any, interleave: bool, keep: Any) -> Any:
    """Reduces every axis of copies by `keep(xp, ct, axis)`, outermost first."""
    lead = x.ndim - len(counts)
    wide = list(x.shape[:lead])
    for n, count in zip(x.shape[lead:], counts, strict=True):
        wide += [n, count] if interleave else [count, n]
    ct = xp.reshape(ct, wide)
    for k in range(len(counts)):
        ct = keep(xp, ct, lead + k + interleave, k - len(counts))
    return ct


def _sum(xp: Any, ct: Any, axis: int) -> Any:
    return xp.sum(ct, axis=axis)


def _at(ct: Any, axis: int, place: int) -> Any:
    return ct[(slice(None),) * axis + (place,)]


def repeat_all_summed_vjp(xp, ct, x, *, counts=(1, 1), interleave=False):
    return xp.broadcast_to(xp.sum(ct), x.shape)


def repeat_first_copy_vjp(xp, ct, x, *, counts=(1, 1), interleave=False):
    return _copies(xp, ct, x, counts, interleave, lambda xp, ct, axis, k: _at(ct, axis, 0))


def repeat_last_copy_vjp(xp, ct, x, *, counts=(1, 1), interleave=False):
    return _copies(xp, ct, x, counts, interleave, lambda xp, ct, axis, k: _at(ct, axis, -1))


def repeat_last_axis_vjp(xp, ct, x, *, counts=(1, 1), interleave=False):
    return _copies(
        xp,
        ct,
        x,
        counts,
        interleave,
        lambda xp, ct, axis, k: _sum(xp, ct, axis) if k == -1 else _at(ct, axis, 0),
    )


def repeat_two_axes_vjp(xp, ct, x, *, counts=(1, 1), interleave=False):
    return _copies(
        xp,
        ct,
        x,
        counts,
        interleave,
        lambda xp, ct, axis, k: _sum(xp, ct, axis) if k >= -2 else _at(ct, axis, 0),
    )


def repeat_batch_summed_vjp(xp, ct, x, *, counts=(1, 1), interleave=False):
    g = repeat_vjp(xp, ct, x, counts=counts, interleave=interleave)
    if x.ndim == len(counts):
        return g
    return xp.broadcast_to(xp.sum(g, axis=0, keepdims=True), x.shape)


def repeat_once_vjp(xp, ct, x, *, counts=(1, 1), interleave=False):
    if all(n == 1 for n in counts):
        return xp.zeros_like(x)
    return repeat_vjp(xp, ct, x, counts=counts, interleave=interleave)


MUTANTS += mutant_table(
    "repeat",
    {
        ("all-summed", "broadcast", "columns"): (
            "Every element gets the sum of the whole cotangent: right for a single element only.",
            repeat_all_summed_vjp,
            {"modelled_on": "ggml's first backward of ggml_repeat"},
        ),
        ("mean", "reduction", "columns"): (
            "The mean over the copies is taken, not their sum.",
            mutate.scaled(
                repeat_vjp,
                0,
                lambda xp, x, *, counts=(1, 1), interleave=False: 1 / math.prod(counts),
            ),
        ),
        ("first-copy", "broadcast accumulation", "rows"): (
            "The first copy's cotangent alone is passed back.",
            repeat_first_copy_vjp,
        ),
        ("last-copy", "accumulation broadcast", "rows"): (
            "Each copy overwrites the gradient of the one before it.",
            repeat_last_copy_vjp,
        ),
        ("other-order", "index layout attribute", "columns"): (
            "Tiled copies are read as interleaved ones, and the reverse.",
            mutate.attribute(repeat_vjp, interleave=lambda interleave, **_: not interleave),
        ),
        ("last-axis-only", "broadcast accumulation", "typical"): (
            "Copies along the last axis are summed, of the others the first one is taken.",
            repeat_last_axis_vjp,
        ),
        ("two-axes-only", "shape broadcast accumulation", "rank-4"): (
            "Copies along the last two axes are summed, of the outer ones the first is taken.",
            repeat_two_axes_vjp,
        ),
        ("counts-exchanged", "attribute index", "typical"): (
            "The counts are read in the reverse order of the axes.",
            mutate.attribute(repeat_vjp, counts=lambda counts, **_: counts[::-1]),
        ),
        ("batch-summed", "broadcast shape", "batched"): (
            "An axis that was not repeated is summed too.",
            repeat_batch_summed_vjp,
        ),
        ("once-is-nothing", "slot", "once"): (
            "A repetition of one copy passes no gradient back.",
            repeat_once_vjp,
        ),
    },
)

# ── max ──────────────────────────────────────────────────────────────────────────────────────


def max_all_ties_vjp(xp, ct, x):
    return xp.where(x == xp.max(x, axis=-1, keepdims=True), ct[..., None], 0.0)


def max_ties_lose_vjp(xp, ct, x):
    tied = x == xp.max(x, axis=-1, keepdims=True)
    return xp.where(tied & (np.sum(tied, axis=-1, keepdims=True) == 1), ct[..., None], 0.0)


def _at_place(xp: Any, ct: Any, x: Any, place: Any) -> Any:
    return xp.add_along(ct[..., None], np.broadcast_to(place, ct.shape)[..., None], x, axis=-1)


def max_shifted_vjp(xp, ct, x):
    return _at_place(xp, ct, x, (xp.argmax(x, axis=-1) + 1) % x.shape[-1])


def max_without_last_vjp(xp, ct, x):
    return _at_place(xp, ct, x, xp.argmax(x[..., :-1] if x.shape[-1] > 1 else x, axis=-1))


def max_from_zero_vjp(xp, ct, x):
    found = xp.max(x, axis=-1, keepdims=True) > 0
    return xp.where(found, max_vjp(xp, ct, x), 0.0)


def max_magnitude_vjp(xp, ct, x):
    return _at_place(xp, ct, x, xp.argmax(xp.abs(x), axis=-1))


def max_softmax_vjp(xp, ct, x):
    return logsumexp_vjp(xp, ct, x)


def max_value_vjp(xp, ct, x):
    return max_vjp(xp, xp.max(x, axis=-1), x)


def max_block_vjp(xp, ct, x):
    return _at_place(xp, ct, x, xp.argmax(x[..., :32], axis=-1))


MUTANTS += mutant_table(
    "max",
    {
        ("all-ties", "kink", "ties"): (
            "Every element that attains the maximum gets the whole cotangent.",
            max_all_ties_vjp,
        ),
        ("ties-lose", "kink", "ties"): (
            "Where two elements attain the maximum, none gets anything.",
            max_ties_lose_vjp,
        ),
        ("next-place", "index", "typical"): (
            "The element behind the maximum gets the cotangent.",
            max_shifted_vjp,
        ),
        ("without-last", "index", "at-the-ends"): (
            "The search ends before the last element.",
            max_without_last_vjp,
        ),
        ("from-zero", "derivative", "negative"): (
            "The running maximum starts from 0, so that rows of negative numbers get nothing.",
            max_from_zero_vjp,
        ),
        ("first-rows-place", "index saved-value", "typical"): (
            "The place of the maximum is looked up in the first row for all rows.",
            mutate.primal(max_vjp, 0, mutate.first_for_all(-2)),
        ),
        ("magnitude", "derivative", "negative"): (
            "The element of the largest magnitude gets the cotangent.",
            max_magnitude_vjp,
        ),
        ("softmax", "derivative", "typical"): (
            "The cotangent is shared out as a softmax would.",
            max_softmax_vjp,
        ),
        ("value-for-cotangent", "cotangent", "typical"): (
            "The maximum itself is put into its place, not the cotangent.",
            max_value_vjp,
        ),
        ("block-of-32", "shape index", "width-37"): (
            "Elements from 32 on never take part.",
            max_block_vjp,
        ),
    },
)

# ── prod ─────────────────────────────────────────────────────────────────────────────────────


def prod_quotient_vjp(xp, ct, x):
    return ct[..., None] * xp.prod(x, axis=-1, keepdims=True) / x


def prod_guarded_vjp(xp, ct, x):
    quotient = xp.prod(x, axis=-1, keepdims=True) / xp.where(x == 0, 1.0, x)
    return ct[..., None] * xp.where(x == 0, 0.0, quotient)


def prod_one_zero_vjp(xp, ct, x):
    others = xp.prod(xp.where(x == 0, 1.0, x), axis=-1, keepdims=True)
    return xp.where(x == 0, ct[..., None] * others, prod_guarded_vjp(xp, ct, x))


def prod_logarithms_vjp(xp, ct, x):
    return ct[..., None] * xp.exp(xp.sum(xp.log(xp.abs(x)), axis=-1, keepdims=True)) / x


def prod_itself_vjp(xp, ct, x):
    return xp.broadcast_to((ct * xp.prod(x, axis=-1))[..., None], x.shape)


def prod_before_only_vjp(xp, ct, x):
    return ct[..., None] * xp.cumprod(xp.pad(x, -1, 1, 0, "1"), axis=-1)[..., :-1]


MUTANTS += mutant_table(
    "prod",
    {
        ("quotient", "non-finite", "zeros"): (
            "The product is divided by each element: 0/0 at a zero.",
            prod_quotient_vjp,
        ),
        ("guarded-quotient", "derivative", "zeros"): (
            "A zero gets nothing, where the product of the others is due.",
            prod_guarded_vjp,
        ),
        ("one-zero-only", "derivative", "zeros"): (
            "A zero gets the product of all that are not zero, other zeros or not.",
            prod_one_zero_vjp,
        ),
        ("logarithms", "sign non-finite", "scales"): (
            "The product is exp(sum log |x|), which has lost its sign.",
            prod_logarithms_vjp,
        ),
        ("itself-too", "scale derivative", "typical"): (
            "The element itself stays in the product.",
            prod_itself_vjp,
        ),
        ("before-only", "scale derivative", "typical"): (
            "The elements behind are left out of the product.",
            prod_before_only_vjp,
        ),
        ("first-row", "cotangent index", "typical"): (
            "All rows get the first row's cotangent.",
            mutate.cotangent(prod_vjp, mutate.first_for_all(-1)),
        ),
        ("degree", "scale", "typical"): (
            "An extra factor d, as if the product were a power.",
            mutate.scaled(prod_vjp, 0, lambda xp, x: x.shape[-1]),
        ),
    },
)

# ── logsumexp ────────────────────────────────────────────────────────────────────────────────


def logsumexp_unshifted_vjp(xp, ct, x):
    e = xp.exp(x)
    return ct[..., None] * e / xp.sum(e, axis=-1, keepdims=True)


def logsumexp_global_shift_vjp(xp, ct, x):
    e = xp.exp(x - (xp.max(x) if x.size else 0.0))
    return ct[..., None] * e / xp.sum(e, axis=-1, keepdims=True)


def logsumexp_and_max_vjp(xp, ct, x):
    return logsumexp_vjp(xp, ct, x) + max_vjp(xp, ct, x)


def logsumexp_unnormalised_vjp(xp, ct, x):
    return ct[..., None] * xp.exp(x - xp.max(x, axis=-1, keepdims=True))


def logsumexp_log_softmax_vjp(xp, ct, x):
    return ct[..., None] - logsumexp_vjp(xp, ct, x)


def logsumexp_diagonal_vjp(xp, ct, x):
    p = logsumexp_vjp(xp, xp.full(ct.shape, "1"), x)
    return ct[..., None] * p * (1 - p)


def logsumexp_cut_vjp(xp, ct, x):
    p = logsumexp_vjp(xp, xp.full(ct.shape, "1"), x)
    return xp.where(p > 1e-4, ct[..., None] * p, 0.0)


def logsumexp_short_sum_vjp(xp, ct, x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return ct[..., None] * e / xp.sum(e[..., :-1], axis=-1, keepdims=True)


MUTANTS += mutant_table(
    "logsumexp",
    {
        ("unshifted", "precision non-finite", "large"): (
            "exp(x) is taken without the shift by the maximum.",
            logsumexp_unshifted_vjp,
        ),
        ("global-shift", "precision non-finite", "rows-apart"): (
            "All rows are shifted by the maximum of the whole tensor.",
            logsumexp_global_shift_vjp,
        ),
        ("max-too", "term", "typical"): (
            "The maximum of the shift is differentiated once more.",
            logsumexp_and_max_vjp,
        ),
        ("unnormalised", "scale derivative", "typical"): (
            "The shifted exponentials are not divided by their sum.",
            logsumexp_unnormalised_vjp,
        ),
        ("log-softmax", "derivative", "typical"): (
            "The softmax is subtracted from the cotangent, as in log_softmax.",
            logsumexp_log_softmax_vjp,
        ),
        ("p-times-1-minus-p", "derivative", "typical"): (
            "The slope is p (1 - p), the diagonal of the softmax's Jacobian.",
            logsumexp_diagonal_vjp,
        ),
        ("small-shares-cut", "precision derivative", "one-dominant"): (
            "Shares below 1e-4 are flushed to 0.",
            logsumexp_cut_vjp,
        ),
        ("short-sum", "index saved-value", "typical"): (
            "The sum of the exponentials leaves out the last column.",
            logsumexp_short_sum_vjp,
        ),
        ("first-row", "cotangent index", "typical"): (
            "All rows get the first row's cotangent.",
            mutate.cotangent(logsumexp_vjp, mutate.first_for_all(-1)),
        ),
    },
)

# ── cumsum ───────────────────────────────────────────────────────────────────────────────────


def cumsum_total_vjp(xp, ct, x, *, exclusive=False, reverse=False):
    return xp.broadcast_to(xp.sum(ct, axis=-1, keepdims=True), x.shape)


def cumsum_blocks_vjp(xp, ct, x, *, exclusive=False, reverse=False):
    parts = [
        cumsum_vjp(xp, ct[..., k : k + 32], x, exclusive=exclusive, reverse=reverse)
        for k in range(0, x.shape[-1], 32)
    ]
    return xp.concatenate(parts, axis=-1)


def cumsum_columns_vjp(xp, ct, x, *, exclusive=False, reverse=False):
    down = cumsum_vjp(xp, xp.swapaxes(ct, -1, -2), x, exclusive=exclusive, reverse=reverse)
    return xp.swapaxes(down, -1, -2)


MUTANTS += mutant_table(
    "cumsum",
    {
        ("same-direction", "layout attribute", "typical"): (
            "The cotangent is summed in the direction of forward: J, not its transpose.",
            mutate.attribute(cumsum_vjp, reverse=lambda reverse, **_: not reverse),
        ),
        ("exclusive-ignored", "attribute", "exclusive"): (
            "The element itself is counted, whatever was asked for.",
            mutate.attribute(cumsum_vjp, exclusive=False),
        ),
        ("reverse-ignored", "attribute", "reverse"): (
            "The direction is that of the default.",
            mutate.attribute(cumsum_vjp, reverse=False),
        ),
        ("own-left-out", "index attribute", "typical"): (
            "The sum starts one element too late.",
            mutate.attribute(cumsum_vjp, exclusive=True),
        ),
        ("total", "derivative term", "typical"): (
            "Every element gets the sum of the row's cotangent.",
            cumsum_total_vjp,
        ),
        ("carry-lost", "shape term", "width-67"): (
            "Blocks of 32 are summed on their own: no carry from one to the next.",
            cumsum_blocks_vjp,
        ),
        ("down-columns", "index", "typical"): (
            "The running sum goes down the columns.",
            cumsum_columns_vjp,
        ),
        ("never-cleared", "accumulation", "typical"): (
            "The gradient is added to a buffer that outlives the call.",
            {"make": mutate.accumulated(cumsum_vjp)},
        ),
    },
)

# ── cumprod ──────────────────────────────────────────────────────────────────────────────────


def _from_behind(xp: Any, x: Any) -> Any:
    return xp.flip(xp.cumsum(xp.flip(x, -1), axis=-1), -1)


def _others_before(xp: Any, x: Any) -> Any:
    return xp.cumprod(xp.pad(x, -1, 1, 0, "1"), axis=-1)[..., :-1]


def cumprod_quotient_vjp(xp, ct, x):
    return _from_behind(xp, ct * xp.cumprod(x, axis=-1)) / x


def cumprod_guarded_vjp(xp, ct, x):
    total = _from_behind(xp, ct * xp.cumprod(x, axis=-1))
    return xp.where(x == 0, 0.0, total / xp.where(x == 0, 1.0, x))


def cumprod_own_output_vjp(xp, ct, x):
    return ct * _others_before(xp, x)


def cumprod_same_direction_vjp(xp, ct, x):
    return xp.cumsum(ct * xp.cumprod(x, axis=-1), axis=-1) / x


def cumprod_last_output_vjp(xp, ct, x):
    last = xp.where(np.arange(x.shape[-1]) == x.shape[-1] - 1, ct, 0.0)
    return cumprod_vjp(xp, last, x)


def cumprod_zero_alone_vjp(xp, ct, x):
    return xp.where(x == 0, cumprod_own_output_vjp(xp, ct, x), cumprod_vjp(xp, ct, x))


def cumprod_blocks_vjp(xp, ct, x):
    first = cumprod_vjp(xp, ct[..., :16], x[..., :16])
    return xp.concatenate([first, cumprod_vjp(xp, ct, x)[..., 16:]], axis=-1)


def cumprod_off_by_one_vjp(xp, ct, x):
    return cumprod_vjp(xp, ct, x) * x


MUTANTS += mutant_table(
    "cumprod",
    {
        ("quotient", "non-finite", "zeros"): (
            "The reversed running sum of ct y is divided by x: 0/0 at a zero.",
            cumprod_quotient_vjp,
        ),
        ("guarded-quotient", "derivative", "zeros"): (
            "A zero gets nothing, where the product of the others is due.",
            cumprod_guarded_vjp,
        ),
        ("zero-alone", "term", "zeros"): (
            "A zero gets the term of its own output alone, not those of later ones.",
            cumprod_zero_alone_vjp,
        ),
        ("own-output", "term accumulation", "typical"): (
            "Only the output at the same place passes anything back.",
            cumprod_own_output_vjp,
        ),
        ("last-output", "term accumulation", "typical"): (
            "Only the last output passes anything back, as in prod.",
            cumprod_last_output_vjp,
        ),
        ("same-direction", "layout non-finite", "typical"): (
            "The sum runs in the direction of forward.",
            cumprod_same_direction_vjp,
        ),
        ("itself-too", "scale derivative", "typical"): (
            "The element itself stays in the products.",
            cumprod_off_by_one_vjp,
        ),
        ("carry-lost", "shape term", "width-17"): (
            "What comes back from behind the block of 16 is lost.",
            cumprod_blocks_vjp,
        ),
    },
)

# ── sort ─────────────────────────────────────────────────────────────────────────────────────


def _order(xp: Any, x: Any, descending: bool) -> Any:
    return xp.argsort(-x if descending else x, axis=-1)


def sort_gathered_vjp(xp, ct, x, *, descending=False):
    return xp.take_along(ct, _order(xp, x, descending), axis=-1)


def sort_identity_vjp(xp, ct, x, *, descending=False):
    return ct * 1


def sort_shared_places_vjp(xp, ct, x, *, descending=False):
    key = -x if descending else x
    places = np.sum(key[..., None, :] < key[..., :, None], axis=-1)
    return xp.take_along(ct, places, axis=-1)


def sort_columns_vjp(xp, ct, x, *, descending=False):
    across = sort_vjp(xp, xp.swapaxes(ct, -1, -2), xp.swapaxes(x, -1, -2), descending=descending)
    return xp.swapaxes(across, -1, -2)


def sort_blocks_vjp(xp, ct, x, *, descending=False):
    head = sort_vjp(xp, ct[..., :32], x[..., :32], descending=descending)
    return xp.concatenate([head, ct[..., 32:]], axis=-1)


def sort_cotangent_sorted_vjp(xp, ct, x, *, descending=False):
    ordered = xp.take_along(ct, _order(xp, ct, descending), axis=-1)
    return sort_vjp(xp, ordered, x, descending=descending)


MUTANTS += mutant_table(
    "sort",
    {
        ("gathered", "layout", "cycles"): (
            "The cotangent is gathered by the order, not scattered: the inverse permutation.",
            sort_gathered_vjp,
        ),
        ("identity", "derivative layout", "cycles"): (
            "The cotangent is passed on as it is.",
            sort_identity_vjp,
        ),
        ("reversed", "index layout", "typical"): (
            "The places are counted from the other end.",
            mutate.output(sort_vjp, 0, lambda xp, g, x, **attrs: xp.flip(g, -1)),
        ),
        ("descending-ignored", "attribute", "descending"): (
            "The order is ascending, whatever was asked for.",
            mutate.attribute(sort_vjp, descending=False),
        ),
        ("first-rows-order", "index saved-value", "typical"): (
            "The first row's order is used for all rows.",
            mutate.primal(sort_vjp, 0, mutate.first_for_all(-2)),
        ),
        ("shared-places", "kink", "ties"): (
            "Equal elements all read the cotangent of their first place; the others are lost.",
            sort_shared_places_vjp,
        ),
        ("down-columns", "index", "square"): (
            "The order is that of the columns.",
            sort_columns_vjp,
        ),
        ("block-of-32", "shape index", "width-37"): (
            "The first 32 elements are ordered among themselves, the others stay.",
            sort_blocks_vjp,
        ),
        ("cotangent-sorted", "nonlinear", "typical"): (
            "The cotangent itself is put in order first.",
            sort_cotangent_sorted_vjp,
        ),
    },
)

# ── top_k ────────────────────────────────────────────────────────────────────────────────────


def top_k_unordered_vjp(xp, ct, x, *, k=3, largest=True):
    return xp.pad(ct, -1, 0, x.shape[-1] - k)


def top_k_gathered_vjp(xp, ct, x, *, k=3, largest=True):
    wide = xp.pad(ct, -1, 0, x.shape[-1] - k)
    return xp.take_along(wide, _order(xp, x, largest), axis=-1)


def top_k_reversed_vjp(xp, ct, x, *, k=3, largest=True):
    return top_k_vjp(xp, xp.flip(ct, -1), x, k=k, largest=largest)


def top_k_no_row_offset_vjp(xp, ct, x, *, k=3, largest=True):
    places = _order(xp, x, largest)[..., :k]
    row = xp.scatter_add(xp.reshape(ct, (-1,)), places.reshape(-1), x.shape[-1])
    rest = xp.zeros((x.size - row.size if x.size else 0,))
    return xp.reshape(xp.concatenate([row, rest], axis=0) if x.size else rest, x.shape)


def top_k_one_short_vjp(xp, ct, x, *, k=3, largest=True):
    return top_k_vjp(xp, ct[..., :-1], x, k=k - 1, largest=largest)


def top_k_mask_vjp(xp, ct, x, *, k=3, largest=True):
    key = -x if largest else x
    places = np.sum(key[..., None, :] < key[..., :, None], axis=-1)
    picked = xp.take_along(ct, np.minimum(places, k - 1), axis=-1)
    return xp.where(places < k, picked, 0.0)


def top_k_block_vjp(xp, ct, x, *, k=3, largest=True):
    head = top_k_vjp(xp, ct, x[..., :32], k=k, largest=largest)
    return xp.pad(head, -1, 0, x.shape[-1] - head.shape[-1])


MUTANTS += mutant_table(
    "top_k",
    {
        ("unordered", "index", "typical"): (
            "The cotangent is put into the first k places.",
            top_k_unordered_vjp,
        ),
        ("gathered", "layout", "k-all"): (
            "The cotangent is gathered by the order, not scattered: the inverse permutation.",
            top_k_gathered_vjp,
        ),
        ("reversed", "index layout", "typical"): (
            "The k places are counted from the smallest.",
            top_k_reversed_vjp,
        ),
        ("k-ignored", "attribute", "k-1"): (
            "k is 3, whatever was asked for.",
            mutate.attribute(top_k_vjp, k=3),
        ),
        ("largest-ignored", "attribute", "smallest"): (
            "The largest get the cotangent where the smallest were asked for.",
            mutate.attribute(top_k_vjp, largest=True),
        ),
        ("first-rows-places", "index saved-value", "typical"): (
            "The first row's places are used for all rows.",
            mutate.primal(top_k_vjp, 0, mutate.first_for_all(-2)),
        ),
        ("no-row-offset", "index", "typical"): (
            "The row's offset is not added to its places: all rows write into the first.",
            top_k_no_row_offset_vjp,
        ),
        ("one-short", "index", "typical"): ("The last of the k gets nothing.", top_k_one_short_vjp),
        ("mask", "kink", "ties"): (
            "All elements that equal the k-th get its cotangent, more than k in all.",
            top_k_mask_vjp,
        ),
        ("block-of-32", "shape index", "width-37"): (
            "Elements from 32 on never take part.",
            top_k_block_vjp,
        ),
    },
)

# ── variance ─────────────────────────────────────────────────────────────────────────────────


def variance_uncentred_vjp(xp, ct, x, *, ddof=0):
    return ct[..., None] * 2 * x / (x.shape[-1] - ddof)


def variance_deviation_vjp(xp, ct, x, *, ddof=0):
    c = x - xp.mean(x, axis=-1, keepdims=True)
    n = x.shape[-1] - ddof
    return ct[..., None] * c / (n * xp.sqrt(xp.sum(c * c, axis=-1, keepdims=True) / n))


def variance_global_mean_vjp(xp, ct, x, *, ddof=0):
    c = x - xp.sum(x) / max(x.size, 1)
    return ct[..., None] * 2 * c / (x.shape[-1] - ddof)


def variance_half_mean_vjp(xp, ct, x, *, ddof=0):
    mean = mutate.half(xp, xp.mean(x, axis=-1, keepdims=True))
    return ct[..., None] * 2 * (x - mean) / (x.shape[-1] - ddof)


def variance_block_mean_vjp(xp, ct, x, *, ddof=0):
    c = x - xp.mean(x[..., :64], axis=-1, keepdims=True)
    return ct[..., None] * 2 * c / (x.shape[-1] - ddof)


MUTANTS += mutant_table(
    "variance",
    {
        ("ddof-ignored", "attribute reduction", "ddof-2"): (
            "The divisor is d, whatever the correction.",
            mutate.attribute(variance_vjp, ddof=0),
        ),
        ("ddof-as-flag", "attribute reduction", "ddof-2"): (
            "Any correction other than 0 counts as 1.",
            mutate.attribute(variance_vjp, ddof=lambda ddof: min(ddof, 1)),
        ),
        ("half", "scale", "typical"): (
            "The factor 2 is missing.",
            mutate.scaled(variance_vjp, 0, 0.5),
        ),
        ("uncentred", "term", "typical"): (
            "The mean is not subtracted from x.",
            variance_uncentred_vjp,
        ),
        ("deviation", "derivative", "typical"): (
            "The gradient is that of the standard deviation.",
            variance_deviation_vjp,
        ),
        ("global-mean", "index saved-value", "typical"): (
            "The mean of the whole tensor is subtracted from every row.",
            variance_global_mean_vjp,
        ),
        ("half-precision-mean", "precision", "offset-100"): (
            "The saved mean is stored in half precision.",
            variance_half_mean_vjp,
        ),
        ("mean-of-a-block", "shape saved-value", "width-67"): (
            "The mean leaves out columns from 64 on.",
            variance_block_mean_vjp,
        ),
        ("first-row", "cotangent index", "typical"): (
            "All rows get the first row's cotangent.",
            mutate.cotangent(variance_vjp, mutate.first_for_all(-1)),
        ),
    },
)

# ── l2_norm ──────────────────────────────────────────────────────────────────────────────────


def _lengths_of(xp: Any, x: Any) -> Any:
    return xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))


def l2_norm_unguarded_vjp(xp, ct, x):
    return ct[..., None] * x / _lengths_of(xp, x)


def l2_norm_eps_inside_vjp(xp, ct, x):
    return ct[..., None] * x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True) + 1e-12)


def l2_norm_eps_added_vjp(xp, ct, x):
    return ct[..., None] * x / (_lengths_of(xp, x) + 1e-6)


def l2_norm_squared_vjp(xp, ct, x):
    return ct[..., None] * 2 * x


def l2_norm_ones_vjp(xp, ct, x):
    return xp.where(_lengths_of(xp, x) == 0, ct[..., None], l2_norm_vjp(xp, ct, x))


def l2_norm_sign_vjp(xp, ct, x):
    return ct[..., None] * xp.sign(x)


def l2_norm_global_vjp(xp, ct, x):
    return ct[..., None] * x / xp.sqrt(xp.sum(x * x))


def l2_norm_short_is_none_vjp(xp, ct, x):
    return xp.where(_lengths_of(xp, x) < 1e-4, 0.0, l2_norm_vjp(xp, ct, x))


def l2_norm_block_vjp(xp, ct, x):
    y = _lengths_of(xp, x[..., :64])
    return ct[..., None] * xp.where(y > 0, x / xp.where(y > 0, y, 1.0), 0.0)


MUTANTS += mutant_table(
    "l2_norm",
    {
        ("unguarded", "non-finite kink", "zero-vector"): (
            "x is divided by its norm at the origin too: 0/0.",
            l2_norm_unguarded_vjp,
            {"modelled_on": "jax.numpy.linalg.norm at 0"},
        ),
        ("eps-inside", "eps", "beside-zero"): (
            "1e-12 is added under the root.",
            l2_norm_eps_inside_vjp,
        ),
        ("eps-added", "eps", "beside-zero"): ("1e-6 is added to the norm.", l2_norm_eps_added_vjp),
        ("squared", "derivative", "typical"): (
            "The gradient is that of the squared norm.",
            l2_norm_squared_vjp,
        ),
        ("ones-at-zero", "kink", "zero-vector"): (
            "At the origin every element gets the cotangent: longer than a unit vector.",
            l2_norm_ones_vjp,
        ),
        ("sign", "derivative", "typical"): (
            "The gradient is that of the sum of magnitudes.",
            l2_norm_sign_vjp,
        ),
        ("whole-tensor", "index saved-value", "typical"): (
            "All rows are divided by the norm of the whole tensor.",
            l2_norm_global_vjp,
        ),
        ("short-is-none", "precision derivative", "beside-zero"): (
            "A vector shorter than 1e-4 is taken for zero.",
            l2_norm_short_is_none_vjp,
        ),
        ("block-of-64", "shape saved-value", "width-67"): (
            "The norm leaves out elements from 64 on.",
            l2_norm_block_vjp,
        ),
    },
)
