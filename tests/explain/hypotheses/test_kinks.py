"""Kinks: named where all that is wrong sits on one, and only then."""

import numpy as np
import pytest

from tests.explain.scenes import named, only, right

KINKS = only("kinks")


def at_zero(op, value, elsewhere=1.0):
    def vjp(ct, x, **attrs):
        return np.where(x == 0, value * ct, elsewhere * right(op, ct, x, **attrs)[0])

    return vjp


@pytest.mark.parametrize(
    ("op", "value"), [("relu", 2.0), ("relu", -1.0), ("abs", 3.0), ("leaky_relu", 1.5)]
)
def test_what_is_wrong_on_a_kink_alone_is_named_with_its_slope(op, value):
    found = named(op, at_zero(op, value), "x", KINKS, sample="kink")
    assert found.label == "K"
    assert found.says == "dx is wrong only where x is exactly on a kink or a tie"
    assert any(line.startswith(f"the slope is {value:g} there") for line in found.evidence)


def test_a_tie_of_a_maximum_is_a_kink():
    def whole_for_each(ct, x):
        return (x == x.max(axis=-1, keepdims=True)) * ct[..., None]

    found = named("max", whole_for_each, "x", KINKS, sample="ties")
    assert found.label == "K"


def test_what_is_wrong_where_two_arguments_are_equal_is_named():
    def vjp(ct, mask, x, y, **attrs):
        _, dx, dy = right("where", ct, mask, x, y, **attrs)
        return None, np.where(x == y, 3 * dx + 1, dx), dy

    found = named("where", vjp, "x", KINKS, sample="equal-branches")
    assert (found.label, found.says) == ("K", "dx is wrong only where x and y are equal")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_left_to_others(value):
    assert not named("relu", at_zero("relu", value), "x", KINKS, sample="kink").label


def test_what_is_wrong_elsewhere_too_is_no_kink():
    assert not named("relu", at_zero("relu", 2.0, 1.01), "x", KINKS, sample="kink").label


def test_a_gradient_that_did_not_come_is_no_kink():
    found = named("relu", lambda ct, x: np.zeros(()), "x", KINKS, sample="kink")
    assert not found.label
