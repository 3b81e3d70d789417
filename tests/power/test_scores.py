"""Diagnoses of mutants, counted: what is good enough, and that a third stays apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradcheck.power.diagnosis import Named, Naming
from gradcheck.power.score import Part
from gradcheck.power.scores import Diagnosed, Tally, confusion, diagnose_mutants
from gradcheck.power.shrink_stats import Small
from gradcheck.results.finding import Diagnosis


def named(label="", labels=("F",), held_out=False, name="m"):
    return Named(
        op="square", family="f", name=name, says="It is wrong.", labels=labels, held_out=held_out,
        found=(("x", Diagnosis(label=label, says="dx is off", rule="r" if label else "")),),
    )  # fmt: skip


def diagnosed(*those, **options):
    return Diagnosed(version="0", suite="s", suite_version="1", seed=0, named=those, **options)


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
    assert Tally(right, wrong, unnamed).good is good


def test_what_stopped_early_or_had_trouble_is_not_sound():
    found = diagnosed(named("F"))
    assert found.sound
    assert not replace(found, complete=False).sound
    assert not replace(found, troubles=("a worker process died",)).sound
    assert not diagnosed().sound


def test_verdicts_are_counted_apart_for_what_is_held_out():
    found = diagnosed(named("F"), named("S"), named(held_out=True), named("F", held_out=True))
    assert Tally.of(found.named) == Tally(2, 1, 1, 2)
    assert Tally.of(found.development) == Tally(1, 1, 0, 1)
    assert Tally.of(found.held_out) == Tally(1, 0, 1, 1)


def test_another_class_that_names_the_defect_as_well_is_right_and_confusion_counts_the_first():
    both = named("D", labels=("F", "D"))
    assert Tally.of([both]) == Tally(1, 0, 0, exact=0)
    assert confusion([both, named()]) == {("F", "D"): 1, ("F", ""): 1}


@pytest.mark.suite
def test_the_parts_diagnose_every_mutant_exactly_once(suite_of, make):
    def times(k):
        return lambda xp, ct, x: k * ct * x

    wrong = [make.mutant(times(k), name=f"by-{k}") for k in range(3, 12)]
    suite_of([make.op()], wrong)

    def names(**options):
        plan = Naming(suites=("user:SUITE",), ops=("square",), **options)
        found = diagnose_mutants(plan)
        narrow = [f"{one.name} in {one.dtype}" for one in found.narrow]
        return [*(one.name for one in found.named), *narrow]

    assert {"by-3", "narrow-x-tf32 in float64"} <= {*names()}
    parts = [names(part=Part(i, 3)) for i in (1, 2, 3)]
    assert sorted(n for part in parts for n in part) == sorted(names())
    assert all(len(part) < len(names()) / 2 for part in parts)
    apart = names(held_out=False, narrow=False)
    assert 0 < len(apart) < len(wrong)


def test_failures_that_stay_large_make_it_unsound():
    shrunk = Small(output="x", label="F", before=30, after=2, largest=2)
    large = replace(shrunk, after=9)
    found = diagnosed(*(replace(named("F"), small=s) for s in (shrunk,) * 4 + (large,)))
    assert found.few == 4
    assert found.sound
    assert not diagnosed(*(replace(named("F"), small=s) for s in (shrunk, large))).sound
