"""Update rules of a user's table."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import LoadError
from gradcheck.implementations.load import load
from gradcheck.judge.rule import judge_rule
from gradcheck.judge.rule_truth import RuleTruth
from gradcheck.results.verdict import Verdict


@pytest.fixture
def table(monkeypatch):
    """Make a table importable and bind it."""

    def bound(entries):
        module = ModuleType("kernels")
        module.IMPL = entries
        monkeypatch.setitem(sys.modules, "kernels", module)
        return load("kernels:IMPL", SUITE)

    return bound


def clip(params, grads, state, t, *, max_norm):
    """A trainer's own: no eps, and in place."""
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads.values()))
    if norm > max_norm:
        for name in grads:
            grads[name] *= grads[name].dtype.type(max_norm / norm)


def always(params, grads, state, t, *, max_norm):
    norm = np.sqrt(sum(np.sum(g**2) for g in grads.values()))
    with np.errstate(invalid="ignore"):
        return {n: np.asarray(g * (max_norm / norm), g.dtype) for n, g in grads.items()}, {}


def case_of(sample="typical", dialect="default"):
    [case] = SUITE.rule_cases(["clip_norm"], [dialect], [sample])
    return case


def verdicts(binding, case, dtype="float64"):
    return {f.verdict for f in judge_rule(RuleTruth(case), binding, dtype)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("sample", ["typical", "below", "at-the-norm", "zeros"])
def test_a_function_that_works_in_place_is_judged(table, sample, dtype):
    entry = {"clip_norm/default": {"update": clip}}
    assert verdicts(table(entry), case_of(sample), dtype) == {Verdict.PASS}


def test_a_wrong_one_fails(table):
    entry = {"clip_norm": SimpleNamespace(update=always)}
    assert Verdict.FAIL in verdicts(table(entry), case_of("below"))


def test_what_the_table_does_not_name_is_unbound(table):
    assert verdicts(table({"clip_norm/in-divisor": {"update": clip}}), case_of()) == {
        Verdict.UNBOUND
    }
    assert verdicts(table({"softmax": {"vjp": clip}}), case_of()) == {Verdict.UNBOUND}


def test_a_hyper_parameter_that_is_fixed_in_the_code_is_unsupported_elsewhere(table):
    entry = {"clip_norm": {"update": clip}}  # takes no eps
    assert verdicts(table(entry), case_of(dialect="in-divisor")) == {Verdict.UNSUPPORTED}


def test_a_misspelt_rule_is_refused_with_a_hint(table):
    with pytest.raises(LoadError, match=r"no such update rule; did you mean 'clip_norm'\?"):
        table({"clip_nrom": {"update": clip}})


def test_the_reference_is_bound_to_everything():
    reference = load("reference", SUITE)
    assert verdicts(reference, case_of(), "float32") == {Verdict.PASS}
