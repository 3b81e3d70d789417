"""Forward at every scale: kinks are found at the point, and the finest scale tells the slope."""

import numpy as np
import pytest
from gradcheck_cases.attention import softmax
from gradcheck_cases.norm import layer_norm

from gradcheck.numerics import sparsity
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Evaluator, Point
from gradcheck.numerics.kinks_and_slopes import (
    DirectionThroughAll,
    Scales,
    _extrapolated,
    _fall,
)


def scales(function, x, element=0, dtype=np.float64):
    """Forward around one element."""
    point = Point(lambda x: (np.asarray(function(x)),), (np.asarray(x, dtype=dtype),))
    evaluator = Evaluator(point, 0)
    return Scales(evaluator, sparsity.whole(evaluator.x, evaluator.base.size), element)


def look(function, x, element=0, cts=None, dtype=np.float64):
    """Both sides of an element, for the cotangents `cts` [q, m] or ones; None without a kink."""
    found = scales(function, x, element, dtype)
    cts = np.ones((1, found.central.shape[1])) if cts is None else np.asarray(cts, dtype=float)
    sides = found.sides(cts)
    step = found.reading(cts, np.zeros((len(cts), 1))).step.max()
    return sides if sides.kinked[0] or sides.vague[0] <= step else None


def read(function, x, got, element=0, dtype=np.float64):
    """The slope, its bar, and whether two scales disagree, where `got` is tried."""
    found = scales(function, x, element, dtype)
    reading = found.reading(np.ones((1, found.central.shape[1])), np.array([[got]]))
    return reading.value[0, 0], reading.bar[0, 0], reading.split[0, 0]


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
def test_a_kink_is_found_with_both_of_its_slopes(name):
    function, kink, low, high = KINKED[name]
    found = look(function, [kink])
    assert found.kinked[0] or name == "with a smooth part"  # of which rounding hides the last bits
    assert not found.jumps[0]
    assert found.bar[0, 0] < (1e-8 if name == "with a smooth part" else 1e-12)
    assert abs(found.low[0, 0] - low) <= 2 * found.bar[0, 0] + 1e-12
    assert abs(found.high[0, 0] - high) <= 2 * found.bar[0, 0] + 1e-12


@pytest.mark.slow(keep=10)
@each_kink
@pytest.mark.parametrize("distance", [1e-13, 3e-11, -1e-10, 1e-9, -1e-7, 1e-5, 0.01])
def test_beside_a_kink_the_slope_of_that_side_is_read_or_nothing_is(name, distance):
    function, kink, *slopes = KINKED[name]
    x = np.array([kink + distance * max(1, abs(kink))])
    away = np.sign(distance) * 1e-3  # to the side on which x lies
    secant = float((function(x + away) - function(x))[0] / away)
    true = min(slopes, key=lambda slope: abs(slope - secant))
    value, bar, _ = read(function, x, true)
    sides = scales(function, x).sides(np.ones((1, 1)))
    assert not sides.kinked[0]
    assert sides.vague[0] < np.inf or abs(value - true) <= 2 * bar + 4 * abs(distance)


@each_kink
def test_a_cotangent_scales_and_turns_the_interval(name):
    function, kink, low, high = KINKED[name]
    found = look(function, [kink], cts=[[2.0], [-3.0], [0.0]])
    np.testing.assert_allclose(found.low[:, 0], [2 * low, -3 * high, 0], atol=1e-4)
    np.testing.assert_allclose(found.high[:, 0], [2 * high, -3 * low, 0], atol=1e-4)


def test_kinks_that_cancel_in_a_sum_are_two_kinks():
    def both(x):
        return np.stack([np.abs(x), -np.abs(x)], axis=-1)

    found = look(both, [0.0])
    assert (found.low[0, 0], found.high[0, 0]) == pytest.approx((-2, 2), abs=1e-6)
    assert look(lambda x: np.abs(x) - np.abs(x), [0.0]) is None


def test_only_the_element_asked_for_is_moved():
    x = [0.3, 0.0, -2.0]
    assert [look(np.abs, x, element) is not None for element in range(3)] == [False, True, False]


def test_a_tie_of_maxima_is_a_kink_for_each_that_ties():
    x = [1.5, -0.5, 1.5]
    found = [look(lambda x: np.max(x, axis=-1, keepdims=True), x, e) for e in range(3)]
    assert [f is not None for f in found] == [True, False, True]
    assert (found[0].low[0, 0], found[0].high[0, 0]) == pytest.approx((0, 1), abs=1e-6)


def test_a_kink_in_float32_is_found():
    found = look(relu, [0.0, 1.0], dtype=np.float32)
    assert (found.low[0, 0], found.high[0, 0]) == pytest.approx((0, 1), abs=1e-3)
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
    found = scales(function, [x])
    assert found.sides(np.ones((1, 1))).jumps[0]


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


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_function_has_no_kink_anywhere(name):
    x = POINTS + (1000 if name == "shifted" else 0)
    flagged = [v for k, v in enumerate(x) if look(SMOOTH[name], x, k, np.eye(x.size)[[k]])]
    assert flagged == []


@pytest.mark.slow(keep=1)
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
    h = 4.0 ** -np.arange(levels)[:, None]
    assert _fall(h, np.zeros((levels, 1)), h).order.tolist() == [order]


