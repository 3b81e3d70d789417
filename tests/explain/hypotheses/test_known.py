"""Another operator's gradient is named as such; one that is nobody's is not."""

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.explain.hypotheses.other_function import known_mutant, other_operator
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.spec.mutant import Mutant
from tests.explain.scenes import changed, named

OPERATORS = gradcheck_cases.SUITE.operators


def of(other, **attrs):
    """The gradient of another operator, with its own attributes."""

    def vjp(ct, *primals, **_):
        return as_tuple(OPERATORS[other].vjp(F64, ct, *primals, **attrs))[0]

    return vjp


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "other", "says"),
    [
        ("silu", "sigmoid", "dx is the gradient of sigmoid"),
        ("tanh", "softcap", "dx is the gradient of softcap"),
        ("relu", "elu", "dx is the gradient of elu"),
    ],
)
def test_the_other_operator_is_named(op, other, says):
    found = named(op, of(other), "x", [other_operator(op, OPERATORS)])
    assert (found.label, found.rule) == ("D", "kin")
    assert found.says == says


@pytest.mark.slow(keep=1)
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
    assert not named(op, changed(op, x=change), "x", [other_operator(op, OPERATORS)]).label


def test_an_operator_that_hands_the_cotangent_on_explains_nothing():
    """All that copy would: `add`, `reshape`, `dup` …"""
    found = named("tanh", lambda ct, x: ct, "x", [other_operator("tanh", OPERATORS)])
    assert not found.label


def test_it_never_names_the_operator_itself():
    assert not named(
        "silu", of("sigmoid"), "x", [other_operator("silu", {"silu": OPERATORS["silu"]})]
    ).label


def test_of_operators_that_only_move_elements_it_says_nothing():
    """Many do, and agree by accident; where elements go is for other rules."""
    assert not named("tril", of("triu"), "x", [other_operator("tril", OPERATORS)]).label


SPEC = gradcheck_cases.SUITE.operators["tanh"]


def cubed(xp, ct, x):
    return SPEC.vjp(xp, ct, x) ** 3


def known(**options):
    return Mutant(
        **{"op": "tanh", "name": "cubed", "says": "The gradient is cubed.", "label": "NL",
           "killer": "typical", "vjp": cubed, **options}
    )  # fmt: skip


def test_a_known_defect_is_told_with_its_sentence():
    found = named("tanh", lambda ct, x: cubed(F64, ct, x), "x", [known_mutant([known()])])
    assert (found.label, found.rule) == ("NL", "nearest")
    assert found.says == "dx is that of a known defect, tanh/cubed: The gradient is cubed"


def test_another_defect_is_not_taken_for_it():
    wrong = changed("tanh", x=lambda g: g**2)
    assert not named("tanh", wrong, "x", [known_mutant([known()])]).label


def test_one_with_a_memory_is_no_function_of_its_arguments():
    with_state = known(vjp=None, make=lambda: cubed)
    wrong = changed("tanh", x=lambda g: g**3)
    assert not named("tanh", wrong, "x", [known_mutant([with_state])]).label


def test_one_that_raises_or_gives_nothing_names_nothing():
    def raises(xp, ct, x):
        raise ValueError("no")

    wrong = changed("tanh", x=lambda g: g**3)
    lost = known(vjp=lambda xp, ct, x: None)
    assert not named("tanh", wrong, "x", [known_mutant([known(vjp=raises), lost])]).label
