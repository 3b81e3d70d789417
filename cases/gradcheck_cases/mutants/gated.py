"""Mutants of the operators in `gradcheck_cases.gated`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.numerics.draw import Draw
from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant
from gradcheck_cases.gated import (
    geglu_vjp,
    gelu_forward,
    gelu_vjp,
    packed_geglu_vjp,
    packed_swiglu_vjp,
    silu_back_vjp,
    silu_forward,
    silu_vjp,
    swiglu_vjp,
)
from gradcheck_cases.mutants.activation import MINUS_SEVEN, in_the_loop

# ── gelu ─────────────────────────────────────────────────────────────────────────────────────

TANH_FORMS = ("tanh", "gemma")


def _argument(xp: Any, x: Any, root: str = "") -> tuple[Any, Any, Any]:
    """What the tanh form takes tanh of, and √(2/π), or `root`, and 0.044715."""
    k = xp.const(root) if root else xp.sqrt_of(2 / xp.pi)
    cube = xp.const("0.044715")
    return k * (x + cube * x * x * x), k, cube


def _by_parts(change: Callable[..., Any]) -> Vjp:
    """The tanh form's slope from its parts: `change(xp, x, tanh, sech², √(2/π), 0.044715)`."""

    @functools.wraps(gelu_vjp)
    def vjp(xp: Any, ct: Any, x: Any, *, form: str = "tanh", root: str = "") -> Any:
        a, k, cube = _argument(xp, x)
        t = xp.tanh(a)
        return ct * change(xp, x, t, 1 - t * t, k, cube)

    return vjp


def gelu_cosh_vjp(xp, ct, x, *, form="tanh", root=""):
    a, k, cube = _argument(xp, x, root)
    cosh = (xp.exp(a) + xp.exp(-a)) / 2
    sech2 = 1 / (cosh * cosh)
    return ct * ((1 + xp.tanh(a)) / 2 + x * sech2 * k * (1 + 3 * cube * x * x) / 2)


def gelu_sech_by_exp_vjp(xp, ct, x, *, form="tanh", root=""):
    a, k, cube = _argument(xp, x)
    e = xp.exp(2 * a)
    sech2 = 4 * e / ((e + 1) * (e + 1))
    return ct * ((1 + xp.tanh(a)) / 2 + x * sech2 * k * (1 + 3 * cube * x * x) / 2)


def gelu_sinh_over_cosh_vjp(xp, ct, x, *, form="tanh", root=""):
    a, k, cube = _argument(xp, x)
    cosh, sinh = (xp.exp(a) + xp.exp(-a)) / 2, (xp.exp(a) - xp.exp(-a)) / 2
    t = sinh / cosh
    return ct * ((1 + t) / 2 + x * (1 - t * t) * k * (1 + 3 * cube * x * x) / 2)


def gelu_density_vjp(xp, ct, x, *, form="tanh", root=""):
    density = xp.exp(-x * x) / xp.sqrt_of(2 * xp.pi)
    return ct * ((1 + xp.erf(x / xp.sqrt_of(2))) / 2 + x * density)


def gelu_erf_unscaled_vjp(xp, ct, x, *, form="tanh", root=""):
    density = xp.exp(-x * x / 2) / xp.sqrt_of(2 * xp.pi)
    return ct * ((1 + xp.erf(x)) / 2 + x * density)


def gelu_quick_unchained_vjp(xp, ct, x, *, form="tanh", root=""):
    p = xp.sigmoid(xp.const("1.702") * x)
    return ct * (p + x * p * (1 - p))


def gelu_quick_overflowing_vjp(xp, ct, x, *, form="tanh", root=""):
    k = xp.const("1.702")
    e = xp.exp(-k * x)
    return ct * (1 / (1 + e) + k * x * e / ((1 + e) * (1 + e)))


def gelu_passing_vjp(xp, ct, x, *, form="tanh", root=""):
    return ct * xp.where(x > 0, 1.0, xp.zeros_like(x))


