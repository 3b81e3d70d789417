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
    neg,
    pow_,
    scale,
    sgn,
    sqr,
    sqrt,
    step,
    sub,
)
from gradcheck_cases.gated import silu

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digits import mp50

CT = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])  # sums spell which elements they hold
ZEROS = np.array([0.0, -0.0])


def pair(*roles):
    """Two operands away from 0, and a cotangent."""
    draw = Draw("elementwise", *roles)
    return draw.signed(3, 5), draw.signed(3, 5), draw.normal(3, 5)


# ── sums and products ────────────────────────────────────────────────────────────────────────


def test_a_repeated_operand_gets_the_sum_over_its_repetitions():
    dx, dy = add.vjp(F64, CT, np.zeros((2, 3)), np.zeros(3))
    assert np.array_equal(dx, CT)
    assert dy.tolist() == [9, 18, 36]
    dx, dy = add.vjp(F64, CT, np.zeros((1, 3)), np.zeros((2, 1)))
    assert dx.tolist() == [[9, 18, 36]]
    assert dy.tolist() == [[7], [56]]
    dx, dy = sub.vjp(F64, CT, np.zeros(3), np.zeros((2, 3)))
    assert dx.tolist() == [9, 18, 36]
    assert np.array_equal(dy, -CT)


def test_a_repeated_factor_gets_the_sum_of_products_not_the_product_of_sums():
    x, y = np.array([[1.0, 0, 3], [2, 5, -1]]), np.array([1.0, 2, 4])
    dx, dy = mul.vjp(F64, CT, x, y)
    assert dx.tolist() == [[1, 4, 16], [8, 32, 128]]
    assert dy.tolist() == [17, 80, -20]
    dx, dy = div.vjp(F64, CT, x, y)
    assert dx.tolist() == [[1, 1, 1], [8, 8, 8]]
    assert dy.tolist() == [-17, -20, 1.25]


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


# ── a tensor and a scalar ────────────────────────────────────────────────────────────────────


def test_the_scalars_gradient_is_a_sum():
    x = np.array([[1.0, 0, -1], [0, 2, 1]])
    assert add1.vjp(F64, CT, x, np.array(3.0))[1] == 63
    dx, ds = scale.vjp(F64, CT, x, np.array(3.0))
    assert np.array_equal(dx, 3 * CT)
    assert ds == 1 - 4 + 32 + 32


# ── functions of one operand ─────────────────────────────────────────────────────────────────


def test_slopes_that_can_be_said_by_heart():
    x, ct = np.array([0.25, 1.0, 4.0]), np.array([1.0, -2.0, 8.0])
    assert neg.vjp(F64, ct, x).tolist() == [-1, 2, -8]
    assert sqr.vjp(F64, ct, x).tolist() == [0.5, -4, 64]
    assert sqrt.vjp(F64, ct, x).tolist() == [1, -1, 2]
    assert log.vjp(F64, ct, x).tolist() == [4, -2, 2]
    assert abs_.vjp(F64, ct, -x).tolist() == [-1, 2, -8]


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
