"""Fifty digits, in a context of their own."""

import mpmath
import numpy as np
import pytest

from gradcheck.numerics.arithmetic import DIGITS
from gradcheck.numerics.fifty_digits import mp50

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
    with pytest.raises(TypeError, match="an array is no number"):
        XP.context.convert(x)
