"""The ladder along a ray: error bars that hold, kinks that are seen, noise that is measured."""

import numpy as np
import pytest

from gradcheck.numerics.directional_slope import (
    Residuals,
    TensorView,
    richardson3,
    slope_search,
    top_of,
)
from gradcheck.numerics.line_function import Given, Heading, Pair, Scalar, unit_of

KAPPA = 2.0


def site(function, x, gradient, unit=None):
    scalar = Scalar(lambda: function(x))
    return TensorView(scalar, scalar(), x, Given.of(gradient), unit or unit_of(x))


def climbed(where, target=0.0, key=0, thorough=False):
    with where.ray(Heading(key)) as ray:
        rungs = slope_search(where, ray)
        slope = rungs.exhaust() if thorough else rungs.settle(target)
        return rungs, slope, ray.products()[1]


POINT = np.random.default_rng(0).normal(size=200)
# name: function, gradient
SMOOTH = {
    "linear": (lambda x: 3 * x.sum(), lambda x: np.full_like(x, 3)),
    "square": (lambda x: (x**2).mean(), lambda x: 2 * x / x.size),
    "tanh": (lambda x: np.tanh(3 * x).mean(), lambda x: 3 / np.cosh(3 * x) ** 2 / x.size),
    "quartic": (lambda x: ((x - 1) ** 4).mean(), lambda x: 4 * (x - 1) ** 3 / x.size),
    "softmax": (
        lambda x: -np.log(np.exp(9 * x[0]) / np.exp(9 * x).sum()),
        lambda x: 9 * (np.exp(9 * x) / np.exp(9 * x).sum() - (np.arange(x.size) == 0)),
    ),
    "offset": (lambda x: 1e6 + np.sin(x).sum(), np.cos),
}


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("thorough", [False, True])
def test_the_error_of_a_right_gradient_lies_within_its_bar(name, scale, thorough):
    function, gradient = SMOOTH[name]
    x = scale * POINT
    where = site(function, x, gradient(x))
    for key in range(10):
        _, slope, norm = climbed(where, key=key, thorough=thorough)
        assert abs(slope.value) <= slope.bar + 1e-15 * norm
        if scale == 1:
            assert slope.bar <= (1e-4 if name == "offset" else 1e-8) * norm


@pytest.mark.parametrize("thorough", [False, True])
def test_a_wrong_gradient_is_found_to_be_so_wrong(thorough):
    function, gradient = SMOOTH["tanh"]
    wrong = gradient(POINT)
    wrong[17] += 1e-3
    where = site(function, POINT.copy(), wrong)
    _, slope, norm = climbed(where, thorough=thorough)
    width = where.ray(Heading(0)).width(17)
    assert slope.value == pytest.approx(-1e-3 * width, rel=1e-6)
    assert slope.bar < 1e-8 * norm


def test_three_steps_are_enough_where_the_target_is_met():
    function, gradient = SMOOTH["tanh"]
    where = site(function, POINT.copy(), gradient(POINT))
    _, _, norm = climbed(where)
    before = where.value.evaluations
    rungs, slope, _ = climbed(where, target=1e-8 * norm)
    assert where.value.evaluations - before == 6
    assert slope.bar <= 1e-8 * norm
    assert len(rungs.pairs) == 3


def test_longer_steps_are_taken_while_noise_is_the_bar():
    """A tensor far below one unit: its own size is too short a step."""
    x = 1e-7 * POINT
    where = site(lambda x: 1 + x.sum(), x, np.ones_like(x))
    rungs, slope, norm = climbed(where, target=1e-9 * np.sqrt(200) * 1e-7)
    assert min(rungs.pairs) < 0
    assert slope.bar <= 1e-9 * norm


def test_shorter_steps_are_taken_where_kinks_are_crossed():
    draw = np.random.default_rng(3)
    a, b = draw.normal(size=(400, 200)), draw.normal(size=400)

    def function(x):
        return np.maximum(a @ x + b, 0).mean()

    gradient = ((a @ POINT + b > 0)[:, None] * a).mean(axis=0)
    where = site(function, POINT.copy(), gradient)
    finest = []
    for key in range(20):
        rungs, slope, norm = climbed(where, target=1e-7, key=key)
        finest.append(max(rungs.pairs))
        assert abs(slope.value) <= KAPPA * slope.bar
        assert slope.bar <= 1e-5 * norm
    assert np.mean(np.array(finest) > 6) > 0.8


