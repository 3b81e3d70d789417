"""Mutants of the operators in `gradcheck_cases.activation`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases.activation import (
    clamp_vjp,
    dropout_vjp,
    elu_vjp,
    hardsigmoid_vjp,
    hardswish_vjp,
    leaky_relu_vjp,
    mish_vjp,
    relu_squared_vjp,
    relu_vjp,
    sigmoid_back_vjp,
    sigmoid_vjp,
    softcap_back_vjp,
    softcap_vjp,
    softplus_vjp,
    tanh_back_vjp,
    tanh_vjp,
)

MUTANTS: tuple[Mutant, ...] = ()


# ── what goes wrong in the loop around any element-wise slope ────────────────────────────────

LOOPS: dict[str, tuple[str, str, str, Callable[[Vjp], Vjp]]] = {
    "remainder-dropped": (
        "shape",
        "single",
        "Whole blocks of four elements get a gradient, the remainder gets 0.",
        lambda vjp: mutate.output(vjp, 0, mutate.whole_blocks(4)),
    ),
    "turned": (
        "layout",
        "square",
        "The gradient is written by columns, which goes unnoticed where it is square.",
        lambda vjp: mutate.output(vjp, 0, mutate.transposed),
    ),
    "first-matrix-only": (
        "index",
        "cube",
        "Elements are counted over the last two axes: only the first matrix gets a gradient.",
        lambda vjp: mutate.output(vjp, 0, mutate.first_entry(2)),
    ),
    "half-precision": (
        "precision",
        "typical",
        "The gradient passes through float16.",
        lambda vjp: mutate.output(vjp, 0, mutate.half),
    ),
    "cotangent-overwritten": (
        "aliasing",
        "typical",
        "The gradient is written over the cotangent, which another consumer still reads.",
        mutate.overwriting,
    ),
    "ones-for-cotangent": (
        "cotangent",
        "typical",
        "The cotangent is taken to be all ones, as after a sum.",
        lambda vjp: mutate.cotangent(vjp, mutate.ones),
    ),
    "first-row-cotangent": (
        "cotangent",
        "typical",
        "Every row reads the cotangent of the first one.",
        lambda vjp: mutate.cotangent(vjp, mutate.first_for_all(0)),
    ),
    "cotangent-clipped": (
        "nonlinear",
        "typical",
        "The cotangent is clipped to [-1, 1] on its way.",
        lambda vjp: mutate.cotangent(
            vjp, lambda xp, ct, *primals, **attrs: xp.minimum(xp.maximum(ct, -1.0), 1.0)
        ),
    ),
    "cotangent-squared": (
        "nonlinear",
        "typical",
        "The cotangent is multiplied in twice.",
        lambda vjp: mutate.cotangent(vjp, lambda xp, ct, *primals, **attrs: ct * ct),
    ),
}
KEPT: dict[str, tuple[str, str, str, Callable[[Vjp], Callable[[], Vjp]]]] = {
    "never-cleared": (
        "accumulation",
        "typical",
        "Gradients add up in a buffer that is never set to zero.",
        lambda vjp: mutate.accumulated(vjp, 0),
    ),
    "cached-by-shape": (
        "saved-value",
        "typical",
        "The gradient of the first call is kept, and returned to every call of its shape.",
        mutate.stale,
    ),
}
ALSO: dict[str, tuple[str, ...]] = {
    "remainder-dropped": ("accumulation",),
    "turned": ("shape",),
    "first-matrix-only": ("shape",),
}
"""Further classes of the mutants above; those of a backward count as double, too."""


def in_the_loop(op: str, vjp: Vjp, *names: str) -> tuple[Mutant, ...]:
    """The mutants `names` of the loop around an element-wise `vjp`."""
    found = []
    for name in names:
        if name in KEPT:
            label, killer, says, keep = KEPT[name]
            what: dict[str, Any] = {"make": keep(vjp)}
        else:
            label, killer, says, change = LOOPS[name]
            what = {"vjp": change(vjp)}
        what["also"] = (*ALSO.get(name, ()), *(("double",) if op.endswith("_back") else ()))
        found.append(Mutant(op=op, name=name, label=label, killer=killer, says=says, **what))
    return tuple(found)


MINUS_SEVEN = "what ggml's gradient test of 2026 passes"

# ── relu ─────────────────────────────────────────────────────────────────────────────────────

MUTANTS += mutant_table(
    "relu",
    {
        ("minus-seven", "scale", "typical"): (
            "The gradient is multiplied by -7.",
            mutate.scaled(relu_vjp, 0, -7.0),
            {"modelled_on": MINUS_SEVEN},
        ),
        ("unmasked", "derivative", "typical"): (
            "The cotangent passes where x is negative, too.",
            lambda xp, ct, x: ct * 1,
        ),
        ("output-for-slope", "derivative", "typical"): (
            "The cotangent is multiplied by max(x, 0), not by its slope.",
            lambda xp, ct, x: ct * xp.maximum(x, 0.0),
        ),
        ("sign-for-step", "derivative", "typical"): (
            "sign(x) stands where step(x) should: -ct for negative x.",
            lambda xp, ct, x: ct * xp.sign(x),
        ),
        ("relu6", "derivative", "wide"): (
            "The slope is that of relu6: 0 above 6.",
            lambda xp, ct, x: xp.where((x > 0) & (x < 6), ct, 0.0),
        ),
        ("guided", "nonlinear", "typical"): (
            "Negative cotangents are cut off, too, as in guided backpropagation.",
            lambda xp, ct, x: xp.where(x > 0, xp.maximum(ct, 0.0), 0.0),
        ),
        ("mask-of-cotangent", "saved-value aliasing nonlinear", "typical"): (
            "The mask is read from a buffer that the cotangent has overwritten.",
            lambda xp, ct, x: xp.where(ct > 0, ct, 0.0),
        ),
        ("twice-at-zero", "kink", "kink"): (
            "x >= 0 and x <= 0 are added up: slope 2 at 0.",
            lambda xp, ct, x: xp.where(x >= 0, ct, 0.0) + xp.where(x == 0, ct, 0.0),
        ),
        ("not-a-number-at-zero", "non-finite kink", "kink"): (
            "The slope is taken as max(x, 0)/x: 0/0 at 0.",
            lambda xp, ct, x: ct * xp.maximum(x, 0.0) / x,
        ),
        ("threshold-1e-6", "eps derivative precision", "beside"): (
            "x counts as positive above 1e-6 only.",
            lambda xp, ct, x: xp.where(x > 1e-6, ct, 0.0),
        ),
    },
)
MUTANTS += in_the_loop(
    "relu", relu_vjp, "remainder-dropped", "never-cleared", "cotangent-overwritten"
)

# ── leaky_relu ───────────────────────────────────────────────────────────────────────────────


def leaky_relu_formula_vjp(xp, ct, x, *, negative_slope=0.01):
    def step(z: Any) -> Any:
        return xp.where(z > 0, 1.0, xp.zeros_like(z))

    return ct * (negative_slope * step(-x) + step(x))


def leaky_relu_by_output_vjp(xp, ct, x, *, negative_slope=0.01):
    y = xp.where(x > 0, x, negative_slope * x)
    return xp.where(y > 0, ct, negative_slope * ct)


def leaky_relu_ratio_vjp(xp, ct, x, *, negative_slope=0.01):
    return ct * xp.where(x > 0, x, negative_slope * x) / x


PR_921 = "ggml PR 921"


MUTANTS += mutant_table(
    "leaky_relu",
    {
        ("formula-0-at-0", "kink", "kink"): (
            "The slope is negative_slope step(-x) + step(x), which is 0 at 0.",
            leaky_relu_formula_vjp,
            {"modelled_on": PR_921},
        ),
        ("both-at-zero", "kink", "kink"): (
            "Both branches hold at 0: slope 1 + negative_slope.",
            lambda xp, ct, x, *, negative_slope=0.01: (
                xp.where(x >= 0, ct, 0.0) + xp.where(x <= 0, negative_slope * ct, 0.0)
            ),
        ),
        ("default-slope", "attribute", "slope-0.3"): (
            "The slope is 0.01 whatever was asked for.",
            mutate.attribute(leaky_relu_vjp, negative_slope=0.01),
        ),
        ("slope-or-default", "attribute", "slope-0"): (
            "A slope of 0 is taken for none given, and replaced by 0.01.",
            mutate.attribute(
                leaky_relu_vjp, negative_slope=lambda negative_slope: negative_slope or 0.01
            ),
        ),
        ("leak-lost", "term derivative attribute", "typical"): (
            "Nothing passes where x is negative.",
            lambda xp, ct, x, *, negative_slope=0.01: xp.where(x > 0, ct, 0.0),
        ),
        ("both-sides", "derivative", "typical"): (
            "negative_slope is applied on both sides.",
            lambda xp, ct, x, *, negative_slope=0.01: negative_slope * ct,
        ),
        ("slope-squared", "scale", "typical"): (
            "negative_slope is multiplied in twice.",
            mutate.attribute(
                leaky_relu_vjp, negative_slope=lambda negative_slope: negative_slope**2
            ),
        ),
        ("sign-of-output", "saved-value derivative", "slope-negative"): (
            "The branch is chosen by the sign of the saved output.",
            leaky_relu_by_output_vjp,
        ),
        ("maximum", "derivative", "slope-steep"): (
            "The branch is that of max(x, slope x), which swaps the sides above a slope of 1.",
            lambda xp, ct, x, *, negative_slope=0.01: xp.where(
                x > negative_slope * x, ct, negative_slope * ct
            ),
        ),
        ("output-over-input", "non-finite kink", "kink"): (
            "The slope is recovered as y/x: 0/0 at 0.",
            leaky_relu_ratio_vjp,
        ),
    },
)
MUTANTS += in_the_loop("leaky_relu", leaky_relu_vjp, "turned", "cached-by-shape")

# ── elu ──────────────────────────────────────────────────────────────────────────────────────


def _elu_branch(below: Callable[..., Any]) -> Vjp:
    """For x > 0 the right branch; else ct times `below(xp, x, alpha)`, x cut off at 0."""

    def vjp(xp: Any, ct: Any, x: Any, *, alpha: float = 1.0) -> Any:
        return xp.where(x > 0, ct, ct * below(xp, xp.minimum(x, 0), alpha))

    return functools.wraps(elu_vjp)(vjp)


MUTANTS += mutant_table(
    "elu",
    {
        ("x-above-zero", "derivative", "typical"): (
            "The derivative is x, not 1, for x > 0.",
            lambda xp, ct, x, *, alpha=1.0: (
                ct * xp.where(x > 0, x, alpha * xp.exp(xp.minimum(x, 0)))
            ),
            {"modelled_on": "ggml PR 921, first version"},
        ),
        ("alpha-ignored", "attribute scale", "alpha-2"): (
            "alpha is left out of the slope.",
            mutate.attribute(elu_vjp, alpha=1.0),
        ),
        ("alpha-squared", "scale", "alpha-0.5"): (
            "alpha is multiplied in twice.",
            mutate.attribute(elu_vjp, alpha=lambda alpha: alpha * alpha),
        ),
        ("output-without-alpha", "term derivative", "typical"): (
            "From the saved output, the slope is y where y + alpha is right.",
            _elu_branch(lambda xp, x, alpha: alpha * (xp.exp(x) - 1)),
        ),
        ("output-plus-alpha", "precision", "saturated"): (
            "alpha exp(x) is recovered as y + alpha, which cancels to 0 in the tail.",
            _elu_branch(lambda xp, x, alpha: alpha * (xp.exp(x) - 1) + alpha),
            {"dtype": "float32"},
        ),
        ("output-plus-one", "attribute term derivative", "alpha-2"): (
            "From the saved output, the slope is y + 1 whatever alpha is.",
            _elu_branch(lambda xp, x, alpha: alpha * (xp.exp(x) - 1) + 1),
        ),
        ("celu", "derivative", "alpha-2"): (
            "The slope is celu's, exp(x/alpha).",
            _elu_branch(lambda xp, x, alpha: xp.exp(x / alpha)),
        ),
        ("exp-minus-x", "derivative sign", "typical"): (
            "The exponent has the wrong sign.",
            _elu_branch(lambda xp, x, alpha: alpha * xp.exp(-x)),
        ),
        ("masked-product", "non-finite precision", "overflow"): (
            "exp(x) is taken everywhere and multiplied by a mask: 0 * inf for large x.",
            lambda xp, ct, x, *, alpha=1.0: ct * ((x > 0) + (x <= 0) * (alpha * xp.exp(x))),
        ),
        ("both-at-zero", "kink", "kink"): (
            "Both branches hold at 0: slope 1 + alpha.",
            lambda xp, ct, x, *, alpha=1.0: (
                xp.where(x >= 0, ct, 0.0)
                + xp.where(x <= 0, ct * alpha * xp.exp(xp.minimum(x, 0)), 0.0)
            ),
        ),
    },
)
MUTANTS += in_the_loop("elu", elu_vjp, "first-matrix-only", "half-precision")

# ── clamp ────────────────────────────────────────────────────────────────────────────────────

MUTANTS += mutant_table(
    "clamp",
    {
        ("upper-bound-ignored", "attribute", "saturated"): (
            "Only the lower bound stops the gradient.",
            mutate.attribute(clamp_vjp, max=np.inf),
        ),
        ("lower-bound-ignored", "attribute", "saturated"): (
            "Only the upper bound stops the gradient.",
            mutate.attribute(clamp_vjp, min=-np.inf),
        ),
        ("default-bounds", "attribute", "asymmetric"): (
            "The bounds are -1 and 1 whatever was asked for.",
            mutate.attribute(clamp_vjp, min=-1.0, max=1.0),
        ),
        ("bounds-exchanged", "slot attribute", "typical"): (
            "The bounds are in each other's place: nothing passes.",
            mutate.attribute(clamp_vjp, min=lambda min, max: max, max=lambda min, max: min),
        ),
        ("symmetric", "derivative attribute", "asymmetric"): (
            "|x| is compared with the upper bound alone.",
            mutate.attribute(clamp_vjp, min=lambda min, max: -max),
        ),
        ("magnitude", "derivative", "positive"): (
            "|x| is compared with both bounds.",
            mutate.primal(clamp_vjp, 0, lambda xp, x, *, min, max: xp.abs(x)),
        ),
        ("bound-for-slope", "derivative", "saturated"): (
            "Outside, the bound itself is passed on as the slope.",
            lambda xp, ct, x, *, min=-1.0, max=1.0: (
                ct * xp.where(x < min, min, xp.where(x > max, max, 1.0))
            ),
        ),
        ("mask-of-output", "aliasing saved-value derivative", "saturated"): (
            "Forward has written its result over x: everything lies inside the bounds.",
            mutate.primal(
                clamp_vjp,
                0,
                lambda xp, x, *, min, max: xp.where(x < min, min, xp.where(x > max, max, x)),
            ),
            {"modelled_on": "ggml before PR 921: clamp worked in place"},
        ),
        ("twice-on-bound", "kink", "kink"): (
            "The test of each bound passes the cotangent once more on it: slope 2.",
            lambda xp, ct, x, *, min=-1.0, max=1.0: (
                xp.where((x >= min) & (x <= max), ct, 0.0)
                + xp.where((x == min) | (x == max), ct, 0.0)
            ),
        ),
        ("tolerance", "eps derivative", "beside"): (
            "A tolerance of 1e-6 around the bounds still counts as inside.",
            mutate.attribute(
                clamp_vjp, min=lambda min, max: min - 1e-6, max=lambda min, max: max + 1e-6
            ),
        ),
    },
)
MUTANTS += in_the_loop("clamp", clamp_vjp, "remainder-dropped", "first-row-cotangent")

# ── tanh ─────────────────────────────────────────────────────────────────────────────────────


def _slope(slope: Callable[..., Any]) -> Vjp:
    """The cotangent times `slope(xp, x)`."""
    return lambda xp, ct, x: ct * slope(xp, x)


def _tanh_by_exp(xp: Any, x: Any) -> Any:
    e = xp.exp(2 * x)
    return 4 * e / ((e + 1) * (e + 1))


MUTANTS += mutant_table(
    "tanh",
    {
        ("square-missing", "derivative", "typical"): (
            "The slope is 1 - y.",
            _slope(lambda xp, x: 1 - xp.tanh(x)),
        ),
        ("x-for-y", "saved-value derivative", "typical"): (
            "The slope is 1 - x^2: the input is saved where the output is read.",
            _slope(lambda xp, x: 1 - x * x),
        ),
        ("tanh-of-y", "saved-value derivative", "typical"): (
            "tanh is applied to the saved output once more.",
            mutate.primal(tanh_vjp, 0, lambda xp, x: xp.tanh(x)),
        ),
        ("negated", "sign", "typical"): ("The slope is y^2 - 1.", mutate.negated(tanh_vjp, 0)),
        ("sech", "derivative", "typical"): (
            "The slope is 1/cosh, not its square.",
            _slope(lambda xp, x: 2 / (xp.exp(x) + xp.exp(-x))),
        ),
        ("slope-of-sigmoid", "derivative", "typical"): (
            "The slope is sigmoid's, y (1 - y).",
            _slope(lambda xp, x: xp.tanh(x) * (1 - xp.tanh(x))),
        ),
        ("exp-overflows", "non-finite precision", "overflow"): (
            "The slope is 4 e^2x / (e^2x + 1)^2: inf/inf for large x.",
            _slope(_tanh_by_exp),
        ),
        ("saturates-at-4", "precision derivative", "sweep"): (
            "The slope is set to 0 where |x| > 4.",
            _slope(lambda xp, x: xp.where(xp.abs(x) > 4, 0.0, 1 - xp.tanh(x) * xp.tanh(x))),
        ),
    },
)
MUTANTS += in_the_loop("tanh", tanh_vjp, "turned", "cotangent-squared", "never-cleared")

# ── backwards from a saved output ────────────────────────────────────────────────────────────


def _backwards(op: str, vjp: Vjp) -> tuple[Mutant, ...]:
    """Mutants of any double backward from a saved output."""
    return mutant_table(
        op,
        {
            ("dy-missing", "slot double", "typical"): (
                "There is no gradient of y: double backward stops at the saved output.",
                mutate.output(vjp, 1, mutate.nothing),
            ),
            ("dy-zero", "slot double", "typical"): (
                "y is taken for a constant: its gradient is 0.",
                mutate.output(vjp, 1, mutate.zeros),
            ),
            ("exchanged", "slot double", "typical"): (
                "The two gradients are in each other's place.",
                mutate.swapped(vjp, 0, 1),
            ),
            ("dy-negated", "sign double", "typical"): (
                "dy has the wrong sign.",
                mutate.negated(vjp, 1),
            ),
            ("g-missing", "scale derivative double", "typical"): (
                "dy lacks the factor g.",
                mutate.replaced(vjp, 1, mutate.primal(vjp, 0, mutate.ones)),
            ),
            ("ct-missing", "cotangent double", "typical"): (
                "dy lacks the cotangent.",
                mutate.replaced(vjp, 1, mutate.cotangent(vjp, mutate.ones)),
            ),
            ("dg-passed-through", "derivative scale double", "typical"): (
                "dg is the cotangent, without the slope.",
                mutate.replaced(vjp, 0, lambda xp, ct, *primals, **attrs: (ct * 1,)),
            ),
        },
    )


MUTANTS += _backwards("tanh_back", tanh_back_vjp)
MUTANTS += mutant_table(
    "tanh_back",
    {
        ("factor-2-missing", "scale double", "typical"): (
            "The derivative of y^2 is taken to be y.",
            mutate.scaled(tanh_back_vjp, 1, 0.5),
        ),
        ("down-to-x", "scale derivative double", "typical"): (
            "dy carries the factor 1 - y^2 on to x, which is applied once more there.",
            mutate.scaled(tanh_back_vjp, 1, lambda xp, g, y: 1 - y * y),
        ),
        ("y-for-x", "saved-value derivative double", "typical"): (
            "y is taken for the input: the slope is 1 - tanh(y)^2.",
            mutate.primal(tanh_back_vjp, 1, lambda xp, g, y: xp.tanh(y)),
        ),
    },
)
MUTANTS += in_the_loop("tanh_back", tanh_back_vjp, "turned", "first-matrix-only")

# ── sigmoid_back ─────────────────────────────────────────────────────────────────────────────

MUTANTS += _backwards("sigmoid_back", sigmoid_back_vjp)
MUTANTS += mutant_table(
    "sigmoid_back",
    {
        ("factor-2-missing", "term derivative double", "typical"): (
            "The derivative of y (1 - y) is taken to be 1 - y.",
            mutate.replaced(sigmoid_back_vjp, 1, lambda xp, ct, g, y: (None, ct * g * (1 - y))),
        ),
        ("down-to-x", "scale derivative double", "typical"): (
            "dy carries the factor y (1 - y) on to x, which is applied once more there.",
            mutate.scaled(sigmoid_back_vjp, 1, lambda xp, g, y: y * (1 - y)),
        ),
        ("slope-of-tanh", "derivative double", "typical"): (
            "dg is tanh's: the slope 1 - y^2.",
            mutate.replaced(sigmoid_back_vjp, 0, lambda xp, ct, g, y: (ct * (1 - y * y), None)),
        ),
        ("divided", "non-finite double", "no-gradient"): (
            "dg is recovered from the saved gradient as dx/g: 0/0 where g is 0.",
            mutate.replaced(
                sigmoid_back_vjp, 0, lambda xp, ct, g, y: (ct * (g * y * (1 - y)) / g, None)
            ),
        ),
    },
)
MUTANTS += in_the_loop("sigmoid_back", sigmoid_back_vjp, "turned", "remainder-dropped")

# ── softcap_back ─────────────────────────────────────────────────────────────────────────────

MUTANTS += _backwards("softcap_back", softcap_back_vjp)
MUTANTS += mutant_table(
    "softcap_back",
    {
        ("default-cap", "attribute double", "cap-2.5"): (
            "cap is 30 whatever was asked for.",
            mutate.attribute(softcap_back_vjp, cap=30.0),
            {"modelled_on": "gemma.cpp SoftcapVJPT, whose cap is a constant"},
        ),
        ("cap-forgotten", "scale double", "typical"): (
            "dy is divided by cap once, not twice.",
            mutate.scaled(softcap_back_vjp, 1, lambda xp, g, y, *, cap: cap),
        ),
        ("factor-2-missing", "scale double", "typical"): (
            "The derivative of a square is taken to be its root.",
            mutate.scaled(softcap_back_vjp, 1, 0.5),
        ),
        ("y-for-x", "saved-value derivative double", "typical"): (
            "y is taken for the input: tanh(y / cap) is squared.",
            mutate.primal(softcap_back_vjp, 1, lambda xp, g, y, *, cap: cap * xp.tanh(y / cap)),
        ),
    },
)
MUTANTS += in_the_loop("softcap_back", softcap_back_vjp, "cached-by-shape", "half-precision")

# ── sigmoid ──────────────────────────────────────────────────────────────────────────────────


def _sigmoid_by_exp(xp: Any, x: Any) -> Any:
    e = xp.exp(-x)
    return e / ((1 + e) * (1 + e))


MUTANTS += mutant_table(
    "sigmoid",
    {
        ("y-missing", "scale derivative", "typical"): (
            "The slope is 1 - y.",
            _slope(lambda xp, x: 1 - xp.sigmoid(x)),
        ),
        ("one-minus-y-missing", "scale derivative", "typical"): (
            "The slope is y.",
            _slope(lambda xp, x: xp.sigmoid(x)),
        ),
        ("slope-of-tanh", "derivative", "typical"): (
            "The slope is tanh's, 1 - y^2.",
            _slope(lambda xp, x: 1 - xp.sigmoid(x) * xp.sigmoid(x)),
        ),
        ("x-for-y", "saved-value derivative", "typical"): (
            "The slope is x (1 - x): the input is saved where the output is read.",
            _slope(lambda xp, x: x * (1 - x)),
        ),
        ("sigmoid-of-y", "saved-value derivative", "typical"): (
            "sigma is applied to the saved output once more.",
            mutate.primal(sigmoid_vjp, 0, lambda xp, x: xp.sigmoid(x)),
        ),
        ("negated", "sign", "typical"): (
            "The slope is y (y - 1).",
            mutate.negated(sigmoid_vjp, 0),
        ),
        ("sign-lost-in-tail", "sign", "tails"): (
            "For x > 12, where the slope is tiny, it has the wrong sign.",
            _slope(
                lambda xp, x: xp.where(x > 12, -1.0, 1.0) * (xp.sigmoid(x) * (1 - xp.sigmoid(x)))
            ),
            {"modelled_on": "Stan math #3397: the wrong sign in the upper tail, at most 4e-9"},
        ),
        ("exp-overflows", "non-finite precision", "overflow"): (
            "The slope is e^-x / (1 + e^-x)^2: inf/inf for very negative x.",
            _slope(_sigmoid_by_exp),
        ),
    },
)
MUTANTS += in_the_loop("sigmoid", sigmoid_vjp, "first-matrix-only", "ones-for-cotangent")

# ── softcap ──────────────────────────────────────────────────────────────────────────────────


def _tanh_squared(xp: Any, z: Any) -> Any:
    return xp.tanh(z) * xp.tanh(z)


MUTANTS += mutant_table(
    "softcap",
    {
        ("default-cap", "attribute", "cap-2.5"): (
            "cap is 30 whatever was asked for.",
            mutate.attribute(softcap_vjp, cap=30.0),
            {"modelled_on": "gemma.cpp SoftcapVJPT, whose cap is a constant"},
        ),
        ("y-not-divided", "scale term", "typical"): (
            "The slope is 1 - y^2 where 1 - (y/cap)^2 is right.",
            lambda xp, ct, x, *, cap=30.0: ct * (1 - cap * cap * _tanh_squared(xp, x / cap)),
        ),
        ("outer-cap-kept", "scale", "typical"): (
            "The outer factor cap is not cancelled by the inner 1/cap.",
            mutate.scaled(softcap_vjp, 0, lambda xp, x, *, cap: cap),
        ),
        ("inner-cap-only", "scale", "typical"): (
            "The inner 1/cap is not cancelled by the outer factor cap.",
            mutate.scaled(softcap_vjp, 0, lambda xp, x, *, cap: 1 / cap),
        ),
        ("x-not-divided", "derivative attribute", "typical"): (
            "The slope is taken at x, not at x/cap.",
            lambda xp, ct, x, *, cap=30.0: ct * (1 - _tanh_squared(xp, x)),
        ),
        ("capped-twice", "saved-value derivative", "typical"): (
            "The slope is taken at the saved output: tanh of tanh.",
            mutate.primal(softcap_vjp, 0, lambda xp, x, *, cap: cap * xp.tanh(x / cap)),
        ),
        ("passed-through", "derivative scale attribute", "typical"): (
            "The cotangent passes as if nothing were capped.",
            lambda xp, ct, x, *, cap=30.0: ct * 1,
        ),
        ("hard-cap", "derivative", "typical"): (
            "The slope is that of clipping: 1 inside the cap, 0 outside.",
            lambda xp, ct, x, *, cap=30.0: xp.where(xp.abs(x) < cap, ct, 0.0),
        ),
    },
)
MUTANTS += in_the_loop("softcap", softcap_vjp, "cotangent-overwritten", "remainder-dropped")

# ── softplus ─────────────────────────────────────────────────────────────────────────────────


def softplus_naive_vjp(xp, ct, x, *, beta=1.0, threshold=20.0):
    e = xp.exp(beta * x)
    return xp.where(beta * x > threshold, ct, ct * e / (1 + e))


def softplus_saved_vjp(xp, ct, x, *, beta=1.0, threshold=20.0):
    z = beta * x
    y = xp.where(z > threshold, z, xp.maximum(z, 0) + xp.log1p(xp.exp(-xp.abs(z))))
    return ct * (1 - xp.exp(-y))


def softplus_unscaled_threshold_vjp(xp, ct, x, *, beta=1.0, threshold=20.0):
    return xp.where(x > threshold, ct, ct * xp.sigmoid(beta * x))


def softplus_value_vjp(xp, ct, x, *, beta=1.0, threshold=20.0):
    z = beta * x
    return ct * (xp.maximum(z, 0) + xp.log1p(xp.exp(-xp.abs(z)))) / beta


MUTANTS += mutant_table(
    "softplus",
    {
        ("beta-ignored", "attribute", "beta-2.5"): (
            "beta is left out of the slope.",
            mutate.attribute(softplus_vjp, beta=1.0),
        ),
        ("beta-kept", "scale", "beta-2.5"): (
            "The inner factor beta is not cancelled by the outer 1/beta.",
            mutate.scaled(softplus_vjp, 0, lambda xp, x, *, beta, threshold: beta),
        ),
        ("over-beta", "scale", "beta-2.5"): (
            "The outer 1/beta is not cancelled by the inner factor beta.",
            mutate.scaled(softplus_vjp, 0, lambda xp, x, *, beta, threshold: 1 / beta),
        ),
        ("threshold-ignored", "attribute", "threshold-2"): (
            "Forward is the identity above the threshold, the slope is still sigma.",
            mutate.attribute(softplus_vjp, threshold=np.inf),
            {"dialects": ("threshold",)},
        ),
        ("threshold-not-scaled", "derivative", "both"): (
            "The threshold is compared with x, not with beta x.",
            softplus_unscaled_threshold_vjp,
            {"dialects": ("threshold",)},
        ),
        ("nothing-at-threshold", "kink", "threshold-2"): (
            "Neither branch holds where beta x equals the threshold: 0 there.",
            lambda xp, ct, x, *, beta=1.0, threshold=20.0: (
                xp.where(beta * x > threshold, ct, 0.0)
                + xp.where(beta * x < threshold, ct * xp.sigmoid(beta * x), 0.0)
            ),
            {"dialects": ("threshold",)},
        ),
        ("exp-overflows", "non-finite precision", "tails"): (
            "The slope is e/(1 + e) of e = exp(beta x), without a threshold: inf/inf.",
            softplus_naive_vjp,
            {"dialects": ("exact",)},
        ),
        ("one-minus-exp", "precision", "tails"): (
            "From the saved output, the slope is 1 - exp(-beta y), which cancels on the left.",
            softplus_saved_vjp,
        ),
        ("value-for-slope", "derivative", "typical"): (
            "The cotangent is multiplied by the output.",
            softplus_value_vjp,
        ),
        ("mirrored", "derivative sign", "typical"): (
            "The slope is sigma(-beta x).",
            mutate.attribute(softplus_vjp, beta=lambda beta, threshold: -beta),
        ),
    },
)
MUTANTS += in_the_loop("softplus", softplus_vjp, "turned", "never-cleared")

# ── mish ─────────────────────────────────────────────────────────────────────────────────────


def _mish_gate(xp: Any, x: Any) -> Any:
    return xp.tanh(xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x))))


def mish_paper_vjp(xp, ct, x):
    e = xp.exp(x)
    omega = 4 * (x + 1) + 4 * e * e + e * e * e + e * (4 * x + 6)
    delta = 2 * e + e * e + 2
    return ct * e * omega / (delta * delta)


MUTANTS += mutant_table(
    "mish",
    {
        ("gate-only", "term derivative", "typical"): (
            "The slope of the gate tanh(softplus(x)) is left out.",
            _slope(_mish_gate),
        ),
        ("sigma-missing", "term scale", "typical"): (
            "The slope of the gate lacks softplus's, sigma.",
            _slope(lambda xp, x: _mish_gate(xp, x) + x * (1 - _mish_gate(xp, x) ** 2)),
        ),
        ("x-missing", "term scale", "typical"): (
            "The slope of the gate is added without its factor x.",
            _slope(lambda xp, x: _mish_gate(xp, x) + xp.sigmoid(x) * (1 - _mish_gate(xp, x) ** 2)),
        ),
        ("square-missing", "derivative", "typical"): (
            "The slope of tanh is taken to be 1 - t.",
            _slope(lambda xp, x: _mish_gate(xp, x) + x * xp.sigmoid(x) * (1 - _mish_gate(xp, x))),
        ),
        ("slope-of-silu", "derivative", "typical"): (
            "The slope is silu's.",
            _slope(lambda xp, x: xp.sigmoid(x) * (1 + x * (1 - xp.sigmoid(x)))),
        ),
        ("papers-formula", "non-finite precision", "tails"): (
            "The slope is e^x omega / delta^2: inf/inf for large x.",
            mish_paper_vjp,
            {"modelled_on": "Misra 2019, arXiv:1908.08681, the derivative as printed"},
        ),
        ("output-over-input", "non-finite", "zero"): (
            "The gate is recovered as y/x: 0/0 at 0.",
            _slope(
                lambda xp, x: (t := x * _mish_gate(xp, x) / x) + x * xp.sigmoid(x) * (1 - t * t)
            ),
        ),
        ("negative-side-cut", "derivative precision", "sweep"): (
            "The slope is 0 below -6, where it is small and negative.",
            mutate.primal(mish_vjp, 0, lambda xp, x: xp.where(x < -6, -800.0, x)),
        ),
    },
)
MUTANTS += in_the_loop("mish", mish_vjp, "first-matrix-only", "cotangent-clipped")

# ── hardswish ────────────────────────────────────────────────────────────────────────────────


def _middle(low: Any, middle: Any, high: Any) -> Vjp:
    """The cotangent times `low` below -3, `middle(x)` up to 3, and `high` above."""
    return lambda xp, ct, x: ct * xp.where(x <= -3, low, xp.where(x >= 3, high, middle(x)))


MUTANTS += mutant_table(
    "hardswish",
    {
        ("gate-only", "term derivative", "typical"): (
            "The slope is the gate (x + 3)/6: the product rule's second term is missing.",
            _middle(0.0, lambda x: (x + 3) / 6, 1.0),
        ),
        ("gate-slope-only", "term derivative", "typical"): (
            "The slope is x/6: the product rule's first term is missing.",
            _middle(0.0, lambda x: x / 6, 1.0),
        ),
        ("sixth-missing", "scale", "typical"): (
            "The slope is 2x + 3, without the factor 1/6.",
            _middle(0.0, lambda x: 2 * x + 3, 1.0),
        ),
        ("flat-above", "derivative", "saturated"): (
            "The gradient is 0 above 3, as if y were constant there.",
            _middle(0.0, lambda x: x / 3 + 0.5, 0.0),
        ),
        ("unbounded", "derivative", "saturated"): (
            "The slope of the middle goes on outside.",
            _slope(lambda xp, x: x / 3 + 0.5),
        ),
        ("open-below", "derivative", "saturated"): (
            "The lower bound is not looked at.",
            _slope(lambda xp, x: xp.where(x >= 3, 1.0, x / 3 + 0.5)),
        ),
        ("ends-at-6", "derivative", "sweep"): (
            "x itself is compared with 6, not x + 3.",
            _slope(lambda xp, x: xp.where(x <= -3, 0.0, xp.where(x >= 6, 1.0, x / 3 + 0.5))),
        ),
        ("both-at-3", "kink", "kink"): (
            "Both branches hold at 3: slope 3/2 + 1.",
            _slope(
                lambda xp, x: (
                    xp.where(x >= 3, 1.0, 0.0) + xp.where((x > -3) & (x <= 3), x / 3 + 0.5, 0.0)
                )
            ),
        ),
        ("one-at-minus-3", "kink", "kink"): (
            "At -3 the cotangent passes, as it does at 3.",
            _slope(lambda xp, x: xp.where(xp.abs(x) == 3, 1.0, hardswish_vjp(xp, x * 0 + 1, x))),
        ),
        ("silu-for-it", "derivative", "typical"): (
            "The slope is silu's, which hardswish approximates.",
            _slope(lambda xp, x: xp.sigmoid(x) * (1 + x * (1 - xp.sigmoid(x)))),
        ),
    },
)
MUTANTS += in_the_loop("hardswish", hardswish_vjp, "remainder-dropped", "first-row-cotangent")

# ── hardsigmoid ──────────────────────────────────────────────────────────────────────────────

MUTANTS += mutant_table(
    "hardsigmoid",
    {
        ("sixth-missing", "scale", "typical"): (
            "The slope is 1 inside.",
            mutate.scaled(hardsigmoid_vjp, 0, 6.0),
        ),
        ("float32-sixth", "precision", "typical"): (
            "1/6 is rounded to float32, for float64 too: 3e-8 off.",
            lambda xp, ct, x: xp.where((x > -3) & (x < 3), ct * float(np.float32(1 / 6)), 0.0),
            {
                "dtype": "float64",
                "modelled_on": "PyTorch 2.13 on the CPU, hardsigmoid's backward",
            },
        ),
        ("keras", "derivative", "typical"): (
            "The slope is that of another hard sigmoid: 0.2 where |x| < 2.5.",
            lambda xp, ct, x: xp.where(xp.abs(x) < 2.5, ct * 0.2, 0.0),
            {"modelled_on": "Keras 2, hard_sigmoid(x) = clip(0.2 x + 0.5, 0, 1)"},
        ),
        ("never-saturated", "derivative", "saturated"): (
            "The gradient passes in the saturated region, too.",
            lambda xp, ct, x: ct / 6,
        ),
        ("open-below", "derivative", "saturated"): (
            "The lower bound is not looked at.",
            lambda xp, ct, x: xp.where(x < 3, ct / 6, 0.0),
        ),
        ("ends-at-0-and-6", "derivative", "typical"): (
            "The mask is relu6's, of x, not of x + 3.",
            lambda xp, ct, x: xp.where((x > 0) & (x < 6), ct / 6, 0.0),
        ),
        ("soft-slope", "derivative", "typical"): (
            "The slope is y (1 - y), the soft one's, of the hard y.",
            _slope(lambda xp, x: (y := xp.minimum(xp.maximum(x + 3, 0), 6) / 6) * (1 - y)),
        ),
        ("one-at-ends", "kink", "kink"): (
            "On both bounds the whole cotangent passes.",
            lambda xp, ct, x: xp.where(xp.abs(x) == 3, ct, hardsigmoid_vjp(xp, ct, x)),
        ),
        ("tolerance", "eps derivative", "beside"): (
            "Within 1e-5 of a bound x counts as saturated.",
            lambda xp, ct, x: xp.where(xp.abs(x) < 3 - 1e-5, ct / 6, 0.0),
        ),
    },
)
MUTANTS += in_the_loop("hardsigmoid", hardsigmoid_vjp, "turned", "ones-for-cotangent")

# ── relu_squared ─────────────────────────────────────────────────────────────────────────────

MUTANTS += mutant_table(
    "relu_squared",
    {
        ("factor-2-missing", "scale", "typical"): (
            "The derivative of a square is taken to be its root.",
            mutate.scaled(relu_squared_vjp, 0, 0.5),
        ),
        ("unmasked", "derivative", "typical"): (
            "The slope is 2x on both sides.",
            _slope(lambda xp, x: 2 * x),
        ),
        ("chain-factor-missing", "scale derivative", "typical"): (
            "The slope is relu's alone.",
            _slope(lambda xp, x: xp.where(x > 0, 1.0, 0.0)),
        ),
        ("output-for-root", "saved-value derivative", "typical"): (
            "The slope is 2y: the output after squaring is saved, not the one before.",
            _slope(lambda xp, x: 2 * xp.maximum(x, 0.0) * xp.maximum(x, 0.0)),
        ),
        ("one-at-zero", "kink", "kink"): (
            "At 0 the cotangent passes, as relu may; here the slope is 0 on both sides.",
            lambda xp, ct, x: xp.where(x == 0, ct, relu_squared_vjp(xp, ct, x)),
        ),
        ("saturates", "derivative", "wide"): (
            "The slope is that of relu6, squared: 0 above 6.",
            _slope(lambda xp, x: xp.where((x > 0) & (x < 6), 2 * x, 0.0)),
        ),
        ("divided", "non-finite kink", "kink"): (
            "The slope is taken as 2y/x: 0/0 at 0.",
            _slope(lambda xp, x: 2 * xp.maximum(x, 0.0) * xp.maximum(x, 0.0) / x),
        ),
    },
)
MUTANTS += in_the_loop("relu_squared", relu_squared_vjp, "half-precision", "cached-by-shape")

# ── dropout ──────────────────────────────────────────────────────────────────────────────────


def _dropping(keep: Callable[..., Any]) -> Vjp:
    """The right backward with another mask, `keep(xp, x, mask)`."""

    @functools.wraps(dropout_vjp)
    def vjp(xp: Any, ct: Any, x: Any, mask: Any, **attrs: Any) -> Any:
        return dropout_vjp(xp, ct, x, keep(xp, x, mask), **attrs)

    return vjp


def _drawing_again() -> Vjp:
    rng = np.random.Generator(np.random.Philox(key=7))
    return _dropping(lambda xp, x, mask: rng.integers(0, 2, mask.shape))


def dropout_product_vjp(xp, ct, x, mask, *, p=0.5, inverted=True):
    scale = np.divide(1.0, 1.0 - p) if inverted else 1.0
    return ct * xp.where(mask != 0, 1.0, xp.zeros_like(x)) * float(scale), None


MUTANTS += mutant_table(
    "dropout",
    {
        ("drawn-again", "mask", "typical"): (
            "The backward draws a mask of its own.",
            {"make": _drawing_again},
        ),
        ("mask-shifted", "mask index", "typical"): (
            "The stored mask is read one element late.",
            _dropping(lambda xp, x, mask: np.roll(mask, 1)),
        ),
        ("mask-of-first-matrix", "mask index shape", "cube"): (
            "The mask of the first matrix is used for all of a batch.",
            _dropping(
                lambda xp, x, mask: mask if mask.ndim < 3 else np.broadcast_to(mask[:1], mask.shape)
            ),
        ),
        ("mask-ignored", "mask derivative", "typical"): (
            "Dropped elements get a gradient, too.",
            _dropping(lambda xp, x, mask: mask * 0 + 1),
        ),
        ("mask-inverted", "mask", "typical"): (
            "The mask is read as what is dropped, not as what is kept.",
            _dropping(lambda xp, x, mask: 1 - mask),
        ),
        ("mask-of-output", "mask", "zeros"): (
            "The mask is recovered from y != 0, which loses zeros that were kept.",
            _dropping(lambda xp, x, mask: mask * (x != 0)),
        ),
        ("scale-missing", "scale attribute", "typical"): (
            "Kept elements are not scaled by 1/(1 - p).",
            mutate.attribute(dropout_vjp, inverted=False),
            {"dialects": ("inverted",)},
        ),
        ("scale-twice", "scale", "typical"): (
            "1/(1 - p) is multiplied in twice.",
            mutate.attribute(dropout_vjp, p=lambda p, inverted: 1 - (1 - p) ** 2),
            {"dialects": ("inverted",)},
        ),
        ("p-for-1-minus-p", "attribute scale", "p-0.25"): (
            "p is read as the share that is kept: the scale is 1/p.",
            mutate.attribute(dropout_vjp, p=lambda p, inverted: 1 - p),
            {"dialects": ("inverted",)},
        ),
        ("default-p", "attribute scale", "p-0.25"): (
            "p is 1/2 whatever was asked for.",
            mutate.attribute(dropout_vjp, p=0.5),
            {"dialects": ("inverted",)},
        ),
        ("all-dropped", "non-finite", "p-1"): (
            "The mask is multiplied by 1/(1 - p): 0 * inf for p = 1.",
            dropout_product_vjp,
            {"dialects": ("inverted",)},
        ),
        ("scaled-in-backward", "scale attribute", "typical"): (
            "The backward scales by 1/(1 - p) what forward did not scale.",
            mutate.attribute(dropout_vjp, inverted=True),
            {"dialects": ("plain",)},
        ),
    },
)
MUTANTS += in_the_loop("dropout", dropout_vjp, "turned", "never-cleared")
