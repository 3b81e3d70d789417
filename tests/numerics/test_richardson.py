"""Differences converge as their order says, and distrust what they must."""

import numpy as np
import pytest

from gradcheck.numerics import richardson, sparsity
from gradcheck.numerics.evaluate import Evaluator, Point

U = 2.0**-53
ONE = np.ones((1, 1))


def prepared(function, x):
    """An evaluator of `function` at `x`, its structure, and a cotangent of ones."""
    evaluator = Evaluator(Point(lambda x: (function(x),), (np.asarray(x, dtype=float),)), 0)
    found = sparsity.find(evaluator, np.random.default_rng(0))
    return evaluator, found, np.ones((1, evaluator.base.size))


def differences(function, x, h):
    """Central differences [steps, n] of an elementwise function at the points `x`."""
    evaluator, found, cts = prepared(function, x)
    assert found.colours == 1
    slopes, scales, *_ = richardson.central(evaluator, found, cts, np.array([0]), np.asarray(h))
    return slopes[:, 0, 0], scales[:, 0, 0]


def climbed(function, x, noise=0.0):
    """Value and bar [n] of the ladder, for an elementwise function."""
    evaluator, found, cts = prepared(function, x)
    h = richardson.steps(evaluator.x, richardson.LADDER_LEVELS)
    slopes, scales, *_ = richardson.central(evaluator, found, cts, np.array([0]), h)
    level = np.maximum(noise, U * np.abs(evaluator.base))[None, None]
    value, bar = richardson.best_of_all_steps(slopes, scales, level, h, U)
    return value[0, 0], bar[0, 0]


def by_hand(slopes, h):
    """Bars of slopes [levels] without noise."""
    slopes = np.asarray(slopes, dtype=float)[:, None, None, None]
    values, bar = richardson.bars(slopes, np.abs(slopes), np.zeros((1, 1, 1)), np.asarray(h), U)
    return values.reshape(-1), bar.reshape(-1)


# ── order ────────────────────────────────────────────────────────────────────────────────────

SMOOTH = {
    "exp": (np.exp, np.exp, [0.7]),
    "sin": (np.sin, np.cos, [0.4]),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2, [0.3]),
    "1/x": (lambda x: 1 / x, lambda x: -1 / x**2, [1.5]),
}


def order(errors, h):
    """Fitted slope of log error against log h, above what rounding leaves."""
    clear = errors > 3e-12
    assert clear.sum() >= 3
    return np.polyfit(np.log(h[clear]), np.log(errors[clear]), 1)[0]


@pytest.mark.parametrize("name", SMOOTH)
def test_a_central_difference_is_of_order_two_and_its_extrapolation_of_order_four(name):
    function, slope, x = SMOOTH[name]
    h = 0.25 / richardson.RATIO ** np.arange(5)
    slopes, _ = differences(function, x, h)
    true = slope(np.asarray(x))
    assert order(np.abs(slopes - true)[:, 0], h) == pytest.approx(2, abs=0.05)
    assert order(np.abs(richardson.extrapolate(slopes) - true)[:, 0], h[:-1]) == pytest.approx(
        4, abs=0.15
    )


def test_the_extrapolation_is_exact_for_a_cubic():
    slopes, _ = differences(lambda x: x**3 - x, [0.5], [0.5, 0.125])
    assert slopes[0, 0] != -0.25
    assert richardson.extrapolate(slopes)[0, 0] == pytest.approx(-0.25, rel=1e-15)


def test_steps_fall_from_half_the_magnitude_of_the_primal():
    assert richardson.steps(np.array([3.0, -40.0]), 3).tolist() == [20.0, 5.0, 1.25]
    assert richardson.steps(np.array([1e-9]), 2).tolist() == [0.5, 0.125]
    assert richardson.top_step(np.zeros((0,))) == 0.5


def test_the_finest_steps_of_the_ladder_are_digits_that_a_number_has():
    """Noise is looked for in the last four of them: a step that vanishes shows none."""
    finest = richardson.steps(np.array([1.0]), richardson.LADDER_LEVELS)[-4:]
    np.testing.assert_allclose((1.0 + finest) - (1.0 - finest), 2 * finest, rtol=1e-3)


# ── steps as the machine takes them ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("x", [1000.0, 1000.1, -1e6, 0.3, 1e-3])
def test_the_divisor_is_the_step_that_was_realised(x):
    h = np.array([1.3e-9, 0.7e-10, 1e-5 / 3]) * max(1.0, abs(x))
    slopes, _ = differences(lambda x: 1.0 * x, [x], h)
    nominal = ((x + h) - (x - h)) / (2 * h)
    assert slopes[:, 0].tolist() == [1.0, 1.0, 1.0]
    assert np.any(nominal != 1.0)


