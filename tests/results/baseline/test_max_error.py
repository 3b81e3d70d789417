import math

import pytest

from gradcheck.results.baseline.match import allowance, largest, measured, within


def test_only_a_failure_with_numbers_has_an_error(make):
    assert measured(make.result(verdict="fail", error=0.25)) == pytest.approx(0.25)
    assert measured(make.result(verdict="fail", error=math.nan)) == math.inf
    assert measured(make.result(verdict="fail", error=math.inf)) == math.inf
    assert measured(make.result(verdict="pass", error=0.25)) is None
    assert measured(make.result(verdict="crash")) is None
    assert measured(make.result(verdict="fail", worst=())) is None


def test_the_largest_of_several(make):
    errors = (0.25, 0.5, 0.125)
    assert largest(make.result(verdict="fail", error=e) for e in errors) == pytest.approx(0.5)
    assert largest([make.result(), make.result(verdict="crash")]) is None
    assert largest(make.result(verdict="fail", error=e) for e in (0.1, math.nan)) == math.inf


@pytest.mark.parametrize(
    ("error", "most"),
    [(0.04, 0.06), (0.0267, 0.041), (0.32, 0.48), (1.9994, 3.0), (2.0, 3.0), (6.63e-5, 1.0e-4),
     (1e-12, 1.5e-12), (1e-300, 1.5e-300), (0.0667, 0.11), (66.6, 100.0)],
)  # fmt: skip
def test_an_allowance_is_half_as_much_again_rounded_up_to_two_digits(error, most):
    assert allowance(error) == most
    assert error * 1.5 <= most <= error * 1.5 * 1.1


def test_worse_is_not_within_and_no_number_is_never():
    assert within(0.04, 0.04)
    assert not within(0.0401, 0.04)
    assert not within(math.inf, 0.04)
    assert not within(math.nan, 0.04)
    assert within(math.inf, None)
    assert within(None, 0.04)
