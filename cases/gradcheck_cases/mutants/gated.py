"""Mutants of the operators in `gradcheck_cases.gated`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.numerics.draw import Draw
from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant, mutant_table
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

MUTANTS: tuple[Mutant, ...] = ()


# ── gelu ─────────────────────────────────────────────────────────────────────────────────────

TANH_FORMS = ("tanh", "gemma")


def _argument(xp: Any, x: Any, root: str = "") -> tuple[Any, Any, Any]:
    """The argument of the tanh form's tanh; √(2/π) or `root`; 0.044715."""
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


MUTANTS += mutant_table(
    "gelu",
    {
        ("cosh-form", "precision", ""): (
            "sech² is 1/cosh², whose square overflows in float32 for arguments above 44.",
            gelu_cosh_vjp,
            {
                "dialects": TANH_FORMS,
                "modelled_on": "llmgo geluBackward",
                "equivalent": (
                    "sech² = 1 - tanh², and where cosh² overflows 1/inf = 0 is what sech² rounds "
                    "to."
                ),
                "inputs": _elsewhere,
            },
        ),
        ("sech-by-exp", "precision non-finite", "tails"): (
            "sech² is 4 e^2a / (e^2a + 1)²: inf/inf for arguments above 44.",
            gelu_sech_by_exp_vjp,
            {"dialects": TANH_FORMS, "dtype": "float32"},
        ),
        ("sinh-over-cosh", "non-finite precision", "tails"): (
            "tanh is sinh/cosh: inf/inf for arguments above 88.",
            gelu_sinh_over_cosh_vjp,
            {"dialects": TANH_FORMS, "dtype": "float32"},
        ),
        ("three-missing", "scale term derivative", "typical"): (
            "The derivative of x³ is taken to be x².",
            _by_parts(
                lambda xp, x, t, s, k, cube: (1 + t) / 2 + x * s * k * (1 + cube * x * x) / 2
            ),
            {"dialects": TANH_FORMS},
        ),
        ("cubic-term-missing", "term derivative", "typical"): (
            "The inner slope is that of x alone, without the cube.",
            _by_parts(lambda xp, x, t, s, k, cube: (1 + t) / 2 + x * s * k / 2),
            {"dialects": TANH_FORMS},
        ),
        ("root-missing", "scale term derivative", "typical"): (
            "The inner slope lacks the factor sqrt(2/pi).",
            _by_parts(
                lambda xp, x, t, s, k, cube: (1 + t) / 2 + x * s * (1 + 3 * cube * x * x) / 2
            ),
            {"dialects": TANH_FORMS},
        ),
        ("sech-not-squared", "derivative", "typical"): (
            "The slope of tanh is taken to be 1 - t.",
            _by_parts(
                lambda xp, x, t, s, k, cube: (
                    (1 + t) / 2 + x * (1 - t) * k * (1 + 3 * cube * x * x) / 2
                )
            ),
            {"dialects": TANH_FORMS},
        ),
        ("share-only", "term derivative", "typical"): (
            "The slope is the share that passes: the term x p'(x) is missing.",
            gelu_cdf_vjp,
        ),
        ("share-negated", "sign", "typical"): (
            "The term x p'(x) is subtracted.",
            lambda xp, ct, x, *, form="tanh", root="": (
                2 * gelu_cdf_vjp(xp, ct, x, form=form, root=root)
                - gelu_vjp(xp, ct, x, form=form, root=root)
            ),
        ),
        ("always-tanh", "attribute", "typical"): (
            "The slope is the tanh form's whatever form was asked for.",
            mutate.attribute(gelu_vjp, form="tanh"),
            {"dialects": ("erf", "quick")},
        ),
        ("always-erf", "attribute", "typical"): (
            "The slope is the exact form's whatever form was asked for.",
            mutate.attribute(gelu_vjp, form="erf"),
            {"dialects": ("tanh", "gemma", "quick")},
        ),
        ("density-without-half", "derivative", "typical"): (
            "The density is exp(-x²), without 1/2 in the exponent.",
            gelu_density_vjp,
            {"dialects": ("erf",)},
        ),
        ("erf-without-root", "derivative", "typical"): (
            "erf is taken of x, not of x/sqrt(2).",
            gelu_erf_unscaled_vjp,
            {"dialects": ("erf",)},
        ),
        ("quick-chain-missing", "scale term derivative", "typical"): (
            "The inner slope lacks the factor 1.702.",
            gelu_quick_unchained_vjp,
            {"dialects": ("quick",)},
        ),
        ("quick-overflows", "non-finite precision", "far-tail"): (
            "exp(-1.702 x) is squared, and overflows: inf/inf on the left.",
            gelu_quick_overflowing_vjp,
            {"dialects": ("quick",), "dtype": "float32"},
        ),
        ("slope-of-relu", "derivative", "typical"): ("The slope is relu's.", gelu_passing_vjp),
        ("at-the-output", "saved-value derivative", "typical"): (
            "The slope is taken at the saved output, not at the input.",
            mutate.primal(gelu_vjp, 0, gelu_forward),
        ),
    },
)
MUTANTS += in_the_loop("gelu", gelu_vjp, "remainder-dropped", "turned", "never-cleared")

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


