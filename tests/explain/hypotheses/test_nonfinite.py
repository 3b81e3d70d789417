"""NaN and infinities: where they are, and silent where other elements are wrong, too."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.special_points import between
from tests.explain.scenes import named, only, spoiled

NONFINITE = only("nonfinite")


def where(condition, value=np.nan):
    return lambda g, ct, p, a: np.where(condition(p, ct), value, g)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "sample", "change", "says"),
    [
        ("relu", "x", "kink", where(lambda p, ct: p["x"] == 0), "dx is NaN where x is 0"),
        ("tanh", "x", "", where(lambda p, ct: p["x"] < 0), "dx is NaN where x < 0"),
        ("tanh", "x", "", where(lambda p, ct: p["x"] > 0, np.inf), "dx is infinite where x > 0"),
        ("mul", "y", "", where(lambda p, ct: p["x"] - p["y"] > 0), "dy is NaN where x - y > 0"),
        (
            "sigmoid",
            "x",
            "saturated",
            where(lambda p, ct: p["x"] > 5),
            "dx is NaN where x > ",
        ),
        (
            "softmax",
            "x",
            "",
            where(lambda p, ct: (p["x"].max(-1, keepdims=True) > 1.5) & (p["x"] == p["x"])),
            "dx is NaN in ",
        ),
    ],
)
def test_what_is_special_there(op, output, sample, change, says):
    found = named(op, spoiled(op, output, change), output, NONFINITE, sample=sample)
    assert found.label == "N", found
    assert found.says.startswith(says)
    assert found.says.endswith("right elsewhere")


def test_all_of_it_everywhere():
    vjp = spoiled("tanh", "x", lambda g, *_: np.full_like(g, np.nan))
    assert named("tanh", vjp, "x", NONFINITE).says == "dx is NaN in every element"


def test_all_of_it_for_one_value_of_an_attribute():
    def whole(g, ct, p, a):
        return np.full_like(g, np.nan) if a["p"] == 0.5 else g

    vjp = spoiled("dropout", "x", whole)
    found = named("dropout", vjp, "x", NONFINITE)
    assert found.label == "N"
    assert found.says == "dx is NaN for p = 0.5, right elsewhere"


@pytest.mark.parametrize(
    "change",
    [
        lambda g, ct, p, a: np.where(p["x"] > 0, np.nan, 2 * g),
        lambda g, ct, p, a: 2 * g,
        lambda g, ct, p, a: np.where(p["x"] > 0, 0, g),
    ],
)
def test_it_is_silent_where_finite_elements_are_wrong(change):
    assert not named("tanh", spoiled("tanh", "x", change), "x", NONFINITE).label


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
