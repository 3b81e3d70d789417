"""Mutants of the operators in `gradcheck_cases.elementwise`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec import OpSpec
from gradcheck.spec.mutant import Mutant, mutant_table
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

MUTANTS: tuple[Mutant, ...] = ()


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


MUTANTS += mutant_table(
    "add",
    {
        ("strides-ignored", "layout", "typical"): (
            "y is taken to be contiguous where it is transposed, so dy lands elsewhere.",
            add_transposed_vjp,
            {"modelled_on": "ggml's commit log: ggml_forward_add and transposed tensors"},
        ),
        ("second-missing", "slot", "typical"): (
            "The residual branch gets no gradient.",
            mutate.output(add.vjp, 1, mutate.nothing),
        ),
        ("halved", "scale", "typical"): (
            "The cotangent is shared out, half to each operand.",
            mutate.scaled(add.vjp, 1, 0.5),
        ),
        ("mean", "reduction broadcast", "row"): (
            "dy is the mean over the repetitions.",
            _reduced(add, _averaged),
        ),
        ("overwritten", "accumulation broadcast", "row"): (
            "Each repetition of y overwrites the gradient of the one before.",
            _reduced(add, _last),
        ),
        ("leading-axes-only", "broadcast", "column"): (
            "dy is summed over leading axes, not over a stretched one.",
            _reduced(add, _leading_only),
        ),
        ("one-batch-axis", "broadcast accumulation", "row-batched"): (
            "dy is summed over the first batch axis, and of the second the first slice taken.",
            _reduced(add, _one_axis),
        ),
        ("other-axis", "index broadcast shape", "row-square"): (
            "dy is summed along rows instead of along columns.",
            _reduced(add, _other_axis),
        ),
        ("first-kept", "broadcast", "first-repeated"): (
            "Only the second operand is expected to be repeated: dx keeps the output's shape.",
            add_first_kept_vjp,
        ),
        ("in-place", "aliasing", "typical"): (
            "dx is accumulated in the cotangent's own memory.",
            add_in_place_vjp,
        ),
        ("never-cleared", "accumulation", "typical"): (
            "dy is added into a buffer that is never set to zero.",
            {"make": mutate.accumulated(add.vjp, -1)},
        ),
    },
)

# ── sub ──────────────────────────────────────────────────────────────────────────────────────


def sub_swapped_vjp(xp, ct, x, y):
    return -xp.reduce_to(ct, x), xp.reduce_to(ct, y)


def sub_transposed_vjp(xp, ct, x, y):
    return xp.reduce_to(ct, x), -xp.reduce_to(_column_major(xp, ct), y)


def sub_first_kept_vjp(xp, ct, x, y):
    return ct, -xp.reduce_to(ct, y)


MUTANTS += mutant_table(
    "sub",
    {
        ("operands-swapped", "slot sign", "typical"): (
            "The gradients are those of y - x.",
            sub_swapped_vjp,
            {"modelled_on": "ggml's commit log: vDSP_vsub takes the subtrahend first"},
        ),
        ("plus", "sign", "typical"): (
            "The minus before dy is forgotten, as in code copied from add.",
            mutate.negated(sub.vjp, 1),
        ),
        ("strides-ignored", "layout", "typical"): (
            "y is taken to be contiguous where it is transposed, so dy lands elsewhere.",
            sub_transposed_vjp,
            {"modelled_on": "ggml's commit log: sub, mul and div and transposed tensors"},
        ),
        ("distance", "derivative sign", "typical"): (
            "The gradients are those of |x - y|.",
            mutate.cotangent(sub.vjp, lambda xp, ct, x, y: ct * xp.sign(x - y)),
        ),
        ("second-missing", "slot", "typical"): (
            "The subtrahend gets no gradient, as a target does not.",
            mutate.output(sub.vjp, 1, mutate.nothing),
        ),
        ("mean", "reduction broadcast", "row"): (
            "dy is the mean over the repetitions.",
            _reduced(sub, _averaged),
        ),
        ("leading-axes-only", "broadcast", "column"): (
            "dy is summed over leading axes, not over a stretched one.",
            _reduced(sub, _leading_only),
        ),
        ("first-kept", "broadcast", "first-repeated"): (
            "Only the second operand is expected to be repeated: dx keeps the output's shape.",
            sub_first_kept_vjp,
        ),
        ("square-transposed", "layout shape", "square"): (
            "dy is transposed where rows and columns are as many.",
            mutate.output(sub.vjp, 1, mutate.transposed),
        ),
        ("no-tail", "shape accumulation", "single"): (
            "Vectors of four; the remainder of dx is never written.",
            mutate.output(sub.vjp, 0, mutate.whole_blocks(4)),
        ),
    },
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


MUTANTS += mutant_table(
    "mul",
    {
        ("factors-swapped", "slot", "typical"): (
            "Each operand gets its own value as the factor, not the other's.",
            mul_swapped_vjp,
        ),
        ("factor-missing", "scale derivative", "typical"): (
            "dx is the cotangent, without the factor y.",
            mul_bare_vjp,
        ),
        ("factor-recovered", "non-finite", "zeros"): (
            "The other factor is recovered from the output, z/x: 0/0 where x is 0.",
            mul_recovered_vjp,
        ),
        ("input-overwritten", "saved-value aliasing derivative", "typical"): (
            "The product was formed in place of x, so dy reads z.",
            mul_overwritten_input_vjp,
        ),
        ("strides-ignored", "layout", "typical"): (
            "y is taken to be contiguous where it is transposed, so dx reads other factors.",
            mul_transposed_vjp,
            {"modelled_on": "ggml's commit log: sub, mul and div and transposed tensors"},
        ),
        ("reduced-early", "broadcast", "row"): (
            "Cotangent and x are summed before they are multiplied.",
            mul_reduced_early_vjp,
        ),
        ("mean", "reduction broadcast", "row"): (
            "dy is the mean over the repetitions.",
            _reduced(mul, _averaged),
        ),
        ("overwritten", "accumulation broadcast", "row"): (
            "Each repetition of y overwrites the gradient of the one before.",
            _reduced(mul, _last),
        ),
        ("one-batch-axis", "broadcast accumulation", "row-batched"): (
            "dy is summed over the first batch axis, and of the second the first slice taken.",
            _reduced(mul, _one_axis),
        ),
        ("one-cotangent", "cotangent", "typical"): (
            "The first element of the cotangent stands for all.",
            mutate.cotangent(mul.vjp, mutate.first_for_all()),
        ),
        ("half-precision", "precision", "typical"): (
            "dx passes through float16.",
            mutate.output(mul.vjp, 0, mutate.half),
        ),
    },
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


MUTANTS += mutant_table(
    "div",
    {
        ("operands-swapped", "slot", "typical"): (
            "The gradients are those of y / x.",
            div_swapped_vjp,
            {"modelled_on": "ggml's commit log: vDSP_vdiv takes the divisor first"},
        ),
        ("plus", "sign", "typical"): (
            "The minus before dy is forgotten.",
            mutate.negated(div.vjp, 1),
        ),
        ("one-factor-short", "derivative scale", "typical"): (
            "dy has 1/y where 1/y^2 belongs.",
            div_one_factor_vjp,
        ),
        ("eps", "eps", "near-zero"): (
            "Backward divides by y + 1e-8, forward does not.",
            div_eps_vjp,
        ),
        ("square-overflows", "precision", "huge"): (
            "dy is divided by y*y, which is infinite where y is not.",
            div_squared_vjp,
            {"dtype": "float32"},
        ),
        ("reciprocal-recovered", "non-finite", "zero-numerator"): (
            "1/y is recovered from the output, z/x: 0/0 where x is 0.",
            div_recovered_vjp,
        ),
        ("strides-ignored", "layout", "typical"): (
            "y is taken to be contiguous where it is transposed.",
            div_transposed_vjp,
            {"modelled_on": "ggml's commit log: sub, mul and div and transposed tensors"},
        ),
        ("magnitude", "derivative sign", "typical"): (
            "The divisor's sign is lost, as where y is a norm.",
            mutate.primal(div.vjp, 1, lambda xp, x, y: xp.abs(y)),
        ),
        ("reduced-early", "broadcast", "row"): (
            "Cotangent and x are summed before they are multiplied.",
            div_reduced_early_vjp,
        ),
        ("mean", "reduction broadcast", "row"): (
            "dy is the mean over the repetitions.",
            _reduced(div, _averaged),
        ),
        ("first-matrix-only", "shape index", "cube"): (
            "Only the last two axes are looped over: dx is 0 beyond the first matrix.",
            mutate.output(div.vjp, 0, mutate.first_entry(2)),
        ),
    },
)

# ── add1 ─────────────────────────────────────────────────────────────────────────────────────


def add1_shapeless_vjp(xp, ct, x, s):
    return ct, xp.sum(ct)


def add1_counted_vjp(xp, ct, x, s):
    return ct, xp.reduce_to(mutate.first_for_all()(xp, ct), s)


def _trace(xp: Any, g: Any, like: Any) -> Any:
    if g.ndim != 2 or g.shape[0] != g.shape[1]:
        return xp.reduce_to(g, like)
    return xp.reduce_to(xp.where(np.eye(len(g), dtype=bool), g, 0.0), like)


MUTANTS += mutant_table(
    "add1",
    {
        ("mean", "reduction broadcast", "typical"): (
            "ds is the mean of the cotangent.",
            _reduced(add1, _averaged),
        ),
        ("overwritten", "accumulation broadcast", "typical"): (
            "ds is assigned in the loop, so the last element's cotangent stays.",
            _reduced(add1, lambda xp, g, like: xp.reshape(xp.reshape(g, (-1,))[-1:], like.shape)),
        ),
        ("counted", "cotangent", "typical"): (
            "ds is the number of elements times the first one's cotangent.",
            add1_counted_vjp,
        ),
        ("scalar-missing", "slot", "typical"): (
            "The scalar is taken for a constant: no gradient.",
            mutate.output(add1.vjp, 1, mutate.nothing),
        ),
        ("first-matrix-only", "shape index broadcast", "cube"): (
            "ds is summed over the last two axes of the first matrix.",
            _reduced(
                add1,
                lambda xp, g, like: xp.reduce_to(mutate.first_entry(2)(xp, g), like),
            ),
        ),
        ("trace", "index broadcast shape", "square"): (
            "One index runs over rows and columns: a square's diagonal is summed.",
            _reduced(add1, _trace),
        ),
        ("no-tail", "shape term", "long"): (
            "Vectors of four; their remainder is left out of ds.",
            _reduced(
                add1,
                lambda xp, g, like: xp.reduce_to(mutate.whole_blocks(4)(xp, g), like),
            ),
        ),
        ("shapeless", "broadcast", "one-element-tensor"): (
            "ds has no axes, whatever the scalar has.",
            add1_shapeless_vjp,
        ),
        ("short-accumulator", "precision", "long"): (
            "ds is accumulated in bfloat16.",
            _reduced(add1, _short_sum),
        ),
        ("never-cleared", "accumulation", "typical"): (
            "ds is added into a buffer that is never set to zero.",
            {"make": mutate.accumulated(add1.vjp, -1)},
        ),
    },
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


MUTANTS += mutant_table(
    "scale",
    {
        ("mean", "reduction broadcast", "typical"): (
            "ds is the mean of ct*x where their sum belongs.",
            _reduced(scale, _averaged),
            {
                "modelled_on": (
                    "ggml's commit log: use sum instead of mean for the gradient of scale's scalar"
                )
            },
        ),
        ("x-forgotten", "derivative scale", "typical"): (
            "ds is the sum of the cotangent, as add1's.",
            scale_cotangent_only_vjp,
        ),
        ("output-for-input", "saved-value aliasing derivative", "small-scalar"): (
            "ds reads the output, which was formed in place of x.",
            scale_output_vjp,
        ),
        ("input-recovered", "non-finite", "zero-scalar"): (
            "x is recovered from the output, y/s: 0/0 where s is 0.",
            scale_recovered_vjp,
        ),
        ("unscaled", "scale derivative", "typical"): (
            "dx is the cotangent, without the factor s.",
            scale_unscaled_vjp,
        ),
        ("overwritten", "accumulation broadcast", "typical"): (
            "ds is assigned in the loop, so the last element's product stays.",
            _reduced(scale, lambda xp, g, like: xp.reshape(xp.reshape(g, (-1,))[-1:], like.shape)),
        ),
        ("first-matrix-only", "shape index broadcast", "cube"): (
            "ds is summed over the last two axes of the first matrix.",
            _reduced(
                scale,
                lambda xp, g, like: xp.reduce_to(mutate.first_entry(2)(xp, g), like),
            ),
        ),
        ("cotangent-transposed", "layout shape", "square"): (
            "ds multiplies x by the transposed cotangent of a square.",
            scale_transposed_vjp,
        ),
        ("shapeless", "broadcast", "one-element-tensor"): (
            "ds has no axes, whatever the scalar has.",
            scale_shapeless_vjp,
        ),
        ("short-accumulator", "precision", "long"): (
            "ds is accumulated in bfloat16.",
            _reduced(scale, _short_sum),
        ),
        ("never-cleared", "accumulation", "typical"): (
            "ds is added into a buffer that is never set to zero.",
            {"make": mutate.accumulated(scale.vjp, -1)},
        ),
    },
)

# ── neg ──────────────────────────────────────────────────────────────────────────────────────


def neg_recovered_vjp(xp, ct, x):
    return ct * (-x / x)


def neg_magnitude_vjp(xp, ct, x):
    return -xp.abs(ct)


def neg_squared_vjp(xp, ct, x):
    return ct * (-(x * x) / (x * x))


MUTANTS += mutant_table(
    "neg",
    {
        ("passed-on", "sign", "typical"): (
            "The cotangent is passed on as it came.",
            mutate.negated(neg.vjp, 0),
        ),
        ("slope-recovered", "non-finite", "zeros"): (
            "The slope is recovered as y/x: 0/0 where x is 0.",
            neg_recovered_vjp,
        ),
        ("slope-overflows", "precision non-finite", "huge"): (
            "The slope is recovered as y*x/x^2, which overflows.",
            neg_squared_vjp,
            {"dtype": "float32"},
        ),
        ("constant", "cotangent", "typical"): (
            "The gradient is -1, whatever the cotangent.",
            mutate.cotangent(neg.vjp, mutate.ones),
        ),
        ("magnitude", "nonlinear", "typical"): (
            "The gradient is made negative instead of negated.",
            neg_magnitude_vjp,
        ),
        ("square-transposed", "layout shape", "square"): (
            "The gradient is transposed where rows and columns are as many.",
            mutate.output(neg.vjp, 0, mutate.transposed),
        ),
        ("no-tail", "shape accumulation", "single"): (
            "Vectors of four; their remainder is never written.",
            mutate.output(neg.vjp, 0, mutate.whole_blocks(4)),
        ),
    },
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


MUTANTS += mutant_table(
    "sqr",
    {
        ("two-missing", "scale", "typical"): (
            "The slope is x, without its factor 2.",
            mutate.scaled(sqr.vjp, 0, 0.5),
        ),
        ("output-for-input", "saved-value derivative", "typical"): (
            "The slope is 2y.",
            mutate.primal(sqr.vjp, 0, lambda xp, x: x * x),
        ),
        ("root-of-output", "sign derivative", "negative"): (
            "The slope is recovered as 2*sqrt(y), which is positive.",
            sqr_root_vjp,
        ),
        ("slope-recovered", "non-finite", "zeros"): (
            "The slope is recovered as 2y/x: 0/0 where x is 0.",
            sqr_recovered_vjp,
        ),
        ("cotangent-squared", "nonlinear", "typical"): (
            "The cotangent is multiplied in twice.",
            sqr_squared_vjp,
        ),
        ("cube-overflows", "precision non-finite", "huge"): (
            "The slope is taken as 2x^3/x^2, whose cube overflows.",
            sqr_cube_vjp,
            {"dtype": "float32"},
        ),
        ("flushed", "precision", "tiny"): (
            "Gradients below 1e-10 are flushed to 0.",
            mutate.output(sqr.vjp, 0, mutate.flushed(1e-10)),
        ),
        ("no-tail", "shape accumulation", "single"): (
            "Vectors of four; their remainder is never written.",
            mutate.output(sqr.vjp, 0, mutate.whole_blocks(4)),
        ),
    },
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


MUTANTS += mutant_table(
    "exp",
    {
        ("power-rule", "derivative", "typical"): (
            "The slope is x*exp(x - 1), by the rule for powers.",
            exp_power_rule_vjp,
        ),
        ("exponential-of-output", "saved-value derivative", "typical"): (
            "The saved output is taken for x, and its exponential for the slope.",
            mutate.primal(exp.vjp, 0, lambda xp, x: xp.exp(x)),
        ),
        ("minus-one", "term derivative", "tail"): (
            "The slope is the value of expm1: -1 in the tail.",
            exp_minus_one_vjp,
        ),
        ("clipped", "derivative", "large"): (
            "The exponent is clipped at 20 in backward alone.",
            exp_clipped_vjp,
        ),
        ("base-two", "scale", "typical"): (
            "The slope has the factor log 2 of exp2.",
            mutate.scaled(exp.vjp, 0, lambda xp, x: xp.log(xp.full((), "2"))),
        ),
        ("divided-by-output", "non-finite precision", "underflow"): (
            "The slope is taken as y^2/y: 0/0 where y underflows.",
            exp_recovered_vjp,
        ),
        ("flushed", "precision", "tail"): (
            "Gradients below 1e-7 are flushed to 0.",
            mutate.output(exp.vjp, 0, mutate.flushed(1e-7)),
        ),
        ("in-place", "aliasing", "typical"): (
            "The slope is multiplied into the caller's cotangent.",
            exp_in_place_vjp,
        ),
        ("constant", "cotangent", "typical"): (
            "The gradient is y, whatever the cotangent.",
            mutate.cotangent(exp.vjp, mutate.ones),
        ),
        ("no-tail", "shape accumulation", "single"): (
            "Vectors of four; their remainder is never written.",
            mutate.output(exp.vjp, 0, mutate.whole_blocks(4)),
        ),
    },
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


MUTANTS += mutant_table(
    "sqrt",
    {
        ("half-missing", "scale", "typical"): (
            "The slope is 1/y, without its factor 1/2.",
            mutate.scaled(sqrt.vjp, 0, 2.0),
        ),
        ("input-for-output", "saved-value derivative", "typical"): (
            "The slope is 1/(2x): the input was saved, the output is expected.",
            sqrt_of_input_vjp,
        ),
        ("eps", "eps", "kink"): (
            "An eps under the fraction bar bends the slope beside 0.",
            sqrt_eps_vjp,
        ),
        ("nan-at-zero", "non-finite kink", "kink"): (
            "The slope is taken as y/(2x): 0/0 at 0.",
            sqrt_rational_vjp,
        ),
        ("square-overflows", "precision", "large"): (
            "The slope is taken as x*y/(2x^2), whose denominator overflows.",
            sqrt_squared_vjp,
            {"dtype": "float32"},
        ),
        ("reciprocal-root", "derivative", "typical"): (
            "The slope is that of 1/sqrt(x), but for its sign.",
            sqrt_reciprocal_vjp,
        ),
        ("downwards-at-zero", "kink sign", "kink"): (
            "The infinite slope at 0 has the wrong sign, as after a division by -0.",
            sqrt_downwards_vjp,
        ),
        ("half-precision", "precision", "typical"): (
            "The gradient passes through float16.",
            mutate.output(sqrt.vjp, 0, mutate.half),
        ),
        ("no-tail", "shape accumulation", "single"): (
            "Vectors of four; their remainder is never written.",
            mutate.output(sqrt.vjp, 0, mutate.whole_blocks(4)),
        ),
    },
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


MUTANTS += mutant_table(
    "log",
    {
        ("output-for-input", "saved-value derivative", "typical"): (
            "The slope is 1/y.",
            log_of_output_vjp,
        ),
        ("undifferentiated", "derivative", "typical"): (
            "The logarithm itself stands in place of its slope.",
            log_undifferentiated_vjp,
        ),
        ("base-two", "scale", "typical"): (
            "The slope is that of log2.",
            mutate.scaled(log.vjp, 0, lambda xp, x: 1 / xp.log(xp.full((), "2"))),
        ),
        ("eps", "eps", "kink"): (
            "An eps under the fraction bar bends the slope beside 0.",
            log_eps_vjp,
        ),
        ("floor", "eps", "kink"): ("x is kept above 1e-6 in backward alone.", log_floor_vjp),
        ("nan-at-zero", "non-finite kink", "kink"): (
            "The slope is taken as x/x^2: 0/0 at 0.",
            log_rational_vjp,
        ),
        ("downwards-at-zero", "kink sign", "kink"): (
            "The infinite slope at 0 has the wrong sign, that of the value.",
            log_downwards_vjp,
        ),
        ("flushed", "precision", "large"): (
            "Gradients below 1e-10 are flushed to 0.",
            mutate.output(log.vjp, 0, mutate.flushed(1e-10)),
        ),
        ("no-tail", "shape accumulation", "single"): (
            "Vectors of four; their remainder is never written.",
            mutate.output(log.vjp, 0, mutate.whole_blocks(4)),
        ),
    },
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


MUTANTS += mutant_table(
    "abs",
    {
        ("sign-of-output", "saved-value derivative sign", "typical"): (
            "The sign is taken of the output, which has lost it.",
            abs_of_output_vjp,
        ),
        ("by-input", "derivative", "typical"): ("The slope is x, not its sign.", abs_by_input_vjp),
        ("negated", "sign", "typical"): (
            "The comparison is the wrong way round.",
            mutate.negated(abs_.vjp, 0),
        ),
        ("nan-at-zero", "non-finite kink", "all-zero"): (
            "The slope is x/|x|: 0/0 at 0.",
            abs_divided_vjp,
        ),
        ("eps", "eps", "kink"): ("The slope is x/(|x| + 1e-8), too small beside 0.", abs_eps_vjp),
        ("smooth", "derivative", "typical"): (
            "The slope is that of a smooth stand-in, tanh(8x).",
            abs_smooth_vjp,
        ),
        ("both-sides-at-zero", "kink", "kink"): (
            "At 0 both branches add their cotangent, x >= 0 and -x >= 0.",
            abs_steep_vjp,
        ),
        ("constant", "cotangent", "typical"): (
            "The gradient is the sign, whatever the cotangent.",
            mutate.cotangent(abs_.vjp, mutate.ones),
        ),
        ("no-tail", "shape accumulation", "single"): (
            "Vectors of four; their remainder is never written.",
            mutate.output(abs_.vjp, 0, mutate.whole_blocks(4)),
        ),
    },
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
        memory[x.shape] = ct.copy()  # the memory that the allocator returns next
        return found

    return leftover


MUTANTS += mutant_table(
    "sgn",
    {
        ("straight-through", "derivative", "typical"): (
            "The cotangent passes as if sgn were the identity.",
            passed_on_vjp,
        ),
        ("straight-through-clipped", "derivative", "typical"): (
            "The cotangent passes where |x| <= 1, as for binary networks.",
            sgn_clipped_vjp,
        ),
        ("slope-of-abs", "derivative", "wide"): (
            "The sign is returned as the slope: that is the slope of |x|.",
            sgn_of_abs_vjp,
        ),
        ("missing", "slot", "typical"): (
            "Zero everywhere is taken for no gradient at all.",
            mutate.output(sgn.vjp, 0, mutate.nothing),
        ),
        ("quotient-rule", "non-finite kink", "all-zero"): (
            "x/|x| is differentiated by the quotient rule: 0/0 at 0.",
            sgn_quotient_vjp,
        ),
        ("jump-differentiated", "kink", "kink"): (
            "At 0 the jump is given a slope.",
            sgn_at_zero_vjp,
        ),
        ("not-initialised", "accumulation", "typical"): (
            "The gradient's buffer is never written, because nothing is to be added.",
            {"make": _not_initialised},
        ),
    },
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


MUTANTS += mutant_table(
    "step",
    {
        ("slope-of-relu", "derivative", "typical"): (
            "The step is returned as the slope: that is the slope of relu.",
            step_relu_vjp,
        ),
        ("straight-through", "derivative", "typical"): (
            "The cotangent passes as if step were the identity.",
            step_identity_vjp,
        ),
        ("surrogate", "derivative", "typical"): (
            "The slope is a sigmoid's, as for spiking networks.",
            step_surrogate_vjp,
        ),
        ("missing", "slot", "typical"): (
            "Zero everywhere is taken for no gradient at all.",
            mutate.output(step.vjp, 0, mutate.nothing),
        ),
        ("jump-differentiated", "kink", "kink"): ("At 0 the jump is given a slope.", step_jump_vjp),
        ("value-at-zero", "kink", "kink"): (
            "The value at 0 is taken for the slope there.",
            step_value_vjp,
            {"dialects": ("half", "closed")},
        ),
        ("nan-at-zero", "non-finite kink", "all-zero"): (
            "The zero is computed as 0/x.",
            step_divided_vjp,
        ),
    },
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


MUTANTS += mutant_table(
    "pow",
    {
        ("exponent-undiminished", "derivative", "typical"): (
            "dx is y*x^y, where y*x^(y-1) belongs.",
            pow_undiminished_vjp,
        ),
        ("output-over-base", "non-finite", "base-zero"): (
            "dx is y*z/x: 0/0 at a base of 0.",
            pow_divided_vjp,
            {"dialects": ("real",)},
        ),
        ("output-over-base-integer", "non-finite", "exponent-2"): (
            "The slope is n*z/x: 0/0 at a base of 0.",
            pow_divided_vjp,
            {"dialects": ("integer",)},
        ),
        ("log-of-exponent", "saved-value derivative", "typical"): (
            "dy has log|y| where log x belongs.",
            pow_log_of_exponent_vjp,
            {"dialects": ("real",)},
        ),
        ("log-of-zero", "non-finite", "base-zero"): (
            "dy is z*log x without a guard: 0*(-inf) at a base of 0.",
            pow_log_of_zero_vjp,
            {"dialects": ("real",)},
        ),
        ("slots-swapped", "slot", "typical"): (
            "Base and exponent get each other's gradient.",
            pow_swapped_vjp,
            {"dialects": ("real",)},
        ),
        ("exponent-missing", "slot", "typical"): (
            "The exponent is taken for a constant: no gradient.",
            mutate.output(pow_.vjp, 1, mutate.nothing),
            {"dialects": ("real",)},
        ),
        ("guard-misplaced", "derivative", "exponent-zero"): (
            "The guard for an exponent of 0 zeroes dy too, which is log x there.",
            pow_guard_misplaced_vjp,
            {"dialects": ("real",)},
        ),
        ("mean", "reduction broadcast", "row"): (
            "dy is the mean over the repetitions.",
            _reduced(pow_, _averaged),
            {"dialects": ("real",)},
        ),
        ("base-kept", "broadcast", "base-row"): (
            "dx keeps the output's shape where the base is repeated.",
            pow_base_kept_vjp,
            {"dialects": ("real",)},
        ),
        ("exponent-ignored", "attribute", "negative-base"): (
            "Backward is that of the square, whatever the exponent.",
            mutate.attribute(pow_.vjp, exponent=2.0),
            {"dialects": PRODUCTS},
        ),
        ("exponent-rounded", "attribute", "exponent-half"): (
            "The exponent is kept as an integer for backward.",
            mutate.attribute(pow_.vjp, exponent=lambda exponent: float(int(exponent))),
            {"dialects": PRODUCTS},
        ),
        ("exponent-by-magnitude", "attribute", "exponent-minus-2"): (
            "The exponent has lost its sign.",
            mutate.attribute(pow_.vjp, exponent=lambda exponent, **_: abs(exponent)),
            {"dialects": PRODUCTS},
        ),
        ("base-by-magnitude", "sign derivative", "exponent-2"): (
            "The slope takes |x|, so that even powers lose its sign.",
            pow_magnitude_vjp,
            {"dialects": PRODUCTS},
        ),
        ("through-logarithms", "non-finite", "negative-base"): (
            "x^(n-1) is computed as exp((n-1)*log x), NaN for a negative base.",
            pow_logarithmic_vjp,
            {"dialects": PRODUCTS},
        ),
        ("zeroth-power-unguarded", "non-finite", "exponent-0"): (
            "The slope of x^0 is computed as 0*x^-1: 0*inf at a base of 0.",
            pow_unguarded_vjp,
            {"dialects": PRODUCTS},
        ),
    },
)

# ── map_unary ────────────────────────────────────────────────────────────────────────────────


def map_unary_itself_vjp(xp, ct, x, *, function="bell"):
    return ct * map_unary.forward(xp, x, function=function)


def map_unary_differenced_vjp(xp, ct, x, *, function="bell"):
    ahead, here = (map_unary.forward(xp, x + h, function=function) for h in (2.0**-10, 0.0))
    return ct * (ahead - here) * 2.0**10


MUTANTS += mutant_table(
    "map_unary",
    {
        ("function-itself", "derivative", "typical"): (
            "The function is mapped over x where its derivative belongs.",
            map_unary_itself_vjp,
        ),
        ("derivative-at-output", "saved-value derivative", "typical"): (
            "The derivative is taken at the output.",
            mutate.primal(
                map_unary.vjp,
                0,
                lambda xp, x, *, function: map_unary.forward(xp, x, function=function),
            ),
        ),
        ("derivative-at-magnitude", "derivative sign", "negative"): (
            "The derivative is taken at |x|.",
            mutate.primal(map_unary.vjp, 0, lambda xp, x, *, function: xp.abs(x)),
        ),
        ("function-ignored", "attribute", "typical"): (
            "The derivative is always that of the default function.",
            mutate.attribute(map_unary.vjp, function="bell"),
            {"dialects": ("sine", "swish")},
        ),
        ("differenced", "precision", "typical"): (
            "No derivative was given, so the function is differenced with a step of 1e-3.",
            map_unary_differenced_vjp,
        ),
        ("first-matrix-only", "shape index", "cube"): (
            "Only the last two axes are looped over: 0 beyond the first matrix.",
            mutate.output(map_unary.vjp, 0, mutate.first_entry(2)),
        ),
        ("zeros-skipped", "derivative", "zeros"): (
            "An element of 0 is skipped, as if its slope were 0 too.",
            mutate.output(map_unary.vjp, 0, lambda xp, g, x, *, function: xp.where(x == 0, 0.0, g)),
            {"dialects": ("sine", "swish")},
        ),
        ("constant", "cotangent", "typical"): (
            "The gradient is the derivative, whatever the cotangent.",
            mutate.cotangent(map_unary.vjp, mutate.ones),
        ),
    },
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


MUTANTS += mutant_table(
    "map_binary",
    {
        ("exchanged", "slot", "typical"): (
            "The operands get each other's gradient.",
            mutate.swapped(map_binary.vjp, 0, 1),
            {"dialects": LOPSIDED},
        ),
        ("second-zero", "slot", "typical"): (
            "Only the first operand is differentiated, as by a map of one operand.",
            mutate.output(map_binary.vjp, 1, mutate.zeros),
        ),
        ("one-operand-twice", "saved-value derivative", "typical"): (
            "Backward reads x for both operands.",
            mutate.primal(map_binary.vjp, 1, lambda xp, x, y, *, function: x),
        ),
        ("averaged", "derivative", "unequal-size"): (
            "Both operands get the mean of the two partial derivatives.",
            map_binary_averaged_vjp,
        ),
        ("factor-recovered", "non-finite", "zero-operand"): (
            "sin x is recovered from the output, z/y: 0/0 where y is 0.",
            map_binary_recovered_vjp,
            {"dialects": ("wave",)},
        ),
        ("root-forgotten", "scale derivative", "typical"): (
            "The partial derivatives of hypot lack their factor 1/z.",
            map_binary_rootless_vjp,
            {"dialects": ("hypot",)},
        ),
        ("function-ignored", "attribute", "typical"): (
            "The derivatives are always those of the default function.",
            mutate.attribute(map_binary.vjp, function="hypot"),
            {"dialects": LOPSIDED},
        ),
        ("square-transposed", "layout shape", "square"): (
            "dy is transposed where rows and columns are as many.",
            mutate.output(map_binary.vjp, 1, mutate.transposed),
        ),
        ("first-matrix-only", "shape index", "cube"): (
            "Only the last two axes are looped over: dx is 0 beyond the first matrix.",
            mutate.output(map_binary.vjp, 0, mutate.first_entry(2)),
        ),
    },
)
