"""Kinks that nobody declared are found at the point, and smooth functions raise no alarm."""

import numpy as np
import pytest
from gradcheck_cases.attention import softmax
from gradcheck_cases.norm import layer_norm

from gradcheck.arithmetic import F64
from gradcheck.difference.evaluate import Evaluator, Point
from gradcheck.difference.kinks import _order, examine
from gradcheck.difference.truth import Differences, noise_lines
from gradcheck.draw import Draw
from gradcheck.judge.compare import KAPPA


def look(function, x, element=0, cts=None, dtype=np.float64):
    """What `examine` says of one element, for the cotangents `cts` [q, m] or ones."""
    point = Point(lambda x: (np.asarray(function(x)),), (np.asarray(x, dtype=dtype),))
    evaluator = Evaluator(point, 0)
    cts = np.ones((1, evaluator.base.size)) if cts is None else np.asarray(cts, dtype=float)
    return examine(evaluator, element, cts, np.zeros(evaluator.base.size))


def relu(x):
    return np.maximum(x, 0)


# name → function, kink, the slopes on both sides
KINKED = {
    "abs": (np.abs, 0.0, -1, 1),
    "relu": (relu, 0.0, 0, 1),
    "relu shifted": (lambda x: relu(x - 0.7), 0.7, 0, 1),
    "leaky relu": (lambda x: np.where(x > 0, x, 0.01 * x), 0.0, 0.01, 1),
    "clamp from below": (lambda x: np.clip(x, -1, 1), -1.0, 0, 1),
    "clamp from above": (lambda x: np.clip(x, -1, 1), 1.0, 0, 1),
    "elu, alpha 2": (lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0))), 0.0, 1, 2),
    "concave": (lambda x: np.minimum(x, 3 * x), 0.0, 1, 3),
    "with a smooth part": (lambda x: np.exp(x) + 1e-3 * np.abs(x), 0.0, 0.999, 1.001),
    "tie of two branches": (lambda x: np.maximum(x**2, x), 1.0, 1, 2),
    "far from the origin": (lambda x: np.abs(x - 1000), 1000.0, -1, 1),
}
each_kink = pytest.mark.parametrize("name", KINKED)


@each_kink
@pytest.mark.parametrize("distance", [0.0, 1e-13, -1e-13])
def test_a_kink_is_found_with_both_of_its_slopes(name, distance):
    function, kink, low, high = KINKED[name]
    found = look(function, [kink + distance])
    assert found is not None
    assert not found.jumps
    assert found.bar[0] < 1e-4
    assert abs(found.low[0] - low) <= KAPPA * found.bar[0] + 1e-12
    assert abs(found.high[0] - high) <= KAPPA * found.bar[0] + 1e-12


@each_kink
@pytest.mark.parametrize("distance", [3e-11, 1e-10, -3e-10, 1e-9, -1e-9, 1e-7, 1e-5, 0.01])
def test_beside_a_kink_it_is_flagged_or_the_ladder_resolves_the_slope(name, distance):
    function, kink, *slopes = KINKED[name]
    x = np.array([kink + distance])
    away = np.sign(distance) * 1e-3  # to the side on which x lies
    secant = float((function(x + away) - function(x))[0] / away)
    true = min(slopes, key=lambda slope: abs(slope - secant))
    found = look(function, x)
    point = Point(lambda x: (function(x),), (x,))
    differences = Differences(point, 0, np.ones((1, 1)), noise_lines(point))
    differences.refine(np.array([0]))
    value, bar = differences.estimate.value[0, 0], differences.estimate.bar[0, 0]
    curved = 4 * abs(distance)  # the slopes are those at the kink
    if found is None:
        assert abs(value - true) <= KAPPA * bar + curved
    else:
        low, high = found.low[0] - KAPPA * found.bar[0], found.high[0] + KAPPA * found.bar[0]
        assert low - curved <= true <= high + curved
    if abs(distance) == 0.01 and name != "far from the origin":
        assert found is None


@each_kink
def test_a_cotangent_scales_and_turns_the_interval(name):
    function, kink, low, high = KINKED[name]
    found = look(function, [kink], cts=[[2.0], [-3.0], [0.0]])
    np.testing.assert_allclose(found.low, [2 * low, -3 * high, 0], atol=1e-4)
    np.testing.assert_allclose(found.high, [2 * high, -3 * low, 0], atol=1e-4)


def test_kinks_that_cancel_in_a_sum_are_two_kinks():
    def both(x):
        return np.stack([np.abs(x), -np.abs(x)], axis=-1)

    found = look(both, [0.0])
    assert (found.low[0], found.high[0]) == pytest.approx((-2, 2), abs=1e-6)
    assert look(lambda x: np.abs(x) - np.abs(x), [0.0]) is None


