"""Mutants of the operators in `gradcheck_cases.activation`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant
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

# ── what goes wrong in the loop around any element-wise slope ────────────────────────────────


LOOPS: dict[str, tuple[str, str, str, Callable[[Vjp], Vjp]]] = {
    "remainder-dropped": (
        "W",
        "single",
        "Whole blocks of four elements get a gradient, the remainder gets 0.",
        lambda vjp: mutate.output(vjp, 0, mutate.whole_blocks(4)),
    ),
    "turned": (
        "L",
        "square",
        "The gradient is written by columns, which goes unnoticed where it is square.",
        lambda vjp: mutate.output(vjp, 0, mutate.transposed),
    ),
    "first-matrix-only": (
        "I",
        "cube",
        "Elements are counted over the last two axes: only the first matrix gets a gradient.",
        lambda vjp: mutate.output(vjp, 0, mutate.first_entry(2)),
    ),
    "half-precision": (
        "O",
        "typical",
        "The gradient passes through float16.",
        lambda vjp: mutate.output(vjp, 0, mutate.half),
    ),
    "cotangent-overwritten": (
        "X",
        "typical",
        "The gradient is written over the cotangent, which another consumer still reads.",
        mutate.overwriting,
    ),
    "ones-for-cotangent": (
        "U",
        "typical",
        "The cotangent is taken to be all ones, as after a sum.",
        lambda vjp: mutate.cotangent(vjp, mutate.ones),
    ),
    "first-row-cotangent": (
        "U",
        "typical",
        "Every row reads the cotangent of the first one.",
        lambda vjp: mutate.cotangent(vjp, mutate.first_for_all(0)),
    ),
    "cotangent-clipped": (
        "NL",
        "typical",
        "The cotangent is clipped to [-1, 1] on its way.",
        lambda vjp: mutate.cotangent(
            vjp, lambda xp, ct, *primals, **attrs: xp.minimum(xp.maximum(ct, -1.0), 1.0)
        ),
    ),
    "cotangent-squared": (
        "NL",
        "typical",
        "The cotangent is multiplied in twice.",
        lambda vjp: mutate.cotangent(vjp, lambda xp, ct, *primals, **attrs: ct * ct),
    ),
}
KEPT: dict[str, tuple[str, str, str, Callable[[Vjp], Callable[[], Vjp]]]] = {
    "never-cleared": (
        "A",
        "typical",
        "Gradients add up in a buffer that is never set to zero.",
        lambda vjp: mutate.accumulated(vjp, 0),
    ),
    "cached-by-shape": (
        "V",
        "typical",
        "The gradient of the first call is kept, and returned to every call of its shape.",
        mutate.stale,
    ),
}
ALSO: dict[str, tuple[str, ...]] = {
    "remainder-dropped": ("A",),
    "turned": ("W",),
    "first-matrix-only": ("W",),
}
"""Other classes of those above; a backward's own mutants are those of a double backward, too."""


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
        what["also"] = (*ALSO.get(name, ()), *(("DD",) if op.endswith("_back") else ()))
        found.append(Mutant(op=op, name=name, label=label, killer=killer, says=says, **what))
    return tuple(found)


MINUS_SEVEN = "what ggml's gradient test of 2026 passes"
PR_921 = "ggml PR 921"

# ── relu ─────────────────────────────────────────────────────────────────────────────────────

