"""Zeros that are skipped: one by one, or a tensor that is 0 as a whole."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

ZEROS = only("zeros")


def skipping(op, at):
    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        found[at] = np.where(primals[at] == 0, 0.0, found[at])
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


@pytest.mark.parametrize(("op", "sample"), [("prod", "zeros"), ("cumprod", "zeros")])
def test_elements_of_zero_that_get_nothing_are_named(op, sample):
    found = named(op, skipping(op, 0), "x", ZEROS, sample=sample)
    assert (found.label, found.says) == ("D", "dx is 0 where x is: zeros are skipped")


def test_a_tensor_of_zeros_that_gets_nothing_has_lost_its_gradient():
    def vjp(ct, x, a, b, **attrs):
        dx, da, db = right("low_rank_linear", ct, x, a, b, **attrs)
        return dx, da * a.any(), db

    found = named("low_rank_linear", vjp, "a", ZEROS, sample="zero-factor")
    assert (found.label, "all of a" in found.says) == ("G", True)


@pytest.mark.parametrize("change", [np.zeros_like, lambda g: 2 * g, lambda g: np.flip(g, -1)])
def test_what_is_wrong_elsewhere_too_is_left_to_others(change):
    found = named("prod", changed("prod", x=change), "x", ZEROS, sample="zeros")
    assert not found.label, found
