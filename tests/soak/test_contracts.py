"""Right code keeps every property of its contract, at every seed."""

import importlib.util

import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.load import load
from gradcheck.judge.contract_check import contract_cases, judge_contract
from gradcheck.judge.operator import CaseTruth
from gradcheck.results.verdict import Verdict
from gradcheck.spec.dtype_selection import DTYPES

SEEDS = {"reference": 20}
if importlib.util.find_spec("torch") is not None:
    SEEDS["torch"] = 5
CHUNKS = [(word, seed) for word, count in SEEDS.items() for seed in range(count)]


@pytest.mark.soak
@pytest.mark.parametrize(("word", "seed"), CHUNKS)
def test_no_property_is_broken_at_any_seed(word, seed):
    binding = load(word, SUITE)
    cases = SUITE.cases(seed=seed)
    names = contract_cases(cases)
    kept, alarms = 0, []
    for case in cases:
        if case.name not in names:
            continue
        truth = CaseTruth(case)
        for dtype in DTYPES:
            for finding in judge_contract(truth, binding, dtype):
                kept += finding.verdict is Verdict.PASS
                if not finding.verdict.expected:
                    alarms.append(f"{case.name}/{dtype}: {finding.name}: {finding.reason}")
    assert alarms == []
    assert kept > 10 * len(names)