def gelu_cdf_vjp(xp, ct, x, *, form="tanh", root=""):
    # The share alone is gelu's slope less x times the share's: y / x, and 1/2 at 0.
    safe = xp.where(x == 0, 1.0, x)
    return ct * xp.where(x == 0, 0.5, gelu_forward(xp, safe, form=form, root=root) / safe)


def _elsewhere(draw: Draw) -> tuple[tuple[Any, ...], dict[str, Any]]:
    rows, columns = (int(n) for n in draw.integers(2, 6, 2))
    root = "" if draw.integers(0, 2) else f"0.79{int(draw.integers(0, 10**9))}"
    return (draw.uniform(-2.0, 2.0, rows, columns),), {"form": "tanh", "root": root}


GELU = (
    Mutant(
        op="gelu",
        name="cosh-form",
        label="O",
        killer="",
        dialects=TANH_FORMS,
        says="sech² is 1/cosh², whose square overflows in float32 for arguments above 44.",
        modelled_on="llmgo geluBackward",
        equivalent="sech² = 1 - tanh², and where cosh² overflows 1/inf = 0 is what sech² rounds "
        "to.",
        inputs=_elsewhere,
        vjp=gelu_cosh_vjp,
    ),
    Mutant(
        op="gelu",
        name="sech-by-exp",
        label="O",
        also=("N",),
        killer="tails",
        dialects=TANH_FORMS,
        dtype="float32",
        says="sech² is 4 e^2a / (e^2a + 1)²: inf/inf for arguments above 44.",
        vjp=gelu_sech_by_exp_vjp,
    ),
    Mutant(
        op="gelu",
        name="sinh-over-cosh",
        label="N",
        also=("O",),
        killer="tails",
        dialects=TANH_FORMS,
        dtype="float32",
        says="tanh is sinh/cosh: inf/inf for arguments above 88.",
        vjp=gelu_sinh_over_cosh_vjp,
    ),
    Mutant(
        op="gelu",
        name="three-missing",
        label="F",
        also=("T", "D"),
        killer="typical",
        dialects=TANH_FORMS,
        says="The derivative of x³ is taken to be x².",
        vjp=_by_parts(
            lambda xp, x, t, s, k, cube: (1 + t) / 2 + x * s * k * (1 + cube * x * x) / 2
        ),
    ),
    Mutant(
        op="gelu",
        name="cubic-term-missing",
        label="T",
        also=("D",),
        killer="typical",
        dialects=TANH_FORMS,
        says="The inner slope is that of x alone, without the cube.",
        vjp=_by_parts(lambda xp, x, t, s, k, cube: (1 + t) / 2 + x * s * k / 2),
    ),
    Mutant(
        op="gelu",
        name="root-missing",
        label="F",
        also=("T", "D"),
        killer="typical",
        dialects=TANH_FORMS,
        says="The inner slope lacks the factor sqrt(2/pi).",
        vjp=_by_parts(
            lambda xp, x, t, s, k, cube: (1 + t) / 2 + x * s * (1 + 3 * cube * x * x) / 2
        ),
    ),
    Mutant(
        op="gelu",
        name="sech-not-squared",
        label="D",
        killer="typical",
        dialects=TANH_FORMS,
        says="The slope of tanh is taken to be 1 - t.",
        vjp=_by_parts(
            lambda xp, x, t, s, k, cube: (1 + t) / 2 + x * (1 - t) * k * (1 + 3 * cube * x * x) / 2
        ),
    ),
    Mutant(
        op="gelu",
        name="share-only",
        label="T",
        also=("D",),
        killer="typical",
        says="The slope is the share that passes: the term x p'(x) is missing.",
        vjp=gelu_cdf_vjp,
    ),
    Mutant(
        op="gelu",
        name="share-negated",
        label="S",
        killer="typical",
        says="The term x p'(x) is subtracted.",
        vjp=lambda xp, ct, x, *, form="tanh", root="": (
            2 * gelu_cdf_vjp(xp, ct, x, form=form, root=root)
            - gelu_vjp(xp, ct, x, form=form, root=root)
        ),
    ),
    Mutant(
        op="gelu",
        name="always-tanh",
        label="P",
        killer="typical",
        dialects=("erf", "quick"),
        says="The slope is the tanh form's whatever form was asked for.",
        vjp=mutate.attribute(gelu_vjp, form="tanh"),
    ),
    Mutant(
        op="gelu",
        name="always-erf",
        label="P",
        killer="typical",
        dialects=("tanh", "gemma", "quick"),
        says="The slope is the exact form's whatever form was asked for.",
        vjp=mutate.attribute(gelu_vjp, form="erf"),
    ),
    Mutant(
        op="gelu",
        name="density-without-half",
        label="D",
        killer="typical",
        dialects=("erf",),
        says="The density is exp(-x²), without 1/2 in the exponent.",
        vjp=gelu_density_vjp,
    ),
    Mutant(
        op="gelu",
        name="erf-without-root",
        label="D",
        killer="typical",
        dialects=("erf",),
        says="erf is taken of x, not of x/sqrt(2).",
        vjp=gelu_erf_unscaled_vjp,
    ),
    Mutant(
        op="gelu",
        name="quick-chain-missing",
        label="F",
        also=("T", "D"),
        killer="typical",
        dialects=("quick",),
        says="The inner slope lacks the factor 1.702.",
        vjp=gelu_quick_unchained_vjp,
    ),
    Mutant(
        op="gelu",
        name="quick-overflows",
        label="N",
        also=("O",),
        killer="far-tail",
        dialects=("quick",),
        dtype="float32",
        says="exp(-1.702 x) is squared, and overflows: inf/inf on the left.",
        vjp=gelu_quick_overflowing_vjp,
    ),
    Mutant(
        op="gelu",
        name="slope-of-relu",
        label="D",
        killer="typical",
        says="The slope is relu's.",
        vjp=gelu_passing_vjp,
    ),
    Mutant(
        op="gelu",
        name="at-the-output",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is taken at the saved output, not at the input.",
        vjp=mutate.primal(gelu_vjp, 0, gelu_forward),
    ),
    *in_the_loop("gelu", gelu_vjp, "remainder-dropped", "turned", "never-cleared"),
)

