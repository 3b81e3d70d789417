import pytest

from gradcheck.implementations.processes.crash_or_hang import Budget, uncounted
from gradcheck.results.verdict import Verdict


@pytest.mark.parametrize(("verdict", "limit"), [(Verdict.TIMEOUT, 3), (Verdict.CRASH, 10)])
def test_the_rest_of_an_operator_is_left_out_after_so_many_ends(verdict, limit):
    budget = Budget()
    for _ in range(limit - 1):
        budget.spend("softmax", verdict)
        assert budget.exhausted("softmax") is None
    budget.spend("softmax", verdict)
    assert f"not run after {limit} " in budget.exhausted("softmax")
    assert budget.exhausted("relu") is None


def test_other_verdicts_cost_nothing():
    budget = Budget()
    for _ in range(20):
        budget.spend("relu", Verdict.FAIL)
    assert budget.exhausted("relu") is None


def test_what_is_asked_out_of_curiosity_costs_nothing():
    budget = Budget()
    with uncounted():
        for _ in range(20):
            budget.spend("relu", Verdict.TIMEOUT)
    assert budget.exhausted("relu") is None


def test_curiosity_ends_with_what_it_raises():
    budget = Budget()
    with pytest.raises(ValueError, match="died"), uncounted():
        raise ValueError("died")
    for _ in range(3):
        budget.spend("relu", Verdict.TIMEOUT)
    assert budget.exhausted("relu")
