"""Another operator's gradient is named as such; one that is nobody's is not."""

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.explain.hypotheses.other_operator import kin
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple
from tests.explain.scenes import changed, named

OPERATORS = gradcheck_cases.SUITE.operators


def of(other, **attrs):
    """The gradient of another operator, with its own attributes."""

    def vjp(ct, *primals, **_):
        return as_tuple(OPERATORS[other].vjp(F64, ct, *primals, **attrs))[0]

    return vjp


@pytest.mark.parametrize(
    ("op", "other", "says"),
    [
        ("silu", "sigmoid", "dx is the gradient of sigmoid"),
        ("tanh", "softcap", "dx is the gradient of softcap"),
        ("relu", "elu", "dx is the gradient of elu"),
    ],
)
def test_the_other_operator_is_named(op, other, says):
    found = named(op, of(other), "x", [kin(op, OPERATORS)])
    assert (found.label, found.rule) == ("D", "kin")
    assert found.says == says


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("silu", lambda g: 2 * g),
        ("softmax", lambda g: np.roll(g, 1, -1)),
        ("tanh", lambda g: g + 0.25),
        ("rms_norm", np.zeros_like),
    ],
)
def test_what_is_nobodys_gradient_is_left_to_others(op, change):
    assert not named(op, changed(op, x=change), "x", [kin(op, OPERATORS)]).label


def test_an_operator_that_hands_the_cotangent_on_explains_nothing():
    """All that copy would: `add`, `reshape`, `dup` …"""
    found = named("tanh", lambda ct, x: ct, "x", [kin("tanh", OPERATORS)])
    assert not found.label


def test_it_never_names_the_operator_itself():
    assert not named("silu", of("sigmoid"), "x", [kin("silu", {"silu": OPERATORS["silu"]})]).label


def test_of_operators_that_only_move_elements_it_says_nothing():
    """Many do, and agree by accident; where elements go is for other rules."""
    assert not named("tril", of("triu"), "x", [kin("tril", OPERATORS)]).label
