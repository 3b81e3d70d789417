"""What a loss owes before it is differenced."""

import numpy as np
import pytest

from gradcheck.judge.loss import checksum, not_finite, value_at
from gradcheck.numerics.draw import CHUNK
from gradcheck.numerics.line_function import Scalar
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict


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