# ── silu ─────────────────────────────────────────────────────────────────────────────────────


def _silu_slope(slope: Callable[..., Any]) -> Vjp:
    """The cotangent times `slope(xp, x, sigma(x))`."""
    return lambda xp, ct, x: ct * slope(xp, x, xp.sigmoid(x))


def silu_overflowing_vjp(xp, ct, x):
    e = xp.exp(-x)
    return ct * ((1 + e + x * e) / ((1 + e) * (1 + e)))


def silu_output_over_input_vjp(xp, ct, x):
    y = silu_forward(xp, x)
    p = y / x
    return ct * (p + y * (1 - p))


SILU = (
    Mutant(
        op="silu",
        name="minus-seven",
        label="F",
        killer="typical",
        says="The gradient is multiplied by -7.",
        modelled_on=MINUS_SEVEN,
        vjp=mutate.scaled(silu_vjp, 0, -7.0),
    ),
    Mutant(
        op="silu",
        name="gate-only",
        label="T",
        also=("D",),
        killer="typical",
        says="The slope is sigma: the term x sigma' is missing.",
        vjp=_silu_slope(lambda xp, x, p: p),
    ),
    Mutant(
        op="silu",
        name="slope-of-gate-only",
        label="T",
        also=("D",),
        killer="typical",
        says="The slope is x sigma': the term sigma is missing.",
        vjp=_silu_slope(lambda xp, x, p: x * p * (1 - p)),
    ),
    Mutant(
        op="silu",
        name="x-missing",
        label="T",
        also=("F", "D"),
        killer="typical",
        says="The slope of the gate is added without its factor x.",
        vjp=_silu_slope(lambda xp, x, p: p * (2 - p)),
    ),
    Mutant(
        op="silu",
        name="sign-of-second-term",
        label="S",
        killer="typical",
        says="The term x sigma' is subtracted.",
        vjp=_silu_slope(lambda xp, x, p: p * (1 - x * (1 - p))),
    ),
    Mutant(
        op="silu",
        name="one-missing",
        label="D",
        killer="typical",
        says="1 - sigma is taken to be -sigma: sigma (1 - x sigma).",
        vjp=_silu_slope(lambda xp, x, p: p * (1 - x * p)),
    ),
    Mutant(
        op="silu",
        name="at-the-output",
        label="V",
        also=("D",),
        killer="typical",
        says="The slope is taken at the saved output, not at the input.",
        vjp=mutate.primal(silu_vjp, 0, silu_forward),
    ),
    Mutant(
        op="silu",
        name="slope-of-quick-gelu",
        label="D",
        killer="typical",
        says="The slope is that of x sigma(1.702 x).",
        vjp=lambda xp, ct, x: gelu_vjp(xp, ct, x, form="quick"),
    ),
    Mutant(
        op="silu",
        name="output-over-input",
        label="N",
        killer="zero",
        says="sigma is recovered as y/x: 0/0 at 0.",
        vjp=silu_output_over_input_vjp,
    ),
    Mutant(
        op="silu",
        name="exp-overflows",
        label="N",
        also=("O",),
        killer="tails",
        dtype="float32",
        says="exp(-x) is squared, and overflows: inf/inf on the left.",
        vjp=silu_overflowing_vjp,
    ),
    *in_the_loop("silu", silu_vjp, "first-matrix-only", "half-precision", "cotangent-overwritten"),
)

