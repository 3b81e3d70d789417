import mpmath
import numpy as np
import pytest
from gradcheck_cases.activation import (
    AVOIDED,
    clamp,
    elu,
    leaky_relu,
    relu,
    sigmoid,
    softcap,
    tanh,
)
from gradcheck_cases.gated import ROOT, geglu, gelu, packed_geglu, packed_swiglu, silu, swiglu

from gradcheck.arithmetic import F32, F64, mp50
from gradcheck.draw import Draw


def slope(spec, x, **attrs):
    """The derivative at the points `x`."""
    return spec.vjp(F64, np.ones(np.shape(x)), np.asarray(x), **attrs)


def exact_slope(spec, x, **attrs):
    """The same from 50 digits, rounded once."""
    xp = mp50()
    ct = xp.asarray(np.ones(np.shape(x)))
    return xp.to_float64(spec.vjp(xp, ct, xp.asarray(x), **attrs))


# ── what happens on a kink ───────────────────────────────────────────────────────────────────


def test_relu_is_flat_at_both_zeros():
    assert slope(relu, [-1.0, -0.0, 0.0, 1.0]).tolist() == [0, 0, 0, 1]


def test_leaky_relu_takes_the_negative_slope_at_zero():
    assert slope(leaky_relu, [-2.0, 0.0, 2.0], negative_slope=0.25).tolist() == [0.25, 0.25, 1]


def test_the_seed_formula_for_leaky_relu_is_not_acceptable_at_zero():
    def step(x):
        return (x > 0) * 1.0

    x, s = np.array([-2.0, 0.0, 2.0]), 0.01
    formula = s * step(-x) + step(x)
    low, high = leaky_relu.kinks[0].slopes({"negative_slope": s})
    assert formula[[0, 2]].tolist() == slope(leaky_relu, x)[[0, 2]].tolist()
    assert not low <= formula[1] <= high


@pytest.mark.parametrize(
    ("spec", "attrs", "interval"),
    [
        (leaky_relu, {"negative_slope": 1.5}, (1.0, 1.5)),
        (leaky_relu, {"negative_slope": -0.2}, (-0.2, 1.0)),
        (elu, {"alpha": 2.0}, (1.0, 2.0)),
        (elu, {"alpha": 1.0}, (1.0, 1.0)),
        (elu, {"alpha": 0.5}, (0.5, 1.0)),
    ],
)
def test_slopes_allowed_at_zero_lie_between_the_one_sided_ones(spec, attrs, interval):
    assert spec.kinks[0].slopes(attrs) == interval
    tiny = 2.0**-40
    sides = slope(spec, [-tiny, tiny], **attrs)
    np.testing.assert_allclose(sorted(sides), interval, rtol=1e-11)


def test_elu_is_alpha_exp_below_zero_and_1_above():
    x = np.array([-3.0, -0.5, 0.0, 0.5, 3.0])
    got = slope(elu, x, alpha=0.5)
    np.testing.assert_allclose(got[:3], 0.5 * np.exp(x[:3]), rtol=1e-15)
    assert got[3:].tolist() == [1, 1]


def test_clamp_passes_the_cotangent_on_both_bounds():
    got = slope(clamp, [-2.0, -0.5, 0.0, 2.0, 3.0], min=-0.5, max=2.0)
    assert got.tolist() == [0, 1, 1, 1, 0]


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


@pytest.mark.parametrize("attrs", [d.attrs for d in gelu.dialects])
def test_half_of_the_cotangent_passes_gelu_at_zero(attrs):
    assert slope(gelu, [0.0], **attrs) == pytest.approx(0.5, abs=1e-16)


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


@pytest.mark.parametrize("cap", [0.5, 30.0])
def test_softcap_is_the_identity_near_zero_and_keeps_its_slope_in_terms_of_y(cap):
    assert slope(softcap, [0.0], cap=cap) == 1
    x = np.array([-1.5, 0.25, 2.0]) * cap
    y = softcap.forward(F64, x, cap=cap)
    np.testing.assert_allclose(slope(softcap, x, cap=cap), 1 - (y / cap) ** 2, rtol=1e-13)


