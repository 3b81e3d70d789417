"""The values and attributes that an operator's samples have, and those that they have not."""

from __future__ import annotations

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.explain.shrink_steps import Group, groups, proposed, taken
from gradcheck.explain.shrink_trial import Candidate, Domain


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


def candidate(op, *shapes, **attrs):
    spec = gradcheck_cases.SUITE.operators[op]
    name = spec.dialects[0].name
    sample = next(s for s in spec.samples if not s.dialects or name in s.dialects)
    (case,) = gradcheck_cases.SUITE.cases([op], [name], [sample.name])
    primals = tuple(np.arange(np.prod(s), dtype=float).reshape(s) for s in shapes)
    return Candidate(original=case, primals=primals, attrs={**case.attrs, **attrs})


def test_axes_of_one_name_go_together_and_those_of_one_size_do_not():
    found = groups(candidate("matmul", (4, 3), (4, 3), (4,)))
    assert {g.axes for g in found} == {((0, -1), (1, -1)), ((0, -2),), ((1, -2), (2, -1))}


def test_batch_axes_go_together_by_their_place():
    found = groups(candidate("add", (2, 3, 4), (2, 3, 4)))
    assert {(g.size, g.axes) for g in found} == {
        (size, ((0, axis), (1, axis))) for size, axis in ((2, -3), (3, -2), (4, -1))
    }


def test_an_axis_of_one_element_belongs_to_no_group():
    found = groups(candidate("add", (3, 1), (3, 4)))
    assert {g.axes for g in found} == {((0, -2), (1, -2)), ((1, -1),)}


@pytest.mark.parametrize("size", [2, 3, 7, 12, 65])
def test_proposals_are_parts_each_once_and_let_any_end_go(size):
    found = [tuple(kept) for kept in proposed(size, size - 1)]
    assert len(found) == len(set(found))
    assert all(0 < len(kept) < size and set(kept) <= set(range(size)) for kept in found)
    assert tuple(range(size - 1)) in found
    assert tuple(range(1, size)) in found
    assert found[0] == (size - 1,)


def test_a_part_of_each_block_is_proposed():
    found = [tuple(kept) for kept in proposed(14, 0)]
    assert (0, 1, 7, 8) in found  # two of each half
    assert (0, 7) in found
    assert tuple(range(7)) in found


def test_slices_are_taken_out_of_all_primals_that_have_the_axis():
    start = candidate("matmul", (4, 3), (2, 3), (2,))
    less = taken(start, [Group(3, ((0, -1), (1, -1)))], np.array([2]))
    assert [p.tolist() for p in less.primals] == [[[2], [5], [8], [11]], [[2], [5]], [0, 1]]