MUTANTS += mutant_table(
    "silu",
    {
        ("minus-seven", "scale", "typical"): (
            "The gradient is multiplied by -7.",
            mutate.scaled(silu_vjp, 0, -7.0),
            {"modelled_on": MINUS_SEVEN},
        ),
        ("gate-only", "term derivative", "typical"): (
            "The slope is sigma: the term x sigma' is missing.",
            _silu_slope(lambda xp, x, p: p),
        ),
        ("slope-of-gate-only", "term derivative", "typical"): (
            "The slope is x sigma': the term sigma is missing.",
            _silu_slope(lambda xp, x, p: x * p * (1 - p)),
        ),
        ("x-missing", "term scale derivative", "typical"): (
            "The slope of the gate is added without its factor x.",
            _silu_slope(lambda xp, x, p: p * (2 - p)),
        ),
        ("sign-of-second-term", "sign", "typical"): (
            "The term x sigma' is subtracted.",
            _silu_slope(lambda xp, x, p: p * (1 - x * (1 - p))),
        ),
        ("one-missing", "derivative", "typical"): (
            "1 - sigma is taken to be -sigma: sigma (1 - x sigma).",
            _silu_slope(lambda xp, x, p: p * (1 - x * p)),
        ),
        ("at-the-output", "saved-value derivative", "typical"): (
            "The slope is taken at the saved output, not at the input.",
            mutate.primal(silu_vjp, 0, silu_forward),
        ),
        ("slope-of-quick-gelu", "derivative", "typical"): (
            "The slope is that of x sigma(1.702 x).",
            lambda xp, ct, x: gelu_vjp(xp, ct, x, form="quick"),
        ),
        ("output-over-input", "non-finite", "zero"): (
            "sigma is recovered as y/x: 0/0 at 0.",
            silu_output_over_input_vjp,
        ),
        ("exp-overflows", "non-finite precision", "tails"): (
            "exp(-x) is squared, and overflows: inf/inf on the left.",
            silu_overflowing_vjp,
            {"dtype": "float32"},
        ),
    },
)
MUTANTS += in_the_loop(
    "silu", silu_vjp, "first-matrix-only", "half-precision", "cotangent-overwritten"
)

# ── silu_back ────────────────────────────────────────────────────────────────────────────────


def _second(dx: Callable[..., Any]) -> Vjp:
    """The right dg, and as dx the cotangent times `dx(xp, g, x, sigma(x))`."""

    def vjp(xp, ct, g, x):
        right, _ = silu_back_vjp(xp, ct, g, x)
        return right, ct * dx(xp, g, x, xp.sigmoid(x))

    return vjp


MUTANTS += mutant_table(
    "silu_back",
    {
        ("dx-missing", "slot double", "typical"): (
            "There is no gradient of x: double backward stops at the saved input.",
            mutate.output(silu_back_vjp, 1, mutate.nothing),
        ),
        ("dx-zero", "slot double", "typical"): (
            "x is taken for a constant: its gradient is 0.",
            mutate.output(silu_back_vjp, 1, mutate.zeros),
        ),
        ("first-derivative-twice", "derivative double", "typical"): (
            "dx carries the first derivative where the second belongs.",
            _second(lambda xp, g, x, p: g * p * (1 + x * (1 - p))),
        ),
        ("sigma-slope-once", "term derivative double", "typical"): (
            "Of the two equal terms sigma' in the second derivative one is missing.",
            _second(lambda xp, g, x, p: g * p * (1 - p) * (1 + x * (1 - 2 * p))),
        ),
        ("sigma-constant", "term derivative double", "typical"): (
            "sigma is taken for a constant: its second derivative is missing.",
            _second(lambda xp, g, x, p: g * 2 * p * (1 - p)),
        ),
        ("sign-of-curvature", "sign double", "typical"): (
            "1 - 2 sigma has the wrong sign.",
            _second(lambda xp, g, x, p: g * p * (1 - p) * (2 - x * (1 - 2 * p))),
        ),
        ("g-missing", "scale derivative double", "typical"): (
            "dx lacks the factor g.",
            _second(lambda xp, g, x, p: p * (1 - p) * (2 + x * (1 - 2 * p))),
        ),
        ("g-for-ct", "nonlinear cotangent double", "typical"): (
            "dx is multiplied by g twice, and by the cotangent not at all.",
            mutate.output(silu_back_vjp, 1, lambda xp, dx, g, x: silu_back_vjp(xp, g, g, x)[1]),
        ),
        ("exchanged", "slot double", "typical"): (
            "The two gradients are in each other's place.",
            mutate.swapped(silu_back_vjp, 0, 1),
        ),
        ("arguments-exchanged", "slot double", "typical"): (
            "g is read as x, and x as g.",
            lambda xp, ct, g, x: silu_back_vjp(xp, ct, x, g)[::-1],
        ),
        ("divided", "non-finite double", "zeros"): (
            "dg is recovered as the saved dx over g: 0/0 where g is 0.",
            mutate.output(silu_back_vjp, 0, lambda xp, dg, g, x: dg * g / g),
        ),
    },
)
MUTANTS += in_the_loop("silu_back", silu_back_vjp, "remainder-dropped", "turned")

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
        *mutant_table(
            op,
            {
                ("exchanged", "slot", "typical"): (
                    "The two gradients are in each other's place.",
                    mutate.swapped(vjp, 0, 1),
                ),
                ("up-activated", "slot", "typical"): (
                    "The activation is taken to be on up, not on the gate.",
                    other_side,
                ),
                ("up-missing", "scale derivative", "typical"): (
                    "dgate lacks the factor up.",
                    without_up,
                ),
                ("slope-missing", "derivative scale", "typical"): (
                    "dgate lacks the activation's slope.",
                    without_slope,
                ),
                ("slope-for-value", "derivative", "typical"): (
                    "dup carries the activation's slope, not its value.",
                    slope_for_value,
                ),
                ("gate-before-activation", "saved-value derivative", "typical"): (
                    "dup reads the gate as saved before the activation.",
                    before_gate,
                ),
                ("in-place", "aliasing saved-value", "typical"): (
                    "dgate is written over the gate before dup reads it.",
                    in_place,
                ),
                ("output-over-up", "non-finite", "zeros"): (
                    "The activated gate is recovered as y/up: 0/0.",
                    divided,
                ),
                ("up-frozen", "slot", "typical"): (
                    "up gets no gradient.",
                    mutate.output(vjp, 1, mutate.nothing),
                ),
                ("dup-negated", "sign", "typical"): (
                    "dup has the wrong sign.",
                    mutate.negated(vjp, 1),
                ),
            },
        ),
        *in_the_loop(op, vjp, "remainder-dropped", "turned", "never-cleared"),
    )


