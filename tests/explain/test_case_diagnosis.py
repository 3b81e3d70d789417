"""The findings of one case with their diagnoses: whatever is wrong, in every dtype."""

from dataclasses import replace

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.explain.case_diagnosis import LazyDiagnoser
from gradcheck.implementations.processes.crash_or_hang import Budget
from gradcheck.implementations.returned import broken
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.power.attack import Wrong
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from tests.ending import ends

SUITE = gradcheck_cases.SUITE


def explained(op, change, dtype="float64", low="", sample="typical"):
    """Findings of a sample, where `change(gradients, ct)` spoils the right ones."""
    case = SUITE.cases([op], [SUITE.operators[op].dialects[0].name], [sample])[0]

    def vjp(ct, *primals, **attrs):
        xp = F64 if dtype == "float64" else F32
        wide = [p.astype(xp.name) if p.dtype.kind != "i" else p for p in primals]
        found = list(as_tuple(case.spec.vjp(xp, ct.astype(xp.name), *wide, **attrs)))
        found = [None if g is None else g.astype(primals[0].dtype) for g in change(found, ct)]
        return found[0] if len(found) == 1 else tuple(found)

    binding = Wrong(vjp)
    truth = CaseTruth.in_low(case, "", low) if low else CaseTruth(case)
    found = judge_case(truth, binding, low or dtype)
    return LazyDiagnoser().explained(case, binding, low or dtype, found)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_low_precision_has_its_diagnosis_too(low):
    (found,) = explained("tanh", lambda g, ct: [-g[0]], dtype=low, low=low)
    assert (found.verdict, found.diagnosis.label) == (Verdict.FAIL, "S")


def test_what_is_right_has_none():
    found = explained("rms_norm", lambda g, ct: g)
    assert [f.verdict for f in found] == [Verdict.PASS] * 2
    assert not any(f.diagnosis for f in found)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("change", "verdict", "label"),
    [
        (lambda g, ct: [None], Verdict.MISSING, "G"),
        (lambda g, ct: [g[0].reshape(-1)], Verdict.FAIL, "L"),
        (lambda g, ct: [-g[0]], Verdict.FAIL, "S"),
    ],
)
def test_a_wrong_gradient_has_one(change, verdict, label):
    (found,) = explained("tanh", change)
    assert (found.verdict, found.diagnosis.label) == (verdict, label)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda g: g + 1j, "the gradient of x is a ndarray of complex128, not an array of numbers"),
        (lambda g: "no", "the gradient of x is a str, not an array of numbers"),
    ],
)
def test_what_is_no_array_of_numbers_is_not_said_to_be_missing(change, reason):
    case = SUITE.cases(["tanh"], ["default"], ["typical"])[0]
    binding = Wrong(lambda ct, x: change(ct * (1 - np.tanh(x) ** 2)))
    judged = judge_case(CaseTruth(case), binding, "float64")
    found = LazyDiagnoser().explained(case, binding, "float64", judged)
    assert [(f.verdict, f.reason, f.diagnosis) for f in found] == [(Verdict.FAIL, reason, None)]


def test_a_call_that_remembers_has_one():
    kept = [0.0]

    def adding(g, ct):
        kept[0] = kept[0] + g[0] if np.shape(kept[0]) == g[0].shape else g[0]
        return [kept[0]]

    (found,) = explained("tanh", adding)
    assert (found.name, found.verdict) == ("vjp", Verdict.ERROR)
    assert (found.diagnosis.label, found.diagnosis.rule) == ("A", "recall")


def test_a_call_that_raises_has_none():
    def raising(g, ct):
        raise ValueError("writes into its argument")

    (found,) = explained("tanh", raising)
    assert (found.verdict, found.diagnosis) == (Verdict.ERROR, None)


def test_a_diagnosis_that_the_binding_gave_is_kept():
    case = SUITE.cases(["tanh"], [], ["typical"])[0]
    error = broken("x", "never written", Verdict.FAIL, label="A", says="x keeps what it held")
    binding = Wrong(lambda ct, x: -ct)
    (found,) = LazyDiagnoser().explained(case, binding, "float64", [error.finding])
    assert found == error.finding


def test_what_dies_while_it_is_asked_why_is_not_given_up_for_that():
    budget = Budget()

    def vjp(ct, x):
        budget.spend("tanh", Verdict.CRASH)
        ends("vjp", "SIGSEGV", Verdict.CRASH)

    case = SUITE.cases(["tanh"], ["default"], ["typical"])[0]
    finding = Finding(name="x", verdict=Verdict.FAIL, compared=3)
    for dtype in ("float64", "float32"):
        for _ in range(10):
            (found,) = LazyDiagnoser().explained(case, Wrong(vjp), dtype, [finding])
            assert replace(found, diagnosis=None) == finding
            assert found.diagnosis.says == "asked again for its diagnosis: SIGSEGV"
    assert budget.exhausted("tanh") is None


@pytest.mark.parametrize("error", [RuntimeError("a fault of ours"), SystemExit(3)])
def test_a_diagnosis_that_fails_takes_no_verdict_away(error):
    def mutants():
        raise error

    case = SUITE.cases(["tanh"], ["default"], ["typical"])[0]
    binding = Wrong(lambda ct, x: -ct)
    judged = judge_case(CaseTruth(case), binding, "float64")
    (found,) = LazyDiagnoser({}, mutants).explained(case, binding, "float64", judged)
    assert replace(found, diagnosis=None) == judged[0]
    says = f"why could not be told: asking again raised {type(error).__name__}: {error}"
    assert found.diagnosis.says == says


def test_where_a_sample_is_wrong_in_another_way_the_usual_one_is_told_beside():
    """A mean over no rows is NaN: what explains all other samples says nothing of this one."""

    def averaged(gradients, ct):
        rows = int(np.prod(ct.shape[:-1]))
        return gradients[0], gradients[1] / rows if rows else np.full_like(gradients[1], np.nan)

    found = explained("rms_norm", averaged, sample="empty")
    diagnosis = next(f.diagnosis for f in found if f.name == "w")
    assert diagnosis.label == ""
    assert "at other samples dw is 1/n of the right value" in diagnosis.evidence[-1]