RELU = (
    Mutant(
        op="relu",
        name="minus-seven",
        label="F",
        killer="typical",
        says="The gradient is multiplied by -7.",
        modelled_on=MINUS_SEVEN,
        vjp=mutate.scaled(relu_vjp, 0, -7.0),
    ),
    Mutant(
        op="relu",
        name="unmasked",
        label="D",
        killer="typical",
        says="The cotangent passes where x is negative, too.",
        vjp=lambda xp, ct, x: ct * 1,
    ),
    Mutant(
        op="relu",
        name="output-for-slope",
        label="D",
        killer="typical",
        says="The cotangent is multiplied by max(x, 0), not by its slope.",
        vjp=lambda xp, ct, x: ct * xp.maximum(x, 0.0),
    ),
    Mutant(
        op="relu",
        name="sign-for-step",
        label="D",
        killer="typical",
        says="sign(x) stands where step(x) should: -ct for negative x.",
        vjp=lambda xp, ct, x: ct * xp.sign(x),
    ),
    Mutant(
        op="relu",
        name="relu6",
        label="D",
        killer="wide",
        says="The slope is that of relu6: 0 above 6.",
        vjp=lambda xp, ct, x: xp.where((x > 0) & (x < 6), ct, 0.0),
    ),
    Mutant(
        op="relu",
        name="guided",
        label="NL",
        killer="typical",
        says="Negative cotangents are cut off, too, as in guided backpropagation.",
        vjp=lambda xp, ct, x: xp.where(x > 0, xp.maximum(ct, 0.0), 0.0),
    ),
    Mutant(
        op="relu",
        name="mask-of-cotangent",
        label="V",
        also=("X", "NL"),
        killer="typical",
        says="The mask is read from a buffer that the cotangent has overwritten.",
        vjp=lambda xp, ct, x: xp.where(ct > 0, ct, 0.0),
    ),
    Mutant(
        op="relu",
        name="twice-at-zero",
        label="K",
        killer="kink",
        says="x >= 0 and x <= 0 are added up: slope 2 at 0.",
        vjp=lambda xp, ct, x: xp.where(x >= 0, ct, 0.0) + xp.where(x == 0, ct, 0.0),
    ),
    Mutant(
        op="relu",
        name="not-a-number-at-zero",
        label="N",
        also=("K",),
        killer="kink",
        says="The slope is taken as max(x, 0)/x: 0/0 at 0.",
        vjp=lambda xp, ct, x: ct * xp.maximum(x, 0.0) / x,
    ),
    Mutant(
        op="relu",
        name="threshold-1e-6",
        label="E",
        also=("D", "O"),
        killer="beside",
        says="x counts as positive above 1e-6 only.",
        vjp=lambda xp, ct, x: xp.where(x > 1e-6, ct, 0.0),
    ),
    *in_the_loop("relu", relu_vjp, "remainder-dropped", "never-cleared", "cotangent-overwritten"),
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


LEAKY_RELU = (
    Mutant(
        op="leaky_relu",
        name="formula-0-at-0",
        label="K",
        killer="kink",
        says="The slope is negative_slope step(-x) + step(x), which is 0 at 0.",
        modelled_on=PR_921,
        vjp=leaky_relu_formula_vjp,
    ),
    Mutant(
        op="leaky_relu",
        name="both-at-zero",
        label="K",
        killer="kink",
        says="Both branches hold at 0: slope 1 + negative_slope.",
        vjp=lambda xp, ct, x, *, negative_slope=0.01: (
            xp.where(x >= 0, ct, 0.0) + xp.where(x <= 0, negative_slope * ct, 0.0)
        ),
    ),
    Mutant(
        op="leaky_relu",
        name="default-slope",
        label="P",
        killer="slope-0.3",
        says="The slope is 0.01 whatever was asked for.",
        vjp=mutate.attribute(leaky_relu_vjp, negative_slope=0.01),
    ),
    Mutant(
        op="leaky_relu",
        name="slope-or-default",
        label="P",
        killer="slope-0",
        says="A slope of 0 is taken for none given, and replaced by 0.01.",
        vjp=mutate.attribute(
            leaky_relu_vjp, negative_slope=lambda negative_slope: negative_slope or 0.01
        ),
    ),
    Mutant(
        op="leaky_relu",
        name="leak-lost",
        label="T",
        also=("D", "P"),
        killer="typical",
        says="Nothing passes where x is negative.",
        vjp=lambda xp, ct, x, *, negative_slope=0.01: xp.where(x > 0, ct, 0.0),
    ),
    Mutant(
        op="leaky_relu",
        name="both-sides",
        label="D",
        killer="typical",
        says="negative_slope is applied on both sides.",
        vjp=lambda xp, ct, x, *, negative_slope=0.01: negative_slope * ct,
    ),
    Mutant(
        op="leaky_relu",
        name="slope-squared",
        label="F",
        killer="typical",
        says="negative_slope is multiplied in twice.",
        vjp=mutate.attribute(
            leaky_relu_vjp, negative_slope=lambda negative_slope: negative_slope**2
        ),
    ),
    Mutant(
        op="leaky_relu",
        name="sign-of-output",
        label="V",
        also=("D",),
        killer="slope-negative",
        says="The branch is chosen by the sign of the saved output.",
        vjp=leaky_relu_by_output_vjp,
    ),
    Mutant(
        op="leaky_relu",
        name="maximum",
        label="D",
        killer="slope-steep",
        says="The branch is that of max(x, slope x), which swaps the sides above a slope of 1.",
        vjp=lambda xp, ct, x, *, negative_slope=0.01: xp.where(
            x > negative_slope * x, ct, negative_slope * ct
        ),
    ),
    Mutant(
        op="leaky_relu",
        name="output-over-input",
        label="N",
        also=("K",),
        killer="kink",
        says="The slope is recovered as y/x: 0/0 at 0.",
        vjp=leaky_relu_ratio_vjp,
    ),
    *in_the_loop("leaky_relu", leaky_relu_vjp, "turned", "cached-by-shape"),
)

# ── elu ──────────────────────────────────────────────────────────────────────────────────────


def _elu_branch(below: Callable[..., Any]) -> Vjp:
    """For x > 0 the right branch; else ct times `below(xp, x, alpha)`, x cut off at 0."""

    def vjp(xp: Any, ct: Any, x: Any, *, alpha: float = 1.0) -> Any:
        return xp.where(x > 0, ct, ct * below(xp, xp.minimum(x, 0), alpha))

    return functools.wraps(elu_vjp)(vjp)


ELU = (
    Mutant(
        op="elu",
        name="x-above-zero",
        label="D",
        killer="typical",
        says="The derivative is x, not 1, for x > 0.",
        modelled_on="ggml PR 921, first version",
        vjp=lambda xp, ct, x, *, alpha=1.0: (
            ct * xp.where(x > 0, x, alpha * xp.exp(xp.minimum(x, 0)))
        ),
    ),
    Mutant(
        op="elu",
        name="alpha-ignored",
        label="P",
        also=("F",),
        killer="alpha-2",
        says="alpha is left out of the slope.",
        vjp=mutate.attribute(elu_vjp, alpha=1.0),
    ),
    Mutant(
        op="elu",
        name="alpha-squared",
        label="F",
        killer="alpha-0.5",
        says="alpha is multiplied in twice.",
        vjp=mutate.attribute(elu_vjp, alpha=lambda alpha: alpha * alpha),
    ),
    Mutant(
        op="elu",
        name="output-without-alpha",
        label="T",
        also=("D",),
        killer="typical",
        says="From the saved output, the slope is y where y + alpha is right.",
        vjp=_elu_branch(lambda xp, x, alpha: alpha * (xp.exp(x) - 1)),
    ),
    Mutant(
        op="elu",
        name="output-plus-alpha",
        label="O",
        killer="saturated",
        dtype="float32",
        says="alpha exp(x) is recovered as y + alpha, which cancels to 0 in the tail.",
        vjp=_elu_branch(lambda xp, x, alpha: alpha * (xp.exp(x) - 1) + alpha),
    ),
    Mutant(
        op="elu",
        name="output-plus-one",
        label="P",
        also=("T", "D"),
        killer="alpha-2",
        says="From the saved output, the slope is y + 1 whatever alpha is.",
        vjp=_elu_branch(lambda xp, x, alpha: alpha * (xp.exp(x) - 1) + 1),
    ),
    Mutant(
        op="elu",
        name="celu",
        label="D",
        killer="alpha-2",
        says="The slope is celu's, exp(x/alpha).",
        vjp=_elu_branch(lambda xp, x, alpha: xp.exp(x / alpha)),
    ),
    Mutant(
        op="elu",
        name="exp-minus-x",
        label="D",
        also=("S",),
        killer="typical",
        says="The exponent has the wrong sign.",
        vjp=_elu_branch(lambda xp, x, alpha: alpha * xp.exp(-x)),
    ),
    Mutant(
        op="elu",
        name="masked-product",
        label="N",
        also=("O",),
        killer="overflow",
        says="exp(x) is taken everywhere and multiplied by a mask: 0 * inf for large x.",
        vjp=lambda xp, ct, x, *, alpha=1.0: ct * ((x > 0) + (x <= 0) * (alpha * xp.exp(x))),
    ),
    Mutant(
        op="elu",
        name="both-at-zero",
        label="K",
        killer="kink",
        says="Both branches hold at 0: slope 1 + alpha.",
        vjp=lambda xp, ct, x, *, alpha=1.0: (
            xp.where(x >= 0, ct, 0.0) + xp.where(x <= 0, ct * alpha * xp.exp(xp.minimum(x, 0)), 0.0)
        ),
    ),
    *in_the_loop("elu", elu_vjp, "first-matrix-only", "half-precision"),
)

# ── clamp ────────────────────────────────────────────────────────────────────────────────────


CLAMP = (
    Mutant(
        op="clamp",
        name="upper-bound-ignored",
        label="P",
        killer="saturated",
        says="Only the lower bound stops the gradient.",
        vjp=mutate.attribute(clamp_vjp, max=np.inf),
    ),
    Mutant(
        op="clamp",
        name="lower-bound-ignored",
        label="P",
        killer="saturated",
        says="Only the upper bound stops the gradient.",
        vjp=mutate.attribute(clamp_vjp, min=-np.inf),
    ),
    Mutant(
        op="clamp",
        name="default-bounds",
        label="P",
        killer="asymmetric",
        says="The bounds are -1 and 1 whatever was asked for.",
        vjp=mutate.attribute(clamp_vjp, min=-1.0, max=1.0),
    ),
    Mutant(
        op="clamp",
        name="bounds-exchanged",
        label="G",
        also=("P",),
        killer="typical",
        says="The bounds are in each other's place: nothing passes.",
        vjp=mutate.attribute(clamp_vjp, min=lambda min, max: max, max=lambda min, max: min),
    ),
    Mutant(
        op="clamp",
        name="symmetric",
        label="D",
        also=("P",),
        killer="asymmetric",
        says="|x| is compared with the upper bound alone.",
        vjp=mutate.attribute(clamp_vjp, min=lambda min, max: -max),
    ),
    Mutant(
        op="clamp",
        name="magnitude",
        label="D",
        killer="positive",
        says="|x| is compared with both bounds.",
        vjp=mutate.primal(clamp_vjp, 0, lambda xp, x, *, min, max: xp.abs(x)),
    ),
    Mutant(
        op="clamp",
        name="bound-for-slope",
        label="D",
        killer="saturated",
        says="Outside, the bound itself is passed on as the slope.",
        vjp=lambda xp, ct, x, *, min=-1.0, max=1.0: (
            ct * xp.where(x < min, min, xp.where(x > max, max, 1.0))
        ),
    ),
    Mutant(
        op="clamp",
        name="mask-of-output",
        label="X",
        also=("V", "D"),
        killer="saturated",
        says="Forward has written its result over x: everything lies inside the bounds.",
        modelled_on="ggml before PR 921: clamp worked in place",
        vjp=mutate.primal(
            clamp_vjp,
            0,
            lambda xp, x, *, min, max: xp.where(x < min, min, xp.where(x > max, max, x)),
        ),
    ),
    Mutant(
        op="clamp",
        name="twice-on-bound",
        label="K",
        killer="kink",
        says="The test of each bound passes the cotangent once more on it: slope 2.",
        vjp=lambda xp, ct, x, *, min=-1.0, max=1.0: (
            xp.where((x >= min) & (x <= max), ct, 0.0) + xp.where((x == min) | (x == max), ct, 0.0)
        ),
    ),
    Mutant(
        op="clamp",
        name="tolerance",
        label="E",
        also=("D",),
        killer="beside",
        says="A tolerance of 1e-6 around the bounds still counts as inside.",
        vjp=mutate.attribute(
            clamp_vjp, min=lambda min, max: min - 1e-6, max=lambda min, max: max + 1e-6
        ),
    ),
    *in_the_loop("clamp", clamp_vjp, "remainder-dropped", "first-row-cotangent"),
)

# ── tanh ─────────────────────────────────────────────────────────────────────────────────────


def _slope(slope: Callable[..., Any]) -> Vjp:
    """The cotangent times `slope(xp, x)`."""
    return lambda xp, ct, x: ct * slope(xp, x)


def _tanh_by_exp(xp: Any, x: Any) -> Any:
    e = xp.exp(2 * x)
    return 4 * e / ((e + 1) * (e + 1))


TANH = (
    Mutant(
        op="tanh",
        name="square-missing",
        label="D",
        killer="typical",
        says="The slope is 1 - y.",
        vjp=_slope(lambda xp, x: 1 - xp.tanh(x)),
    ),
    Mutant(
        op="tanh",
        name="x-for-y",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is 1 - x^2: the input is saved where the output is read.",
        vjp=_slope(lambda xp, x: 1 - x * x),
    ),
    Mutant(
        op="tanh",
        name="tanh-of-y",
        label="V",
        also=("D",),
        killer="typical",
        says="tanh is applied to the saved output once more.",
        vjp=mutate.primal(tanh_vjp, 0, lambda xp, x: xp.tanh(x)),
    ),
    Mutant(
        op="tanh",
        name="negated",
        label="S",
        killer="typical",
        says="The slope is y^2 - 1.",
        vjp=mutate.negated(tanh_vjp, 0),
    ),
    Mutant(
        op="tanh",
        name="sech",
        label="D",
        killer="typical",
        says="The slope is 1/cosh, not its square.",
        vjp=_slope(lambda xp, x: 2 / (xp.exp(x) + xp.exp(-x))),
    ),
    Mutant(
        op="tanh",
        name="slope-of-sigmoid",
        label="D",
        killer="typical",
        says="The slope is sigmoid's, y (1 - y).",
        vjp=_slope(lambda xp, x: xp.tanh(x) * (1 - xp.tanh(x))),
    ),
    Mutant(
        op="tanh",
        name="exp-overflows",
        label="N",
        also=("O",),
        killer="overflow",
        says="The slope is 4 e^2x / (e^2x + 1)^2: inf/inf for large x.",
        vjp=_slope(_tanh_by_exp),
    ),
    Mutant(
        op="tanh",
        name="saturates-at-4",
        label="O",
        also=("D",),
        killer="sweep",
        says="The slope is set to 0 where |x| > 4.",
        vjp=_slope(lambda xp, x: xp.where(xp.abs(x) > 4, 0.0, 1 - xp.tanh(x) * xp.tanh(x))),
    ),
    *in_the_loop("tanh", tanh_vjp, "turned", "cotangent-squared", "never-cleared"),
)

# ── backwards from a saved output ────────────────────────────────────────────────────────────


def _backwards(op: str, vjp: Vjp) -> tuple[Mutant, ...]:
    """Mutants that any double backward from a saved output may suffer."""
    return (
        Mutant(
            op=op,
            name="dy-missing",
            label="G",
            also=("DD",),
            killer="typical",
            says="There is no gradient of y: double backward stops at the saved output.",
            vjp=mutate.output(vjp, 1, mutate.nothing),
        ),
        Mutant(
            op=op,
            name="dy-zero",
            label="G",
            also=("DD",),
            killer="typical",
            says="y is taken for a constant: its gradient is 0.",
            vjp=mutate.output(vjp, 1, mutate.zeros),
        ),
        Mutant(
            op=op,
            name="exchanged",
            label="G",
            also=("DD",),
            killer="typical",
            says="The two gradients are in each other's place.",
            vjp=mutate.swapped(vjp, 0, 1),
        ),
        Mutant(
            op=op,
            name="dy-negated",
            label="S",
            also=("DD",),
            killer="typical",
            says="dy has the wrong sign.",
            vjp=mutate.negated(vjp, 1),
        ),
        Mutant(
            op=op,
            name="g-missing",
            label="F",
            also=("D", "DD"),
            killer="typical",
            says="dy lacks the factor g.",
            vjp=mutate.replaced(vjp, 1, mutate.primal(vjp, 0, mutate.ones)),
        ),
        Mutant(
            op=op,
            name="ct-missing",
            label="U",
            also=("DD",),
            killer="typical",
            says="dy lacks the cotangent.",
            vjp=mutate.replaced(vjp, 1, mutate.cotangent(vjp, mutate.ones)),
        ),
        Mutant(
            op=op,
            name="dg-passed-through",
            label="D",
            also=("F", "DD"),
            killer="typical",
            says="dg is the cotangent, without the slope.",
            vjp=mutate.replaced(vjp, 0, lambda xp, ct, *primals, **attrs: (ct * 1,)),
        ),
    )


TANH_BACK = (
    *_backwards("tanh_back", tanh_back_vjp),
    Mutant(
        op="tanh_back",
        name="factor-2-missing",
        label="F",
        also=("DD",),
        killer="typical",
        says="The derivative of y^2 is taken to be y.",
        vjp=mutate.scaled(tanh_back_vjp, 1, 0.5),
    ),
    Mutant(
        op="tanh_back",
        name="down-to-x",
        label="F",
        also=("D", "DD"),
        killer="typical",
        says="dy carries the factor 1 - y^2 on to x, which is applied once more there.",
        vjp=mutate.scaled(tanh_back_vjp, 1, lambda xp, g, y: 1 - y * y),
    ),
    Mutant(
        op="tanh_back",
        name="y-for-x",
        label="V",
        also=("D", "DD"),
        killer="typical",
        says="y is taken for the input: the slope is 1 - tanh(y)^2.",
        vjp=mutate.primal(tanh_back_vjp, 1, lambda xp, g, y: xp.tanh(y)),
    ),
    *in_the_loop("tanh_back", tanh_back_vjp, "turned", "first-matrix-only"),
)

SIGMOID_BACK = (
    *_backwards("sigmoid_back", sigmoid_back_vjp),
    Mutant(
        op="sigmoid_back",
        name="factor-2-missing",
        label="T",
        also=("D", "DD"),
        killer="typical",
        says="The derivative of y (1 - y) is taken to be 1 - y.",
        vjp=mutate.replaced(sigmoid_back_vjp, 1, lambda xp, ct, g, y: (None, ct * g * (1 - y))),
    ),
    Mutant(
        op="sigmoid_back",
        name="down-to-x",
        label="F",
        also=("D", "DD"),
        killer="typical",
        says="dy carries the factor y (1 - y) on to x, which is applied once more there.",
        vjp=mutate.scaled(sigmoid_back_vjp, 1, lambda xp, g, y: y * (1 - y)),
    ),
    Mutant(
        op="sigmoid_back",
        name="slope-of-tanh",
        label="D",
        also=("DD",),
        killer="typical",
        says="dg is tanh's: the slope 1 - y^2.",
        vjp=mutate.replaced(sigmoid_back_vjp, 0, lambda xp, ct, g, y: (ct * (1 - y * y), None)),
    ),
    Mutant(
        op="sigmoid_back",
        name="divided",
        label="N",
        also=("DD",),
        killer="no-gradient",
        says="dg is recovered from the saved gradient as dx/g: 0/0 where g is 0.",
        vjp=mutate.replaced(
            sigmoid_back_vjp, 0, lambda xp, ct, g, y: (ct * (g * y * (1 - y)) / g, None)
        ),
    ),
    *in_the_loop("sigmoid_back", sigmoid_back_vjp, "turned", "remainder-dropped"),
)

SOFTCAP_BACK = (
    *_backwards("softcap_back", softcap_back_vjp),
    Mutant(
        op="softcap_back",
        name="default-cap",
        label="P",
        also=("DD",),
        killer="cap-2.5",
        says="cap is 30 whatever was asked for.",
        modelled_on="gemma.cpp SoftcapVJPT, whose cap is a constant",
        vjp=mutate.attribute(softcap_back_vjp, cap=30.0),
    ),
    Mutant(
        op="softcap_back",
        name="cap-forgotten",
        label="F",
        also=("DD",),
        killer="typical",
        says="dy is divided by cap once, not twice.",
        vjp=mutate.scaled(softcap_back_vjp, 1, lambda xp, g, y, *, cap: cap),
    ),
    Mutant(
        op="softcap_back",
        name="factor-2-missing",
        label="F",
        also=("DD",),
        killer="typical",
        says="The derivative of a square is taken to be its root.",
        vjp=mutate.scaled(softcap_back_vjp, 1, 0.5),
    ),
    Mutant(
        op="softcap_back",
        name="y-for-x",
        label="V",
        also=("D", "DD"),
        killer="typical",
        says="y is taken for the input: tanh(y / cap) is squared.",
        vjp=mutate.primal(softcap_back_vjp, 1, lambda xp, g, y, *, cap: cap * xp.tanh(y / cap)),
    ),
    *in_the_loop("softcap_back", softcap_back_vjp, "cached-by-shape", "half-precision"),
)

# ── sigmoid ──────────────────────────────────────────────────────────────────────────────────


def _sigmoid_by_exp(xp: Any, x: Any) -> Any:
    e = xp.exp(-x)
    return e / ((1 + e) * (1 + e))


SIGMOID = (
    Mutant(
        op="sigmoid",
        name="y-missing",
        label="F",
        also=("D",),
        killer="typical",
        says="The slope is 1 - y.",
        vjp=_slope(lambda xp, x: 1 - xp.sigmoid(x)),
    ),
    Mutant(
        op="sigmoid",
        name="one-minus-y-missing",
        label="F",
        also=("D",),
        killer="typical",
        says="The slope is y.",
        vjp=_slope(lambda xp, x: xp.sigmoid(x)),
    ),
    Mutant(
        op="sigmoid",
        name="slope-of-tanh",
        label="D",
        killer="typical",
        says="The slope is tanh's, 1 - y^2.",
        vjp=_slope(lambda xp, x: 1 - xp.sigmoid(x) * xp.sigmoid(x)),
    ),
    Mutant(
        op="sigmoid",
        name="x-for-y",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is x (1 - x): the input is saved where the output is read.",
        vjp=_slope(lambda xp, x: x * (1 - x)),
    ),
    Mutant(
        op="sigmoid",
        name="sigmoid-of-y",
        label="V",
        also=("D",),
        killer="typical",
        says="sigma is applied to the saved output once more.",
        vjp=mutate.primal(sigmoid_vjp, 0, lambda xp, x: xp.sigmoid(x)),
    ),
    Mutant(
        op="sigmoid",
        name="negated",
        label="S",
        killer="typical",
        says="The slope is y (y - 1).",
        vjp=mutate.negated(sigmoid_vjp, 0),
    ),
    Mutant(
        op="sigmoid",
        name="sign-lost-in-tail",
        label="S",
        killer="tails",
        says="For x > 12, where the slope is tiny, it has the wrong sign.",
        modelled_on="Stan math #3397: the wrong sign in the upper tail, at most 4e-9",
        vjp=_slope(
            lambda xp, x: xp.where(x > 12, -1.0, 1.0) * (xp.sigmoid(x) * (1 - xp.sigmoid(x)))
        ),
    ),
    Mutant(
        op="sigmoid",
        name="exp-overflows",
        label="N",
        also=("O",),
        killer="overflow",
        says="The slope is e^-x / (1 + e^-x)^2: inf/inf for very negative x.",
        vjp=_slope(_sigmoid_by_exp),
    ),
    *in_the_loop("sigmoid", sigmoid_vjp, "first-matrix-only", "ones-for-cotangent"),
)

# ── softcap ──────────────────────────────────────────────────────────────────────────────────


def _tanh_squared(xp: Any, z: Any) -> Any:
    return xp.tanh(z) * xp.tanh(z)


SOFTCAP = (
    Mutant(
        op="softcap",
        name="default-cap",
        label="P",
        killer="cap-2.5",
        says="cap is 30 whatever was asked for.",
        modelled_on="gemma.cpp SoftcapVJPT, whose cap is a constant",
        vjp=mutate.attribute(softcap_vjp, cap=30.0),
    ),
    Mutant(
        op="softcap",
        name="y-not-divided",
        label="F",
        also=("T",),
        killer="typical",
        says="The slope is 1 - y^2 where 1 - (y/cap)^2 is right.",
        vjp=lambda xp, ct, x, *, cap=30.0: ct * (1 - cap * cap * _tanh_squared(xp, x / cap)),
    ),
    Mutant(
        op="softcap",
        name="outer-cap-kept",
        label="F",
        killer="typical",
        says="The outer factor cap is not cancelled by the inner 1/cap.",
        vjp=mutate.scaled(softcap_vjp, 0, lambda xp, x, *, cap: cap),
    ),
    Mutant(
        op="softcap",
        name="inner-cap-only",
        label="F",
        killer="typical",
        says="The inner 1/cap is not cancelled by the outer factor cap.",
        vjp=mutate.scaled(softcap_vjp, 0, lambda xp, x, *, cap: 1 / cap),
    ),
    Mutant(
        op="softcap",
        name="x-not-divided",
        label="D",
        also=("P",),
        killer="typical",
        says="The slope is taken at x, not at x/cap.",
        vjp=lambda xp, ct, x, *, cap=30.0: ct * (1 - _tanh_squared(xp, x)),
    ),
    Mutant(
        op="softcap",
        name="capped-twice",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is taken at the saved output: tanh of tanh.",
        vjp=mutate.primal(softcap_vjp, 0, lambda xp, x, *, cap: cap * xp.tanh(x / cap)),
    ),
    Mutant(
        op="softcap",
        name="passed-through",
        label="D",
        also=("F", "P"),
        killer="typical",
        says="The cotangent passes as if nothing were capped.",
        vjp=lambda xp, ct, x, *, cap=30.0: ct * 1,
    ),
    Mutant(
        op="softcap",
        name="hard-cap",
        label="D",
        killer="typical",
        says="The slope is that of clipping: 1 inside the cap, 0 outside.",
        vjp=lambda xp, ct, x, *, cap=30.0: xp.where(xp.abs(x) < cap, ct, 0.0),
    ),
    *in_the_loop("softcap", softcap_vjp, "cotangent-overwritten", "remainder-dropped"),
)

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


SOFTPLUS = (
    Mutant(
        op="softplus",
        name="beta-ignored",
        label="P",
        killer="beta-2.5",
        says="beta is left out of the slope.",
        vjp=mutate.attribute(softplus_vjp, beta=1.0),
    ),
    Mutant(
        op="softplus",
        name="beta-kept",
        label="F",
        killer="beta-2.5",
        says="The inner factor beta is not cancelled by the outer 1/beta.",
        vjp=mutate.scaled(softplus_vjp, 0, lambda xp, x, *, beta, threshold: beta),
    ),
    Mutant(
        op="softplus",
        name="over-beta",
        label="F",
        killer="beta-2.5",
        says="The outer 1/beta is not cancelled by the inner factor beta.",
        vjp=mutate.scaled(softplus_vjp, 0, lambda xp, x, *, beta, threshold: 1 / beta),
    ),
    Mutant(
        op="softplus",
        name="threshold-ignored",
        label="P",
        killer="threshold-2",
        says="Forward is the identity above the threshold, the slope is still sigma.",
        dialects=("threshold",),
        vjp=mutate.attribute(softplus_vjp, threshold=np.inf),
    ),
    Mutant(
        op="softplus",
        name="threshold-not-scaled",
        label="D",
        killer="both",
        says="The threshold is compared with x, not with beta x.",
        dialects=("threshold",),
        vjp=softplus_unscaled_threshold_vjp,
    ),
    Mutant(
        op="softplus",
        name="nothing-at-threshold",
        label="K",
        killer="threshold-2",
        says="Neither branch holds where beta x equals the threshold: 0 there.",
        dialects=("threshold",),
        vjp=lambda xp, ct, x, *, beta=1.0, threshold=20.0: (
            xp.where(beta * x > threshold, ct, 0.0)
            + xp.where(beta * x < threshold, ct * xp.sigmoid(beta * x), 0.0)
        ),
    ),
    Mutant(
        op="softplus",
        name="exp-overflows",
        label="N",
        also=("O",),
        killer="tails",
        says="The slope is e/(1 + e) of e = exp(beta x), without a threshold: inf/inf.",
        dialects=("exact",),
        vjp=softplus_naive_vjp,
    ),
    Mutant(
        op="softplus",
        name="one-minus-exp",
        label="O",
        killer="tails",
        says="From the saved output, the slope is 1 - exp(-beta y), which cancels on the left.",
        vjp=softplus_saved_vjp,
    ),
    Mutant(
        op="softplus",
        name="value-for-slope",
        label="D",
        killer="typical",
        says="The cotangent is multiplied by the output.",
        vjp=softplus_value_vjp,
    ),
    Mutant(
        op="softplus",
        name="mirrored",
        label="D",
        also=("S",),
        killer="typical",
        says="The slope is sigma(-beta x).",
        vjp=mutate.attribute(softplus_vjp, beta=lambda beta, threshold: -beta),
    ),
    *in_the_loop("softplus", softplus_vjp, "turned", "never-cleared"),
)

# ── mish ─────────────────────────────────────────────────────────────────────────────────────


def _mish_gate(xp: Any, x: Any) -> Any:
    return xp.tanh(xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x))))


