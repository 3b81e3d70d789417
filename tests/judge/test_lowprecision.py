"""What a dtype loses of the primals, and which errors lean to one side."""

import numpy as np
import pytest

from gradcheck.judge.lowprecision import ENOUGH, FEW, bias, lost


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
    near = want.astype(np.float16).astype(float)
    down = (np.floor(np.abs(want) * 2.0**10) / 2.0**10) * np.sign(want)

    def off(got, size=want.size, draws=(near, near)):
        rows = want[:, :size]
        return bias(got[:, :size], rows, "float16", lambda: [d[:, :size] for d in draws])

    assert off(down) == pytest.approx(-0.5, abs=0.1)
    assert off(down, FEW) == pytest.approx(-0.5, abs=0.2)
    assert off(near) is None
    assert off(down, FEW - 1) is None
    assert off(want * 1.01) is None  # further off than by the last step
    leaning = (down, 2 * want - down)
    assert off(down, draws=leaning) == pytest.approx(-0.5, abs=0.1)  # all lean: no such factor
    some = np.where(np.arange(want.size) % 5 > 0, down, 2 * want - down)
    assert off(some) == pytest.approx(-0.3, abs=0.1)
    assert off(some, draws=leaning) is None
    assert off(down, FEW, leaning) is None
