import mpmath
import numpy as np
import pytest
from gradcheck_cases.activation import AVOIDED
from gradcheck_cases.gated import (
    ROOT,
    geglu,
    gelu,
    packed_geglu,
    packed_swiglu,
    silu,
    silu_back,
    swiglu,
)
from gradcheck_cases.mutants.gated import gelu_cosh_vjp

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50


def slope(spec, x, xp=F64, **attrs):
    """The derivative at the points `x`."""
    return spec.vjp(xp, xp.asarray(np.ones(np.shape(x))), xp.asarray(x), **attrs)


def exact_slope(spec, x, **attrs):
    """The same from 50 digits, rounded once."""
    xp = mp50()
    return xp.to_float64(slope(spec, x, xp, **attrs))


# ── values that are published ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("attrs", "value"),
    [
        ({"form": "erf"}, 0.8413447460685429),  # Φ(1)
        ({"form": "tanh"}, 0.8411919906082768),  # PyTorch, approximate="tanh"
        ({"form": "quick"}, 0.8457957659328212),  # σ(1.702)
    ],
)
def test_gelu_of_1_and_of_minus_1(attrs, value):
    got = gelu.forward(F64, np.array([1.0, -1.0]), **attrs)
    np.testing.assert_allclose(got, [value, value - 1], rtol=1e-14)


@pytest.mark.parametrize(
    ("form", "value"), [("erf", 1.0833154705876864), ("tanh", 1.0829640838457826)]
)
def test_the_slope_of_gelu_at_1(form, value):
    assert slope(gelu, [1.0], form=form) == pytest.approx(value, rel=1e-14)


def test_gemma_writes_the_root_of_two_over_pi_with_an_error_of_its_own():
    xp = mp50()
    error = float(xp.const(ROOT) - xp.sqrt_of(2 / xp.pi))
    assert 1.3e-12 < error < 1.4e-12
    ours, gemma = (exact_slope(gelu, [1.0], root=root) for root in ("", ROOT))
    assert 1e-13 < gemma - ours < 1e-11


def test_silu_has_its_minimum_where_it_equals_x_plus_1():
    x = np.array([-1.2784645427610738])
    np.testing.assert_allclose(silu.forward(F64, x), x + 1, rtol=1e-14)
    assert abs(slope(silu, x)) < 1e-15


# ── silu's backward ──────────────────────────────────────────────────────────────────────────


def test_the_curvature_of_silu_is_one_half_at_zero_and_turns_at_2_4():
    turn = 2.3993572805154676  # 2 = x tanh(x/2)
    ones = np.ones(4)
    _, dx = silu_back.vjp(F64, ones, ones, np.array([0.0, turn, -turn, 3.0]))
    assert dx[0] == 0.5
    np.testing.assert_allclose(dx[1:3], 0, atol=1e-15)
    assert dx[3] < 0


def test_the_double_backward_is_the_second_derivative_of_the_textbook():
    points = [-20.0, -3.0, -0.5, 0.25, 2.0, 5.0]
    with mpmath.workdps(100):
        wanted = [float(mpmath.diff(lambda x: x / (1 + mpmath.exp(-x)), x, 2)) for x in points]
    xp = mp50()
    one = xp.asarray(np.ones(6))
    _, dx = silu_back.vjp(xp, one, one, xp.asarray(points))
    np.testing.assert_allclose(xp.to_float64(dx), wanted, rtol=1e-14)


# ── tails ────────────────────────────────────────────────────────────────────────────────────


def sigma(x):
    return 1 / (1 + mpmath.exp(-x))


@pytest.mark.parametrize(("spec", "attrs"), [(silu, {}), (gelu, {"form": "quick"})])
def test_a_slope_made_of_sigma_keeps_its_digits_on_the_left(spec, attrs):
    x = [-64.0, -32.0, -16.0]
    want = exact_slope(spec, x, **attrs)
    np.testing.assert_allclose(slope(spec, x, **attrs), want, rtol=1e-13)


def test_the_cosh_form_of_gelu_overflows_and_is_right_all_the_same():
    x = F32.asarray(np.linspace(-40.0, 40.0, 401))
    with np.errstate(over="ignore"):
        got = gelu_cosh_vjp(F32, np.ones_like(x), x)
    with pytest.raises(FloatingPointError), np.errstate(over="raise"):
        gelu_cosh_vjp(F32, np.ones_like(x), x)
    np.testing.assert_allclose(got, slope(gelu, x, F32), atol=2e-6)


# ── gated units ──────────────────────────────────────────────────────────────────────────────

UNITS = pytest.mark.parametrize(
    ("gated", "packed", "activation"),
    [(geglu, packed_geglu, gelu), (swiglu, packed_swiglu, silu)],
    ids=["geglu", "swiglu"],
)


def drawn():
    draw = Draw("gated")
    return draw.away(AVOIDED, 3, 5), draw.signed(3, 5), draw.signed(3, 5)


@UNITS
def test_the_first_half_of_a_packed_input_is_the_gate(gated, packed, activation):
    gate, up, ct = drawn()
    x = np.concatenate([gate, up], axis=-1)
    np.testing.assert_array_equal(packed.forward(F64, x), gated.forward(F64, gate, up))
    np.testing.assert_allclose(gated.forward(F64, gate, up), activation.forward(F64, gate) * up)
    dgate, dup = gated.vjp(F64, ct, gate, up)
    np.testing.assert_allclose(dgate, activation.vjp(F64, ct * up, gate), rtol=1e-14)
    np.testing.assert_array_equal(packed.vjp(F64, ct, x), np.concatenate([dgate, dup], axis=-1))


def test_gemma_is_the_first_dialect_of_the_gated_gelus():
    for spec in (geglu, packed_geglu):
        assert spec.dialects[0].attrs == gelu.dialect("gemma").attrs