def test_a_value_that_grows_with_the_step_brings_its_own_rounding():
    evaluator, found, cts = prepared(lambda x: x * x, [1e-20])
    h = np.array([0.25, 1e-20])
    slopes, _, rough, _ = richardson.central(evaluator, found, cts, np.array([0]), h)
    assert slopes[0, 0, 0, 0] == 0.0  # 1e-20 is nothing beside the step
    # Three roundings of the value at either end: 3 · 2u · 1/16, over the step of 1/2.
    assert rough[0, 0, 0, 0] == pytest.approx(6 * U * 0.25**2 / 0.5, rel=1e-12, abs=0)
    assert rough[1, 0, 0, 0] == 0.0  # four times the value at x is nothing out of the way


def test_infinite_values_have_no_rounding():
    evaluator, found, cts = prepared(lambda x: np.where(np.abs(x) > 1, -np.inf, x), [1e-3])
    _, _, rough, _ = richardson.central(evaluator, found, cts, np.array([0]), np.array([2.0, 0.5]))
    assert rough[0, 0, 0, 0] == 0.0
    assert rough[1, 0, 0, 0] > 0.0


@pytest.mark.parametrize(
    ("x", "tops"),
    [([1.0], [0.5]), ([0.0], [0.5]), ([1e-3, 0.0], [0.5]), ([1e-9, 0.0], [0.5, 5e-10])],
)
def test_a_small_primal_has_steps_of_its_own_size(x, tops):
    runs = richardson.step_ranges(np.array(x), 3)
    assert [run[0] for run in runs] == tops
    assert all((run[:-1] == 4 * run[1:]).all() for run in runs)


def test_a_float32_primal_takes_float32_steps():
    x = np.array([1000.0], dtype=np.float32)
    evaluator = Evaluator(Point(lambda x: (x.astype(np.float64) * 2,), (x,)), 0)
    found = sparsity.find(evaluator, np.random.default_rng(0))
    slopes, *_ = richardson.central(
        evaluator, found, ONE, np.array([0]), np.array([0.3, 1e-3, 1e-6])
    )
    assert slopes[:2].reshape(-1).tolist() == [2.0, 2.0]
    assert np.isnan(slopes[2]).all()


def test_a_step_that_vanishes_in_rounding_says_nothing():
    slopes, _ = differences(lambda x: 2 * x, [1e6], [1.0, 1e-12])
    assert slopes[0, 0] == 2.0
    assert np.isnan(slopes[1, 0])


def test_each_output_is_weighted_and_the_scale_does_not_cancel():
    evaluator, found, _ = prepared(lambda x: np.stack([3 * x, 3 * x], axis=-1), [0.5, 2.0])
    cts = np.array([[1.0, -1.0, 1.0, 2.0], [0.0, 1.0, 0.0, 0.0]])
    slopes, scales, *_ = richardson.central(evaluator, found, cts, np.array([0]), np.array([0.25]))
    assert slopes[0, :, 0].tolist() == [[0.0, 9.0], [3.0, 0.0]]
    assert scales[0, :, 0].tolist() == [[6.0, 9.0], [3.0, 0.0]]


def test_values_that_stay_infinite_move_by_nothing():
    def forward(x):
        return np.stack([x**2, np.full_like(x, -np.inf)], axis=-1)

    slopes, _ = differences(forward, [0.5], [0.125])
    assert slopes.tolist() == [[1.0]]


# ── bars ─────────────────────────────────────────────────────────────────────────────────────

H = 4.0 ** -np.arange(6)


def test_a_bar_is_the_last_movement_and_three_deviations_of_the_noise():
    slopes = (2 + 0.3 * H**2 + 0.01 * H**4)[:, None, None, None]
    values, bar = richardson.bars(slopes, 0 * slopes, np.full((1, 1, 1), 1e-6), H, U)
    moved = np.abs(np.diff(richardson.extrapolate(slopes), axis=0)).reshape(-1)
    np.testing.assert_allclose(bar.reshape(-1), moved + 3 * 1e-6 / H[2:], rtol=1e-12)
    assert np.all(np.abs(values.reshape(-1) - 2) <= bar.reshape(-1))


@pytest.mark.parametrize(
    "slopes",
    [
        1 / H,  # saturated: the same rise over every step
        1 + 0.1 / H,
        (-1.0) ** np.arange(6),
        [np.nan] * 6,
        [1.0, np.inf, 1.0, np.inf, 1.0, np.inf],
    ],
)
def test_a_level_that_does_not_settle_has_no_bar(slopes):
    _, bar = by_hand(slopes, H)
    assert np.isinf(bar).all()


def test_a_level_that_touches_nan_has_no_bar_and_the_others_keep_theirs():
    slopes = 2 + 0.3 * H**2
    slopes[1] = np.nan
    _, bar = by_hand(slopes, H)
    assert np.isinf(bar).tolist() == [True, True, False, False]


def test_movement_below_the_noise_counts_as_settled():
    slopes = np.array([2.0, 2.0 + 1e-9, 2.0 - 2e-9])[:, None, None, None]
    for noise, finite in ((1e-9, True), (1e-15, False)):
        _, bar = richardson.bars(slopes, 0 * slopes, np.full((1, 1, 1), noise), H[:3], U)
        assert np.isfinite(bar).all() == finite


# ── the ladder ───────────────────────────────────────────────────────────────────────────────