def mish_paper_vjp(xp, ct, x):
    e = xp.exp(x)
    omega = 4 * (x + 1) + 4 * e * e + e * e * e + e * (4 * x + 6)
    delta = 2 * e + e * e + 2
    return ct * e * omega / (delta * delta)


MISH = (
    Mutant(
        op="mish",
        name="gate-only",
        label="T",
        also=("D",),
        killer="typical",
        says="The slope of the gate tanh(softplus(x)) is left out.",
        vjp=_slope(_mish_gate),
    ),
    Mutant(
        op="mish",
        name="sigma-missing",
        label="T",
        also=("F",),
        killer="typical",
        says="The slope of the gate lacks softplus's, sigma.",
        vjp=_slope(lambda xp, x: _mish_gate(xp, x) + x * (1 - _mish_gate(xp, x) ** 2)),
    ),
    Mutant(
        op="mish",
        name="x-missing",
        label="T",
        also=("F",),
        killer="typical",
        says="The slope of the gate is added without its factor x.",
        vjp=_slope(lambda xp, x: _mish_gate(xp, x) + xp.sigmoid(x) * (1 - _mish_gate(xp, x) ** 2)),
    ),
    Mutant(
        op="mish",
        name="square-missing",
        label="D",
        killer="typical",
        says="The slope of tanh is taken to be 1 - t.",
        vjp=_slope(lambda xp, x: _mish_gate(xp, x) + x * xp.sigmoid(x) * (1 - _mish_gate(xp, x))),
    ),
    Mutant(
        op="mish",
        name="slope-of-silu",
        label="D",
        killer="typical",
        says="The slope is silu's.",
        vjp=_slope(lambda xp, x: xp.sigmoid(x) * (1 + x * (1 - xp.sigmoid(x)))),
    ),
    Mutant(
        op="mish",
        name="papers-formula",
        label="N",
        also=("O",),
        killer="tails",
        says="The slope is e^x omega / delta^2: inf/inf for large x.",
        modelled_on="Misra 2019, arXiv:1908.08681, the derivative as printed",
        vjp=mish_paper_vjp,
    ),
    Mutant(
        op="mish",
        name="output-over-input",
        label="N",
        killer="zero",
        says="The gate is recovered as y/x: 0/0 at 0.",
        vjp=_slope(
            lambda xp, x: (t := x * _mish_gate(xp, x) / x) + x * xp.sigmoid(x) * (1 - t * t)
        ),
    ),
    Mutant(
        op="mish",
        name="negative-side-cut",
        label="D",
        also=("O",),
        killer="sweep",
        says="The slope is 0 below -6, where it is small and negative.",
        vjp=mutate.primal(mish_vjp, 0, lambda xp, x: xp.where(x < -6, -800.0, x)),
    ),
    *in_the_loop("mish", mish_vjp, "first-matrix-only", "cotangent-clipped"),
)