# ── silu_back ────────────────────────────────────────────────────────────────────────────────


def _second(dx: Callable[..., Any]) -> Vjp:
    """The right dg, and as dx the cotangent times `dx(xp, g, x, sigma(x))`."""

    def vjp(xp, ct, g, x):
        right, _ = silu_back_vjp(xp, ct, g, x)
        return right, ct * dx(xp, g, x, xp.sigmoid(x))

    return vjp


SILU_BACK = (
    Mutant(
        op="silu_back",
        name="dx-missing",
        label="G",
        also=("DD",),
        killer="typical",
        says="There is no gradient of x: double backward stops at the saved input.",
        vjp=mutate.output(silu_back_vjp, 1, mutate.nothing),
    ),
    Mutant(
        op="silu_back",
        name="dx-zero",
        label="G",
        also=("DD",),
        killer="typical",
        says="x is taken for a constant: its gradient is 0.",
        vjp=mutate.output(silu_back_vjp, 1, mutate.zeros),
    ),
    Mutant(
        op="silu_back",
        name="first-derivative-twice",
        label="D",
        also=("DD",),
        killer="typical",
        says="dx carries the first derivative where the second belongs.",
        vjp=_second(lambda xp, g, x, p: g * p * (1 + x * (1 - p))),
    ),
    Mutant(
        op="silu_back",
        name="sigma-slope-once",
        label="T",
        also=("D", "DD"),
        killer="typical",
        says="Of the two equal terms sigma' in the second derivative one is missing.",
        vjp=_second(lambda xp, g, x, p: g * p * (1 - p) * (1 + x * (1 - 2 * p))),
    ),
    Mutant(
        op="silu_back",
        name="sigma-constant",
        label="T",
        also=("D", "DD"),
        killer="typical",
        says="sigma is taken for a constant: its second derivative is missing.",
        vjp=_second(lambda xp, g, x, p: g * 2 * p * (1 - p)),
    ),
    Mutant(
        op="silu_back",
        name="sign-of-curvature",
        label="S",
        also=("DD",),
        killer="typical",
        says="1 - 2 sigma has the wrong sign.",
        vjp=_second(lambda xp, g, x, p: g * p * (1 - p) * (2 - x * (1 - 2 * p))),
    ),
    Mutant(
        op="silu_back",
        name="g-missing",
        label="F",
        also=("D", "DD"),
        killer="typical",
        says="dx lacks the factor g.",
        vjp=_second(lambda xp, g, x, p: p * (1 - p) * (2 + x * (1 - 2 * p))),
    ),
    Mutant(
        op="silu_back",
        name="g-for-ct",
        label="NL",
        also=("U", "DD"),
        killer="typical",
        says="dx is multiplied by g twice, and by the cotangent not at all.",
        vjp=mutate.output(silu_back_vjp, 1, lambda xp, dx, g, x: silu_back_vjp(xp, g, g, x)[1]),
    ),
    Mutant(
        op="silu_back",
        name="exchanged",
        label="G",
        also=("DD",),
        killer="typical",
        says="The two gradients are in each other's place.",
        vjp=mutate.swapped(silu_back_vjp, 0, 1),
    ),
    Mutant(
        op="silu_back",
        name="arguments-exchanged",
        label="G",
        also=("DD",),
        killer="typical",
        says="g is read as x, and x as g.",
        vjp=lambda xp, ct, g, x: silu_back_vjp(xp, ct, x, g)[::-1],
    ),
    Mutant(
        op="silu_back",
        name="divided",
        label="N",
        also=("DD",),
        killer="zeros",
        says="dg is recovered as the saved dx over g: 0/0 where g is 0.",
        vjp=mutate.output(silu_back_vjp, 0, lambda xp, dg, g, x: dg * g / g),
    ),
    *in_the_loop("silu_back", silu_back_vjp, "remainder-dropped", "turned"),
)

