import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.elementwise import (
    abs_,
    add,
    add1,
    div,
    log,
    map_binary,
    map_unary,
    mul,
    pow_,
    scale,
    sgn,
    sqrt,
    step,
    sub,
)
from gradcheck_cases.gated import silu

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50

ZEROS = np.array([0.0, -0.0])


def pair(*roles):
    """Two operands away from 0, and a cotangent."""
    draw = Draw("elementwise", *roles)
    return draw.signed(3, 5), draw.signed(3, 5), draw.normal(3, 5)


# ── sums and products ────────────────────────────────────────────────────────────────────────


def test_an_operand_that_is_repeated_no_times_gets_zeros():
    y = np.ones(5)
    for spec in (add, sub, mul, div):
        for xp in (F64, F32, mp50()):
            x, ct = xp.zeros((0, 5)), xp.zeros((0, 5))
            dx, dy = spec.vjp(xp, ct, x, xp.asarray(y))
            assert dx.shape == (0, 5)
            assert np.asarray(dy).tolist() == [0] * 5
    for spec in (add1, scale):
        assert spec.vjp(F64, np.zeros((0, 5)), np.zeros((0, 5)), np.array(2.0))[1] == 0


# ── functions of one operand ─────────────────────────────────────────────────────────────────


def test_a_slope_without_end_carries_the_cotangents_sign():
    ct = np.array([2.0, -3.0])
    with np.errstate(divide="ignore"):
        assert log.forward(F64, np.zeros(2)).tolist() == [-np.inf, -np.inf]
        for spec in (sqrt, log):
            assert spec.vjp(F64, ct, np.zeros(2)).tolist() == [np.inf, -np.inf]


def test_a_zero_of_either_sign_has_no_sign():
    for xp in (F64, F32, mp50()):
        zeros, ct = xp.asarray(ZEROS), xp.asarray([1.0, 1.0])
        for spec in (abs_, sgn, step):
            assert np.asarray(spec.forward(xp, zeros)).tolist() == [0, 0]
            assert np.asarray(spec.vjp(xp, ct, zeros)).tolist() == [0, 0]


def test_a_step_takes_at_zero_the_value_of_its_dialect():
    values = {
        d.name: step.forward(F32, ZEROS.astype(np.float32), **d.attrs).tolist()
        for d in step.dialects
    }
    assert values == {"ggml": [0, 0], "half": [0.5, 0.5], "closed": [1, 1]}


# ── powers ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("exponent", "values", "slopes"),
    [
        (0.0, [1, 1, 1], [0, 0, 0]),
        (1.0, [-2, 0, 3], [1, 1, 1]),
        (2.0, [4, 0, 9], [-4, 0, 6]),
        (3.0, [-8, 0, 27], [12, 0, 27]),
    ],
)
def test_integer_powers_of_negative_numbers_and_of_zero(exponent, values, slopes):
    x = np.array([-2.0, 0.0, 3.0])
    assert pow_.forward(F64, x, exponent=exponent).tolist() == values
    assert pow_.vjp(F64, np.ones(3), x, exponent=exponent).tolist() == slopes


def test_a_negative_exponent_divides():
    x = np.array([-2.0, 0.5])
    assert pow_.forward(F64, x, exponent=-2.0).tolist() == [0.25, 4]
    assert pow_.vjp(F64, np.ones(2), x, exponent=-2.0).tolist() == [0.25, -16]


def test_a_base_of_zero_has_no_slope_along_a_positive_exponent():
    dx, dy = pow_.vjp(F64, np.ones(2), np.zeros(2), np.array([2.0, 3.0]))
    assert dx.tolist() == [0, 0]
    assert dy.tolist() == [0, 0]


def test_samples_of_the_real_dialect_keep_to_bases_that_have_powers():
    for case in SUITE.cases(["pow"], ["real"]):
        x, y = np.broadcast_arrays(*case.primals)
        assert np.all(x >= 0), case.name
        assert np.all(y[x == 0] > 1), case.name


# ── functions of the user's own ──────────────────────────────────────────────────────────────


def test_the_mapped_functions_are_the_ones_named():
    x, y, ct = pair("map")
    assert np.array_equal(map_unary.forward(F64, x, function="sine"), np.sin(x))
    np.testing.assert_allclose(
        map_unary.vjp(F64, ct, x, function="swish"), silu.vjp(F64, ct, x), rtol=1e-12
    )
    np.testing.assert_allclose(map_binary.forward(F64, x, y), np.hypot(x, y), rtol=1e-15)
    dx, dy = map_binary.vjp(F64, ct, x, y)
    np.testing.assert_allclose(dx**2 + dy**2, ct**2, rtol=1e-14)
