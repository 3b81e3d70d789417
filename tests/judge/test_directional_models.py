"""The suite's large models: their own folds raise no alarm, and a wrong element in one is named."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.judge.loss import judge_tensors
from gradcheck.numerics.arithmetic import F64
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelCase

MODELS = dict(SUITE.models)


def point(name, seed):
    """Parameters in memory of their own, the loss as a function of them, and its gradients."""
    model = MODELS[name]
    case = ModelCase(model, model.dialects[0], model.sizes[-1], seed, "test")
    given = {n: v.copy() for n, v in case.given.items()}
    params = {n: given[n] for n in case.program.params}

    def loss():
        return case.program.forward(F64, given)[case.program.loss]

    values = case.program.forward(F64, given)
    cts = case.program.backward(F64, values, F64.asarray(1.0))
    return params, loss, {n: cts.get(n, np.zeros_like(p)) for n, p in params.items()}


@pytest.mark.suite(keep=4)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_alarm_on_a_fold_that_is_right(name, seed):
    params, loss, gradients = point(name, seed)
    before = {n: p.tobytes() for n, p in params.items()}
    for found in judge_tensors(loss, params, gradients, seed=(seed,)):
        assert found.verdict is Verdict.PASS, found
    assert {n: p.tobytes() for n, p in params.items()} == before


@pytest.mark.suite(keep=1)
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma"])
def test_one_wrong_element_of_a_transformer_is_named(name):
    params, loss, gradients = point(name, 0)
    tensor = max(params, key=lambda n: params[n].size)
    right = np.array(gradients[tensor])
    index = np.unravel_index(
        np.argsort(np.abs(right), axis=None)[right.size * 9 // 10], right.shape
    )
    gradients[tensor] = right.copy()
    gradients[tensor][index] *= 1.1
    found = {f.name: f for f in judge_tensors(loss, params, gradients)}
    assert {n for n, f in found.items() if f.verdict is not Verdict.PASS} == {tensor}
    assert found[tensor].worst_index == tuple(index)
    assert found[tensor].reason == f"1 of {right.size} elements is wrong"
    assert found[tensor].want == pytest.approx(right[index], rel=1e-4)