def test_the_bar_of_a_kink_is_what_rounding_leaves_of_its_sharpest_step():
    """|x| has no other error: 3 · 4 u · 1/2 over the third step, 1/32, for each of the outputs."""
    cts = [[1.0, 0.0], [2.0, -3.0]]
    found = look(lambda x: np.stack([np.abs(x[0]), np.abs(x[0])]), [0.0], cts=cts)
    assert found.bar.tolist() == [192 * 2.0**-53, 5 * 192 * 2.0**-53]


def test_only_the_element_asked_for_is_moved():
    x = [0.3, 0.0, -2.0]
    assert [look(np.abs, x, element) is not None for element in range(3)] == [False, True, False]


def test_a_tie_of_maxima_is_a_kink_for_each_that_ties():
    x = [1.5, -0.5, 1.5]
    found = [look(lambda x: np.max(x, axis=-1, keepdims=True), x, e) for e in range(3)]
    assert [f is not None for f in found] == [True, False, True]
    assert (found[0].low[0], found[0].high[0]) == pytest.approx((0, 1), abs=1e-6)


def test_a_kink_in_float32_is_found():
    found = look(relu, [0.0, 1.0], dtype=np.float32)
    assert (found.low[0], found.high[0]) == pytest.approx((0, 1), abs=1e-3)
    assert look(relu, [0.0, 1.0], element=1, dtype=np.float32) is None


JUMPS = {
    "floor": (np.floor, 1.0),
    "sign": (np.sign, 0.0),
    "a small step": (lambda x: x + 1e-3 * (x > 0), 0.0),
    "step with a slope": (lambda x: np.where(x > 0.5, 2 * x, x), 0.5),
}


@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_is_no_kink_to_judge_by(name):
    function, x = JUMPS[name]
    found = look(function, [x])
    assert found is not None
    assert found.jumps


# ── no false alarm ───────────────────────────────────────────────────────────────────────────

SMOOTH = {
    "exp": np.exp,
    "cube": lambda x: x**3,
    "fourth power": lambda x: x**4,
    "sine": np.sin,
    "fast sine": lambda x: np.sin(50 * x),
    "tanh": np.tanh,
    "steep tanh": lambda x: np.tanh(1e3 * x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "softplus": lambda x: np.logaddexp(0, x),
    "linear": lambda x: 3 * x - 1,
    "constant": lambda x: 0 * x + 2,
    "root": lambda x: np.sqrt(1 + x * x),
    "log": lambda x: np.log(x * x + 1e-3),
    "a ratio": lambda x: x / np.sqrt(x * x + 1e-5),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "x |x|": lambda x: x * np.abs(x),
    "shifted": lambda x: np.tanh(x - 1000),
}
POINTS = np.concatenate([Draw("kinks").normal(40), [0.0, 1.0, -1.0, 1e-3]])


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_function_has_no_kink_anywhere(name):
    x = POINTS + (1000 if name == "shifted" else 0)
    flagged = [v for k, v in enumerate(x) if look(SMOOTH[name], x, k, np.eye(x.size)[[k]])]
    assert flagged == []


@pytest.mark.parametrize("times", [10, 20, 30])
def test_two_levels_above_the_noise_are_one_fall_and_prove_nothing(times):
    """A wave as short as the longest steps: its even part does not fall between the two."""
    point = Point(lambda x: (np.cos(times * x),), (np.zeros(1),))
    assert examine(Evaluator(point, 0), 0, np.ones((1, 1)), np.array([2.0**-7])) is None
    assert examine(Evaluator(point, 0), 0, np.ones((1, 1)), np.zeros(1)) is None


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: softmax.forward(F64, x), Draw("kinks", "rows").normal(6, 8)),
        (lambda x: layer_norm.forward(F64, x), Draw("kinks", "rows").normal(6, 8)),
        (np.abs, Draw("kinks", "away").away(0.0, 48)),
        (relu, Draw("kinks", "away").away(0.0, 48)),
    ],
)
def test_rows_and_points_away_from_kinks_have_none(function, x):
    flagged = [k for k in range(x.size) if look(function, x, k) is not None]
    assert flagged == []


@pytest.mark.parametrize(("levels", "order"), [(1, np.inf), (2, np.inf), (3, 1.0), (17, 1.0)])
def test_three_levels_above_the_noise_tell_the_order_and_fewer_do_not(levels, order):
    h = 4.0 ** -np.arange(levels)
    assert _order(np.ones((levels, 1)), np.zeros(1), h).tolist() == [order]
