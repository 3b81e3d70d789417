"""What a dtype loses of the primals, and which errors lean to one side."""

import numpy as np
import pytest

from gradcheck.judge.lowprecision import ENOUGH, bias, lost


@pytest.mark.parametrize(
    ("before", "after", "is_lost"),
    [
        (1.0, 1.0, False),
        (1e6, np.inf, True),
        (1e-9, 0.0, True),
        (np.inf, np.inf, False),
        (0.0, 0.0, False),
    ],
)
def test_a_number_that_becomes_zero_or_infinite_is_lost(before, after, is_lost):
    index, value = np.array([1, 0]), np.array([2.0, -3.0])
    with_it = [value, index, np.array([1.0, before])]
    assert lost(with_it, [value, 0 * index, np.array([1.0, after])]) is is_lost


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_truncation_leans_and_rounding_to_nearest_does_not(sign):
    want = sign * np.random.default_rng(0).uniform(1, 2, (1, 4 * ENOUGH))
    down = (np.floor(np.abs(want) * 2.0**10) / 2.0**10) * np.sign(want)
    assert bias(down, want, "float16") == pytest.approx(-0.5, abs=0.1)
    assert bias(want.astype(np.float16).astype(float), want, "float16") is None
    assert bias(down[:, : ENOUGH - 1], want[:, : ENOUGH - 1], "float16") is None
    assert bias(np.where(want == want, want, 0.0), want, "float16") is None
