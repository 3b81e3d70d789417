"""One pair per colour: bars that hold what noise does to a pair, and no more than that.

What the coarse pass finds and costs, on ordinary and hard inputs, is in tests/judge/test_screened.
"""

import numpy as np
import pytest

from gradcheck.numerics import sparsity
from gradcheck.numerics.coarse_pass import Contraction, _model, screen
from gradcheck.numerics.evaluate import Evaluator, Point

U = 2.0**-53


def evaluator(function, x):
    return Evaluator(Point(lambda x: (function(x),), (x,)), 0, (function(x),))


def screened(function, x):
    it = evaluator(function, x)
    return screen(it, np.ones((1, it.base.size)))


def test_of_a_smooth_function_eight_digits_are_known():
    x = np.random.default_rng(0).normal(size=(8, 16))
    found = screened(lambda x: np.cumsum(np.exp(x), axis=-1), x)
    slope = (np.arange(16, 0, -1) * np.exp(x)).reshape(1, -1)
    assert np.all(np.abs(found.value - slope) <= found.bar)
    assert np.median(found.bar / slope) < 5e-9


def test_blocks_that_look_calm_by_chance_have_the_noise_of_the_others():
    """A row whose few differences happen to be rounded little is as noisy as any."""
    x = np.random.default_rng(0).normal(size=(64, 16))
    found = screened(lambda x: (np.round(np.exp(x) * 2.0**34) / 2.0**34).sum(axis=-1), x)
    error = np.abs(found.value - np.exp(x).reshape(1, -1))
    assert np.all(error <= found.bar)
    assert np.median(found.bar) < 1e-6


def test_a_forward_that_is_wrong_by_a_factor_at_all_neighbours_lies_within_the_bar():
    """By 128 units of u, as one is that cancels inside; no difference shows it."""
    x = (np.arange(1024) % 9 - 4.0).reshape(64, 16)  # every step is exact
    here, weights = x.copy(), 2.0 ** -np.arange(16)
    found = screened(lambda x: ((x - here) * weights).sum(axis=-1) * (1 + 128 * U), x)
    slope = np.tile(weights, 64)
    assert np.all(found.value == slope * (1 + 128 * U))
    assert np.all(np.abs(found.value - slope) <= found.bar)
    assert np.all(found.bar <= 1e-12)


@pytest.mark.parametrize(
    ("base", "noise"),
    [
        ([1.0, -1.0, 1.0, 1.0], [1, 1, 1, 1]),
        ([4.0, -8.0, 1.0, 2.0], [4, 8, np.sqrt(85 / 64), 2]),
        ([4.0, -4.0, 4.0, 0.0], [4, 4, 4, np.sqrt(48 / 64)]),  # what is 0 by cancellation
    ],
)
def test_the_model_of_noise_is_a_rounding_of_each_output_and_a_quarter_of_what_is_usual(
    base, noise
):
    x = np.zeros((4, 16))
    it = evaluator(lambda x: np.array(base) + 0 * x.sum(axis=-1), x)
    rows = sparsity._arrange(x, {0: np.arange(4)}, 4)
    cts = np.ones((1, 4))
    np.testing.assert_allclose(
        _model(Contraction(rows, cts), it, cts) / U, [noise], rtol=1e-12, atol=0
    )
