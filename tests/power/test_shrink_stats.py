"""Mutants' failures made small: as few elements as the defect needs, and most of them few."""

from __future__ import annotations

import gradcheck_cases
import pytest

from gradcheck.errors import SpecError
from gradcheck.power.diagnosis import Naming, name_all
from gradcheck.power.score import Part
from gradcheck.power.shrink_stats import FEW, small
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.mutant_registry import mutants_of

SUITE = gradcheck_cases.SUITE
SHARE = 0.8


def of(op, name):
    mutant = next(m for m in mutants_of(SUITE)[op] if m.name == name)
    return small(mutant, SUITE.cases([op]))


def test_a_mutant_that_is_right_has_no_failure():
    right = Mutant(
        op="silu", name="right", says="Nothing.", label="F", killer="typical",
        vjp=SUITE.operators["silu"].vjp,
    )  # fmt: skip
    with pytest.raises(SpecError, match="does not catch"):
        small(right, SUITE.cases(["silu"]))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "name", "least"),
    [
        ("mean", "block-of-64", 65),  # right up to a whole block
        ("packed_attention", "two-heads", 18),  # three heads of one width, q, k and v
        ("silu", "minus-seven", 1),
        ("softmax", "first-row-cotangent", 2),
    ],
)
def test_no_more_is_removed_than_the_defect_allows(op, name, least):
    assert of(op, name).after >= least


@pytest.mark.suite
def test_most_failures_are_shown_by_few_elements():
    plan = Naming(ops=tuple(SUITE.operators), part=Part(1, 20), held_out=False, narrow=False)
    named = [one for each in name_all(plan).results for one in each]
    found = [one.small for one in named]
    assert len(found) >= 40
    assert sum(one.few for one in found) >= SHARE * len(found), [
        (one.op, one.name, one.small.after) for one in named if not one.small.few
    ]
    assert all(one.after <= one.before for one in found)
    assert FEW == 8