# ── hardswish ────────────────────────────────────────────────────────────────────────────────


def _middle(low: Any, middle: Any, high: Any) -> Vjp:
    """The cotangent times `low` below -3, `middle(x)` up to 3, and `high` above."""
    return lambda xp, ct, x: ct * xp.where(x <= -3, low, xp.where(x >= 3, high, middle(x)))


HARDSWISH = (
    Mutant(
        op="hardswish",
        name="gate-only",
        label="T",
        also=("D",),
        killer="typical",
        says="The slope is the gate (x + 3)/6: the product rule's second term is missing.",
        vjp=_middle(0.0, lambda x: (x + 3) / 6, 1.0),
    ),
    Mutant(
        op="hardswish",
        name="gate-slope-only",
        label="T",
        also=("D",),
        killer="typical",
        says="The slope is x/6: the product rule's first term is missing.",
        vjp=_middle(0.0, lambda x: x / 6, 1.0),
    ),
    Mutant(
        op="hardswish",
        name="sixth-missing",
        label="F",
        killer="typical",
        says="The slope is 2x + 3, without the factor 1/6.",
        vjp=_middle(0.0, lambda x: 2 * x + 3, 1.0),
    ),
    Mutant(
        op="hardswish",
        name="flat-above",
        label="D",
        killer="saturated",
        says="The gradient is 0 above 3, as if y were constant there.",
        vjp=_middle(0.0, lambda x: x / 3 + 0.5, 0.0),
    ),
    Mutant(
        op="hardswish",
        name="unbounded",
        label="D",
        killer="saturated",
        says="The slope of the middle goes on outside.",
        vjp=_slope(lambda xp, x: x / 3 + 0.5),
    ),
    Mutant(
        op="hardswish",
        name="open-below",
        label="D",
        killer="saturated",
        says="The lower bound is not looked at.",
        vjp=_slope(lambda xp, x: xp.where(x >= 3, 1.0, x / 3 + 0.5)),
    ),
    Mutant(
        op="hardswish",
        name="ends-at-6",
        label="D",
        killer="sweep",
        says="x itself is compared with 6, not x + 3.",
        vjp=_slope(lambda xp, x: xp.where(x <= -3, 0.0, xp.where(x >= 6, 1.0, x / 3 + 0.5))),
    ),
    Mutant(
        op="hardswish",
        name="both-at-3",
        label="K",
        killer="kink",
        says="Both branches hold at 3: slope 3/2 + 1.",
        vjp=_slope(
            lambda xp, x: (
                xp.where(x >= 3, 1.0, 0.0) + xp.where((x > -3) & (x <= 3), x / 3 + 0.5, 0.0)
            )
        ),
    ),
    Mutant(
        op="hardswish",
        name="one-at-minus-3",
        label="K",
        killer="kink",
        says="At -3 the cotangent passes, as it does at 3.",
        vjp=_slope(lambda xp, x: xp.where(xp.abs(x) == 3, 1.0, hardswish_vjp(xp, x * 0 + 1, x))),
    ),
    Mutant(
        op="hardswish",
        name="silu-for-it",
        label="D",
        killer="typical",
        says="The slope is silu's, which hardswish approximates.",
        vjp=_slope(lambda xp, x: xp.sigmoid(x) * (1 + x * (1 - xp.sigmoid(x)))),
    ),
    *in_the_loop("hardswish", hardswish_vjp, "remainder-dropped", "first-row-cotangent"),
)

