"""Three steps in plain numbers say what arrays say; a kink is one at the point itself."""

import numpy as np
import pytest

from gradcheck.numerics.projection import Pair
from gradcheck.numerics.residuals import Residuals, three

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
    value, bar, noise = three(
        [p.above - p.below for p in taken],
        [p.given for p in taken],
        [p.above + p.below for p in taken],
        4.0**-first,
        U,
        1e-16,
    )
    assert value == pytest.approx(want.value, rel=1e-12, abs=1e-15)
    assert bar == pytest.approx(want.bar, rel=1e-12)
    assert noise == pytest.approx(general.noise(), rel=1e-12)


def test_a_value_that_is_not_finite_has_no_bar():
    for broken in (np.nan, np.inf):
        _, bar, _ = three([1.0, broken, 1.0], [1.0] * 3, [0.0] * 3, 0.1, U, 1e-16)
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
