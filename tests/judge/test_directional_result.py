"""One direction's word, and what several directions have in common."""

import numpy as np
import pytest

from gradcheck.judge.directional_result import DirectionalResult, common_factor
from gradcheck.numerics.adaptive_slope import Sides, Slope
from gradcheck.numerics.ray import Heading


def strike(error=0.0, bar=1e-9, product=1.0, **changes):
    slope = Slope(value=error, bar=bar, noise=0.0, level=4)
    options = {"norm": 1.0, "allowed": 1e-10, "noise": 1e-16} | changes
    return DirectionalResult(Heading(0), product, slope=slope, **options)


@pytest.mark.parametrize(
    ("error", "bar", "ok", "wrong"),
    [
        (np.nan, 1e-9, False, False),
        (np.nan, np.inf, False, False),
        (1.0, np.inf, True, False),
        (3e-9, 1e-9, False, True),
        (-3e-9, 1e-9, False, True),
        (2.05e-9, 1e-9, True, False),
    ],
)
def test_what_fails_is_neither_nan_nor_unknown(error, bar, ok, wrong):
    assert (strike(error, bar).ok, strike(error, bar).wrong) == (ok, wrong)


@pytest.mark.parametrize(
    ("sides", "error", "ok", "wrong"),
    [
        ((-1.0, 1.0), 0.0, True, False),
        ((0.5, 1.0), 0.5, False, False),
        ((-3.0, -1.0), -1.0, False, False),
        ((50.0, 51.0), 50.0, False, True),
    ],
)
def test_on_a_kink_the_nearest_slope_counts(sides, error, ok, wrong):
    found = strike(7.0, sides=Sides(*sides, bar=1e-9))
    assert (found.error, found.ok, found.wrong) == (error, ok, wrong)
    assert found.visible >= sides[1] - sides[0]


def test_zero_is_measured_by_the_noise_of_the_loss():
    assert strike(norm=1e-15).zero
    assert not strike(norm=1e-14).zero
    assert strike(norm=0.0, noise=0.0).zero


@pytest.mark.parametrize("factor", [2.0, 0.5, -1.0, 1 + 1e-6])
def test_a_common_factor(factor):
    strikes = [strike(a / factor - a, product=a) for a in (0.3, -2.0)]
    assert common_factor(strikes) == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize(
    "strikes",
    [
        [strike(0.1, product=1.0), strike(0.1, product=2.0)],
        [strike(1e-9, product=1.0), strike(1e-9, product=1.0)],
        [strike(1.0, product=0.0), strike(2.0, product=0.0)],
        [strike(-1.0, product=1.0), strike(-1.0, product=1.0)],
    ],
)
def test_no_common_factor(strikes):
    assert common_factor(strikes) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_error_of_exactly_what_is_tolerated_is_none(sign):
    """Twice the error bar, and what the implementation may round."""
    more = np.nextafter(2.5, 3.0)
    at, beyond = (strike(sign * error, 1.0, allowed=0.5) for error in (2.5, more))
    assert (at.tolerance, at.ok, at.wrong, at.visible) == (2.5, True, False, 5.0)
    assert (beyond.ok, beyond.wrong) == (False, True)