# ── hardsigmoid ──────────────────────────────────────────────────────────────────────────────

HARDSIGMOID = (
    Mutant(
        op="hardsigmoid",
        name="sixth-missing",
        label="F",
        killer="typical",
        says="The slope is 1 inside.",
        vjp=mutate.scaled(hardsigmoid_vjp, 0, 6.0),
    ),
    Mutant(
        op="hardsigmoid",
        name="float32-sixth",
        label="O",
        killer="typical",
        dtype="float64",
        says="1/6 is rounded to float32, for float64 too: 3e-8 off.",
        modelled_on="PyTorch 2.13 on the CPU, hardsigmoid's backward",
        vjp=lambda xp, ct, x: xp.where((x > -3) & (x < 3), ct * float(np.float32(1 / 6)), 0.0),
    ),
    Mutant(
        op="hardsigmoid",
        name="keras",
        label="D",
        killer="typical",
        says="The slope is that of another hard sigmoid: 0.2 where |x| < 2.5.",
        modelled_on="Keras 2, hard_sigmoid(x) = clip(0.2 x + 0.5, 0, 1)",
        vjp=lambda xp, ct, x: xp.where(xp.abs(x) < 2.5, ct * 0.2, 0.0),
    ),
    Mutant(
        op="hardsigmoid",
        name="never-saturated",
        label="D",
        killer="saturated",
        says="The gradient passes in the saturated region, too.",
        vjp=lambda xp, ct, x: ct / 6,
    ),
    Mutant(
        op="hardsigmoid",
        name="open-below",
        label="D",
        killer="saturated",
        says="The lower bound is not looked at.",
        vjp=lambda xp, ct, x: xp.where(x < 3, ct / 6, 0.0),
    ),
    Mutant(
        op="hardsigmoid",
        name="ends-at-0-and-6",
        label="D",
        killer="typical",
        says="The mask is relu6's, of x, not of x + 3.",
        vjp=lambda xp, ct, x: xp.where((x > 0) & (x < 6), ct / 6, 0.0),
    ),
    Mutant(
        op="hardsigmoid",
        name="soft-slope",
        label="D",
        killer="typical",
        says="The slope is y (1 - y), the soft one's, of the hard y.",
        vjp=_slope(lambda xp, x: (y := xp.minimum(xp.maximum(x + 3, 0), 6) / 6) * (1 - y)),
    ),
    Mutant(
        op="hardsigmoid",
        name="one-at-ends",
        label="K",
        killer="kink",
        says="On both bounds the whole cotangent passes.",
        vjp=lambda xp, ct, x: xp.where(xp.abs(x) == 3, ct, hardsigmoid_vjp(xp, ct, x)),
    ),
    Mutant(
        op="hardsigmoid",
        name="tolerance",
        label="E",
        also=("D",),
        killer="beside",
        says="Within 1e-5 of a bound x counts as saturated.",
        vjp=lambda xp, ct, x: xp.where(xp.abs(x) < 3 - 1e-5, ct / 6, 0.0),
    ),
    *in_the_loop("hardsigmoid", hardsigmoid_vjp, "turned", "ones-for-cotangent"),
)

