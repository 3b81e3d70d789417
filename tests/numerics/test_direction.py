"""Slopes and mixed second derivatives along directions, against exact ones."""

import numpy as np
import pytest

from gradcheck.numerics.direction import Along, draw_direction, magnitude
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Point

SEEDS = 40


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_along(x, a):
    y = softmax(x)
    return y * (a - (y * a).sum(axis=-1, keepdims=True))


def softmax_mixed(x, a, b):
    y, ya, yb = softmax(x), softmax_along(x, a), softmax_along(x, b)
    mean_a = (y * a).sum(axis=-1, keepdims=True)
    return yb * (a - mean_a) - y * (yb * a).sum(axis=-1, keepdims=True) + 0 * ya


def elementwise(f, d, h):
    return f, lambda x, a: d(x) * a, lambda x, a, b: h(x) * a * b


# name: forward, its slope along a, its second derivative along a and b
FUNCTIONS = {
    "cube": elementwise(lambda x: x**3, lambda x: 3 * x * x, lambda x: 6 * x),
    "exp": elementwise(np.exp, np.exp, np.exp),
    "log": elementwise(lambda x: np.log(np.abs(x)), lambda x: 1 / x, lambda x: -1 / x**2),
    "linear": elementwise(lambda x: 3 * x, lambda x: 3 + 0 * x, lambda x: 0 * x),
    "relu": elementwise(lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0), lambda x: 0 * x),
    "softmax": (softmax, softmax_along, softmax_mixed),
}


def measured(name, mean, spread, seed, dtype="float64"):
    """Errors and bars of a slope and of a mixed derivative, and their sizes."""
    forward, slope, mixed = FUNCTIONS[name]
    x = (mean + spread * np.random.default_rng(seed).normal(size=(3, 6))).astype(dtype)
    along = Along(Point(lambda x: (forward(x),), (x,)))
    a, b = (draw_direction(Draw(seed, name, role), (x,), {0}) for role in "ab")
    w = Draw(seed, name, "w").signed(1, x.size)
    wide = x.astype(np.float64)
    first, second = along.slopes(a, w), along.mixed(a, b, w)
    true = (
        np.sum(w * slope(wide, a[0]).reshape(-1)),
        np.sum(w * mixed(wide, a[0], b[0]).reshape(-1)),
    )
    errors = [abs(s.value[0] - t) for s, t in zip((first, second), true, strict=True)]
    sizes = [max(abs(true[0]), first.scale[0]), max(abs(true[1]), np.abs(true[0]))]
    return errors, [first.bar[0], second.bar[0]], sizes


INPUTS = [(0, 1), (0, 10), (0, 1e-3), (1000, 3)]


@pytest.mark.suite(keep=4, rest=12)
@pytest.mark.parametrize(
    ("name", "mean", "spread"),
    [(n, *i) for n in FUNCTIONS for i in INPUTS if not (n == "exp" and i[0])],  # it overflows
)
def test_the_truth_lies_within_the_bars_and_they_are_short(name, mean, spread):
    short = []
    for seed in range(SEEDS):
        errors, bars, sizes = measured(name, mean, spread, seed)
        for error, bar in zip(errors, bars, strict=True):
            ok = error <= bar
            assert ok, f"seed {seed}: {error:.3g} > {bar:.3g}"
        short.append([bar / size for bar, size in zip(bars, sizes, strict=True)])
    first, second = np.median(short, axis=0)
    assert first <= 1e-8
    assert second <= 1e-4


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", ["cube", "softmax", "exp", "linear"])
def test_float32_has_honest_bars_too(name):
    for seed in range(SEEDS):
        errors, bars, _ = measured(name, 0, 1, seed, "float32")
        assert all(error <= bar for error, bar in zip(errors, bars, strict=True))


def test_all_primals_move_at_once_and_an_index_does_not():
    x, y, index = np.array([1.0, 2.0]), np.array([3.0, -1.0]), np.array([1, 0])
    along = Along(Point(lambda x, y, i: (x * y[i],), (x, y, index)))
    a = draw_direction(Draw("a"), (x, y, index), {0, 1})
    assert a[2] is None
    found = along.slopes(a)
    np.testing.assert_allclose(found.value, a[0] * y[index] + x * a[1][index], rtol=1e-10)
    mixed = along.mixed((a[0], None, None), (None, a[1], None), np.ones((1, 2)))
    np.testing.assert_allclose(mixed.value, [np.sum(a[0] * a[1][index])], rtol=1e-8)
    assert along.mixed((a[0], None, None), (a[0], None, None), np.ones((1, 2))).value == (
        pytest.approx(0, abs=1e-8)
    )