# ── gated units ──────────────────────────────────────────────────────────────────────────────


def _gated(op: str, vjp: Vjp, act: Vjp, act_vjp: Vjp) -> tuple[Mutant, ...]:
    """Mutants of act(gate) · up; `act` and `act_vjp` take the unit's attributes."""

    @functools.wraps(vjp)
    def without_up(xp: Any, ct: Any, gate: Any, up: Any, **attrs: Any) -> Any:
        return act_vjp(xp, ct, gate, **attrs), vjp(xp, ct, gate, up, **attrs)[1]

    @functools.wraps(vjp)
    def without_slope(xp: Any, ct: Any, gate: Any, up: Any, **attrs: Any) -> Any:
        return ct * up, vjp(xp, ct, gate, up, **attrs)[1]

    @functools.wraps(vjp)
    def slope_for_value(xp: Any, ct: Any, gate: Any, up: Any, **attrs: Any) -> Any:
        return vjp(xp, ct, gate, up, **attrs)[0], act_vjp(xp, ct, gate, **attrs)

    @functools.wraps(vjp)
    def before_gate(xp: Any, ct: Any, gate: Any, up: Any, **attrs: Any) -> Any:
        return vjp(xp, ct, gate, up, **attrs)[0], ct * gate

    @functools.wraps(vjp)
    def in_place(xp: Any, ct: Any, gate: Any, up: Any, **attrs: Any) -> Any:
        dgate, _ = vjp(xp, ct, gate, up, **attrs)
        return dgate, ct * act(xp, dgate, **attrs)

    @functools.wraps(vjp)
    def other_side(xp: Any, ct: Any, gate: Any, up: Any, **attrs: Any) -> Any:
        dup, dgate = vjp(xp, ct, up, gate, **attrs)
        return dgate, dup

    @functools.wraps(vjp)
    def divided(xp: Any, ct: Any, gate: Any, up: Any, **attrs: Any) -> Any:
        dgate, _ = vjp(xp, ct, gate, up, **attrs)
        return dgate, ct * (act(xp, gate, **attrs) * up) / up

    return (
        Mutant(
            op=op,
            name="exchanged",
            label="G",
            killer="typical",
            says="The two gradients are in each other's place.",
            vjp=mutate.swapped(vjp, 0, 1),
        ),
        Mutant(
            op=op,
            name="up-activated",
            label="G",
            killer="typical",
            says="The activation is taken to be on up, not on the gate.",
            vjp=other_side,
        ),
        Mutant(
            op=op,
            name="up-missing",
            label="F",
            also=("D",),
            killer="typical",
            says="dgate lacks the factor up.",
            vjp=without_up,
        ),
        Mutant(
            op=op,
            name="slope-missing",
            label="D",
            also=("F",),
            killer="typical",
            says="dgate lacks the activation's slope.",
            vjp=without_slope,
        ),
        Mutant(
            op=op,
            name="slope-for-value",
            label="D",
            killer="typical",
            says="dup carries the activation's slope, not its value.",
            vjp=slope_for_value,
        ),
        Mutant(
            op=op,
            name="gate-before-activation",
            label="V",
            also=("D",),
            killer="typical",
            says="dup reads the gate as saved before the activation.",
            vjp=before_gate,
        ),
        Mutant(
            op=op,
            name="in-place",
            label="X",
            also=("V",),
            killer="typical",
            says="dgate is written over the gate before dup reads it.",
            vjp=in_place,
        ),
        Mutant(
            op=op,
            name="output-over-up",
            label="N",
            killer="zeros",
            says="The activated gate is recovered as y/up: 0/0.",
            vjp=divided,
        ),
        Mutant(
            op=op,
            name="up-frozen",
            label="G",
            killer="typical",
            says="up gets no gradient.",
            vjp=mutate.output(vjp, 1, mutate.nothing),
        ),
        Mutant(
            op=op,
            name="dup-negated",
            label="S",
            killer="typical",
            says="dup has the wrong sign.",
            vjp=mutate.negated(vjp, 1),
        ),
        *in_the_loop(op, vjp, "remainder-dropped", "turned", "never-cleared"),
    )


