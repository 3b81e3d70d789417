"""What a loss owes before it is differenced."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.judge.loss import checksum, judge_tensors, not_finite, value_at
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import CHUNK
from gradcheck.numerics.line_function import Scalar
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelCase


def fault(function, x=None):
    x = np.ones(3) if x is None else x
    return value_at(Scalar(lambda: function(x)), {"x": x})


def writes(x):
    x[1] = 7
    return x.sum()


def drifts():
    calls = iter([1.0, 1.0 + 1e-16, 1.0 + 1e-15])
    next(calls)
    return lambda x: next(calls)


@pytest.mark.parametrize(
    ("function", "verdict", "says"),
    [
        (lambda x: x, Verdict.ERROR, "loss raised TypeError"),
        (lambda x: None, Verdict.ERROR, "loss raised TypeError"),
        (lambda x: x[9], Verdict.ERROR, "loss raised IndexError"),
        (writes, Verdict.ERROR, "loss writes into x"),
        (drifts(), Verdict.ERROR, "loss is not deterministic"),
        (lambda x: -np.inf, Verdict.INCONCLUSIVE, "loss is -inf here"),
    ],
)
def test_a_loss_at_fault_is_one_finding(function, verdict, says):
    found = fault(function)
    assert (found.name, found.part, found.verdict) == ("loss", Part.VALUE, verdict)
    assert found.reason.startswith(says)
    assert "\n" not in found.reason


@pytest.mark.parametrize("value", [1.5, np.float32(1.5), np.array(1.5), np.array([[1.5]])[0, 0]])
def test_a_right_one_is_its_value(value):
    assert fault(lambda x: value) == 1.5


@pytest.mark.parametrize("at", [0, CHUNK - 1, CHUNK, 2 * CHUNK + 3])
def test_the_first_number_that_is_not_finite(at):
    x = np.zeros((2, CHUNK + 4))
    x.reshape(-1)[at] = -np.inf
    x[-1, -1] = np.nan
    assert not_finite(x) == (2, at, -np.inf)
    assert not_finite(np.ones(5, np.float32)) is None
    assert not_finite(np.ones(0)) is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ">f8"])
def test_a_checksum_sees_every_bit(dtype):
    x = np.arange(12, dtype=dtype).reshape(3, 4)
    before = checksum([x])
    x[0, 0] = -0.0
    assert checksum([x]) != before
    assert checksum([np.zeros(0)]) == (0,)


def test_bytes_that_change_places_within_a_word_change_the_sum():
    words = np.array([0x00000001, 0x00000002], np.uint32)
    for wrong in ([0x00000100, 0x00000002], [0x00000001, 0x02000000], [0x00000001, 0x00000003]):
        changed = np.array(wrong, np.uint32)
        for dtype in (np.float32, np.float64):
            assert checksum([changed.view(dtype)]) != checksum([words.view(dtype)])
    assert checksum([np.zeros(0), words[:1].view(np.float32)]) == (0, 1)
    assert checksum([np.array([1, 2], np.uint8)]) == (3,)


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


@pytest.mark.suite(keep=4, rest=7)
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
    assert found[tensor].reason == f"1 of {right.size:,} elements is wrong"
    assert found[tensor].want == pytest.approx(right[index], rel=1e-4)