def test_where_no_step_settles_the_bar_is_infinite():
    where = site(lambda x: 1.0 if np.array_equal(x, POINT) else np.nan, POINT.copy(), POINT)
    _, slope, _ = climbed(where)
    assert slope.bar == np.inf
    _, slope, _ = climbed(where, thorough=True)
    assert slope.bar == np.inf


def test_a_loss_that_ends_nearby_is_differenced_with_shorter_steps():
    def function(x):
        if np.abs(x - POINT).max() > 1e-3:
            raise ValueError("too far")
        return (x**2).sum()

    where = site(function, POINT.copy(), 2 * POINT)
    _, slope, norm = climbed(where, target=1e-9 * 30)
    assert abs(slope.value) <= slope.bar <= 1e-7 * norm


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("sigma", [1e-13, 1e-9, 1e-5])
def test_noise_is_measured_whatever_its_source(sigma):
    """Rounding that is larger than the loss's own digits say: an inner float32, say."""

    def function(x):
        return (x**2).mean() + sigma * np.sin(1e17 * float(x[0]) + x.sum() * 1e16)

    where = site(function, POINT.copy(), 2 * POINT / 200)
    covered = []
    for key in range(20):
        rungs, slope, _ = climbed(where, key=key, thorough=True)
        covered.append(abs(slope.value) <= KAPPA * slope.bar)
        assert sigma / 3 <= rungs.noise() <= 5 * sigma
    assert all(covered)


def test_a_kink_at_the_point_shows_both_slopes():
    x = np.array([0.0, 0.5, -0.5])
    where = site(lambda x: abs(x[0]) + x[1] ** 2, x, np.array([0.0, 1.0, 0.0]), unit=1.0)
    rungs, _, _ = climbed(where, thorough=True)
    sides = rungs.sides()
    width = abs(where.ray(Heading(0)).width(0))
    assert (sides.low, sides.high) == pytest.approx((-width, width), abs=1e-5)
    assert sides.bar < 1e-5


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_point_has_no_kink(name):
    function, gradient = SMOOTH[name]
    where = site(function, POINT.copy(), gradient(POINT))
    assert all(climbed(where, key=k, thorough=True)[0].sides() is None for k in range(10))


def test_a_constant_has_a_slope_of_zero_and_a_bar_from_its_last_digit():
    where = site(lambda x: 5.0, POINT.copy(), np.zeros(200))
    _, slope, _ = climbed(where)
    assert slope.value == 0
    assert 0 < slope.bar < 1e-12


@pytest.mark.parametrize("first", [0, 9, 11, 12, 14, 40])
def test_a_ladder_may_begin_at_any_level(first):
    """Three steps next to the bottom are no ladder to climb: a fourth one is taken above them."""
    function, gradient = SMOOTH["tanh"]
    where = site(function, POINT.copy(), gradient(POINT))
    with where.ray(Heading(0)) as ray:
        slope = slope_search(where, ray).settle(0.0, first)
        assert abs(slope.value) <= slope.bar < 1e-3 * ray.products()[1]


def test_a_glance_at_two_steps_tells_the_error_where_they_agree():
    function, gradient = SMOOTH["tanh"]
    wrong = gradient(POINT)
    wrong[17] += 1e-3
    where = site(function, POINT.copy(), wrong)
    with where.ray(Heading(0)) as ray:
        search = slope_search(where, ray)
        found = search.glance(1e-3, 5)
        assert len(search.pairs) == 2
        assert abs(found.value + 1e-3 * where.ray(Heading(0)).width(17)) <= found.bar <= 1e-6
        assert search.glance(0.0, 5) is None  # nothing is known that well


@pytest.mark.parametrize(
    ("unit", "top"), [(1.0, 1), (4.0, 1), (1e3, 1), (0.5, 0), (0.25, 0), (0.1, -1), (2.0**-9, -4)]
)
def test_the_longest_step_is_half_of_the_larger_of_the_tensor_and_one(unit, top):
    """In steps of 4⁻ʲ of the tensor's own unit."""
    assert top_of(unit) == top
    longest = 0.5 * max(1.0, unit) / unit
    assert longest / 4 < 4.0**-top <= longest


