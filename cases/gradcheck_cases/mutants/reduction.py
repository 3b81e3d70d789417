"""Mutants of the operators in `gradcheck_cases.reduction`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.spec.mutant import Mutant
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

# ── What several of them share ───────────────────────────────────────────────────────────────


# ── sum ──────────────────────────────────────────────────────────────────────────────────────


def sum_across_vjp(xp, ct, x, *, axis=None, keepdims=False):
    if axis == 0 and x.shape[0] == x.shape[1]:
        return xp.broadcast_to(ct[:, None], x.shape)
    return sum_vjp(xp, ct, x, axis=axis, keepdims=keepdims)


def sum_of_squares_vjp(xp, ct, x, *, axis=None, keepdims=False):
    return sum_vjp(xp, ct, x, axis=axis, keepdims=keepdims) * x * 2


SUM = (
    Mutant(
        op="sum",
        name="mean",
        label="R",
        killer="typical",
        says="The cotangent is divided by the number of elements.",
        vjp=mutate.scaled(sum_vjp, 0, lambda xp, x, **attrs: 1 / max(x.size, 1)),
    ),
    Mutant(
        op="sum",
        name="upstream-scalar",
        label="U",
        also=("I",),
        killer="last-axis",
        says="The first number of the cotangent is used for every row.",
        vjp=mutate.cotangent(sum_vjp, mutate.first_for_all()),
    ),
    Mutant(
        op="sum",
        name="upstream-ones",
        label="U",
        killer="typical",
        says="The gradient is all ones: what comes from above is ignored.",
        vjp=mutate.cotangent(sum_vjp, mutate.ones),
    ),
    Mutant(
        op="sum",
        name="other-axis",
        label="I",
        also=("L",),
        killer="square-first-axis",
        says="The cotangent of a sum over axis 0 is spread along axis 1 where shapes allow it.",
        vjp=sum_across_vjp,
    ),
    Mutant(
        op="sum",
        name="first-matrix",
        label="W",
        also=("I",),
        killer="batched",
        says="Of a tensor of rank 3, only the first matrix gets a gradient.",
        vjp=mutate.output(sum_vjp, 0, mutate.first_entry(2)),
    ),
    Mutant(
        op="sum",
        name="kept-twice",
        label="B",
        also=("R",),
        killer="kept-axes",
        says="With keepdims the cotangent is summed over the kept axes before it is spread.",
        vjp=mutate.scaled(
            sum_vjp,
            0,
            lambda xp, x, *, axis=None, keepdims=False: x.shape[1] if keepdims else 1,
        ),
    ),
    Mutant(
        op="sum",
        name="of-squares",
        label="D",
        killer="typical",
        says="The slope is 2x, that of a sum of squares.",
        vjp=sum_of_squares_vjp,
    ),
    Mutant(
        op="sum",
        name="last-column",
        label="I",
        killer="typical",
        says="The loop ends one column too early.",
        vjp=mutate.output(sum_vjp, 0, mutate.cut(-1)),
    ),
    Mutant(
        op="sum",
        name="never-cleared",
        label="A",
        killer="typical",
        says="The gradient is added to a buffer that outlives the call.",
        make=mutate.accumulated(sum_vjp),
    ),
)

# ── sum_rows ─────────────────────────────────────────────────────────────────────────────────


def sum_rows_outermost_vjp(xp, ct, x):
    return xp.broadcast_to(ct[:1] if x.ndim > 3 else ct, x.shape)


def sum_rows_next_row_vjp(xp, ct, x):
    return xp.broadcast_to(xp.concatenate([ct[..., 1:, :], ct[..., -1:, :]], axis=-2), x.shape)


SUM_ROWS = (
    Mutant(
        op="sum_rows",
        name="mean",
        label="R",
        killer="typical",
        says="The cotangent is divided by the length of the row.",
        vjp=mutate.scaled(sum_rows_vjp, 0, lambda xp, x: 1 / x.shape[-1]),
    ),
    Mutant(
        op="sum_rows",
        name="first-row",
        label="U",
        also=("I",),
        killer="typical",
        says="All rows get the first row's cotangent.",
        vjp=mutate.cotangent(sum_rows_vjp, mutate.first_for_all(-2)),
    ),
    Mutant(
        op="sum_rows",
        name="next-row",
        label="I",
        killer="typical",
        says="Each row gets the cotangent of the row behind it.",
        vjp=sum_rows_next_row_vjp,
    ),
    Mutant(
        op="sum_rows",
        name="down-columns",
        label="L",
        also=("I",),
        killer="square",
        says="The cotangent is spread down the columns where the matrix is square.",
        vjp=mutate.output(sum_rows_vjp, 0, mutate.transposed),
    ),
    Mutant(
        op="sum_rows",
        name="outermost-axis",
        label="W",
        also=("I",),
        killer="rank-4",
        says="Of rank 4, the outermost index is not added to the cotangent's address.",
        vjp=sum_rows_outermost_vjp,
    ),
    Mutant(
        op="sum_rows",
        name="tail-of-block",
        label="W",
        also=("A",),
        killer="width-67",
        says="Columns behind the last whole block of 32 get nothing.",
        vjp=mutate.output(
            sum_rows_vjp,
            0,
            mutate.cut(lambda columns: columns // 32 * 32 or columns),
        ),
    ),
    Mutant(
        op="sum_rows",
        name="never-cleared",
        label="A",
        killer="typical",
        says="The gradient is added to a buffer that outlives the call.",
        make=mutate.accumulated(sum_rows_vjp),
    ),
)

# ── mean ─────────────────────────────────────────────────────────────────────────────────────


def _lengths(x: Any, axis: Any) -> list[int]:
    return [x.shape[a] for a in ((axis,) if isinstance(axis, int) else axis)]


MEAN = (
    Mutant(
        op="mean",
        name="sum",
        label="R",
        killer="typical",
        says="The factor 1/n is missing.",
        vjp=mutate.scaled(mean_vjp, 0, lambda xp, x, *, axis=-1: math.prod(_lengths(x, axis))),
    ),
    Mutant(
        op="mean",
        name="last-axis-length",
        label="I",
        also=("R",),
        killer="first-axis",
        says="The length of the last axis is divided by, whatever the axis.",
        vjp=mutate.scaled(
            mean_vjp, 0, lambda xp, x, *, axis=-1: math.prod(_lengths(x, axis)) / x.shape[-1]
        ),
    ),
    Mutant(
        op="mean",
        name="one-of-two-axes",
        label="F",
        also=("R",),
        killer="two-axes",
        says="Of two axes, only the length of the last one is divided by.",
        vjp=mutate.scaled(mean_vjp, 0, lambda xp, x, *, axis=-1: math.prod(_lengths(x, axis)[:-1])),
    ),
    Mutant(
        op="mean",
        name="less-one",
        label="F",
        also=("R",),
        killer="typical",
        says="n - 1 is divided by.",
        vjp=mutate.scaled(
            mean_vjp,
            0,
            lambda xp, x, *, axis=-1: (n := math.prod(_lengths(x, axis))) / max(n - 1, 1),
        ),
    ),
    Mutant(
        op="mean",
        name="whole-tensor",
        label="R",
        killer="typical",
        says="The number of elements of the whole tensor is divided by.",
        vjp=mutate.scaled(
            mean_vjp, 0, lambda xp, x, *, axis=-1: math.prod(_lengths(x, axis)) / max(x.size, 1)
        ),
    ),
    Mutant(
        op="mean",
        name="first-row",
        label="U",
        also=("I",),
        killer="typical",
        says="All rows get the first row's cotangent.",
        vjp=mutate.cotangent(mean_vjp, mutate.first_for_all(-1)),
    ),
    Mutant(
        op="mean",
        name="block-of-64",
        label="W",
        also=("A",),
        killer="width-67",
        says="Columns from 64 on get nothing.",
        vjp=mutate.output(mean_vjp, 0, mutate.cut(64)),
    ),
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


REPEAT = (
    Mutant(
        op="repeat",
        name="all-summed",
        label="B",
        killer="columns",
        says="Every element gets the sum of the whole cotangent: right for a single element only.",
        modelled_on="ggml's first backward of ggml_repeat",
        vjp=repeat_all_summed_vjp,
    ),
    Mutant(
        op="repeat",
        name="mean",
        label="R",
        killer="columns",
        says="The mean over the copies is taken, not their sum.",
        vjp=mutate.scaled(
            repeat_vjp,
            0,
            lambda xp, x, *, counts=(1, 1), interleave=False: 1 / math.prod(counts),
        ),
    ),
    Mutant(
        op="repeat",
        name="first-copy",
        label="B",
        also=("A",),
        killer="rows",
        says="The first copy's cotangent alone is passed back.",
        vjp=repeat_first_copy_vjp,
    ),
    Mutant(
        op="repeat",
        name="last-copy",
        label="A",
        also=("B",),
        killer="rows",
        says="Each copy overwrites the gradient of the one before it.",
        vjp=repeat_last_copy_vjp,
    ),
    Mutant(
        op="repeat",
        name="other-order",
        label="I",
        also=("L", "P"),
        killer="columns",
        says="Tiled copies are read as interleaved ones, and the reverse.",
        vjp=mutate.attribute(repeat_vjp, interleave=lambda interleave, **_: not interleave),
    ),
    Mutant(
        op="repeat",
        name="last-axis-only",
        label="B",
        also=("A",),
        killer="typical",
        says="Copies along the last axis are summed, of the others the first one is taken.",
        vjp=repeat_last_axis_vjp,
    ),
    Mutant(
        op="repeat",
        name="two-axes-only",
        label="W",
        also=("B", "A"),
        killer="rank-4",
        says="Copies along the last two axes are summed, of the outer ones the first is taken.",
        vjp=repeat_two_axes_vjp,
    ),
    Mutant(
        op="repeat",
        name="counts-exchanged",
        label="P",
        also=("I",),
        killer="typical",
        says="The counts are read in the reverse order of the axes.",
        vjp=mutate.attribute(repeat_vjp, counts=lambda counts, **_: counts[::-1]),
    ),
    Mutant(
        op="repeat",
        name="batch-summed",
        label="B",
        also=("W",),
        killer="batched",
        says="An axis that was not repeated is summed too.",
        vjp=repeat_batch_summed_vjp,
    ),
    Mutant(
        op="repeat",
        name="once-is-nothing",
        label="G",
        killer="once",
        says="A repetition of one copy passes no gradient back.",
        vjp=repeat_once_vjp,
    ),
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


MAX = (
    Mutant(
        op="max",
        name="all-ties",
        label="K",
        killer="ties",
        says="Every element that attains the maximum gets the whole cotangent.",
        vjp=max_all_ties_vjp,
    ),
    Mutant(
        op="max",
        name="ties-lose",
        label="K",
        killer="ties",
        says="Where two elements attain the maximum, none gets anything.",
        vjp=max_ties_lose_vjp,
    ),
    Mutant(
        op="max",
        name="next-place",
        label="I",
        killer="typical",
        says="The element behind the maximum gets the cotangent.",
        vjp=max_shifted_vjp,
    ),
    Mutant(
        op="max",
        name="without-last",
        label="I",
        killer="at-the-ends",
        says="The search ends before the last element.",
        vjp=max_without_last_vjp,
    ),
    Mutant(
        op="max",
        name="from-zero",
        label="D",
        killer="negative",
        says="The running maximum starts from 0, so that rows of negative numbers get nothing.",
        vjp=max_from_zero_vjp,
    ),
    Mutant(
        op="max",
        name="first-rows-place",
        label="I",
        also=("V",),
        killer="typical",
        says="The place of the maximum is looked up in the first row for all rows.",
        vjp=mutate.primal(max_vjp, 0, mutate.first_for_all(-2)),
    ),
    Mutant(
        op="max",
        name="magnitude",
        label="D",
        killer="negative",
        says="The element of the largest magnitude gets the cotangent.",
        vjp=max_magnitude_vjp,
    ),
    Mutant(
        op="max",
        name="softmax",
        label="D",
        killer="typical",
        says="The cotangent is shared out as a softmax would.",
        vjp=max_softmax_vjp,
    ),
    Mutant(
        op="max",
        name="value-for-cotangent",
        label="U",
        killer="typical",
        says="The maximum itself is put into its place, not the cotangent.",
        vjp=max_value_vjp,
    ),
    Mutant(
        op="max",
        name="block-of-32",
        label="W",
        also=("I",),
        killer="width-37",
        says="Elements from 32 on never take part.",
        vjp=max_block_vjp,
    ),
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


PROD = (
    Mutant(
        op="prod",
        name="quotient",
        label="N",
        killer="zeros",
        says="The product is divided by each element: 0/0 at a zero.",
        vjp=prod_quotient_vjp,
    ),
    Mutant(
        op="prod",
        name="guarded-quotient",
        label="D",
        killer="zeros",
        says="A zero gets nothing, where the product of the others is due.",
        vjp=prod_guarded_vjp,
    ),
    Mutant(
        op="prod",
        name="one-zero-only",
        label="D",
        killer="zeros",
        says="A zero gets the product of all that are not zero, other zeros or not.",
        vjp=prod_one_zero_vjp,
    ),
    Mutant(
        op="prod",
        name="logarithms",
        label="S",
        also=("N",),
        killer="scales",
        says="The product is exp(sum log |x|), which has lost its sign.",
        vjp=prod_logarithms_vjp,
    ),
    Mutant(
        op="prod",
        name="itself-too",
        label="F",
        also=("D",),
        killer="typical",
        says="The element itself stays in the product.",
        vjp=prod_itself_vjp,
    ),
    Mutant(
        op="prod",
        name="before-only",
        label="F",
        also=("D",),
        killer="typical",
        says="The elements behind are left out of the product.",
        vjp=prod_before_only_vjp,
    ),
    Mutant(
        op="prod",
        name="first-row",
        label="U",
        also=("I",),
        killer="typical",
        says="All rows get the first row's cotangent.",
        vjp=mutate.cotangent(prod_vjp, mutate.first_for_all(-1)),
    ),
    Mutant(
        op="prod",
        name="degree",
        label="F",
        killer="typical",
        says="An extra factor d, as if the product were a power.",
        vjp=mutate.scaled(prod_vjp, 0, lambda xp, x: x.shape[-1]),
    ),
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


LOGSUMEXP = (
    Mutant(
        op="logsumexp",
        name="unshifted",
        label="O",
        also=("N",),
        killer="large",
        says="exp(x) is taken without the shift by the maximum.",
        vjp=logsumexp_unshifted_vjp,
    ),
    Mutant(
        op="logsumexp",
        name="global-shift",
        label="O",
        also=("N",),
        killer="rows-apart",
        says="All rows are shifted by the maximum of the whole tensor.",
        vjp=logsumexp_global_shift_vjp,
    ),
    Mutant(
        op="logsumexp",
        name="max-too",
        label="T",
        killer="typical",
        says="The maximum of the shift is differentiated once more.",
        vjp=logsumexp_and_max_vjp,
    ),
    Mutant(
        op="logsumexp",
        name="unnormalised",
        label="F",
        also=("D",),
        killer="typical",
        says="The shifted exponentials are not divided by their sum.",
        vjp=logsumexp_unnormalised_vjp,
    ),
    Mutant(
        op="logsumexp",
        name="log-softmax",
        label="D",
        killer="typical",
        says="The softmax is subtracted from the cotangent, as in log_softmax.",
        vjp=logsumexp_log_softmax_vjp,
    ),
    Mutant(
        op="logsumexp",
        name="p-times-1-minus-p",
        label="D",
        killer="typical",
        says="The slope is p (1 - p), the diagonal of the softmax's Jacobian.",
        vjp=logsumexp_diagonal_vjp,
    ),
    Mutant(
        op="logsumexp",
        name="small-shares-cut",
        label="O",
        also=("D",),
        killer="one-dominant",
        says="Shares below 1e-4 are flushed to 0.",
        vjp=logsumexp_cut_vjp,
    ),
    Mutant(
        op="logsumexp",
        name="short-sum",
        label="I",
        also=("V",),
        killer="typical",
        says="The sum of the exponentials leaves out the last column.",
        vjp=logsumexp_short_sum_vjp,
    ),
    Mutant(
        op="logsumexp",
        name="first-row",
        label="U",
        also=("I",),
        killer="typical",
        says="All rows get the first row's cotangent.",
        vjp=mutate.cotangent(logsumexp_vjp, mutate.first_for_all(-1)),
    ),
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


CUMSUM = (
    Mutant(
        op="cumsum",
        name="same-direction",
        label="L",
        also=("P",),
        killer="typical",
        says="The cotangent is summed in the direction of forward: J, not its transpose.",
        vjp=mutate.attribute(cumsum_vjp, reverse=lambda reverse, **_: not reverse),
    ),
    Mutant(
        op="cumsum",
        name="exclusive-ignored",
        label="P",
        killer="exclusive",
        says="The element itself is counted, whatever was asked for.",
        vjp=mutate.attribute(cumsum_vjp, exclusive=False),
    ),
    Mutant(
        op="cumsum",
        name="reverse-ignored",
        label="P",
        killer="reverse",
        says="The direction is that of the default.",
        vjp=mutate.attribute(cumsum_vjp, reverse=False),
    ),
    Mutant(
        op="cumsum",
        name="own-left-out",
        label="I",
        also=("P",),
        killer="typical",
        says="The sum starts one element too late.",
        vjp=mutate.attribute(cumsum_vjp, exclusive=True),
    ),
    Mutant(
        op="cumsum",
        name="total",
        label="D",
        also=("T",),
        killer="typical",
        says="Every element gets the sum of the row's cotangent.",
        vjp=cumsum_total_vjp,
    ),
    Mutant(
        op="cumsum",
        name="carry-lost",
        label="W",
        also=("T",),
        killer="width-67",
        says="Blocks of 32 are summed on their own: no carry from one to the next.",
        vjp=cumsum_blocks_vjp,
    ),
    Mutant(
        op="cumsum",
        name="down-columns",
        label="I",
        killer="typical",
        says="The running sum goes down the columns.",
        vjp=cumsum_columns_vjp,
    ),
    Mutant(
        op="cumsum",
        name="never-cleared",
        label="A",
        killer="typical",
        says="The gradient is added to a buffer that outlives the call.",
        make=mutate.accumulated(cumsum_vjp),
    ),
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


CUMPROD = (
    Mutant(
        op="cumprod",
        name="quotient",
        label="N",
        killer="zeros",
        says="The reversed running sum of ct y is divided by x: 0/0 at a zero.",
        vjp=cumprod_quotient_vjp,
    ),
    Mutant(
        op="cumprod",
        name="guarded-quotient",
        label="D",
        killer="zeros",
        says="A zero gets nothing, where the product of the others is due.",
        vjp=cumprod_guarded_vjp,
    ),
    Mutant(
        op="cumprod",
        name="zero-alone",
        label="T",
        killer="zeros",
        says="A zero gets the term of its own output alone, not those of later ones.",
        vjp=cumprod_zero_alone_vjp,
    ),
    Mutant(
        op="cumprod",
        name="own-output",
        label="T",
        also=("A",),
        killer="typical",
        says="Only the output at the same place passes anything back.",
        vjp=cumprod_own_output_vjp,
    ),
    Mutant(
        op="cumprod",
        name="last-output",
        label="T",
        also=("A",),
        killer="typical",
        says="Only the last output passes anything back, as in prod.",
        vjp=cumprod_last_output_vjp,
    ),
    Mutant(
        op="cumprod",
        name="same-direction",
        label="L",
        also=("N",),
        killer="typical",
        says="The sum runs in the direction of forward.",
        vjp=cumprod_same_direction_vjp,
    ),
    Mutant(
        op="cumprod",
        name="itself-too",
        label="F",
        also=("D",),
        killer="typical",
        says="The element itself stays in the products.",
        vjp=cumprod_off_by_one_vjp,
    ),
    Mutant(
        op="cumprod",
        name="carry-lost",
        label="W",
        also=("T",),
        killer="width-17",
        says="What comes back from behind the block of 16 is lost.",
        vjp=cumprod_blocks_vjp,
    ),
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


SORT = (
    Mutant(
        op="sort",
        name="gathered",
        label="L",
        killer="cycles",
        says="The cotangent is gathered by the order, not scattered: the inverse permutation.",
        vjp=sort_gathered_vjp,
    ),
    Mutant(
        op="sort",
        name="identity",
        label="D",
        also=("L",),
        killer="cycles",
        says="The cotangent is passed on as it is.",
        vjp=sort_identity_vjp,
    ),
    Mutant(
        op="sort",
        name="reversed",
        label="I",
        also=("L",),
        killer="typical",
        says="The places are counted from the other end.",
        vjp=mutate.output(sort_vjp, 0, lambda xp, g, x, **attrs: xp.flip(g, -1)),
    ),
    Mutant(
        op="sort",
        name="descending-ignored",
        label="P",
        killer="descending",
        says="The order is ascending, whatever was asked for.",
        vjp=mutate.attribute(sort_vjp, descending=False),
    ),
    Mutant(
        op="sort",
        name="first-rows-order",
        label="I",
        also=("V",),
        killer="typical",
        says="The first row's order is used for all rows.",
        vjp=mutate.primal(sort_vjp, 0, mutate.first_for_all(-2)),
    ),
    Mutant(
        op="sort",
        name="shared-places",
        label="K",
        killer="ties",
        says="Equal elements all read the cotangent of their first place; the others are lost.",
        vjp=sort_shared_places_vjp,
    ),
    Mutant(
        op="sort",
        name="down-columns",
        label="I",
        killer="square",
        says="The order is that of the columns.",
        vjp=sort_columns_vjp,
    ),
    Mutant(
        op="sort",
        name="block-of-32",
        label="W",
        also=("I",),
        killer="width-37",
        says="The first 32 elements are ordered among themselves, the others stay.",
        vjp=sort_blocks_vjp,
    ),
    Mutant(
        op="sort",
        name="cotangent-sorted",
        label="NL",
        killer="typical",
        says="The cotangent itself is put in order first.",
        vjp=sort_cotangent_sorted_vjp,
    ),
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


TOP_K = (
    Mutant(
        op="top_k",
        name="unordered",
        label="I",
        killer="typical",
        says="The cotangent is put into the first k places.",
        vjp=top_k_unordered_vjp,
    ),
    Mutant(
        op="top_k",
        name="gathered",
        label="L",
        killer="k-all",
        says="The cotangent is gathered by the order, not scattered: the inverse permutation.",
        vjp=top_k_gathered_vjp,
    ),
    Mutant(
        op="top_k",
        name="reversed",
        label="I",
        also=("L",),
        killer="typical",
        says="The k places are counted from the smallest.",
        vjp=top_k_reversed_vjp,
    ),
    Mutant(
        op="top_k",
        name="k-ignored",
        label="P",
        killer="k-1",
        says="k is 3, whatever was asked for.",
        vjp=mutate.attribute(top_k_vjp, k=3),
    ),
    Mutant(
        op="top_k",
        name="largest-ignored",
        label="P",
        killer="smallest",
        says="The largest get the cotangent where the smallest were asked for.",
        vjp=mutate.attribute(top_k_vjp, largest=True),
    ),
    Mutant(
        op="top_k",
        name="first-rows-places",
        label="I",
        also=("V",),
        killer="typical",
        says="The first row's places are used for all rows.",
        vjp=mutate.primal(top_k_vjp, 0, mutate.first_for_all(-2)),
    ),
    Mutant(
        op="top_k",
        name="no-row-offset",
        label="I",
        killer="typical",
        says="The row's offset is not added to its places: all rows write into the first.",
        vjp=top_k_no_row_offset_vjp,
    ),
    Mutant(
        op="top_k",
        name="one-short",
        label="I",
        killer="typical",
        says="The last of the k gets nothing.",
        vjp=top_k_one_short_vjp,
    ),
    Mutant(
        op="top_k",
        name="mask",
        label="K",
        killer="ties",
        says="All elements that equal the k-th get its cotangent, more than k in all.",
        vjp=top_k_mask_vjp,
    ),
    Mutant(
        op="top_k",
        name="block-of-32",
        label="W",
        also=("I",),
        killer="width-37",
        says="Elements from 32 on never take part.",
        vjp=top_k_block_vjp,
    ),
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


VARIANCE = (
    Mutant(
        op="variance",
        name="ddof-ignored",
        label="P",
        also=("R",),
        killer="ddof-2",
        says="The divisor is d, whatever the correction.",
        vjp=mutate.attribute(variance_vjp, ddof=0),
    ),
    Mutant(
        op="variance",
        name="ddof-as-flag",
        label="P",
        also=("R",),
        killer="ddof-2",
        says="Any correction other than 0 counts as 1.",
        vjp=mutate.attribute(variance_vjp, ddof=lambda ddof: min(ddof, 1)),
    ),
    Mutant(
        op="variance",
        name="half",
        label="F",
        killer="typical",
        says="The factor 2 is missing.",
        vjp=mutate.scaled(variance_vjp, 0, 0.5),
    ),
    Mutant(
        op="variance",
        name="uncentred",
        label="T",
        killer="typical",
        says="The mean is not subtracted from x.",
        vjp=variance_uncentred_vjp,
    ),
    Mutant(
        op="variance",
        name="deviation",
        label="D",
        killer="typical",
        says="The gradient is that of the standard deviation.",
        vjp=variance_deviation_vjp,
    ),
    Mutant(
        op="variance",
        name="global-mean",
        label="I",
        also=("V",),
        killer="typical",
        says="The mean of the whole tensor is subtracted from every row.",
        vjp=variance_global_mean_vjp,
    ),
    Mutant(
        op="variance",
        name="half-precision-mean",
        label="O",
        killer="offset-100",
        says="The saved mean is stored in half precision.",
        vjp=variance_half_mean_vjp,
    ),
    Mutant(
        op="variance",
        name="mean-of-a-block",
        label="W",
        also=("V",),
        killer="width-67",
        says="The mean leaves out columns from 64 on.",
        vjp=variance_block_mean_vjp,
    ),
    Mutant(
        op="variance",
        name="first-row",
        label="U",
        also=("I",),
        killer="typical",
        says="All rows get the first row's cotangent.",
        vjp=mutate.cotangent(variance_vjp, mutate.first_for_all(-1)),
    ),
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


L2_NORM = (
    Mutant(
        op="l2_norm",
        name="unguarded",
        label="N",
        also=("K",),
        killer="zero-vector",
        says="x is divided by its norm at the origin too: 0/0.",
        modelled_on="jax.numpy.linalg.norm at 0",
        vjp=l2_norm_unguarded_vjp,
    ),
    Mutant(
        op="l2_norm",
        name="eps-inside",
        label="E",
        killer="beside-zero",
        says="1e-12 is added under the root.",
        vjp=l2_norm_eps_inside_vjp,
    ),
    Mutant(
        op="l2_norm",
        name="eps-added",
        label="E",
        killer="beside-zero",
        says="1e-6 is added to the norm.",
        vjp=l2_norm_eps_added_vjp,
    ),
    Mutant(
        op="l2_norm",
        name="squared",
        label="D",
        killer="typical",
        says="The gradient is that of the squared norm.",
        vjp=l2_norm_squared_vjp,
    ),
    Mutant(
        op="l2_norm",
        name="ones-at-zero",
        label="K",
        killer="zero-vector",
        says="At the origin every element gets the cotangent: longer than a unit vector.",
        vjp=l2_norm_ones_vjp,
    ),
    Mutant(
        op="l2_norm",
        name="sign",
        label="D",
        killer="typical",
        says="The gradient is that of the sum of magnitudes.",
        vjp=l2_norm_sign_vjp,
    ),
    Mutant(
        op="l2_norm",
        name="whole-tensor",
        label="I",
        also=("V",),
        killer="typical",
        says="All rows are divided by the norm of the whole tensor.",
        vjp=l2_norm_global_vjp,
    ),
    Mutant(
        op="l2_norm",
        name="short-is-none",
        label="O",
        also=("D",),
        killer="beside-zero",
        says="A vector shorter than 1e-4 is taken for zero.",
        vjp=l2_norm_short_is_none_vjp,
    ),
    Mutant(
        op="l2_norm",
        name="block-of-64",
        label="W",
        also=("V",),
        killer="width-67",
        says="The norm leaves out elements from 64 on.",
        vjp=l2_norm_block_vjp,
    ),
)

MUTANTS = (
    *SUM,
    *SUM_ROWS,
    *MEAN,
    *REPEAT,
    *MAX,
    *PROD,
    *LOGSUMEXP,
    *CUMSUM,
    *CUMPROD,
    *SORT,
    *TOP_K,
    *VARIANCE,
    *L2_NORM,
)
