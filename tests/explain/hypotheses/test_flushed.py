"""Flushed: zeros below a threshold are told with it, and a mask is none."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

FLUSHED = only("flushed")


def test_what_is_flushed_is_told_with_its_thresholds():
    def flush(g):
        return np.where(np.abs(g) < 1e-6, 0.0, g)

    found = named("exp", changed("exp", x=flush), "x", FLUSHED, sample="tail")
    assert (found.label, found.says) == ("O", "dx is flushed to 0 where it is tiny")
    assert any("the largest lost is" in line for line in found.evidence)


def test_a_slope_that_is_flushed_is_a_formula():
    def vjp(ct, x):
        slope = 1 - np.tanh(x) ** 2
        return np.where(slope < 1e-5, 0.0, ct * slope)

    found = named("tanh", vjp, "x", FLUSHED, sample="saturated")
    assert found.label in ("O", "D")
    assert "tiny" in found.says


def test_a_floor_is_told_with_its_number():
    def vjp(ct, x):
        return ct * np.maximum(1 - np.tanh(x) ** 2, 1e-6)

    found = named("tanh", vjp, "x", FLUSHED, sample="saturated")
    assert (found.label, found.says) == ("O", "dx is cut off 1e-06 of the cotangent before 0")


def test_what_overflows_on_the_way_is_0_where_an_argument_is_huge():
    def vjp(ct, x, y):
        with np.errstate(all="ignore"):
            dx, dy = right("div", ct, x, y)
            return dx, np.where(np.isinf(y * y), 0, dy).astype(dy.dtype)

    found = named("div", vjp, "y", FLUSHED, sample="huge", dtype="float32")
    assert found.label == "O"
    assert "an intermediate overflows" in found.says


def test_a_relu_that_ends_early_is_not_flushed():
    def vjp(ct, x):
        return np.where(x > 0.5, ct, 0.0)

    assert not named("relu", vjp, "x", FLUSHED).label


@pytest.mark.parametrize("change", [np.zeros_like, lambda g: 2 * g, np.sign, np.round])
def test_what_is_wrong_at_any_size_is_left_to_others(change):
    assert not named("tanh", changed("tanh", x=change), "x", FLUSHED).label