HARD = {
    "exp": (np.exp, np.exp, np.linspace(-3, 3, 41)),
    "log near its edge": (np.log, lambda x: 1 / x, np.logspace(-8, 0, 41)),
    "root near its edge": (np.sqrt, lambda x: 0.5 / np.sqrt(x), np.logspace(-8, 0, 41)),
    "tanh into saturation": (np.tanh, lambda x: 1 / np.cosh(x) ** 2, np.linspace(-30, 30, 41)),
    "steep": (lambda x: np.tanh(1e4 * x), lambda x: 1e4 / np.cosh(1e4 * x) ** 2, [2e-5, -1e-4]),
    "a scale of its own": (
        lambda x: x / np.sqrt(x * x + 1e-6),
        lambda x: 1e-6 / (x * x + 1e-6) ** 1.5,
        np.logspace(-5, -1, 21),
    ),
    "beside a pole": (lambda x: 1 / (x - 1), lambda x: -1 / (x - 1) ** 2, 1 + np.logspace(-6, -1)),
    "wiggling": (lambda x: np.sin(100 * x), lambda x: 100 * np.cos(100 * x), np.linspace(0, 1, 41)),
    "linear": (lambda x: 3 * x, lambda x: 3 + 0 * x, np.linspace(-9, 9, 41)),
    "constant": (lambda x: 0 * x + 7, lambda x: 0 * x, np.linspace(-9, 9, 41)),
}


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("name", HARD)
def test_the_bar_of_the_ladder_covers_its_error(name):
    function, slope, x = HARD[name]
    for point in np.asarray(x):  # one by one: each has a top step of its own
        value, bar = climbed(function, [point])
        error = np.abs(value - slope(point))
        assert error <= bar, point
        assert bar <= 1e-6 * max(abs(slope(point)), 1e-3)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", ["exp", "linear", "wiggling", "a scale of its own"])
def test_the_bar_of_the_ladder_is_no_wider_than_it_must_be(name):
    function, slope, x = HARD[name]
    relative = []
    for point in np.asarray(x):
        _, bar = climbed(function, [point])
        relative.append(bar[0] / max(abs(slope(point)), 1e-3))
    assert np.median(relative) < 1e-9


def test_a_saturated_level_is_not_believed_though_its_numbers_are_small():
    # Coarse steps see only the plateaus, D = 1/h; the true slope is nowhere near.
    value, bar = climbed(lambda x: np.tanh(1e6 * x), [0.0])
    assert abs(value[0] - 1e6) <= bar[0] < 1
    slopes, _ = differences(lambda x: np.tanh(1e6 * x), [0.0], richardson.steps(np.zeros(1), 5))
    np.testing.assert_allclose(slopes[:, 0], 1 / richardson.steps(np.zeros(1), 5))


def test_the_coarsest_level_is_never_believed():
    """Nothing above it vouches for it, though its steps agree as no others do."""
    h = richardson.steps(np.ones(1), richardson.LADDER_LEVELS)
    slopes = 2 + 0.3 * h**2 + 1e-15 / h
    slopes[:3] = 5.0
    value, bar = richardson.best_of_all_steps(
        slopes[:, None, None, None], np.zeros((h.size, 1, 1, 1)), np.zeros((1, 1, 1)), h, U
    )
    assert value[0, 0, 0] == pytest.approx(2, abs=1e-3)
    assert abs(value[0, 0, 0] - 2) <= bar[0, 0, 0]


def test_noise_that_nobody_measured_is_seen_in_the_finest_differences():
    h = richardson.steps(np.ones(1), richardson.LADDER_LEVELS)
    noise = np.random.default_rng(0).normal(size=(h.size, 1, 1, 2000)) * 1e-10
    slopes = 2 + (0.3 * h**2)[:, None, None, None] + noise / h[:, None, None, None]
    value, bar = richardson.best_of_all_steps(slopes, 0 * slopes, np.zeros((1, 1, 2000)), h, U)
    assert np.mean(np.abs(value - 2) <= bar) > 0.95
    assert np.median(bar) < 1e-6


@pytest.mark.parametrize("name", ["staircase", "kink close by"])
def test_fine_and_coarse_levels_that_contradict_each_other_are_not_believed(name):
    functions = {
        "staircase": (lambda x: np.round(x * 2.0**30) / 2.0**30, 0.7, 1.0),
        "kink close by": (lambda x: np.exp(x) + 1e-3 * np.abs(x), 1e-9, 1.001),
    }
    function, x, slope = functions[name]
    value, bar = climbed(function, [x])
    assert abs(value[0] - slope) <= bar[0] + 1e-8


def test_values_of_order_six_reach_further_up_where_noise_counts_less():
    """Of a polynomial of degree four they are exact from the first level that may be believed."""
    h = richardson.steps(np.ones(1), 12)
    slopes = (2 + h**2 + h**4)[:, None, None, None]
    value, bar = richardson.best_of_all_steps(slopes, 0 * slopes, np.full((1, 1, 1), 1e-8), h, U)
    assert value[0, 0, 0] == pytest.approx(2, abs=1e-12)
    assert bar[0, 0, 0] == pytest.approx(3 * 1e-8 / h[4], rel=1e-6)
