"""Masks: another one than forward's, inverted, recovered or drawn anew."""

import numpy as np
import pytest

from gradcheck.numerics.draw import Draw
from tests.explain.scenes import named, only, right

MASK = only("mask")


def under(read):
    def vjp(ct, x, mask, **attrs):
        return right("dropout", ct, x, read(x, mask).astype(mask.dtype), **attrs)[0], None

    return vjp


@pytest.mark.parametrize(
    ("read", "says", "sample"),
    [
        (lambda x, m: 1 - m, "dx takes what mask drops for what it keeps", ""),
        (lambda x, m: m * (x != 0), "dx takes zeros of x for dropped ones", "zeros"),
        (lambda x, m: Draw("again").integers(0, 2, *m.shape), "masked, but not as forward was", ""),
        (lambda x, m: np.roll(m, 1, -1), "masked, but not as forward was", ""),
        (
            lambda x, m: np.broadcast_to(m[(0,) * (m.ndim - 2)], m.shape),
            "dx uses mask of the first matrix for all",
            "cube",
        ),
    ],
)
def test_another_mask_is_named(read, says, sample):
    found = named("dropout", under(read), "x", MASK, sample=sample)
    assert found.label == "M"
    assert says in found.says


def test_no_mask_at_all_is_another_formula():
    found = named("dropout", under(lambda x, m: np.ones_like(m)), "x", MASK)
    assert (found.label, "drops nothing" in found.says) == ("D", True)


@pytest.mark.parametrize(
    "change",
    [
        lambda g, x: 2 * g,
        lambda g, x: g * (1 + x),
        lambda g, x: np.flip(g, -1),
        lambda g, x: np.sign(g),
    ],
)
def test_what_is_no_mask_is_left_to_others(change):
    def vjp(ct, x, mask, **attrs):
        return change(right("dropout", ct, x, mask, **attrs)[0], x), None

    assert not named("dropout", vjp, "x", MASK).label


def test_a_condition_that_chooses_is_no_random_mask():
    def vjp(ct, mask, x, y, **attrs):
        return right("where", ct, 1 - mask, x, y, **attrs)

    assert not named("where", vjp, "x", MASK).label
