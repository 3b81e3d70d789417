"""Properties that are broken, and the class of defects that each of them stands for."""

import gradcheck_cases
import pytest

from gradcheck.explain.case_diagnosis import LazyDiagnoser
from gradcheck.explain.findings import (
    CONSEQUENCES,
    CONTRACT_DEFECTS,
    contract_diagnosis,
    with_causes,
)
from gradcheck.judge.contract.asking import quiet
from gradcheck.judge.contract_check import PROPERTIES, contract_cases, judge_contract
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.power.contract import Mutated, contract_mutants_of
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.defect import LABELS

SUITE = gradcheck_cases.SUITE
MUTANTS = {mutant.name: mutant for mutant in contract_mutants_of(SUITE)}
EXPECTED = {
    "clips-relative": "NL", "clips-absolute": "NL", "flushes-small": "NL", "normalises-dy": "N",
    "race": "C", "cached-by-shape": "V", "first-weights": "V", "growing-workspace": "A",
    "never-zeroed": "A", "reused-buffer": "X", "first-eps": "P", "scales-dy": "X",
    "normalises-x": "X", "in-place": "X", "ignores-eps": "P", "small-eps": "P", "flat-dy": "L",
    "flat-x": "L", "flat-w": "L", "strides-of-x": "L", "overwrites": "A", "adds": "A",
    "skips-zero-rows": "A", "whole-blocks": "I", "one-past-the-end": "I", "two-steps": "X",
    "weights-last": "X", "projection-with-dw": "G", "dw-with-dx": "G", "all-or-nothing": "G",
    "double-zeros": "O", "double-of-one-row": "O", "wrong-dtype": "O", "unreduced": "B",
    "no-tail": "W", "lone-column": "W", "no-rows": "W", "few-rows": "W",
}  # fmt: skip
"""The class that fits each mutant, from what it does, not from what is diagnosed."""
ALSO = {"adds": {"X"}}
"""What else a mutant breaks: what adds to its buffer cannot take another's memory."""


def findings(name, verdict=Verdict.FAIL, seen="something", part=Part.CONTRACT):
    says = next(asked.says for asked in PROPERTIES if asked.name == name)
    return Finding(name=name, verdict=verdict, reason=f"{says} Here {seen}", part=part)


def test_every_property_has_a_class():
    assert set(CONTRACT_DEFECTS) == {asked.name for asked in PROPERTIES}
    rows = [(row.label, row.says) for row in CONTRACT_DEFECTS.values()]
    rows += [(label, says) for row in CONTRACT_DEFECTS.values() for _, label, says in row.variants]
    assert all(label in LABELS and says for label, says in rows)
    assert set(CONSEQUENCES) | {name for names in CONSEQUENCES.values() for name in names} <= set(
        CONTRACT_DEFECTS
    )


@pytest.mark.parametrize("name", CONTRACT_DEFECTS)
def test_a_breach_is_told_with_what_was_seen(name):
    found = contract_diagnosis(findings(name, seen="dx[0] is 2, not 1")).diagnosis
    assert found.label == CONTRACT_DEFECTS[name].label
    assert found.evidence == ("dx[0] is 2, not 1",)


@pytest.mark.parametrize(
    "verdict", [Verdict.PASS, Verdict.SKIP, Verdict.NOTRUN, Verdict.CRASH, Verdict.INVALID]
)
def test_what_is_no_breach_has_no_class(verdict):
    assert contract_diagnosis(findings("linear", verdict)).diagnosis is None


def test_nan_for_a_cotangent_of_zeros_is_no_cotangent_that_is_ignored():
    assert contract_diagnosis(findings("zero", seen="dx[0] is nan")).diagnosis.label == "N"
    assert contract_diagnosis(findings("zero", seen="dx[0] is 3")).diagnosis.label == "U"


def test_what_follows_from_memory_says_so():
    found = [
        contract_diagnosis(findings("linear", seen="this")),
        contract_diagnosis(findings("repeatable", seen="that")),
    ]
    first, second = with_causes(found)
    assert first.diagnosis.label == second.diagnosis.label == "C"
    assert first.diagnosis.evidence == ("this", "it follows from `repeatable`")
    assert second.diagnosis.evidence == ("that",)


def test_without_memory_a_breach_stands_for_itself():
    found = [
        contract_diagnosis(findings("linear")),
        contract_diagnosis(findings("bounds")),
        findings("stateless", Verdict.PASS),
    ]
    assert [f.diagnosis and f.diagnosis.label for f in with_causes(found)] == ["NL", "I", None]


def test_a_primal_that_is_called_like_a_property_is_none():
    found = [findings("repeatable", part=Part.GRADIENT), contract_diagnosis(findings("linear"))]
    assert with_causes(found) == found


def test_every_mutant_is_expected():
    assert set(EXPECTED) == {name for name, mutant in MUTANTS.items() if not mutant.right}


@pytest.mark.suite(keep=5, rest=12)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_mutant_gets_the_class_of_its_defect(name):
    mutant = MUTANTS[name]
    cases = SUITE.cases([mutant.op], [mutant.dialect])
    case = next(case for case in cases if case.name in contract_cases(cases))
    truth, binding, why = CaseTruth(case), Mutated.of(mutant), LazyDiagnoser()
    labels = set()
    for dtype in ("float64", "float32"):
        with quiet():
            found = why.explained(case, binding, dtype, judge_case(truth, binding, dtype))
            if not any(f.verdict is Verdict.ERROR for f in found):
                contract = judge_contract(truth, binding, dtype)
                found += why.explained(case, binding, dtype, contract)
        labels |= {f.diagnosis.label for f in found if f.diagnosis is not None}
        assert all(f.diagnosis for f in found if not f.verdict.expected)
        if labels:
            break
    assert EXPECTED[name] in labels
    assert labels <= {EXPECTED[name]} | ALSO.get(name, set())