# ── tails ────────────────────────────────────────────────────────────────────────────────────


def sigma(x):
    return 1 / (1 + mpmath.exp(-x))


def tanh_form(x):
    root = mpmath.sqrt(2 / mpmath.pi)
    return x * (1 + mpmath.tanh(root * (x + mpmath.mpf("0.044715") * x**3))) / 2


@pytest.mark.parametrize(
    ("spec", "attrs", "textbook", "x"),
    [
        (tanh, {}, mpmath.tanh, -16.0),
        (sigmoid, {}, sigma, -32.0),
        (softcap, {"cap": 2.0}, lambda x: 2 * mpmath.tanh(x / 2), 32.0),
        (gelu, {"form": "tanh"}, tanh_form, -6.0),
        (gelu, {"form": "erf"}, lambda x: x * mpmath.ncdf(x), -7.5),
        (gelu, {"form": "quick"}, lambda x: x * sigma(mpmath.mpf("1.702") * x), -32.0),
        (silu, {}, lambda x: x * sigma(x), -32.0),
    ],
)
def test_the_oracle_knows_the_textbook_slope_far_into_the_tail(spec, attrs, textbook, x):
    with mpmath.workdps(400):
        want = float(mpmath.diff(textbook, x))
    assert 0 < abs(want) < 1e-8
    np.testing.assert_allclose(exact_slope(spec, [x], **attrs), want, rtol=1e-15)


@pytest.mark.parametrize(("spec", "attrs"), [(sigmoid, {}), (silu, {}), (gelu, {"form": "quick"})])
def test_a_slope_made_of_sigma_keeps_its_digits_on_the_left(spec, attrs):
    x = [-64.0, -32.0, -16.0]
    want = exact_slope(spec, x, **attrs)
    np.testing.assert_allclose(slope(spec, x, **attrs), want, rtol=1e-13)


@pytest.mark.parametrize("spec", [elu, tanh, sigmoid, gelu, silu, softcap])
@pytest.mark.parametrize("xp", [F32, F64], ids=lambda xp: xp.name)
def test_nothing_overflows_far_out(spec, xp):
    x = xp.asarray([-800.0, -104.0, 104.0, 800.0])
    with np.errstate(over="raise", invalid="raise"):
        y, dx = spec.forward(xp, x), spec.vjp(xp, xp.asarray(np.ones(4)), x)
    assert np.isfinite(y).all()
    assert np.isfinite(dx).all()


# ── gated units ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("gated", "packed", "activation"),
    [(geglu, packed_geglu, gelu), (swiglu, packed_swiglu, silu)],
    ids=["geglu", "swiglu"],
)
def test_the_first_half_of_a_packed_input_is_the_gate(gated, packed, activation):
    draw = Draw("gated")
    gate, up, ct = draw.away(AVOIDED, 3, 5), draw.signed(3, 5), draw.signed(3, 5)
    x = np.concatenate([gate, up], axis=-1)
    np.testing.assert_array_equal(packed.forward(F64, x), gated.forward(F64, gate, up))
    np.testing.assert_allclose(gated.forward(F64, gate, up), activation.forward(F64, gate) * up)
    dgate, dup = gated.vjp(F64, ct, gate, up)
    np.testing.assert_allclose(dgate, activation.vjp(F64, ct * up, gate), rtol=1e-14)
    np.testing.assert_array_equal(packed.vjp(F64, ct, x), np.concatenate([dgate, dup], axis=-1))


def test_gemma_is_the_first_dialect_of_the_gated_gelus():
    for spec in (geglu, packed_geglu):
        assert spec.dialects[0].attrs == gelu.dialect("gemma").attrs
