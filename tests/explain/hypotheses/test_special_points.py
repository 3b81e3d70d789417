"""Kinks, ties, repeated indices, masks, NaN: named where all that is wrong sits there."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.special_points import between
from gradcheck.numerics.draw import Draw
from tests.explain.scenes import right, spoiled, table

KINK = {"sample": "kink"}
ON_A_KINK = "dx is wrong only where x is exactly on a kink or a tie"


def at_zero(op, value, elsewhere=1.0):
    return spoiled(op, "x", lambda g, ct, p, a: np.where(p["x"] == 0, value * ct, elsewhere * g))


def on_a_kink(op, value):
    where = {**KINK, "evidence": f"the slope is {value:g} there"}
    return "kinks", op, "x", at_zero(op, value), "K", ON_A_KINK, where


def whole_for_each(ct, x):
    return (x == x.max(axis=-1, keepdims=True)) * ct[..., None]


def equal_branches(g, ct, p, a):
    return np.where(p["x"] == p["y"], 3 * g + 1, g)


test_what_is_wrong_on_a_kink_alone_is_named = table(
    [
        on_a_kink("relu", 2.0),
        on_a_kink("relu", -1.0),
        on_a_kink("abs", 3.0),
        on_a_kink("leaky_relu", 1.5),
        ("kinks", "max", "x", whole_for_each, "K", "", {"sample": "ties"}),
        ("kinks", "where", "x", spoiled("where", "x", equal_branches), "K",
         "dx is wrong only where x and y are equal", {"sample": "equal-branches"}),
        ("kinks", "relu", "x", at_zero("relu", np.nan), "", "", KINK),
        ("kinks", "relu", "x", at_zero("relu", np.inf), "", "", KINK),
        ("kinks", "relu", "x", at_zero("relu", 2.0, 1.01), "", "", KINK),
        ("kinks", "relu", "x", lambda ct, x: np.zeros(()), "", "", KINK),  # it did not come
    ]
)  # fmt: skip


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


def wrong_where_all_rows_are_used_again(ct, x, rows):
    g, _ = looked_up(lambda parts: parts.sum(axis=0))(ct, x, rows)
    _, counts = np.unique(rows, return_counts=True)
    return (3 * g if counts.min() > 1 else g), None


test_what_is_wrong_at_repeated_indices_alone_is_named = table(
    [
        ("duplicates", "get_rows", "x", looked_up(lambda parts: np.prod(parts, axis=0)), "DI",
         "dx is wrong only where rows holds a value more than once"),
        ("duplicates", "get_rows", "x", looked_up(lambda parts: 2 * parts.sum(axis=0)), "", ""),
        # where every index is repeated nothing can be told
        ("duplicates", "get_rows", "x", wrong_where_all_rows_are_used_again, "", "",
         {"sample": "all-same"}),
    ]
)  # fmt: skip


def under(read):
    def vjp(ct, x, mask, **attrs):
        return right("dropout", ct, x, read(x, mask).astype(mask.dtype), **attrs)[0], None

    return vjp


def first_matrix(x, m):
    return np.broadcast_to(m[(0,) * (m.ndim - 2)], m.shape)


def inverted_condition(ct, mask, x, y, **attrs):
    return right("where", ct, 1 - mask, x, y, **attrs)


OTHERWISE = "masked, but not as forward was"
test_another_mask_is_named = table(
    [
        ("mask", "dropout", "x", under(lambda x, m: 1 - m), "M",
         "dx takes what mask drops for what it keeps"),
        ("mask", "dropout", "x", under(lambda x, m: m * (x != 0)), "M",
         "dx takes zeros of x for dropped ones", {"sample": "zeros"}),
        ("mask", "dropout", "x", under(lambda x, m: Draw("again").integers(0, 2, *m.shape)), "M",
         OTHERWISE),
        ("mask", "dropout", "x", under(lambda x, m: np.roll(m, 1, -1)), "M", OTHERWISE),
        ("mask", "dropout", "x", under(first_matrix), "M",
         "dx uses mask of the first matrix for all", {"sample": "cube"}),
        ("mask", "dropout", "x", under(lambda x, m: np.ones_like(m)), "D", "drops nothing"),
        ("mask", "where", "x", inverted_condition, "", ""),  # it chooses, and is not random
    ],
    keep=3,
)  # fmt: skip


def nan_where(op, output, condition, says, value=np.nan, sample=""):
    vjp = spoiled(op, output, lambda g, ct, p, a: np.where(condition(p), value, g))
    return "nonfinite", op, output, vjp, "N", says, {"sample": sample}


def row_with_a_large_value(p):
    return (p["x"].max(-1, keepdims=True) > 1.5) & (p["x"] == p["x"])


def for_one_attribute(g, ct, p, a):
    return np.full_like(g, np.nan) if a["p"] == 0.5 else g


test_what_is_special_where_it_is_not_finite_is_named = table(
    [
        nan_where("relu", "x", lambda p: p["x"] == 0, "dx is NaN where x is 0, right elsewhere",
                  sample="kink"),
        nan_where("tanh", "x", lambda p: p["x"] < 0, "dx is NaN where x < 0, right elsewhere"),
        nan_where("tanh", "x", lambda p: p["x"] > 0, "dx is infinite where x > 0, right elsewhere",
                  np.inf),
        nan_where("mul", "y", lambda p: p["x"] - p["y"] > 0, "dy is NaN where x - y > 0"),
        nan_where("sigmoid", "x", lambda p: p["x"] > 5, "dx is NaN where x > ", sample="saturated"),
        nan_where("softmax", "x", row_with_a_large_value, "dx is NaN in "),
        nan_where("tanh", "x", lambda p: p["x"] == p["x"], "dx is NaN in every element"),
        ("nonfinite", "dropout", "x", spoiled("dropout", "x", for_one_attribute), "N",
         "dx is NaN for p = 0.5, right elsewhere"),
    ],
    keep=4,
)  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "dtype", "value", "why"),
    [
        (50.0, 800.0, "float64", 709.7827, ", where exp overflows"),
        (50.0, 600.0, "float64", 354.89135, ", where its exp squared overflows"),
        (50.0, 100.0, "float32", 88.7228, ", where exp overflows"),
        (1.0, 100.0, "float64", 50.0, ""),
        (12.1, 12.5, "float64", 12.3, ""),
        (12.0, 12.0 + 2**-40, "float64", None, ""),
    ],
)
def test_a_threshold_lies_between(low, high, dtype, value, why):
    c, told = between(low, high, dtype)
    assert low <= c < high
    assert value is None or c == pytest.approx(value)
    assert told == why