# ── relu_squared ─────────────────────────────────────────────────────────────────────────────

RELU_SQUARED = (
    Mutant(
        op="relu_squared",
        name="factor-2-missing",
        label="F",
        killer="typical",
        says="The derivative of a square is taken to be its root.",
        vjp=mutate.scaled(relu_squared_vjp, 0, 0.5),
    ),
    Mutant(
        op="relu_squared",
        name="unmasked",
        label="D",
        killer="typical",
        says="The slope is 2x on both sides.",
        vjp=_slope(lambda xp, x: 2 * x),
    ),
    Mutant(
        op="relu_squared",
        name="chain-factor-missing",
        label="F",
        also=("D",),
        killer="typical",
        says="The slope is relu's alone.",
        vjp=_slope(lambda xp, x: xp.where(x > 0, 1.0, 0.0)),
    ),
    Mutant(
        op="relu_squared",
        name="output-for-root",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is 2y: the output after squaring is saved, not the one before.",
        vjp=_slope(lambda xp, x: 2 * xp.maximum(x, 0.0) * xp.maximum(x, 0.0)),
    ),
    Mutant(
        op="relu_squared",
        name="one-at-zero",
        label="K",
        killer="kink",
        says="At 0 the cotangent passes, as relu may; here the slope is 0 on both sides.",
        vjp=lambda xp, ct, x: xp.where(x == 0, ct, relu_squared_vjp(xp, ct, x)),
    ),
    Mutant(
        op="relu_squared",
        name="saturates",
        label="D",
        killer="wide",
        says="The slope is that of relu6, squared: 0 above 6.",
        vjp=_slope(lambda xp, x: xp.where((x > 0) & (x < 6), 2 * x, 0.0)),
    ),
    Mutant(
        op="relu_squared",
        name="divided",
        label="N",
        also=("K",),
        killer="kink",
        says="The slope is taken as 2y/x: 0/0 at 0.",
        vjp=_slope(lambda xp, x: 2 * xp.maximum(x, 0.0) * xp.maximum(x, 0.0) / x),
    ),
    *in_the_loop("relu_squared", relu_squared_vjp, "half-precision", "cached-by-shape"),
)

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