@pytest.mark.parametrize("error", [ValueError("domain"), SystemExit(1)])
def test_a_forward_may_refuse_the_longer_steps(error):
    def root(x):
        if not np.all(x > 0):
            raise error
        return (np.sqrt(x),)

    x = np.array([0.01, 2.0])
    a = draw_direction(Draw("a"), (x,), {0})
    found = Along(Point(root, (x,))).slopes(a, np.ones((1, 2)))
    assert found.value == pytest.approx(np.sum(a[0] / (2 * np.sqrt(x))), rel=1e-8)
    assert found.seen


def test_where_there_are_no_values_the_bar_is_infinite():
    def alone(x):
        return (x if np.array_equal(x, [1.0, 2.0]) else np.full(2, np.nan),)

    x = np.array([1.0, 2.0])
    found = Along(Point(alone, (x,))).slopes((np.ones(2),), np.ones((1, 2)))
    assert np.isinf(found.bar).all()
    assert not found.seen


def test_at_a_jump_the_bar_is_longer_than_the_slope():
    x = np.array([0.0])
    found = Along(Point(lambda x: (np.sign(x),), (x,))).slopes((np.ones(1),), np.ones((1, 1)))
    assert found.bar > np.abs(found.value)


@pytest.mark.parametrize("distance", [1e-3, 1e-2])
def test_shorter_steps_see_one_side_of_a_kink_in_float32(distance):
    x = np.array([distance, -1.0, 1.0], dtype=np.float32)
    along = Along(Point(lambda x: (np.maximum(x, 0),), (x,)))
    found = along.slopes((np.ones(3),), np.array([[1.0, 0.0, 0.0]]), finer=6)
    assert found.value == pytest.approx(1, abs=1e-2)


def test_the_spread_of_random_signs_shows_what_cancels():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    along = Along(Point(lambda x: (np.asarray(x.sum()),), (x,)))
    direction = (np.array([1.0, -1.0, 1.0, -1.0]),)
    assert along.slopes(direction).value == pytest.approx(0, abs=1e-9)
    assert 0.5 <= along.spread(direction, Draw("spread"), 16)[0] <= 4


@pytest.mark.parametrize(
    ("x", "size"),
    [
        ([3.0, -3.0], 3.0), ([1001.0, 999.0], 1.0), ([5.0, 5.0], 5.0), ([7.0], 7.0),
        ([0.0, 0.0], 1.0), ([], 1.0), ([1e-300, -1e-300], 1e-300), ([1e300, -1e300], 1e300),
    ],
)  # fmt: skip
def test_a_magnitude_is_how_far_elements_lie_apart(x, size):
    assert magnitude(np.array(x)) == pytest.approx(size, rel=1e-6)


def test_a_mixed_derivative_far_from_zero_is_as_vague_as_its_arguments():
    """x + t·a is rounded in units of 3000, which no value of (x − 3000)³ shows."""
    bars = []
    for seed in range(8):
        x = 3000 + np.random.default_rng(seed).normal(size=18)
        along = Along(Point(lambda x: ((x - 3000) ** 3,), (x,)))
        a, b = (draw_direction(Draw(seed, role), (x,), {0}) for role in "ab")
        w = np.zeros((1, 18))
        w[0, seed] = 1.0
        found = along.mixed(a, b, w)
        true = 6 * (x - 3000) * a[0] * b[0]
        assert abs(found.value[0] - true[seed]) <= found.bar[0]
        bars.append(found.bar[0])
    assert np.median(bars) <= 1e-5


def test_mixed_derivatives_begin_with_the_longest_step_unless_told_otherwise():
    """Where rounding alone is left, a step that is left out costs."""
    x, y = np.array([1.5, -2.25]), np.array([3.125, 0.75])
    along = Along(Point(lambda x, y: (x * y,), (x, y)))
    a, b, w = (np.array([1.0, 0.5]), None), (None, np.array([1.0, -1.0])), np.ones((1, 2))
    bars = [float(along.mixed(a, b, w, *finer).bar[0]) for finer in ((), (0,), (1,))]
    assert bars[0] == bars[1] < bars[2]
