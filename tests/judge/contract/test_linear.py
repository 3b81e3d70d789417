from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.contract.linearity import linear, spike


@pytest.mark.parametrize("power", [1.5, 0.999, 1.001])
def test_a_power_of_the_cotangent_is_seen(subject, power):
    bent = SimpleNamespace(vjp=lambda ct, x: -np.sign(ct) * np.abs(ct) ** power)
    breach = linear(subject(bent, "neg/default/typical"))
    assert breach.seen.startswith("with u normal and v of signed powers of two, dx[")


def test_what_only_a_lone_element_shows(subject, mutant):
    breach = linear(subject(mutant("clips-relative")))
    assert "zero elsewhere" in breach.seen


def test_an_absolute_value_is_seen(subject):
    breach = linear(subject(SimpleNamespace(vjp=lambda ct, x: -np.abs(ct)), "neg/default/typical"))
    assert breach is not None


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_right_ones_are_linear(subject, right, dtype):
    assert linear(subject(dtype=dtype)) is None
    assert linear(subject(dtype=dtype, name="lstm_cell/pytorch/typical")) is None
    if dtype.startswith("float") and dtype != "float16":
        assert linear(subject(right, dtype=dtype)) is None


def test_a_wrong_gradient_that_is_linear_is_not_blamed_here(subject):
    twice = SimpleNamespace(vjp=lambda ct, x: ct * (1 + x * x))
    assert linear(subject(twice, "silu/default/typical")) is None


def test_a_spike_is_one_once():
    like = (np.zeros((2, 3), np.float32), np.zeros(0, np.float32))
    first, empty = spike(like, 0)
    assert first.tolist() == [[1, 0, 0], [0, 0, 0]]
    assert spike(like, -1)[0].tolist() == [[0, 0, 0], [0, 0, 1]]
    assert first.dtype == np.float32
    assert empty.shape == (0,)