MUTANTS += _gated("geglu", geglu_vjp, gelu_forward, gelu_vjp)
MUTANTS += mutant_table(
    "geglu",
    {
        ("always-exact", "attribute", "typical"): (
            "The gate is the exact gelu whatever form was asked for.",
            mutate.attribute(geglu_vjp, form="erf"),
            {"dialects": ("gemma", "tanh")},
        ),
        ("slope-of-silu", "derivative", "typical"): (
            "The gate's slope is silu's.",
            lambda xp, ct, gate, up, *, form="tanh", root="": (
                silu_vjp(xp, ct * up, gate),
                geglu_vjp(xp, ct, gate, up, form=form, root=root)[1],
            ),
        ),
    },
)

# ── swiglu ───────────────────────────────────────────────────────────────────────────────────

MUTANTS += _gated("swiglu", swiglu_vjp, silu_forward, silu_vjp)
MUTANTS += mutant_table(
    "swiglu",
    {
        ("gate-only", "derivative term", "typical"): (
            "The slope of silu is taken to be sigma: the term gate sigma' is missing.",
            lambda xp, ct, gate, up: (ct * up * xp.sigmoid(gate), ct * silu_forward(xp, gate)),
        ),
        ("glu", "derivative scale", "typical"): (
            "dup is GLU's: sigma(gate) without the factor gate.",
            lambda xp, ct, gate, up: (swiglu_vjp(xp, ct, gate, up)[0], ct * xp.sigmoid(gate)),
        ),
    },
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
        *mutant_table(
            op,
            {
                ("interleaved", "layout", "typical"): (
                    "Rows are read and written as pairs (gate, up), not as halves.",
                    interleaved,
                ),
                ("up-first", "layout slot", "typical"): (
                    "The first half is taken for up, the second for the gate.",
                    up_first,
                ),
                ("stored-up-first", "slot layout index", "typical"): (
                    "The halves of the gradient are in each other's place.",
                    stored_up_first,
                ),
                ("second-half-missing", "accumulation slot", "typical"): (
                    "The second half of the gradient is never written.",
                    mutate.output(vjp, 0, mutate.cut(lambda columns: columns // 2)),
                ),
                ("first-half-twice", "index slot", "typical"): (
                    "The gate's gradient is written to both halves.",
                    mutate.output(
                        vjp,
                        0,
                        lambda xp, dx, x, **attrs: xp.concatenate([dx[..., : n(x)]] * 2, axis=-1),
                    ),
                ),
                ("stride-of-output", "index layout", "batched"): (
                    "Rows of the input are looked for n apart, not 2n.",
                    stride,
                ),
                ("rows-halved", "layout shape", "square"): (
                    "A square input is halved by rows, not by columns.",
                    halves_of_rows,
                ),
                ("in-place", "aliasing saved-value", "typical"): (
                    "The gate's gradient is written over the gate before up's reads it.",
                    in_place,
                ),
                ("last-unit-dropped", "index", "one-unit"): (
                    "The last unit of every row gets no gradient.",
                    mutate.cotangent(vjp, mutate.cut(-1)),
                ),
            },
        ),
        *in_the_loop(op, vjp, "half-precision", "cached-by-shape"),
    )


MUTANTS += _packed("packed_geglu", packed_geglu_vjp)

# ── packed_swiglu ────────────────────────────────────────────────────────────────────────────

MUTANTS += _packed("packed_swiglu", packed_swiglu_vjp)
