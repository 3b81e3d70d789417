"""Mutants of the operators in `gradcheck_cases.elementwise`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec import OpSpec
from gradcheck.spec.mutant import Mutant
from gradcheck_cases.elementwise import (
    abs_,
    add,
    add1,
    div,
    exp,
    log,
    map_binary,
    map_unary,
    mul,
    neg,
    pow_,
    scale,
    sgn,
    sqr,
    sqrt,
    step,
    sub,
)

# ── mistakes that any operator may share ─────────────────────────────────────────────────────


def _column_major(xp: Any, x: Any) -> Any:
    """The elements in the order in which a transposed tensor holds them."""
    return xp.reshape(xp.transpose(x, range(x.ndim)[::-1]), x.shape)


def _reduced(spec: OpSpec, how: Callable[..., Any]) -> Vjp:
    """The second gradient is summed over repetitions by `how(xp, g, like)`."""

    def body(xp: Any, ct: Any, x: Any, y: Any, **attrs: Any) -> Any:
        return None, how(xp, spec.vjp(xp, ct, x, xp.broadcast_to(y, ct.shape), **attrs)[1], y)

    return mutate.replaced(spec.vjp, 1, body)


def _averaged(xp: Any, g: Any, like: Any) -> Any:
    repetitions = np.float64(g.size) / max(like.size, 1)
    with np.errstate(all="ignore"):
        return xp.reduce_to(g, like) / repetitions.astype(g.dtype)


def _last(xp: Any, g: Any, like: Any) -> Any:
    """Each repetition overwrites what the one before it wrote."""
    extra = g.ndim - like.ndim
    stretched = [n == 1 for n in like.shape]
    index = (*(-1,) * extra, *(slice(-1, None) if s else slice(None) for s in stretched))
    return np.array(g[index]) if g.size else xp.zeros_like(like)


def _leading_only(xp: Any, g: Any, like: Any) -> Any:
    return xp.sum(g, axis=tuple(range(g.ndim - like.ndim))) if g.ndim > like.ndim else g


def _one_axis(xp: Any, g: Any, like: Any) -> Any:
    """Summed over the first axis; of any other, the first slice is taken."""
    extra = g.ndim - like.ndim
    return xp.sum(g, axis=0)[(0,) * (extra - 1)] if extra > 1 else xp.reduce_to(g, like)


def _other_axis(xp: Any, g: Any, like: Any) -> Any:
    square = g.ndim == 2 and like.ndim == 1 and g.shape[0] == g.shape[1]
    return xp.sum(g, axis=1) if square else xp.reduce_to(g, like)


def _trace(xp: Any, g: Any, like: Any) -> Any:
    if g.ndim != 2 or g.shape[0] != g.shape[1]:
        return xp.reduce_to(g, like)
    return xp.reduce_to(xp.where(np.eye(len(g), dtype=bool), g, 0.0), like)


def _short_sum(xp: Any, g: Any, like: Any) -> Any:
    """Summed to one number, rounded to the 8 bits of bfloat16 after every addition."""
    total = 0.0
    for value in xp.reshape(g, (-1,)):
        total = mutate.rounded(8)(xp, total + value)
    return np.full(like.shape, total, dtype=g.dtype)


# ── add ──────────────────────────────────────────────────────────────────────────────────────


def add_transposed_vjp(xp, ct, x, y):
    return xp.reduce_to(ct, x), xp.reduce_to(_column_major(xp, ct), y)


def add_first_kept_vjp(xp, ct, x, y):
    return ct, xp.reduce_to(ct, y)


def add_in_place_vjp(xp, ct, x, y):
    dy = xp.reduce_to(ct, y)
    ct += 0.0  # the cotangent's memory becomes dx's accumulator
    return xp.reduce_to(ct, x), dy


ADD = (
    Mutant(
        op="add",
        name="strides-ignored",
        label="L",
        killer="typical",
        says="y is taken to be contiguous where it is transposed, so dy lands elsewhere.",
        modelled_on="ggml's commit log: ggml_forward_add and transposed tensors",
        vjp=add_transposed_vjp,
    ),
    Mutant(
        op="add",
        name="second-missing",
        label="G",
        killer="typical",
        says="The residual branch gets no gradient.",
        vjp=mutate.output(add.vjp, 1, mutate.nothing),
    ),
    Mutant(
        op="add",
        name="halved",
        label="F",
        killer="typical",
        says="The cotangent is shared out, half to each operand.",
        vjp=mutate.scaled(add.vjp, 1, 0.5),
    ),
    Mutant(
        op="add",
        name="mean",
        label="R",
        also=("B",),
        killer="row",
        says="dy is the mean over the repetitions.",
        vjp=_reduced(add, _averaged),
    ),
    Mutant(
        op="add",
        name="overwritten",
        label="A",
        also=("B",),
        killer="row",
        says="Each repetition of y overwrites the gradient of the one before.",
        vjp=_reduced(add, _last),
    ),
    Mutant(
        op="add",
        name="leading-axes-only",
        label="B",
        killer="column",
        says="dy is summed over leading axes, not over a stretched one.",
        vjp=_reduced(add, _leading_only),
    ),
    Mutant(
        op="add",
        name="one-batch-axis",
        label="B",
        also=("A",),
        killer="row-batched",
        says="dy is summed over the first batch axis, and of the second the first slice taken.",
        vjp=_reduced(add, _one_axis),
    ),
    Mutant(
        op="add",
        name="other-axis",
        label="I",
        also=("B", "W"),
        killer="row-square",
        says="dy is summed along rows instead of along columns.",
        vjp=_reduced(add, _other_axis),
    ),
    Mutant(
        op="add",
        name="first-kept",
        label="B",
        killer="first-repeated",
        says="Only the second operand is expected to be repeated: dx keeps the output's shape.",
        vjp=add_first_kept_vjp,
    ),
    Mutant(
        op="add",
        name="in-place",
        label="X",
        killer="typical",
        says="dx is accumulated in the cotangent's own memory.",
        vjp=add_in_place_vjp,
    ),
    Mutant(
        op="add",
        name="never-cleared",
        label="A",
        killer="typical",
        says="dy is added into a buffer that is never set to zero.",
        make=mutate.accumulated(add.vjp, -1),
    ),
)

# ── sub ──────────────────────────────────────────────────────────────────────────────────────


def sub_swapped_vjp(xp, ct, x, y):
    return -xp.reduce_to(ct, x), xp.reduce_to(ct, y)


def sub_transposed_vjp(xp, ct, x, y):
    return xp.reduce_to(ct, x), -xp.reduce_to(_column_major(xp, ct), y)


def sub_first_kept_vjp(xp, ct, x, y):
    return ct, -xp.reduce_to(ct, y)


SUB = (
    Mutant(
        op="sub",
        name="operands-swapped",
        label="G",
        also=("S",),
        killer="typical",
        says="The gradients are those of y - x.",
        modelled_on="ggml's commit log: vDSP_vsub takes the subtrahend first",
        vjp=sub_swapped_vjp,
    ),
    Mutant(
        op="sub",
        name="plus",
        label="S",
        killer="typical",
        says="The minus before dy is forgotten, as in code copied from add.",
        vjp=mutate.negated(sub.vjp, 1),
    ),
    Mutant(
        op="sub",
        name="strides-ignored",
        label="L",
        killer="typical",
        says="y is taken to be contiguous where it is transposed, so dy lands elsewhere.",
        modelled_on="ggml's commit log: sub, mul and div and transposed tensors",
        vjp=sub_transposed_vjp,
    ),
    Mutant(
        op="sub",
        name="distance",
        label="D",
        also=("S",),
        killer="typical",
        says="The gradients are those of |x - y|.",
        vjp=mutate.cotangent(sub.vjp, lambda xp, ct, x, y: ct * xp.sign(x - y)),
    ),
    Mutant(
        op="sub",
        name="second-missing",
        label="G",
        killer="typical",
        says="The subtrahend gets no gradient, as a target does not.",
        vjp=mutate.output(sub.vjp, 1, mutate.nothing),
    ),
    Mutant(
        op="sub",
        name="mean",
        label="R",
        also=("B",),
        killer="row",
        says="dy is the mean over the repetitions.",
        vjp=_reduced(sub, _averaged),
    ),
    Mutant(
        op="sub",
        name="leading-axes-only",
        label="B",
        killer="column",
        says="dy is summed over leading axes, not over a stretched one.",
        vjp=_reduced(sub, _leading_only),
    ),
    Mutant(
        op="sub",
        name="first-kept",
        label="B",
        killer="first-repeated",
        says="Only the second operand is expected to be repeated: dx keeps the output's shape.",
        vjp=sub_first_kept_vjp,
    ),
    Mutant(
        op="sub",
        name="square-transposed",
        label="L",
        also=("W",),
        killer="square",
        says="dy is transposed where rows and columns are as many.",
        vjp=mutate.output(sub.vjp, 1, mutate.transposed),
    ),
    Mutant(
        op="sub",
        name="no-tail",
        label="W",
        also=("A",),
        killer="single",
        says="Vectors of four; the remainder of dx is never written.",
        vjp=mutate.output(sub.vjp, 0, mutate.whole_blocks(4)),
    ),
)

# ── mul ──────────────────────────────────────────────────────────────────────────────────────


def mul_swapped_vjp(xp, ct, x, y):
    return xp.reduce_to(ct * x, x), xp.reduce_to(ct * y, y)


def mul_bare_vjp(xp, ct, x, y):
    return xp.reduce_to(ct, x), xp.reduce_to(ct * x, y)


def mul_recovered_vjp(xp, ct, x, y):
    z = x * y
    return xp.reduce_to(ct * z / x, x), xp.reduce_to(ct * z / y, y)


def mul_overwritten_input_vjp(xp, ct, x, y):
    return xp.reduce_to(ct * y, x), xp.reduce_to(ct * (x * y), y)


def mul_transposed_vjp(xp, ct, x, y):
    return xp.reduce_to(ct * _column_major(xp, y), x), xp.reduce_to(ct * x, y)


def mul_reduced_early_vjp(xp, ct, x, y):
    wide = xp.broadcast_to(x, ct.shape)
    return xp.reduce_to(ct * y, x), xp.reduce_to(ct, y) * xp.reduce_to(wide, y)


MUL = (
    Mutant(
        op="mul",
        name="factors-swapped",
        label="G",
        killer="typical",
        says="Each operand gets its own value as the factor, not the other's.",
        vjp=mul_swapped_vjp,
    ),
    Mutant(
        op="mul",
        name="factor-missing",
        label="F",
        also=("D",),
        killer="typical",
        says="dx is the cotangent, without the factor y.",
        vjp=mul_bare_vjp,
    ),
    Mutant(
        op="mul",
        name="factor-recovered",
        label="N",
        killer="zeros",
        says="The other factor is recovered from the output, z/x: 0/0 where x is 0.",
        vjp=mul_recovered_vjp,
    ),
    Mutant(
        op="mul",
        name="input-overwritten",
        label="V",
        also=("X", "D"),
        killer="typical",
        says="The product was formed in place of x, so dy reads z.",
        vjp=mul_overwritten_input_vjp,
    ),
    Mutant(
        op="mul",
        name="strides-ignored",
        label="L",
        killer="typical",
        says="y is taken to be contiguous where it is transposed, so dx reads other factors.",
        modelled_on="ggml's commit log: sub, mul and div and transposed tensors",
        vjp=mul_transposed_vjp,
    ),
    Mutant(
        op="mul",
        name="reduced-early",
        label="B",
        killer="row",
        says="Cotangent and x are summed before they are multiplied.",
        vjp=mul_reduced_early_vjp,
    ),
    Mutant(
        op="mul",
        name="mean",
        label="R",
        also=("B",),
        killer="row",
        says="dy is the mean over the repetitions.",
        vjp=_reduced(mul, _averaged),
    ),
    Mutant(
        op="mul",
        name="overwritten",
        label="A",
        also=("B",),
        killer="row",
        says="Each repetition of y overwrites the gradient of the one before.",
        vjp=_reduced(mul, _last),
    ),
    Mutant(
        op="mul",
        name="one-batch-axis",
        label="B",
        also=("A",),
        killer="row-batched",
        says="dy is summed over the first batch axis, and of the second the first slice taken.",
        vjp=_reduced(mul, _one_axis),
    ),
    Mutant(
        op="mul",
        name="one-cotangent",
        label="U",
        killer="typical",
        says="The first element of the cotangent stands for all.",
        vjp=mutate.cotangent(mul.vjp, mutate.first_for_all()),
    ),
    Mutant(
        op="mul",
        name="half-precision",
        label="O",
        killer="typical",
        says="dx passes through float16.",
        vjp=mutate.output(mul.vjp, 0, mutate.half),
    ),
)

# ── div ──────────────────────────────────────────────────────────────────────────────────────


def div_swapped_vjp(xp, ct, x, y):
    return -xp.reduce_to(ct * (y / x) / x, x), xp.reduce_to(ct / x, y)


def div_one_factor_vjp(xp, ct, x, y):
    return xp.reduce_to(ct / y, x), -xp.reduce_to(ct * x / y, y)


def div_eps_vjp(xp, ct, x, y):
    y_eps = y + xp.const("1e-8")
    return xp.reduce_to(ct / y_eps, x), -xp.reduce_to(ct * (x / y_eps) / y_eps, y)


def div_squared_vjp(xp, ct, x, y):
    return xp.reduce_to(ct / y, x), -xp.reduce_to(ct * x / (y * y), y)


def div_recovered_vjp(xp, ct, x, y):
    z = x / y
    return xp.reduce_to(ct * (z / x), x), -xp.reduce_to(ct * z / y, y)


def div_transposed_vjp(xp, ct, x, y):
    return div.vjp(xp, ct, x, _column_major(xp, y))


def div_reduced_early_vjp(xp, ct, x, y):
    wide = xp.broadcast_to(x, ct.shape)
    dy = -xp.reduce_to(ct, y) * xp.reduce_to(wide, y) / y / y
    return xp.reduce_to(ct / y, x), dy


DIV = (
    Mutant(
        op="div",
        name="operands-swapped",
        label="G",
        killer="typical",
        says="The gradients are those of y / x.",
        modelled_on="ggml's commit log: vDSP_vdiv takes the divisor first",
        vjp=div_swapped_vjp,
    ),
    Mutant(
        op="div",
        name="plus",
        label="S",
        killer="typical",
        says="The minus before dy is forgotten.",
        vjp=mutate.negated(div.vjp, 1),
    ),
    Mutant(
        op="div",
        name="one-factor-short",
        label="D",
        also=("F",),
        killer="typical",
        says="dy has 1/y where 1/y^2 belongs.",
        vjp=div_one_factor_vjp,
    ),
    Mutant(
        op="div",
        name="eps",
        label="E",
        killer="near-zero",
        says="Backward divides by y + 1e-8, forward does not.",
        vjp=div_eps_vjp,
    ),
    Mutant(
        op="div",
        name="square-overflows",
        label="O",
        killer="huge",
        dtype="float32",
        says="dy is divided by y*y, which is infinite where y is not.",
        vjp=div_squared_vjp,
    ),
    Mutant(
        op="div",
        name="reciprocal-recovered",
        label="N",
        killer="zero-numerator",
        says="1/y is recovered from the output, z/x: 0/0 where x is 0.",
        vjp=div_recovered_vjp,
    ),
    Mutant(
        op="div",
        name="strides-ignored",
        label="L",
        killer="typical",
        says="y is taken to be contiguous where it is transposed.",
        modelled_on="ggml's commit log: sub, mul and div and transposed tensors",
        vjp=div_transposed_vjp,
    ),
    Mutant(
        op="div",
        name="magnitude",
        label="D",
        also=("S",),
        killer="typical",
        says="The divisor's sign is lost, as where y is a norm.",
        vjp=mutate.primal(div.vjp, 1, lambda xp, x, y: xp.abs(y)),
    ),
    Mutant(
        op="div",
        name="reduced-early",
        label="B",
        killer="row",
        says="Cotangent and x are summed before they are multiplied.",
        vjp=div_reduced_early_vjp,
    ),
    Mutant(
        op="div",
        name="mean",
        label="R",
        also=("B",),
        killer="row",
        says="dy is the mean over the repetitions.",
        vjp=_reduced(div, _averaged),
    ),
    Mutant(
        op="div",
        name="first-matrix-only",
        label="W",
        also=("I",),
        killer="cube",
        says="Only the last two axes are looped over: dx is 0 beyond the first matrix.",
        vjp=mutate.output(div.vjp, 0, mutate.first_entry(2)),
    ),
)

# ── add1 ─────────────────────────────────────────────────────────────────────────────────────


def add1_shapeless_vjp(xp, ct, x, s):
    return ct, xp.sum(ct)


def add1_counted_vjp(xp, ct, x, s):
    return ct, xp.reduce_to(mutate.first_for_all()(xp, ct), s)


ADD1 = (
    Mutant(
        op="add1",
        name="mean",
        label="R",
        also=("B",),
        killer="typical",
        says="ds is the mean of the cotangent.",
        vjp=_reduced(add1, _averaged),
    ),
    Mutant(
        op="add1",
        name="overwritten",
        label="A",
        also=("B",),
        killer="typical",
        says="ds is assigned in the loop, so the last element's cotangent stays.",
        vjp=_reduced(add1, lambda xp, g, like: xp.reshape(xp.reshape(g, (-1,))[-1:], like.shape)),
    ),
    Mutant(
        op="add1",
        name="counted",
        label="U",
        killer="typical",
        says="ds is the number of elements times the first one's cotangent.",
        vjp=add1_counted_vjp,
    ),
    Mutant(
        op="add1",
        name="scalar-missing",
        label="G",
        killer="typical",
        says="The scalar is taken for a constant: no gradient.",
        vjp=mutate.output(add1.vjp, 1, mutate.nothing),
    ),
    Mutant(
        op="add1",
        name="first-matrix-only",
        label="W",
        also=("I", "B"),
        killer="cube",
        says="ds is summed over the last two axes of the first matrix.",
        vjp=_reduced(
            add1,
            lambda xp, g, like: xp.reduce_to(mutate.first_entry(2)(xp, g), like),
        ),
    ),
    Mutant(
        op="add1",
        name="trace",
        label="I",
        also=("B", "W"),
        killer="square",
        says="One index runs over rows and columns: a square's diagonal is summed.",
        vjp=_reduced(add1, _trace),
    ),
    Mutant(
        op="add1",
        name="no-tail",
        label="W",
        also=("T",),
        killer="long",
        says="Vectors of four; their remainder is left out of ds.",
        vjp=_reduced(
            add1,
            lambda xp, g, like: xp.reduce_to(mutate.whole_blocks(4)(xp, g), like),
        ),
    ),
    Mutant(
        op="add1",
        name="shapeless",
        label="B",
        killer="one-element-tensor",
        says="ds has no axes, whatever the scalar has.",
        vjp=add1_shapeless_vjp,
    ),
    Mutant(
        op="add1",
        name="short-accumulator",
        label="O",
        killer="long",
        says="ds is accumulated in bfloat16.",
        vjp=_reduced(add1, _short_sum),
    ),
    Mutant(
        op="add1",
        name="never-cleared",
        label="A",
        killer="typical",
        says="ds is added into a buffer that is never set to zero.",
        make=mutate.accumulated(add1.vjp, -1),
    ),
)

# ── scale ────────────────────────────────────────────────────────────────────────────────────


def scale_cotangent_only_vjp(xp, ct, x, s):
    return ct * s, xp.reduce_to(ct, s)


def scale_output_vjp(xp, ct, x, s):
    return ct * s, xp.reduce_to(ct * (x * s), s)


def scale_recovered_vjp(xp, ct, x, s):
    return ct * s, xp.reduce_to(ct * (x * s), s) / s


def scale_unscaled_vjp(xp, ct, x, s):
    return ct, xp.reduce_to(ct * x, s)


def scale_transposed_vjp(xp, ct, x, s):
    return ct * s, xp.reduce_to(mutate.transposed(xp, ct) * x, s)


def scale_shapeless_vjp(xp, ct, x, s):
    return ct * s, xp.sum(ct * x)


SCALE = (
    Mutant(
        op="scale",
        name="mean",
        label="R",
        also=("B",),
        killer="typical",
        says="ds is the mean of ct*x where their sum belongs.",
        modelled_on="ggml's commit log: use sum instead of mean for the gradient of scale's scalar",
        vjp=_reduced(scale, _averaged),
    ),
    Mutant(
        op="scale",
        name="x-forgotten",
        label="D",
        also=("F",),
        killer="typical",
        says="ds is the sum of the cotangent, as add1's.",
        vjp=scale_cotangent_only_vjp,
    ),
    Mutant(
        op="scale",
        name="output-for-input",
        label="V",
        also=("X", "D"),
        killer="small-scalar",
        says="ds reads the output, which was formed in place of x.",
        vjp=scale_output_vjp,
    ),
    Mutant(
        op="scale",
        name="input-recovered",
        label="N",
        killer="zero-scalar",
        says="x is recovered from the output, y/s: 0/0 where s is 0.",
        vjp=scale_recovered_vjp,
    ),
    Mutant(
        op="scale",
        name="unscaled",
        label="F",
        also=("D",),
        killer="typical",
        says="dx is the cotangent, without the factor s.",
        vjp=scale_unscaled_vjp,
    ),
    Mutant(
        op="scale",
        name="overwritten",
        label="A",
        also=("B",),
        killer="typical",
        says="ds is assigned in the loop, so the last element's product stays.",
        vjp=_reduced(scale, lambda xp, g, like: xp.reshape(xp.reshape(g, (-1,))[-1:], like.shape)),
    ),
    Mutant(
        op="scale",
        name="first-matrix-only",
        label="W",
        also=("I", "B"),
        killer="cube",
        says="ds is summed over the last two axes of the first matrix.",
        vjp=_reduced(
            scale,
            lambda xp, g, like: xp.reduce_to(mutate.first_entry(2)(xp, g), like),
        ),
    ),
    Mutant(
        op="scale",
        name="cotangent-transposed",
        label="L",
        also=("W",),
        killer="square",
        says="ds multiplies x by the transposed cotangent of a square.",
        vjp=scale_transposed_vjp,
    ),
    Mutant(
        op="scale",
        name="shapeless",
        label="B",
        killer="one-element-tensor",
        says="ds has no axes, whatever the scalar has.",
        vjp=scale_shapeless_vjp,
    ),
    Mutant(
        op="scale",
        name="short-accumulator",
        label="O",
        killer="long",
        says="ds is accumulated in bfloat16.",
        vjp=_reduced(scale, _short_sum),
    ),
    Mutant(
        op="scale",
        name="never-cleared",
        label="A",
        killer="typical",
        says="ds is added into a buffer that is never set to zero.",
        make=mutate.accumulated(scale.vjp, -1),
    ),
)

# ── neg ──────────────────────────────────────────────────────────────────────────────────────


def neg_recovered_vjp(xp, ct, x):
    return ct * (-x / x)


def neg_magnitude_vjp(xp, ct, x):
    return -xp.abs(ct)


def neg_squared_vjp(xp, ct, x):
    return ct * (-(x * x) / (x * x))


NEG = (
    Mutant(
        op="neg",
        name="passed-on",
        label="S",
        killer="typical",
        says="The cotangent is passed on as it came.",
        vjp=mutate.negated(neg.vjp, 0),
    ),
    Mutant(
        op="neg",
        name="slope-recovered",
        label="N",
        killer="zeros",
        says="The slope is recovered as y/x: 0/0 where x is 0.",
        vjp=neg_recovered_vjp,
    ),
    Mutant(
        op="neg",
        name="slope-overflows",
        label="O",
        also=("N",),
        killer="huge",
        dtype="float32",
        says="The slope is recovered as y*x/x^2, which overflows.",
        vjp=neg_squared_vjp,
    ),
    Mutant(
        op="neg",
        name="constant",
        label="U",
        killer="typical",
        says="The gradient is -1, whatever the cotangent.",
        vjp=mutate.cotangent(neg.vjp, mutate.ones),
    ),
    Mutant(
        op="neg",
        name="magnitude",
        label="NL",
        killer="typical",
        says="The gradient is made negative instead of negated.",
        vjp=neg_magnitude_vjp,
    ),
    Mutant(
        op="neg",
        name="square-transposed",
        label="L",
        also=("W",),
        killer="square",
        says="The gradient is transposed where rows and columns are as many.",
        vjp=mutate.output(neg.vjp, 0, mutate.transposed),
    ),
    Mutant(
        op="neg",
        name="no-tail",
        label="W",
        also=("A",),
        killer="single",
        says="Vectors of four; their remainder is never written.",
        vjp=mutate.output(neg.vjp, 0, mutate.whole_blocks(4)),
    ),
)

# ── sqr ──────────────────────────────────────────────────────────────────────────────────────


def sqr_root_vjp(xp, ct, x):
    return ct * (2 * xp.sqrt(x * x))


def sqr_recovered_vjp(xp, ct, x):
    return ct * (2 * (x * x) / x)


def sqr_squared_vjp(xp, ct, x):
    return ct * ct * (2 * x)


def sqr_cube_vjp(xp, ct, x):
    return ct * (2 * (x * x * x) / (x * x))


SQR = (
    Mutant(
        op="sqr",
        name="two-missing",
        label="F",
        killer="typical",
        says="The slope is x, without its factor 2.",
        vjp=mutate.scaled(sqr.vjp, 0, 0.5),
    ),
    Mutant(
        op="sqr",
        name="output-for-input",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is 2y.",
        vjp=mutate.primal(sqr.vjp, 0, lambda xp, x: x * x),
    ),
    Mutant(
        op="sqr",
        name="root-of-output",
        label="S",
        also=("D",),
        killer="negative",
        says="The slope is recovered as 2*sqrt(y), which is positive.",
        vjp=sqr_root_vjp,
    ),
    Mutant(
        op="sqr",
        name="slope-recovered",
        label="N",
        killer="zeros",
        says="The slope is recovered as 2y/x: 0/0 where x is 0.",
        vjp=sqr_recovered_vjp,
    ),
    Mutant(
        op="sqr",
        name="cotangent-squared",
        label="NL",
        killer="typical",
        says="The cotangent is multiplied in twice.",
        vjp=sqr_squared_vjp,
    ),
    Mutant(
        op="sqr",
        name="cube-overflows",
        label="O",
        also=("N",),
        killer="huge",
        dtype="float32",
        says="The slope is taken as 2x^3/x^2, whose cube overflows.",
        vjp=sqr_cube_vjp,
    ),
    Mutant(
        op="sqr",
        name="flushed",
        label="O",
        killer="tiny",
        says="Gradients below 1e-10 are flushed to 0.",
        vjp=mutate.output(sqr.vjp, 0, mutate.flushed(1e-10)),
    ),
    Mutant(
        op="sqr",
        name="no-tail",
        label="W",
        also=("A",),
        killer="single",
        says="Vectors of four; their remainder is never written.",
        vjp=mutate.output(sqr.vjp, 0, mutate.whole_blocks(4)),
    ),
)

# ── exp ──────────────────────────────────────────────────────────────────────────────────────


def exp_power_rule_vjp(xp, ct, x):
    return ct * (x * xp.exp(x - 1))


def exp_minus_one_vjp(xp, ct, x):
    return ct * (xp.exp(x) - 1)


def exp_clipped_vjp(xp, ct, x):
    return ct * xp.exp(xp.minimum(x, 20.0))


def exp_recovered_vjp(xp, ct, x):
    y = xp.exp(x)
    return ct * (y * y / y)


def exp_in_place_vjp(xp, ct, x):
    ct *= xp.exp(x)
    return ct


EXP = (
    Mutant(
        op="exp",
        name="power-rule",
        label="D",
        killer="typical",
        says="The slope is x*exp(x - 1), by the rule for powers.",
        vjp=exp_power_rule_vjp,
    ),
    Mutant(
        op="exp",
        name="exponential-of-output",
        label="V",
        also=("D",),
        killer="typical",
        says="The saved output is taken for x, and its exponential for the slope.",
        vjp=mutate.primal(exp.vjp, 0, lambda xp, x: xp.exp(x)),
    ),
    Mutant(
        op="exp",
        name="minus-one",
        label="T",
        also=("D",),
        killer="tail",
        says="The slope is the value of expm1: -1 in the tail.",
        vjp=exp_minus_one_vjp,
    ),
    Mutant(
        op="exp",
        name="clipped",
        label="D",
        killer="large",
        says="The exponent is clipped at 20 in backward alone.",
        vjp=exp_clipped_vjp,
    ),
    Mutant(
        op="exp",
        name="base-two",
        label="F",
        killer="typical",
        says="The slope has the factor log 2 of exp2.",
        vjp=mutate.scaled(exp.vjp, 0, lambda xp, x: xp.log(xp.full((), "2"))),
    ),
    Mutant(
        op="exp",
        name="divided-by-output",
        label="N",
        also=("O",),
        killer="underflow",
        says="The slope is taken as y^2/y: 0/0 where y underflows.",
        vjp=exp_recovered_vjp,
    ),
    Mutant(
        op="exp",
        name="flushed",
        label="O",
        killer="tail",
        says="Gradients below 1e-7 are flushed to 0.",
        vjp=mutate.output(exp.vjp, 0, mutate.flushed(1e-7)),
    ),
    Mutant(
        op="exp",
        name="in-place",
        label="X",
        killer="typical",
        says="The slope is multiplied into the caller's cotangent.",
        vjp=exp_in_place_vjp,
    ),
    Mutant(
        op="exp",
        name="constant",
        label="U",
        killer="typical",
        says="The gradient is y, whatever the cotangent.",
        vjp=mutate.cotangent(exp.vjp, mutate.ones),
    ),
    Mutant(
        op="exp",
        name="no-tail",
        label="W",
        also=("A",),
        killer="single",
        says="Vectors of four; their remainder is never written.",
        vjp=mutate.output(exp.vjp, 0, mutate.whole_blocks(4)),
    ),
)

# ── sqrt ─────────────────────────────────────────────────────────────────────────────────────


def sqrt_of_input_vjp(xp, ct, x):
    return ct / (2 * x)


def sqrt_eps_vjp(xp, ct, x):
    return ct / (2 * xp.sqrt(x) + xp.const("1e-8"))


def sqrt_rational_vjp(xp, ct, x):
    return ct * (xp.sqrt(x) / x) * 0.5


def sqrt_squared_vjp(xp, ct, x):
    return ct * (x * xp.sqrt(x) / (x * x)) * 0.5


def sqrt_reciprocal_vjp(xp, ct, x):
    return ct / (2 * x * xp.sqrt(x))


def sqrt_downwards_vjp(xp, ct, x):
    return xp.where(x > 0, 1.0, -1.0) * (ct / (2 * xp.sqrt(x)))


SQRT = (
    Mutant(
        op="sqrt",
        name="half-missing",
        label="F",
        killer="typical",
        says="The slope is 1/y, without its factor 1/2.",
        vjp=mutate.scaled(sqrt.vjp, 0, 2.0),
    ),
    Mutant(
        op="sqrt",
        name="input-for-output",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is 1/(2x): the input was saved, the output is expected.",
        vjp=sqrt_of_input_vjp,
    ),
    Mutant(
        op="sqrt",
        name="eps",
        label="E",
        killer="kink",
        says="An eps under the fraction bar bends the slope beside 0.",
        vjp=sqrt_eps_vjp,
    ),
    Mutant(
        op="sqrt",
        name="nan-at-zero",
        label="N",
        also=("K",),
        killer="kink",
        says="The slope is taken as y/(2x): 0/0 at 0.",
        vjp=sqrt_rational_vjp,
    ),
    Mutant(
        op="sqrt",
        name="square-overflows",
        label="O",
        killer="large",
        dtype="float32",
        says="The slope is taken as x*y/(2x^2), whose denominator overflows.",
        vjp=sqrt_squared_vjp,
    ),
    Mutant(
        op="sqrt",
        name="reciprocal-root",
        label="D",
        killer="typical",
        says="The slope is that of 1/sqrt(x), but for its sign.",
        vjp=sqrt_reciprocal_vjp,
    ),
    Mutant(
        op="sqrt",
        name="downwards-at-zero",
        label="K",
        also=("S",),
        killer="kink",
        says="The infinite slope at 0 has the wrong sign, as after a division by -0.",
        vjp=sqrt_downwards_vjp,
    ),
    Mutant(
        op="sqrt",
        name="half-precision",
        label="O",
        killer="typical",
        says="The gradient passes through float16.",
        vjp=mutate.output(sqrt.vjp, 0, mutate.half),
    ),
    Mutant(
        op="sqrt",
        name="no-tail",
        label="W",
        also=("A",),
        killer="single",
        says="Vectors of four; their remainder is never written.",
        vjp=mutate.output(sqrt.vjp, 0, mutate.whole_blocks(4)),
    ),
)

# ── log ──────────────────────────────────────────────────────────────────────────────────────


def log_of_output_vjp(xp, ct, x):
    return ct / xp.log(x)


def log_undifferentiated_vjp(xp, ct, x):
    return ct * xp.log(x)


def log_eps_vjp(xp, ct, x):
    return ct / (x + xp.const("1e-8"))


def log_floor_vjp(xp, ct, x):
    return ct / xp.maximum(x, 1e-6)


def log_rational_vjp(xp, ct, x):
    return ct * (x / (x * x))


def log_downwards_vjp(xp, ct, x):
    return xp.where(x > 0, 1.0, -1.0) * (ct / x)


LOG = (
    Mutant(
        op="log",
        name="output-for-input",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is 1/y.",
        vjp=log_of_output_vjp,
    ),
    Mutant(
        op="log",
        name="undifferentiated",
        label="D",
        killer="typical",
        says="The logarithm itself stands in place of its slope.",
        vjp=log_undifferentiated_vjp,
    ),
    Mutant(
        op="log",
        name="base-two",
        label="F",
        killer="typical",
        says="The slope is that of log2.",
        vjp=mutate.scaled(log.vjp, 0, lambda xp, x: 1 / xp.log(xp.full((), "2"))),
    ),
    Mutant(
        op="log",
        name="eps",
        label="E",
        killer="kink",
        says="An eps under the fraction bar bends the slope beside 0.",
        vjp=log_eps_vjp,
    ),
    Mutant(
        op="log",
        name="floor",
        label="E",
        killer="kink",
        says="x is kept above 1e-6 in backward alone.",
        vjp=log_floor_vjp,
    ),
    Mutant(
        op="log",
        name="nan-at-zero",
        label="N",
        also=("K",),
        killer="kink",
        says="The slope is taken as x/x^2: 0/0 at 0.",
        vjp=log_rational_vjp,
    ),
    Mutant(
        op="log",
        name="downwards-at-zero",
        label="K",
        also=("S",),
        killer="kink",
        says="The infinite slope at 0 has the wrong sign, that of the value.",
        vjp=log_downwards_vjp,
    ),
    Mutant(
        op="log",
        name="flushed",
        label="O",
        killer="large",
        says="Gradients below 1e-10 are flushed to 0.",
        vjp=mutate.output(log.vjp, 0, mutate.flushed(1e-10)),
    ),
    Mutant(
        op="log",
        name="no-tail",
        label="W",
        also=("A",),
        killer="single",
        says="Vectors of four; their remainder is never written.",
        vjp=mutate.output(log.vjp, 0, mutate.whole_blocks(4)),
    ),
)

# ── abs ──────────────────────────────────────────────────────────────────────────────────────


def abs_by_input_vjp(xp, ct, x):
    return ct * x


def abs_of_output_vjp(xp, ct, x):
    return ct * xp.sign(xp.abs(x))


def abs_divided_vjp(xp, ct, x):
    return ct * (x / xp.abs(x))


def abs_eps_vjp(xp, ct, x):
    return ct * (x / (xp.abs(x) + xp.const("1e-8")))


def abs_smooth_vjp(xp, ct, x):
    return ct * xp.tanh(8 * x)


def abs_steep_vjp(xp, ct, x):
    return xp.where(x == 0, 2 * ct, ct * xp.sign(x))


ABS = (
    Mutant(
        op="abs",
        name="sign-of-output",
        label="V",
        also=("D", "S"),
        killer="typical",
        says="The sign is taken of the output, which has lost it.",
        vjp=abs_of_output_vjp,
    ),
    Mutant(
        op="abs",
        name="by-input",
        label="D",
        killer="typical",
        says="The slope is x, not its sign.",
        vjp=abs_by_input_vjp,
    ),
    Mutant(
        op="abs",
        name="negated",
        label="S",
        killer="typical",
        says="The comparison is the wrong way round.",
        vjp=mutate.negated(abs_.vjp, 0),
    ),
    Mutant(
        op="abs",
        name="nan-at-zero",
        label="N",
        also=("K",),
        killer="all-zero",
        says="The slope is x/|x|: 0/0 at 0.",
        vjp=abs_divided_vjp,
    ),
    Mutant(
        op="abs",
        name="eps",
        label="E",
        killer="kink",
        says="The slope is x/(|x| + 1e-8), too small beside 0.",
        vjp=abs_eps_vjp,
    ),
    Mutant(
        op="abs",
        name="smooth",
        label="D",
        killer="typical",
        says="The slope is that of a smooth stand-in, tanh(8x).",
        vjp=abs_smooth_vjp,
    ),
    Mutant(
        op="abs",
        name="both-sides-at-zero",
        label="K",
        killer="kink",
        says="At 0 both branches add their cotangent, x >= 0 and -x >= 0.",
        vjp=abs_steep_vjp,
    ),
    Mutant(
        op="abs",
        name="constant",
        label="U",
        killer="typical",
        says="The gradient is the sign, whatever the cotangent.",
        vjp=mutate.cotangent(abs_.vjp, mutate.ones),
    ),
    Mutant(
        op="abs",
        name="no-tail",
        label="W",
        also=("A",),
        killer="single",
        says="Vectors of four; their remainder is never written.",
        vjp=mutate.output(abs_.vjp, 0, mutate.whole_blocks(4)),
    ),
)

# ── sgn ──────────────────────────────────────────────────────────────────────────────────────


def passed_on_vjp(xp, ct, x):
    return ct


def sgn_clipped_vjp(xp, ct, x):
    return xp.where(xp.abs(x) <= 1, ct, 0.0)


def sgn_quotient_vjp(xp, ct, x):
    size = xp.abs(x)
    return ct * ((size - x * (x / size)) / (x * x))


def sgn_at_zero_vjp(xp, ct, x):
    return xp.where(x == 0, ct, 0.0)


def sgn_of_abs_vjp(xp, ct, x):
    return ct * xp.sign(x)


def _not_initialised() -> Callable[..., Any]:
    memory: dict[Any, Any] = {}

    def leftover(xp: Any, ct: Any, x: Any) -> Any:
        found = memory.get(x.shape, xp.zeros_like(x))
        memory[x.shape] = ct.copy()  # what the allocator hands out next
        return found

    return leftover


SGN = (
    Mutant(
        op="sgn",
        name="straight-through",
        label="D",
        killer="typical",
        says="The cotangent passes as if sgn were the identity.",
        vjp=passed_on_vjp,
    ),
    Mutant(
        op="sgn",
        name="straight-through-clipped",
        label="D",
        killer="typical",
        says="The cotangent passes where |x| <= 1, as for binary networks.",
        vjp=sgn_clipped_vjp,
    ),
    Mutant(
        op="sgn",
        name="slope-of-abs",
        label="D",
        killer="wide",
        says="The sign is returned as the slope: that is the slope of |x|.",
        vjp=sgn_of_abs_vjp,
    ),
    Mutant(
        op="sgn",
        name="missing",
        label="G",
        killer="typical",
        says="Zero everywhere is taken for no gradient at all.",
        vjp=mutate.output(sgn.vjp, 0, mutate.nothing),
    ),
    Mutant(
        op="sgn",
        name="quotient-rule",
        label="N",
        also=("K",),
        killer="all-zero",
        says="x/|x| is differentiated by the quotient rule: 0/0 at 0.",
        vjp=sgn_quotient_vjp,
    ),
    Mutant(
        op="sgn",
        name="jump-differentiated",
        label="K",
        killer="kink",
        says="At 0 the jump is given a slope.",
        vjp=sgn_at_zero_vjp,
    ),
    Mutant(
        op="sgn",
        name="not-initialised",
        label="A",
        killer="typical",
        says="The gradient's buffer is never written, because nothing is to be added.",
        make=_not_initialised,
    ),
)

# ── step ─────────────────────────────────────────────────────────────────────────────────────


def step_relu_vjp(xp, ct, x, *, at_zero=0.0):
    return xp.where(x > 0, ct, 0.0)


def step_identity_vjp(xp, ct, x, *, at_zero=0.0):
    return ct


def step_surrogate_vjp(xp, ct, x, *, at_zero=0.0):
    s = xp.sigmoid(x)
    return ct * (s * (1 - s))


def step_jump_vjp(xp, ct, x, *, at_zero=0.0):
    return xp.where(x == 0, ct, 0.0)


def step_value_vjp(xp, ct, x, *, at_zero=0.0):
    return xp.where(x == 0, ct * at_zero, 0.0)


def step_divided_vjp(xp, ct, x, *, at_zero=0.0):
    return 0 * ct / x


STEP = (
    Mutant(
        op="step",
        name="slope-of-relu",
        label="D",
        killer="typical",
        says="The step is returned as the slope: that is the slope of relu.",
        vjp=step_relu_vjp,
    ),
    Mutant(
        op="step",
        name="straight-through",
        label="D",
        killer="typical",
        says="The cotangent passes as if step were the identity.",
        vjp=step_identity_vjp,
    ),
    Mutant(
        op="step",
        name="surrogate",
        label="D",
        killer="typical",
        says="The slope is a sigmoid's, as for spiking networks.",
        vjp=step_surrogate_vjp,
    ),
    Mutant(
        op="step",
        name="missing",
        label="G",
        killer="typical",
        says="Zero everywhere is taken for no gradient at all.",
        vjp=mutate.output(step.vjp, 0, mutate.nothing),
    ),
    Mutant(
        op="step",
        name="jump-differentiated",
        label="K",
        killer="kink",
        says="At 0 the jump is given a slope.",
        vjp=step_jump_vjp,
    ),
    Mutant(
        op="step",
        name="value-at-zero",
        label="K",
        killer="kink",
        dialects=("half", "closed"),
        says="The value at 0 is taken for the slope there.",
        vjp=step_value_vjp,
    ),
    Mutant(
        op="step",
        name="nan-at-zero",
        label="N",
        also=("K",),
        killer="all-zero",
        says="The zero is computed as 0/x.",
        vjp=step_divided_vjp,
    ),
)

# ── pow ──────────────────────────────────────────────────────────────────────────────────────

PRODUCTS = ("integer", "fixed")


def pow_undiminished_vjp(xp, ct, x, y=None, *, exponent=2.0):
    z = pow_.forward(xp, x, y, exponent=exponent)
    if y is None:
        return ct * (exponent * z)
    return xp.reduce_to(ct * (y * z), x), pow_.vjp(xp, ct, x, y)[1]


def pow_divided_vjp(xp, ct, x, y=None, *, exponent=2.0):
    z = pow_.forward(xp, x, y, exponent=exponent)
    if y is None:
        return ct * (exponent * z / x)
    return xp.reduce_to(ct * (y * z / x), x), pow_.vjp(xp, ct, x, y)[1]


def pow_log_of_exponent_vjp(xp, ct, x, y=None, *, exponent=2.0):
    dx, _ = pow_.vjp(xp, ct, x, y)
    return dx, xp.reduce_to(ct * (xp.power(x, y) * xp.log(xp.abs(y))), y)


def pow_log_of_zero_vjp(xp, ct, x, y=None, *, exponent=2.0):
    dx, _ = pow_.vjp(xp, ct, x, y)
    return dx, xp.reduce_to(ct * (xp.power(x, y) * xp.log(x)), y)


def pow_swapped_vjp(xp, ct, x, y=None, *, exponent=2.0):
    z = xp.power(x, y)
    return xp.reduce_to(ct * (z * xp.log(x)), x), xp.reduce_to(ct * (y * z / x), y)


def pow_guard_misplaced_vjp(xp, ct, x, y=None, *, exponent=2.0):
    dx, dy = pow_.vjp(xp, ct, x, y)
    return dx, xp.where(y == 0, 0.0, dy)


def pow_unguarded_vjp(xp, ct, x, y=None, *, exponent=2.0):
    return ct * (exponent * xp.power(x, exponent - 1))


def pow_magnitude_vjp(xp, ct, x, y=None, *, exponent=2.0):
    return ct * (exponent * xp.power(xp.abs(x), exponent - 1))


def pow_logarithmic_vjp(xp, ct, x, y=None, *, exponent=2.0):
    return ct * (exponent * xp.exp((exponent - 1) * xp.log(x)))


def pow_base_kept_vjp(xp, ct, x, y=None, *, exponent=2.0):
    return ct * (y * xp.power(x, y - 1)), pow_.vjp(xp, ct, x, y)[1]


POW = (
    Mutant(
        op="pow",
        name="exponent-undiminished",
        label="D",
        killer="typical",
        says="dx is y*x^y, where y*x^(y-1) belongs.",
        vjp=pow_undiminished_vjp,
    ),
    Mutant(
        op="pow",
        name="output-over-base",
        label="N",
        killer="base-zero",
        says="dx is y*z/x: 0/0 at a base of 0.",
        dialects=("real",),
        vjp=pow_divided_vjp,
    ),
    Mutant(
        op="pow",
        name="output-over-base-integer",
        label="N",
        killer="exponent-2",
        says="The slope is n*z/x: 0/0 at a base of 0.",
        dialects=("integer",),
        vjp=pow_divided_vjp,
    ),
    Mutant(
        op="pow",
        name="log-of-exponent",
        label="V",
        also=("D",),
        killer="typical",
        says="dy has log|y| where log x belongs.",
        dialects=("real",),
        vjp=pow_log_of_exponent_vjp,
    ),
    Mutant(
        op="pow",
        name="log-of-zero",
        label="N",
        killer="base-zero",
        says="dy is z*log x without a guard: 0*(-inf) at a base of 0.",
        dialects=("real",),
        vjp=pow_log_of_zero_vjp,
    ),
    Mutant(
        op="pow",
        name="slots-swapped",
        label="G",
        killer="typical",
        says="Base and exponent get each other's gradient.",
        dialects=("real",),
        vjp=pow_swapped_vjp,
    ),
    Mutant(
        op="pow",
        name="exponent-missing",
        label="G",
        killer="typical",
        says="The exponent is taken for a constant: no gradient.",
        dialects=("real",),
        vjp=mutate.output(pow_.vjp, 1, mutate.nothing),
    ),
    Mutant(
        op="pow",
        name="guard-misplaced",
        label="D",
        killer="exponent-zero",
        says="The guard for an exponent of 0 zeroes dy too, which is log x there.",
        dialects=("real",),
        vjp=pow_guard_misplaced_vjp,
    ),
    Mutant(
        op="pow",
        name="mean",
        label="R",
        also=("B",),
        killer="row",
        says="dy is the mean over the repetitions.",
        dialects=("real",),
        vjp=_reduced(pow_, _averaged),
    ),
    Mutant(
        op="pow",
        name="base-kept",
        label="B",
        killer="base-row",
        says="dx keeps the output's shape where the base is repeated.",
        dialects=("real",),
        vjp=pow_base_kept_vjp,
    ),
    Mutant(
        op="pow",
        name="exponent-ignored",
        label="P",
        killer="negative-base",
        says="Backward is that of the square, whatever the exponent.",
        dialects=PRODUCTS,
        vjp=mutate.attribute(pow_.vjp, exponent=2.0),
    ),
    Mutant(
        op="pow",
        name="exponent-rounded",
        label="P",
        killer="exponent-half",
        says="The exponent is kept as an integer for backward.",
        dialects=PRODUCTS,
        vjp=mutate.attribute(pow_.vjp, exponent=lambda exponent: float(int(exponent))),
    ),
    Mutant(
        op="pow",
        name="exponent-by-magnitude",
        label="P",
        killer="exponent-minus-2",
        says="The exponent has lost its sign.",
        dialects=PRODUCTS,
        vjp=mutate.attribute(pow_.vjp, exponent=lambda exponent, **_: abs(exponent)),
    ),
    Mutant(
        op="pow",
        name="base-by-magnitude",
        label="S",
        also=("D",),
        killer="exponent-2",
        says="The slope takes |x|, so that even powers lose its sign.",
        dialects=PRODUCTS,
        vjp=pow_magnitude_vjp,
    ),
    Mutant(
        op="pow",
        name="through-logarithms",
        label="N",
        killer="negative-base",
        says="x^(n-1) is computed as exp((n-1)*log x), NaN for a negative base.",
        dialects=PRODUCTS,
        vjp=pow_logarithmic_vjp,
    ),
    Mutant(
        op="pow",
        name="zeroth-power-unguarded",
        label="N",
        killer="exponent-0",
        says="The slope of x^0 is computed as 0*x^-1: 0*inf at a base of 0.",
        dialects=PRODUCTS,
        vjp=pow_unguarded_vjp,
    ),
)

# ── map_unary ────────────────────────────────────────────────────────────────────────────────


def map_unary_itself_vjp(xp, ct, x, *, function="bell"):
    return ct * map_unary.forward(xp, x, function=function)


def map_unary_differenced_vjp(xp, ct, x, *, function="bell"):
    ahead, here = (map_unary.forward(xp, x + h, function=function) for h in (2.0**-10, 0.0))
    return ct * (ahead - here) * 2.0**10


MAP_UNARY = (
    Mutant(
        op="map_unary",
        name="function-itself",
        label="D",
        killer="typical",
        says="The function is mapped over x where its derivative belongs.",
        vjp=map_unary_itself_vjp,
    ),
    Mutant(
        op="map_unary",
        name="derivative-at-output",
        label="V",
        also=("D",),
        killer="typical",
        says="The derivative is taken at the output.",
        vjp=mutate.primal(
            map_unary.vjp,
            0,
            lambda xp, x, *, function: map_unary.forward(xp, x, function=function),
        ),
    ),
    Mutant(
        op="map_unary",
        name="derivative-at-magnitude",
        label="D",
        also=("S",),
        killer="negative",
        says="The derivative is taken at |x|.",
        vjp=mutate.primal(map_unary.vjp, 0, lambda xp, x, *, function: xp.abs(x)),
    ),
    Mutant(
        op="map_unary",
        name="function-ignored",
        label="P",
        killer="typical",
        dialects=("sine", "swish"),
        says="The derivative is always that of the default function.",
        vjp=mutate.attribute(map_unary.vjp, function="bell"),
    ),
    Mutant(
        op="map_unary",
        name="differenced",
        label="O",
        killer="typical",
        says="No derivative was given, so the function is differenced with a step of 1e-3.",
        vjp=map_unary_differenced_vjp,
    ),
    Mutant(
        op="map_unary",
        name="first-matrix-only",
        label="W",
        also=("I",),
        killer="cube",
        says="Only the last two axes are looped over: 0 beyond the first matrix.",
        vjp=mutate.output(map_unary.vjp, 0, mutate.first_entry(2)),
    ),
    Mutant(
        op="map_unary",
        name="zeros-skipped",
        label="D",
        killer="zeros",
        dialects=("sine", "swish"),
        says="An element of 0 is skipped, as if its slope were 0 too.",
        vjp=mutate.output(map_unary.vjp, 0, lambda xp, g, x, *, function: xp.where(x == 0, 0.0, g)),
    ),
    Mutant(
        op="map_unary",
        name="constant",
        label="U",
        killer="typical",
        says="The gradient is the derivative, whatever the cotangent.",
        vjp=mutate.cotangent(map_unary.vjp, mutate.ones),
    ),
)

# ── map_binary ───────────────────────────────────────────────────────────────────────────────

LOPSIDED = ("wave", "growth")


def map_binary_averaged_vjp(xp, ct, x, y, *, function="hypot"):
    dx, dy = map_binary.vjp(xp, ct, x, y, function=function)
    return (dx + dy) * 0.5, (dx + dy) * 0.5


def map_binary_recovered_vjp(xp, ct, x, y, *, function="hypot"):
    z = map_binary.forward(xp, x, y, function=function)
    return map_binary.vjp(xp, ct, x, y, function=function)[0], ct * (z / y)


def map_binary_rootless_vjp(xp, ct, x, y, *, function="hypot"):
    return ct * x, ct * y


MAP_BINARY = (
    Mutant(
        op="map_binary",
        name="exchanged",
        label="G",
        killer="typical",
        dialects=LOPSIDED,
        says="The operands get each other's gradient.",
        vjp=mutate.swapped(map_binary.vjp, 0, 1),
    ),
    Mutant(
        op="map_binary",
        name="second-zero",
        label="G",
        killer="typical",
        says="Only the first operand is differentiated, as by a map of one operand.",
        vjp=mutate.output(map_binary.vjp, 1, mutate.zeros),
    ),
    Mutant(
        op="map_binary",
        name="one-operand-twice",
        label="V",
        also=("D",),
        killer="typical",
        says="Backward reads x for both operands.",
        vjp=mutate.primal(map_binary.vjp, 1, lambda xp, x, y, *, function: x),
    ),
    Mutant(
        op="map_binary",
        name="averaged",
        label="D",
        killer="unequal-size",
        says="Both operands get the mean of the two partial derivatives.",
        vjp=map_binary_averaged_vjp,
    ),
    Mutant(
        op="map_binary",
        name="factor-recovered",
        label="N",
        killer="zero-operand",
        dialects=("wave",),
        says="sin x is recovered from the output, z/y: 0/0 where y is 0.",
        vjp=map_binary_recovered_vjp,
    ),
    Mutant(
        op="map_binary",
        name="root-forgotten",
        label="F",
        also=("D",),
        killer="typical",
        dialects=("hypot",),
        says="The partial derivatives of hypot lack their factor 1/z.",
        vjp=map_binary_rootless_vjp,
    ),
    Mutant(
        op="map_binary",
        name="function-ignored",
        label="P",
        killer="typical",
        dialects=LOPSIDED,
        says="The derivatives are always those of the default function.",
        vjp=mutate.attribute(map_binary.vjp, function="hypot"),
    ),
    Mutant(
        op="map_binary",
        name="square-transposed",
        label="L",
        also=("W",),
        killer="square",
        says="dy is transposed where rows and columns are as many.",
        vjp=mutate.output(map_binary.vjp, 1, mutate.transposed),
    ),
    Mutant(
        op="map_binary",
        name="first-matrix-only",
        label="W",
        also=("I",),
        killer="cube",
        says="Only the last two axes are looped over: dx is 0 beyond the first matrix.",
        vjp=mutate.output(map_binary.vjp, 0, mutate.first_entry(2)),
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *ADD,
    *SUB,
    *MUL,
    *DIV,
    *ADD1,
    *SCALE,
    *NEG,
    *SQR,
    *EXP,
    *SQRT,
    *LOG,
    *ABS,
    *SGN,
    *STEP,
    *POW,
    *MAP_UNARY,
    *MAP_BINARY,
)
