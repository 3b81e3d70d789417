"""The values and attributes that an operator's samples have, and those that they have not."""

from __future__ import annotations

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.explain.shrink_domain import Domain


def domain(op, dialect=""):
    spec = gradcheck_cases.SUITE.operators[op]
    name = dialect or spec.dialects[0].name
    sample = next(s for s in spec.samples if not s.dialects or name in s.dialects)
    (case,) = gradcheck_cases.SUITE.cases([op], [name], [sample.name])
    return Domain.of(case, case.primals), case


def holds(op, dialect="", *, attrs=(), **values):
    found, case = domain(op, dialect)
    assert set(values) <= set(case.primal_names)
    given = zip(case.primal_names, case.primals, strict=True)
    primals = [np.asarray(values.get(name, primal)) for name, primal in given]
    return found.holds(primals, {**case.attrs, **dict(attrs)})


@pytest.mark.parametrize(
    ("x", "inside"), [(0.5, True), (0.0, False), (-0.5, False), (1.5, False), (np.nan, False)]
)
def test_probabilities_stay_between_0_and_1(x, inside):
    assert holds("binary_cross_entropy", "probabilities", x=np.full((2, 2), x)) is inside


@pytest.mark.parametrize("x", [0.0, 1.0, -1.0, 0.5, -2.0])
def test_ordinary_values_are_held_whatever_was_drawn(x):
    assert holds("silu", x=np.full(3, x))


def test_targets_that_are_signs_stay_signs():
    assert holds("hinge", labels=np.array([1.0, -1.0]))
    assert not holds("hinge", labels=np.array([1.0, 0.0]))


@pytest.mark.parametrize(
    ("name", "value", "inside"),
    [
        ("dilation", (1, 1), True),
        ("dilation", (4, 1), True),
        ("dilation", (1, 0), False),
        ("stride", (0, 1), False),
        ("padding", (0, 0), True),
        ("padding", (0, -1), False),
        ("groups", 1, True),
        ("groups", 0, False),
    ],
)
def test_numbers_of_attributes_do_not_fall_below_those_seen(name, value, inside):
    assert holds("conv_2d", attrs={name: value}) is inside


def test_what_was_rounded_is_held():
    _, case = domain("dropout")
    wider = [p * 2 for p in case.primals]
    assert not Domain.of(case, case.primals).holds(wider, case.attrs)
    assert Domain.of(case, wider).holds(wider, case.attrs)


def test_words_and_flags_are_not_judged():
    assert holds("attention", attrs={"causal": False})
    assert holds("gelu", attrs={"form": "none that is known"})