GEGLU = (
    *_gated("geglu", geglu_vjp, gelu_forward, gelu_vjp),
    Mutant(
        op="geglu",
        name="always-exact",
        label="P",
        killer="typical",
        dialects=("gemma", "tanh"),
        says="The gate is the exact gelu whatever form was asked for.",
        vjp=mutate.attribute(geglu_vjp, form="erf"),
    ),
    Mutant(
        op="geglu",
        name="slope-of-silu",
        label="D",
        killer="typical",
        says="The gate's slope is silu's.",
        vjp=lambda xp, ct, gate, up, *, form="tanh", root="": (
            silu_vjp(xp, ct * up, gate),
            geglu_vjp(xp, ct, gate, up, form=form, root=root)[1],
        ),
    ),
)

SWIGLU = (
    *_gated("swiglu", swiglu_vjp, silu_forward, silu_vjp),
    Mutant(
        op="swiglu",
        name="gate-only",
        label="D",
        also=("T",),
        killer="typical",
        says="The slope of silu is taken to be sigma: the term gate sigma' is missing.",
        vjp=lambda xp, ct, gate, up: (ct * up * xp.sigmoid(gate), ct * silu_forward(xp, gate)),
    ),
    Mutant(
        op="swiglu",
        name="glu",
        label="D",
        also=("F",),
        killer="typical",
        says="dup is GLU's: sigma(gate) without the factor gate.",
        vjp=lambda xp, ct, gate, up: (swiglu_vjp(xp, ct, gate, up)[0], ct * xp.sigmoid(gate)),
    ),
)

# ── packed units ─────────────────────────────────────────────────────────────────────────────


