"""Diagnoses of mutants, counted: what is good enough, and that a third stays apart."""

from __future__ import annotations

from dataclasses import replace

import gradcheck_cases
import pytest

from gradcheck.errors import SpecError
from gradcheck.power.diagnosed_mutant import FEW, Named, Small, caught, held_out, small
from gradcheck.power.diagnosis import WITH_SPEC, Diagnosed, Tally, confusion
from gradcheck.power.run_mutants import MutationPlan, Part, run
from gradcheck.results.finding import Diagnosis
from gradcheck.spec.mutant import Mutant, mutants_of

SUITE = gradcheck_cases.SUITE


def one(label="", labels=("F",), apart=False, name="m"):
    return Named(
        op="square", family="f", name=name, says="It is wrong.", labels=labels, held_out=apart,
        found=(("x", Diagnosis(label=label, says="dx is off", rule="r" if label else "")),),
    )  # fmt: skip


def plan_of(*ops, **options):
    usual = {"kind": "diagnosis", "suites": ("user:SUITE",), "names": ops or ("square",)}
    return MutationPlan(**{**usual, **options})


def diagnosed(*those, **options):
    return Diagnosed(version="0", suite="s", suite_version="1", seed=0, scores=those, **options)


@pytest.mark.parametrize(
    ("right", "wrong", "unnamed", "good"),
    [
        (0, 0, 0, False),
        (84, 0, 16, False),
        (85, 0, 15, True),
        (97, 3, 0, True),
        (96, 4, 0, False),
        (85, 3, 12, True),
    ],
)
def test_too_few_right_or_too_many_wrong_are_not_good(right, wrong, unnamed, good):
    assert Tally(right, wrong, unnamed).reaches(WITH_SPEC) is good


def test_what_stopped_early_or_had_trouble_is_not_sound():
    found = diagnosed(one("F"))
    assert (found.sound, found.checked, found.invalid) == (True, True, False)
    assert not replace(found, complete=False).sound
    lost = replace(found, troubles=("a worker process died",))
    assert (lost.sound, lost.invalid) == (False, True)
    assert not diagnosed().sound
    assert not diagnosed().checked


def test_verdicts_are_counted_apart_for_what_is_held_out():
    found = diagnosed(one("F"), one("S"), one(apart=True), one("F", apart=True))
    assert Tally.of(found.named) == Tally(2, 1, 1, 2)
    assert Tally.of(found.development) == Tally(1, 1, 0, 1)
    assert Tally.of(found.held_out) == Tally(1, 0, 1, 1)


def test_another_class_that_names_the_defect_as_well_is_right_and_confusion_counts_the_first():
    both = one("D", labels=("F", "D"))
    assert Tally.of([both]) == Tally(1, 0, 0, exact=0)
    assert confusion([both, one()]) == {("F", "D"): 1, ("F", ""): 1}


@pytest.mark.suite(rest=0)
def test_the_parts_diagnose_every_mutant_exactly_once(suite_of, make):
    def times(k):
        return lambda xp, ct, x: k * ct * x

    wrong = [make.mutant(times(k), name=f"by-{k}") for k in range(3, 12)]
    suite_of([make.op()], wrong)

    def names(**options):
        found = run(plan_of(**options))
        narrow = [f"{mutant.name} in {mutant.dtype}" for mutant in found.narrow]
        return [*(mutant.name for mutant in found.named), *narrow]

    whole = names()
    assert {"by-3", "narrow-x-tf32 in float64"} <= {*whole}
    parts = [names(part=Part(i, 3)) for i in (1, 2, 3)]
    assert sorted(n for part in parts for n in part) == sorted(whole)
    assert all(len(part) < len(whole) / 2 for part in parts)
    assert 0 < sum(map(held_out, wrong)) < len(wrong)


def test_failures_that_stay_large_make_it_unsound():
    shrunk = Small(output="x", label="F", before=30, after=2, largest=2)
    assert FEW == 8
    assert replace(shrunk, after=FEW).few
    large = replace(shrunk, after=9)
    found = diagnosed(*(replace(one("F"), small=s) for s in (shrunk,) * 4 + (large,)))
    assert found.few == 4
    assert found.sound
    assert not diagnosed(*(replace(one("F"), small=s) for s in (shrunk, large))).sound


# ── failures made small ──────────────────────────────────────────────────────────────────────


def shrunk(op, name):
    mutant = next(m for m in mutants_of(SUITE)[op] if m.name == name)
    return small(caught(mutant, SUITE.cases([op])))


def test_a_mutant_that_is_right_has_no_failure():
    right = Mutant(
        op="silu", name="right", says="Nothing.", label="F", killer="typical",
        vjp=SUITE.operators["silu"].vjp,
    )  # fmt: skip
    with pytest.raises(SpecError, match="does not catch"):
        caught(right, SUITE.cases(["silu"]))


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
    assert shrunk(op, name).after >= least


def test_without_a_spec_mutants_are_diagnosed_by_check_and_those_that_pass_are_left_out(
    suite_of, make
):
    wrong = [
        make.mutant(lambda xp, ct, x: 14 * ct * x, name="factor"),
        make.mutant(lambda xp, ct, x: -2 * ct * x, name="sign"),
    ]
    suite_of([make.op()], wrong)
    found = run(plan_of(black_box=True))
    assert {one.name: one.first.label for one in found.named} == {"factor": "F", "sign": "S"}
    assert (found.narrow, found.small, found.passed) == ([], [], 0)


def test_a_score_without_specs_has_a_bar_of_its_own():
    few = [one("F")] * 6 + [one()] * 4
    assert not diagnosed(*few).sound
    assert diagnosed(*few, black_box=True).sound
