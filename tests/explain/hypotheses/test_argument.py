"""Arrays as factors of a whole gradient: named, and silent where it is another slope."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, spoiled

ARGUMENT = only("argument")


@pytest.mark.parametrize(
    ("op", "output", "change", "says"),
    [
        ("matmul", "x", lambda g, ct, p, a: g * p["x"], "dx has the factor x too much"),
        (
            "softmax",
            "x",
            lambda g, ct, p, a: g * np.exp(p["x"]),
            "dx has the factor exp(x) too much",
        ),
        (
            "rms_norm",
            "x",
            lambda g, ct, p, a: g * np.sqrt(np.mean(p["x"] ** 2, axis=-1, keepdims=True)),
            "dx has the factor the root mean square of x's rows too much",
        ),
        (
            "l2_normalize",
            "x",
            lambda g, ct, p, a: g / (1 + np.abs(p["x"]) - np.abs(p["x"])) / (1 - p["x"]),
            "dx lacks the factor 1 - x",
        ),
        (
            "gated_delta_rule",
            "v",
            lambda g, ct, p, a: g * p["beta"][..., None],
            "dv has the factor beta, one for each row too much",
        ),
    ],
)
def test_the_array_is_named(op, output, change, says):
    found = named(op, spoiled(op, output, change), output, ARGUMENT)
    assert found.label == "F", found
    assert found.says == says


@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("tanh", "x", lambda g, ct, p, a: g * p["x"]),  # another slope
        ("softmax", "x", lambda g, ct, p, a: 2 * g),
        ("rms_norm", "x", lambda g, ct, p, a: g + p["x"]),
        ("matmul", "w", lambda g, ct, p, a: np.flip(g, -1)),
        ("sum_rows", "x", lambda g, ct, p, a: np.roll(g, 1, -2)),  # its output's rows are one long
        ("softmax", "x", lambda g, ct, p, a: np.where(g > 0, g * p["x"], g)),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change):
    found = named(op, spoiled(op, output, change), output, ARGUMENT)
    assert not found.label, found


def test_a_right_factor_at_one_shape_is_not_enough():
    vjp = spoiled("softmax", "x", lambda g, ct, p, a: g * (p["x"] if g.size > 20 else 3))
    assert not named("softmax", vjp, "x", ARGUMENT).label


def test_unchanged_is_right():
    with pytest.raises(AssertionError, match="nothing to diagnose"):
        named("softmax", changed("softmax"), "x", ARGUMENT)