@pytest.mark.parametrize(("roundings", "order"), [(40.0, 1.0), (20.0, np.inf)])
def test_a_kink_of_a_few_roundings_may_be_rounding(roundings, order):
    """The least of three levels stands so many times above the rounding of an even part."""
    h = 4.0 ** -np.arange(3)[:, None]
    assert _fall(h, np.full((3, 1), h[-1, 0] / roundings), h).order.tolist() == [order]


@pytest.mark.parametrize(("noise", "stays"), [(20.0, True), (2e-5, False)])
def test_a_kink_that_is_gone_where_it_would_show_lies_beside(noise, stays):
    """At the fifth level its even part is 0; it would be 1/4, above the noise or below it."""
    h, level = 1e-3 * 4.0 ** -np.arange(12)[:, None], np.arange(12)[:, None]
    even = np.where(level < 4, h / h[3], 0.0)
    assert _fall(even, np.where(level < 4, 2e-2, noise), h).stays.tolist() == [stays]


@pytest.mark.parametrize(
    ("function", "flat"),
    [(np.sign, True), (np.tanh, False), (lambda x: np.sign(x) * (np.abs(x) < 1.9), False)],
)
def test_a_function_is_flat_where_no_value_along_a_line_differs(function, flat):
    point = Point(lambda x: (function(x),), (np.array([1.5, -2.0, 1e-3]),))
    assert DirectionThroughAll(Evaluator(point, 0)).is_flat() is flat


# ── slopes ───────────────────────────────────────────────────────────────────────────────────


def absorbed(x):
    return (1e3 + np.exp(x)) - 1e3


# name → function, primals, the slope by the first, and how well it must be known
SLOPES = {
    "a norm at 1e-9": (lambda x: np.hypot(x[:1], x[1:]), [3e-9, 4e-9], 0.6, 1e-9),
    "a norm at 1e-150": (
        lambda x: np.sqrt((x * x).sum(keepdims=True)), [3e-150, 4e-150], 0.6, 1e-9,
    ),
    "a Huber loss at 1e-13": (
        lambda x: np.where(abs(x) < 1e-12, x * x / 2e-12, abs(x) - 5e-13), [3e-13], 0.3, 1e-9,
    ),
    "beside 3e6": (lambda x: np.exp(-x * x), [1, -2, 0.5, 3e6], -2 * np.exp(-1), 1e-9),
    "narrower than a step": (lambda x: np.tanh(1e7 * (x - 1)), [1.0], 1e7, 1e-9),
    "relu at 1e-300": (relu, [1e-300, -2.0], 1.0, 1e-9),
    "relu dead at -1e-300": (relu, [-1e-300, -2.0], 0.0, 1e-9),
    "a cube at 1e-15": (lambda x: x**3, [1e-15], 3e-30, 1e-9),
    "float32 inside": (
        lambda x: np.float64(np.float32(np.tanh(x))), [0.5], 1 - np.tanh(0.5) ** 2, 1e-4,
    ),
    "flat at every scale": (np.sign, [1.5], 0.0, 1e-12),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOPES)
def test_the_finest_scale_tells_the_slope_whatever_is_tried(name):
    function, x, slope, precision = SLOPES[name]
    for tried in (slope, 0.0, -slope, 1.1 * slope):
        value, bar, split = read(function, np.array(x), tried)
        assert (tried, split) == (tried, False)
        assert abs(value - slope) <= 2 * bar <= 2 * precision * (abs(slope) or 1.0)


@pytest.mark.parametrize(
    ("function", "x", "slope"),
    [
        (absorbed, -30.0, np.exp(-30)),
        (absorbed, -80.0, np.exp(-80)),
        (lambda x: np.log(1 + np.exp(-x)), 38.0, -np.exp(-38)),
        (lambda x: np.float64(np.float16(np.tanh(x))), 0.5, 1 - np.tanh(0.5) ** 2),
        (lambda x: np.round(np.sin(x), 3), 0.5, np.cos(0.5)),
        (lambda x: np.round(64 * x) / 64, 0.3, 1.0),
    ],
)
def test_where_values_stand_on_stairs_the_bar_holds_the_slope(function, x, slope):
    """Neighbours are equal bit by bit there, and their slope of 0 is no fact."""
    value, bar, split = read(function, np.array([x]), slope)
    assert split or abs(value - slope) <= 2 * bar


def test_two_levels_that_agree_by_accident_are_known_as_well_as_the_one_above_moved():
    h = 4.0 ** -np.arange(4)[:, None]
    slopes = np.array([0.0, 0.0, 15.0, 15.9375])  # extrapolated: 0, 16, 16
    values, bars = _extrapolated(slopes[:, None, None], np.zeros((4, 1, 1)), h)
    assert values.ravel().tolist() == [16.0, 16.0]
    assert bars.ravel().tolist() == [np.inf, 1.0]


def test_a_step_that_is_left_out_leaves_no_bar():
    h = 4.0 ** -np.array([0, 1, 2, 4])[:, None]
    _, bars = _extrapolated(np.ones((4, 1, 1)), np.zeros((4, 1, 1)), h)
    assert np.isinf(bars).all()


def test_a_slope_that_only_coarse_scales_have_is_neither_right_nor_wrong():
    """What is rounded to float32 first, and multiplied then, has a fine slope of its own."""

    def forward(x):
        return np.float32(np.tanh(x)).astype(np.float64) * x

    smooth = 0.5 * (1 - np.tanh(0.5) ** 2) + np.tanh(0.5)
    assert read(forward, np.array([0.5]), smooth)[1:] == (np.inf, True)
