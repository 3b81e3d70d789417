"""The catalogue's known-bad implementations are named in the first line, as anybody's would be."""

import gradcheck_cases
import pytest

from gradcheck.explain.case_diagnosis import LazyDiagnoser
from gradcheck.power.diagnosed_mutant import caught
from gradcheck.spec.mutant import mutants_of
from tests.cases.known_bad import KNOWN_BAD

SUITE = gradcheck_cases.SUITE
MUTANTS = {m.full_name: m for every in mutants_of(SUITE).values() for m in every}


@pytest.mark.suite(keep=4, rest=11)
@pytest.mark.parametrize("name", KNOWN_BAD)
def test_it_is_named_by_its_class(name):
    mutant = MUTANTS[name]
    found = caught(mutant, SUITE.cases([mutant.op]))
    why = LazyDiagnoser(SUITE.operators, lambda: mutants_of(SUITE))
    explained = why.explained(found.case, found.binding, found.dtype, found.findings)
    told = [f.diagnosis for f in explained if f.diagnosis is not None]
    assert told
    for diagnosis in told:
        assert diagnosis.label in mutant.labels, diagnosis
        assert diagnosis.says
        assert diagnosis.evidence
