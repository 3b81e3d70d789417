"""Kinks: named where all that is wrong sits on one, and only then."""

import numpy as np
import pytest

from gradcheck.numerics.draw import Draw
from tests.explain.scenes import changed, named, only, right

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


DUPLICATES = only("duplicates")


def looked_up(add):
    """The gradient of a table whose row gets `add(rows of the cotangent that point at it)`."""

    def vjp(ct, x, rows):
        g = np.zeros_like(x)
        flat = rows.reshape(-1)
        parts = ct.reshape(-1, ct.shape[-1])
        for row in np.unique(flat):
            g[row] = add(parts[flat == row])
        return g, None

    return vjp


def test_a_row_that_is_wrong_only_if_looked_up_twice():
    found = named("get_rows", looked_up(lambda parts: np.prod(parts, axis=0)), "x", DUPLICATES)
    assert found.label == "DI", found
    assert found.says == "dx is wrong only where rows holds a value more than once"


def test_a_row_that_is_always_wrong_is_left_to_others():
    found = named("get_rows", looked_up(lambda parts: 2 * parts.sum(axis=0)), "x", DUPLICATES)
    assert not found.label, found


def test_without_an_index_there_are_no_duplicates():
    found = named("softmax", changed("softmax", x=lambda g: 2 * g), "x", DUPLICATES)
    assert not found.label, found


def test_where_every_index_is_repeated_nothing_can_be_told():
    def vjp(ct, x, rows):  # right unless all rows that are used are used again
        g, _ = looked_up(lambda parts: parts.sum(axis=0))(ct, x, rows)
        _, counts = np.unique(rows, return_counts=True)
        return (3 * g if counts.min() > 1 else g), None

    found = named("get_rows", vjp, "x", DUPLICATES, sample="all-same")
    assert not found.label, found


MASK = only("mask")


def under(read):
    def vjp(ct, x, mask, **attrs):
        return right("dropout", ct, x, read(x, mask).astype(mask.dtype), **attrs)[0], None

    return vjp


@pytest.mark.slow(keep=1)
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


@pytest.mark.slow(keep=1)
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