def _order(count: int, interleaved: bool) -> Any:
    """Columns of [gate | up] in the order in which pairs (gate, up) would be read."""
    halves = np.arange(count).reshape(2, count // 2)
    return halves.T.reshape(-1) if interleaved else halves[::-1].reshape(-1)


def _packed(op: str, vjp: Vjp) -> tuple[Mutant, ...]:
    """Mutants of a unit whose halves lie in one row."""

    def n(x: Any) -> int:
        return int(x.shape[-1]) // 2

    @functools.wraps(vjp)
    def interleaved(xp: Any, ct: Any, x: Any, **attrs: Any) -> Any:
        # Element 2k is read as gate k, element 2k + 1 as up k; the gradient is stored so, too.
        pairs = xp.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)
        return xp.gather(vjp(xp, ct, pairs, **attrs), _order(x.shape[-1], interleaved=True))

    @functools.wraps(vjp)
    def up_first(xp: Any, ct: Any, x: Any, **attrs: Any) -> Any:
        order = _order(x.shape[-1], interleaved=False)
        return xp.gather(vjp(xp, ct, xp.gather(x, order), **attrs), order)

    @functools.wraps(vjp)
    def stored_up_first(xp: Any, ct: Any, x: Any, **attrs: Any) -> Any:
        return xp.gather(vjp(xp, ct, x, **attrs), _order(x.shape[-1], interleaved=False))

    @functools.wraps(vjp)
    def in_place(xp: Any, ct: Any, x: Any, **attrs: Any) -> Any:
        dgate = vjp(xp, ct, x, **attrs)[..., : n(x)]
        over = xp.concatenate([dgate, x[..., n(x) :]], axis=-1)
        return xp.concatenate([dgate, vjp(xp, ct, over, **attrs)[..., n(x) :]], axis=-1)

    @functools.wraps(vjp)
    def stride(xp: Any, ct: Any, x: Any, **attrs: Any) -> Any:
        # Row t of the input is looked for at t n, where the output has it, not at 2 t n.
        flat, rows = xp.reshape(x, (-1,)), max(x.size // max(x.shape[-1], 1), 1)
        start = np.arange(rows)[:, None] * n(x) + np.arange(x.shape[-1])
        return vjp(xp, ct, xp.reshape(flat[start[: x.size]], x.shape), **attrs) if x.size else x

    @functools.wraps(vjp)
    def halves_of_rows(xp: Any, ct: Any, x: Any, **attrs: Any) -> Any:
        square = x.ndim == 2 and x.shape[0] == x.shape[1]
        if not square:
            return vjp(xp, ct, x, **attrs)
        turned = vjp(xp, xp.reshape(ct, (n(x), -1)).T, x.T, **attrs)
        return xp.swapaxes(turned, 0, 1)

    return (
        Mutant(
            op=op,
            name="interleaved",
            label="L",
            killer="typical",
            says="Rows are read and written as pairs (gate, up), not as halves.",
            vjp=interleaved,
        ),
        Mutant(
            op=op,
            name="up-first",
            label="L",
            also=("G",),
            killer="typical",
            says="The first half is taken for up, the second for the gate.",
            vjp=up_first,
        ),
        Mutant(
            op=op,
            name="stored-up-first",
            label="G",
            also=("L", "I"),
            killer="typical",
            says="The halves of the gradient are in each other's place.",
            vjp=stored_up_first,
        ),
        Mutant(
            op=op,
            name="second-half-missing",
            label="A",
            also=("G",),
            killer="typical",
            says="The second half of the gradient is never written.",
            vjp=mutate.output(vjp, 0, mutate.cut(lambda columns: columns // 2)),
        ),
        Mutant(
            op=op,
            name="first-half-twice",
            label="I",
            also=("G",),
            killer="typical",
            says="The gate's gradient is written to both halves.",
            vjp=mutate.output(
                vjp,
                0,
                lambda xp, dx, x, **attrs: xp.concatenate([dx[..., : n(x)]] * 2, axis=-1),
            ),
        ),
        Mutant(
            op=op,
            name="stride-of-output",
            label="I",
            also=("L",),
            killer="batched",
            says="Rows of the input are looked for n apart, not 2n.",
            vjp=stride,
        ),
        Mutant(
            op=op,
            name="rows-halved",
            label="L",
            also=("W",),
            killer="square",
            says="A square input is halved by rows, not by columns.",
            vjp=halves_of_rows,
        ),
        Mutant(
            op=op,
            name="in-place",
            label="X",
            also=("V",),
            killer="typical",
            says="The gate's gradient is written over the gate before up's reads it.",
            vjp=in_place,
        ),
        Mutant(
            op=op,
            name="last-unit-dropped",
            label="I",
            killer="one-unit",
            says="The last unit of every row gets no gradient.",
            vjp=mutate.cotangent(vjp, mutate.cut(-1)),
        ),
        *in_the_loop(op, vjp, "half-precision", "cached-by-shape"),
    )


MUTANTS: tuple[Mutant, ...] = (
    *GELU,
    *SILU,
    *SILU_BACK,
    *GEGLU,
    *_packed("packed_geglu", packed_geglu_vjp),
    *SWIGLU,
    *_packed("packed_swiglu", packed_swiglu_vjp),
)