U = 2.0**-53


def pairs(function, slope, levels, offset=0.0):
    """Changes of `function` from its value at 0, at steps ±4⁻ʲ."""
    found = {}
    for j in levels:
        t = 4.0**-j
        here = function(offset)
        above, below = function(offset + t) - here, function(offset - t) - here
        found[j] = Pair(above, below, 2 * t * slope)
    return found


FUNCTIONS = {
    "smooth": lambda t: np.exp(t) * np.sin(3 * t + 0.3),
    "linear": lambda t: 3 * t,
    "kink": lambda t: abs(t) + t,
    "kink beside": lambda t: max(t - 1e-3, 0.0) + np.cos(t),
    "noisy": lambda t: np.tanh(t) + 1e-9 * np.sin(1e12 * t),
    "jump": lambda t: float(t > 0),
    "grows": lambda t: np.sign(t) * abs(t) ** 0.25,
    "still": lambda t: 0.0,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("slope", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("first", [1, 5])
def test_plain_numbers_say_what_arrays_say(name, slope, first):
    found = pairs(FUNCTIONS[name], slope, range(first, first + 3))
    general = Residuals(0.0, U, 1e-16, pairs=found)
    want = general.slope()
    taken = [found[j] for j in sorted(found)]
    value, bar, noise = richardson3(
        [p.above - p.below for p in taken],
        [p.given for p in taken],
        [p.above + p.below for p in taken],
        4.0**-first,
        U,
        1e-16,
    )
    assert value == pytest.approx(want.value, rel=1e-12, abs=1e-15)
    assert bar == pytest.approx(want.bar, rel=1e-12, abs=0)
    assert noise == pytest.approx(general.noise(), rel=1e-12, abs=0)


def test_a_value_that_is_not_finite_has_no_bar():
    for broken in (np.nan, np.inf):
        _, bar, _ = richardson3([1.0, broken, 1.0], [1.0] * 3, [0.0] * 3, 0.1, U, 1e-16)
        assert bar == np.inf


@pytest.mark.parametrize(
    ("even", "kinked"),
    [
        ([16.0, 4.0, 1.0], True),
        ([64.0, 4.0, 1.0], False),  # the longer pair falls as a smooth one does
        ([16.0, 4.0, 0.25], False),  # the shorter one
        ([28.0, 7.9 / 2, 0.5], True),
        ([4.0, 1.0], False),  # one pair
        ([4.0, 1.0, 1e-3, 1e-6], False),  # one pair above the noise
        ([4.0, 1.0, 0.2], False),  # 0.2 is 26 times the noise: it may be rounding
    ],
)
def test_two_falls_of_two_show_a_kink(even, kinked):
    found = {j: Pair(e / 2, e / 2, 0.0) for j, e in enumerate(even)}
    assert (Residuals(0.0, U, 2.0**-7, pairs=found).sides() is not None) is kinked


@pytest.mark.parametrize(
    ("function", "kinked"),
    [
        (abs, True),
        (lambda t: max(t, 0.0) + np.exp(t), True),
        (lambda t: 1e-3 * abs(t) + t * t, True),
        (lambda t: max(t - 1e-3, 0.0), False),
        (lambda t: max(t - 1e-5, 0.0) + t, False),
        (np.exp, False),
        (lambda t: 3 * t, False),
        (lambda t: 0.0, False),
    ],
)
def test_only_a_kink_at_the_point_itself_is_one(function, kinked):
    found = pairs(function, 0.0, range(15))
    assert Residuals(0.0, U, 1e-16, pairs=found).kinked() is kinked


def test_the_noise_is_what_even_parts_a_line_or_a_model_show_of_it():
    """Of one even part that no others explain, e: its variance is six times that of φ."""
    pairs_of = {0: Pair(0.0, 0.0, 0.0), 1: Pair(0.0, 0.0, 0.0), 2: Pair(1.5, 1.5, 0.0)}
    seen = 3.0 / np.sqrt(6)
    assert Residuals(0.0, U, 0.5, pairs=pairs_of).noise() == pytest.approx(seen, rel=1e-12)
    assert Residuals(0.0, U, 2.0, pairs=pairs_of).noise() == 2.0
    assert Residuals(0.0, U, 0.5, 4.0, pairs=pairs_of).noise() == 4.0
