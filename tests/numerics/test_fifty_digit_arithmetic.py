"""Fifty digits, in a context of their own."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from gradcheck.numerics import fifty_digit_arithmetic
from gradcheck.numerics.arithmetic import DIGITS, Arithmetic
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import MIN_CONVERTED_TOGETHER, mp50

XP = mp50()


def test_fifty_digits_are_fifty():
    xp = mp50()
    digits = "2.7182818284590452353602874713526624977572470936999595749669676277"
    exact = xp.context.mpf(digits)
    assert abs(xp.exp(xp.asarray([1.0]))[0] / exact - 1) < xp.context.mpf(10) ** (1 - DIGITS)
    assert xp.context.dps == DIGITS == 50


def test_the_global_precision_matters_to_nobody():
    before = mpmath.mp.dps
    xp = mp50()
    try:
        mpmath.mp.dps = 5
        root = xp.sqrt(xp.asarray([2.0]))[0]
        assert float(abs(root * root - 2)) < 1e-48
        assert float(abs(xp.const("0.1") * 3 - xp.const("0.3"))) < 1e-48
        assert mpmath.mp.dps == 5
    finally:
        mpmath.mp.dps = before


def test_a_number_times_an_array_does_not_print_the_array_first():
    x = XP.asarray(np.arange(1.0, 4.0)) / 3
    tenth = XP.context.mpf("0.1")
    assert (tenth * x).tolist() == [tenth * v for v in x]
    with pytest.raises(TypeError, match="an array is not a number"):
        XP.context.convert(x)


SPECIAL = [XP.context.inf, -XP.context.inf, XP.context.nan]


def wide(*shape):
    """50-digit numbers of many magnitudes, zeros among them."""
    draw = Draw("exact", *shape)
    powers = np.exp2(draw.integers(-200, 200, *shape).astype(float))
    x = XP.asarray(draw.signed(*shape) * powers) / 3
    return np.asarray(x * XP.asarray(draw.signs(*shape) > 0), dtype=object)


def rational(number):
    sign, whole, exponent, _ = number._mpf_
    return (-1) ** sign * Fraction(whole) * Fraction(2) ** exponent


def near(got, want):
    """Whether a number of 50 digits is a rational to the last of them."""
    return abs(rational(got) - want) <= abs(want) * Fraction(1, 2**168)


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_sum_is_exact_and_rounded_once(axis, keepdims):
    x = wide(3, 4, 5)
    got = XP.sum(x, axis=axis, keepdims=keepdims)
    want = np.sum(np.frompyfunc(rational, 1, 1)(x), axis=axis, keepdims=keepdims)
    assert got.shape == np.shape(want)
    assert all(near(a, b) for a, b in zip(got.ravel(), np.ravel(want), strict=True))


def test_what_cancels_leaves_what_is_left():
    big, one = XP.const("1e40"), XP.const("1e-40")
    x = np.array([big[()], one[()], -big[()]], dtype=object)
    assert XP.sum(x)[()] == one
    assert np.sum(x) == 0  # what rounding after each term leaves of it


def test_a_matrix_product_is_exact_and_broadcasts():
    x, y = wide(2, 1, 3, 4), wide(5, 4, 2)
    got = XP.matmul(x, y)
    assert got.shape == (2, 5, 3, 2)
    over = np.frompyfunc(rational, 1, 1)
    want = np.matmul(over(x), over(y))
    assert all(near(a, b) for a, b in zip(got.ravel(), want.ravel(), strict=True))
    assert not near(got[0, 0, 0, 0], want[0, 0, 0, 1])


def test_an_inner_product_is_one_number():
    x, y = wide(3, 4), wide(4, 3).T
    pairs = zip(x.ravel(), y.ravel(), strict=True)
    assert near(XP.inner(x, y), sum(rational(a) * rational(b) for a, b in pairs))


def test_factors_that_do_not_fit_are_refused_as_ever():
    with pytest.raises(ValueError, match="mismatch"):
        XP.matmul(wide(2, 3), wide(2, 3))


# ── what does not fit ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [*SPECIAL, 1, None], ids=repr)
def test_what_has_no_exponent_is_refused(number):
    with pytest.raises(fifty_digit_arithmetic.NoCommonExponent):
        fifty_digit_arithmetic.aligned([XP.context.one, number])
    with pytest.raises(fifty_digit_arithmetic.NoCommonExponent):
        fifty_digit_arithmetic.rounded_floats([XP.context.one, number])


def test_exponents_that_are_far_apart_are_refused():
    near_one, tiny = XP.context.one, XP.context.mpf((1, -fifty_digit_arithmetic.SPAN - 1))
    fifty_digit_arithmetic.aligned([near_one, XP.context.mpf((1, -fifty_digit_arithmetic.SPAN))])
    with pytest.raises(fifty_digit_arithmetic.NoCommonExponent):
        fifty_digit_arithmetic.aligned([near_one, tiny])
    x = np.array([near_one, tiny], dtype=object)
    assert XP.sum(x)[()] == near_one  # by rounding, as mpmath does it


@pytest.mark.parametrize("special", SPECIAL, ids=repr)
def test_what_is_not_finite_stays_so(special):
    x = wide(3, 3)
    x[1, 1] = special
    for got, want in (
        (XP.sum(x, axis=1), np.sum(x, axis=1)),
        (XP.matmul(x, x), Arithmetic.matmul(XP, x, x)),
        (XP.asarray([XP.inner(x, x)]), XP.asarray([np.sum(x * x)])),
    ):
        assert list(map(str, got.ravel())) == list(map(str, want.ravel()))
    assert np.array_equal(XP.to_float64(x), x.astype(float), equal_nan=True)


# ── conversions ──────────────────────────────────────────────────────────────────────────────────


EDGES = [0.0, -0.0, 1.0, -2.5, 0.1, 5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, 3e-310]


def test_floats_enter_as_mpmath_takes_them():
    values = np.array(EDGES * 2)
    assert values.size >= MIN_CONVERTED_TOGETHER
    for got, value in zip(XP.asarray(values), values, strict=True):
        assert got._mpf_ == XP.context.mpf(float(value))._mpf_


def test_they_leave_as_mpmath_rounds_them():
    around = [XP.context.mpf(v) * (1 + XP.context.mpf(s)) for v in EDGES for s in (0, "1e-16")]
    ties = [XP.context.mpf((2**53 + k, e)) / 2 for k in range(5) for e in (-60, 0, 900)]
    numbers = [*around, *ties, *wide(50)]
    x = np.array(numbers, dtype=object)
    assert XP.to_float64(x).tolist() == [float(n) for n in numbers]
    assert math.isinf(XP.to_float64(np.array([XP.context.mpf("1e400")], dtype=object))[0])
