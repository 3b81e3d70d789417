"""The built-in suite's mutants: what they are, and that a fixed part of them is killed as said."""

import os
import subprocess
import sys
from itertools import combinations
from types import CodeType, FunctionType

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.draw import Draw
from gradcheck.power.attack import Target, difference
from gradcheck.power.run_mutants import Part
from gradcheck.spec.defect import LABELS
from gradcheck.spec.mutant import mutants_of
from gradcheck.spec.suite import Case
from tests.cases.known_bad import KNOWN_BAD

SUITE = gradcheck_cases.SUITE
BY_OP = mutants_of(SUITE)
MUTANTS = {mutant.full_name: mutant for of in BY_OP.values() for mutant in of}
EQUIVALENT = [name for name, mutant in MUTANTS.items() if mutant.equivalent]
PART = Part(3, 20)
TRIED = [
    name
    for name, mutant in MUTANTS.items()
    if (name in KNOWN_BAD or PART.holds(mutant.op, mutant.name)) and not mutant.equivalent
]
"""Those that are run here; `gradcheck power` runs all."""


# ── what they are ────────────────────────────────────────────────────────────────────────────


def test_there_are_many_and_every_operator_has_its_own():
    assert list(BY_OP) == list(SUITE.operators)
    assert {op: len(of) for op, of in BY_OP.items() if len(of) < 4} == {}
    assert len(MUTANTS) >= 600


def test_each_is_said_in_a_sentence_and_names_its_class_and_its_killer():
    for name, mutant in MUTANTS.items():
        assert mutant.says.endswith("."), name
        assert mutant.says == " ".join(mutant.says.split()), name
        assert mutant.label in LABELS, name
        samples = {s.name for s in SUITE.operators[mutant.op].samples}
        assert mutant.killer in samples if not mutant.equivalent else not mutant.killer, name


def test_no_class_of_defects_is_without_one_but_the_race():
    found = {label for mutant in MUTANTS.values() for label in mutant.labels}
    assert set(LABELS) - found <= {"C"}


def test_many_are_modelled_on_real_bugs_of_different_classes():
    modelled = [mutant for mutant in MUTANTS.values() if mutant.modelled_on]
    assert len(modelled) >= 20
    assert len({mutant.label for mutant in modelled}) >= 12
    assert len({mutant.modelled_on for mutant in modelled}) >= 20


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_what_the_seeds_got_wrong_is_kept(name):
    assert MUTANTS[name].label == KNOWN_BAD[name]
    assert MUTANTS[name].modelled_on
    assert not MUTANTS[name].equivalent


def text(value):
    """What a function does, as far as it can be read off: code, constants, what it closes over."""
    if isinstance(value, FunctionType):
        inside = tuple(cell.cell_contents for cell in value.__closure__ or ())
        parts = (value.__code__, inside, value.__defaults__, value.__kwdefaults__)
        return tuple(map(text, parts))
    if isinstance(value, CodeType):
        return (value.co_code, value.co_names, tuple(map(text, value.co_consts)))
    if isinstance(value, tuple):
        return tuple(map(text, value))
    return repr(value)


def alike(op):
    """Pairs of one operator's mutants that live in the same place and do, or say, the same."""
    for a, b in combinations(BY_OP[op], 2):
        apart = a.dialects and b.dialects and not set(a.dialects) & set(b.dialects)
        if apart or (a.dtype and b.dtype and a.dtype != b.dtype):
            continue
        if text(a.vjp or a.make) == text(b.vjp or b.make) or a.says == b.says:
            yield a.full_name, b.full_name


def test_none_is_another_one_under_a_second_name():
    assert [pair for op in BY_OP for pair in alike(op)] == []


def test_what_tells_two_functions_apart_sees_constants_and_what_they_close_over():
    def times(factor, shift=0):
        return lambda ct: ct * factor + (lambda: 3)() + shift

    def plus(ct):
        return ct + 1.0

    assert text(times(2)) == text(times(2))
    assert text(times(2)) != text(times(3))
    assert text(times(plus)) != text(times(lambda ct: ct + 2.0))
    assert text(plus) != text(times(2))
    assert text(lambda ct: (lambda: ct + 1)()) != text(lambda ct: (lambda: ct + 2)())


# ── those that are right after all ───────────────────────────────────────────────────────────


def drawn(mutant, trial):
    primals, attrs = mutant.inputs(Draw(0, "equivalence", mutant.op, mutant.name, str(trial)))
    return tuple(np.shape(p) for p in primals), attrs


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", EQUIVALENT)
def test_an_equivalent_one_is_the_right_vjp_to_fifty_digits(name):
    mutant = MUTANTS[name]
    assert mutant.equivalent.endswith(".")
    assert difference(mutant, SUITE.operators[mutant.op], 50) == ""


@pytest.mark.parametrize("name", EQUIVALENT)
def test_it_is_tried_at_shapes_and_attributes_that_no_sample_has(name):
    mutant, spec = MUTANTS[name], SUITE.operators[MUTANTS[name].op]
    trials = [drawn(mutant, trial) for trial in range(50)]
    for attribute in spec.defaults:
        values = {repr({**spec.defaults, **attrs}[attribute]) for _, attrs in trials}
        fixed = {"rope/half-rotated-before": {"half_split"}, "gelu/cosh-form": {"form"}}
        assert (len(values) > 1) is (attribute not in fixed[name]), attribute
    cases = SUITE.cases([mutant.op])
    known = [(tuple(p.shape for p in case.primals), case.attrs) for case in cases]
    new = [(shapes, attrs) for shapes, attrs in trials if (shapes, attrs) not in known]
    assert len({shapes for shapes, _ in new}) > 10
    assert len(new) > 45


# ── a part of the attack itself ──────────────────────────────────────────────────────────────


def test_the_part_is_of_a_size_that_shows_something():
    assert len(TRIED) > len(MUTANTS) / 40
    assert len({MUTANTS[name].op for name in TRIED}) > 40


@pytest.mark.suite(keep=8, by="gradcheck power")
@pytest.mark.parametrize("name", TRIED)
def test_a_mutant_is_killed_by_the_sample_that_it_names(name):
    """In every dtype in which it lives, though one would do: `--dtype` may ask for either."""
    mutant = MUTANTS[name]
    cases = [
        case
        for case in SUITE.cases([mutant.op], samples=[mutant.killer])
        if not mutant.dialects or case.dialect.name in mutant.dialects
    ]
    killed = dict.fromkeys([mutant.dtype] if mutant.dtype else FLOATS, False)
    for case in cases:
        truth = CaseTruth(case)
        beside = Case(case.spec, case.dialect, case.sample, case.seed + 1, case.suite)
        for dtype in killed:
            killed[dtype] |= Target(truth, beside, dtype).mutant(mutant)
        if all(killed.values()):
            return
    pytest.fail(f"{name}: {mutant.killer} does not catch it in {killed}")


def test_mutants_of_one_operator_load_its_family_alone():
    code = (
        "import sys, gradcheck_cases; from gradcheck.spec.mutant import KnownMutants; "
        "assert KnownMutants(gradcheck_cases.SUITE)['rms_norm']; "
        "print(*[n for n in sys.modules if n.startswith('gradcheck_cases.mutants.')])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["gradcheck_cases.mutants.norm"]
