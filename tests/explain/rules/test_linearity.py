"""Gradients that are not linear in the cotangent: named with how, silent on linear ones."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right, spoiled

LINEARITY = only("linearity")


@pytest.mark.parametrize(
    ("change", "label", "says"),
    [
        (lambda g, ct, p, a: g + 0.25 * p["x"], "T", "a term too many"),
        (lambda g, ct, p, a: np.clip(g, -0.2, 0.2), "NL", "cut off for large ones"),
        (lambda g, ct, p, a: np.abs(g) * p["x"], "NL", "the same for its negative"),
        (lambda g, ct, p, a: np.sign(g), "NL", "the same for twice as much"),
        (lambda g, ct, p, a: g * np.abs(g), "NL", "twice as much gives four times"),
        (
            lambda g, ct, p, a: g * np.exp(-np.maximum(np.abs(ct) - 0.25, 0)),
            "NL",
            "right for small",
        ),
    ],
)
def test_how_it_is_not_linear(change, label, says):
    found = named("tanh", spoiled("tanh", "x", change), "x", LINEARITY)
    assert found.label == label, found
    assert says in found.says


def test_one_number_where_0_belongs_was_not_cleared():
    """Where the cotangent does not reach, memory holds 3."""
    vjp = spoiled("relu", "x", lambda g, ct, p, a: np.where(p["x"] < 0, 3.0, g))
    found = named("relu", vjp, "x", LINEARITY)
    assert found.label == "A"
    assert found.says.startswith("dx holds one number where 0 belongs")


@pytest.mark.parametrize(
    "change",
    [
        lambda g, ct, p, a: g + g**3,
        lambda g, ct, p, a: np.sqrt(np.abs(g)) * np.sign(g),
    ],
)
def test_that_it_is_not_linear_alone_names_nothing(change):
    """A cotangent that was written over before it was read shows itself so, too."""
    assert not named("tanh", spoiled("tanh", "x", change), "x", LINEARITY).label


def test_a_gradient_that_read_what_another_overwrote_has_no_name():
    def vjp(ct, x, y):
        dx, _ = right("div", ct, x, y)
        return dx, right("div", ct, x, np.where(np.abs(dx) > 0.1, dx + y, y))[1]

    assert not named("div", vjp, "y", LINEARITY).label


@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("tanh", "x", lambda g: 2 * g),
        ("rms_norm", "x", lambda g: np.flip(g, -1)),
        ("matmul", "w", lambda g: -g),
        ("softmax", "x", lambda g: g.astype(np.float16)),
        ("layer_norm", "x", lambda g: np.where(np.abs(g) < 1e-3, 0, g) * 1.25),
    ],
)
def test_what_is_linear_but_for_rounding_is_left_to_others(op, output, change):
    found = named(op, changed(op, **{output: change}), output, LINEARITY)
    assert not found.label, found


def test_another_answer_to_the_same_question_is_not_called_nonlinear():
    calls = []

    def vjp(ct, x):
        calls.append(1)
        return right("tanh", ct, x)[0] * (1 + len(calls))

    assert not named("tanh", vjp, "x", LINEARITY).label
