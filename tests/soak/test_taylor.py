"""Taylor curves of right gradients find no error: 999 bars in 1000 cover the intercept."""

import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.reference import Reference
from gradcheck.judge.operator import CaseTruth, judge_case

SEEDS = 5


def outside(cases):
    """How many curves there are in float64, and those whose intercept is larger than its bar."""
    count, out = 0, []
    for case in cases:
        for finding in judge_case(CaseTruth(case), Reference(), "float64", taylor=True):
            curve = finding.taylor
            if curve is not None:
                ok = abs(curve.intercept) <= curve.error_bar
                count += 1
                out += [] if ok else [f"{case.name}:{finding.name}"]
    return count, out


@pytest.mark.suite
def test_some_operators_at_another_seed():
    count, out = outside(SUITE.cases(seed=1)[::40])
    assert count > len(SUITE.cases()) / 40
    assert out == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_operator(seed):
    count, out = outside(SUITE.cases(seed=seed))
    assert count > len(SUITE.cases())
    assert len(out) <= count / 1000, out