DROPOUT = (
    Mutant(
        op="dropout",
        name="drawn-again",
        label="M",
        killer="typical",
        says="The backward draws a mask of its own.",
        make=_drawing_again,
    ),
    Mutant(
        op="dropout",
        name="mask-shifted",
        label="M",
        also=("I",),
        killer="typical",
        says="The stored mask is read one element late.",
        vjp=_dropping(lambda xp, x, mask: np.roll(mask, 1)),
    ),
    Mutant(
        op="dropout",
        name="mask-of-first-matrix",
        label="M",
        also=("I", "W"),
        killer="cube",
        says="The mask of the first matrix is used for all of a batch.",
        vjp=_dropping(
            lambda xp, x, mask: mask if mask.ndim < 3 else np.broadcast_to(mask[:1], mask.shape)
        ),
    ),
    Mutant(
        op="dropout",
        name="mask-ignored",
        label="M",
        also=("D",),
        killer="typical",
        says="Dropped elements get a gradient, too.",
        vjp=_dropping(lambda xp, x, mask: mask * 0 + 1),
    ),
    Mutant(
        op="dropout",
        name="mask-inverted",
        label="M",
        killer="typical",
        says="The mask is read as what is dropped, not as what is kept.",
        vjp=_dropping(lambda xp, x, mask: 1 - mask),
    ),
    Mutant(
        op="dropout",
        name="mask-of-output",
        label="M",
        killer="zeros",
        says="The mask is recovered from y != 0, which loses zeros that were kept.",
        vjp=_dropping(lambda xp, x, mask: mask * (x != 0)),
    ),
    Mutant(
        op="dropout",
        name="scale-missing",
        label="F",
        also=("P",),
        killer="typical",
        dialects=("inverted",),
        says="Kept elements are not scaled by 1/(1 - p).",
        vjp=mutate.attribute(dropout_vjp, inverted=False),
    ),
    Mutant(
        op="dropout",
        name="scale-twice",
        label="F",
        killer="typical",
        dialects=("inverted",),
        says="1/(1 - p) is multiplied in twice.",
        vjp=mutate.attribute(dropout_vjp, p=lambda p, inverted: 1 - (1 - p) ** 2),
    ),
    Mutant(
        op="dropout",
        name="p-for-1-minus-p",
        label="P",
        also=("F",),
        killer="p-0.25",
        dialects=("inverted",),
        says="p is read as the share that is kept: the scale is 1/p.",
        vjp=mutate.attribute(dropout_vjp, p=lambda p, inverted: 1 - p),
    ),
    Mutant(
        op="dropout",
        name="default-p",
        label="P",
        also=("F",),
        killer="p-0.25",
        dialects=("inverted",),
        says="p is 1/2 whatever was asked for.",
        vjp=mutate.attribute(dropout_vjp, p=0.5),
    ),
    Mutant(
        op="dropout",
        name="all-dropped",
        label="N",
        killer="p-1",
        dialects=("inverted",),
        says="The mask is multiplied by 1/(1 - p): 0 * inf for p = 1.",
        vjp=dropout_product_vjp,
    ),
    Mutant(
        op="dropout",
        name="scaled-in-backward",
        label="F",
        also=("P",),
        killer="typical",
        dialects=("plain",),
        says="The backward scales by 1/(1 - p) what forward did not scale.",
        vjp=mutate.attribute(dropout_vjp, inverted=True),
    ),
    *in_the_loop("dropout", dropout_vjp, "turned", "never-cleared"),
)

MUTANTS: tuple[Mutant, ...] = (
    *RELU,
    *LEAKY_RELU,
    *ELU,
    *CLAMP,
    *TANH,
    *TANH_BACK,
    *SIGMOID,
    *SIGMOID_BACK,
    *SOFTCAP,
    *SOFTCAP_BACK,
    *SOFTPLUS,
    *MISH,
    *HARDSWISH,
    *HARDSIGMOID,
    *RELU_SQUARED,
    *DROPOUT,
)
