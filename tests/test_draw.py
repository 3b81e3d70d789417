"""Numbers that depend on names alone, short enough to read and exact in float32."""

import subprocess
import sys

import numpy as np
import pytest

from gradcheck.draw import GRID, Draw, key_of

KINDS = {
    "normal": lambda d: d.normal(40, 3),
    "scaled": lambda d: d.normal(40, 3, scale=2.0**-20),
    "uniform": lambda d: d.uniform(-3, 3, 40),
    "positive": lambda d: d.positive(40),
    "signed": lambda d: d.signed(40),
    "signs": lambda d: d.signs(40),
    "powers": lambda d: d.powers(40),
    "near": lambda d: d.near(100.0, 40),
    "away": lambda d: d.away((0.0, 1.0), 40),
    "integers": lambda d: d.integers(0, 7, 40),
    "probabilities": lambda d: d.probabilities(8, 5),
    "permutation": lambda d: d.permutation(40),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_the_same_names_give_the_same_numbers_and_others_give_others(kind):
    make = KINDS[kind]
    assert np.array_equal(make(Draw(0, "a", "b")), make(Draw(0, "a", "b")))
    for other in (Draw(1, "a", "b"), Draw(0, "ab"), Draw(0, "b", "a"), Draw(0, "a", "b", "")):
        assert not np.array_equal(make(Draw(0, "a", "b")), make(other))


@each_kind
def test_float32_holds_every_value(kind):
    x = KINDS[kind](Draw("exact"))
    assert x.dtype == (np.int64 if kind in ("integers", "permutation") else np.float64)
    assert np.array_equal(x, x.astype(np.float32))
    assert np.all(np.isfinite(x))
    assert np.unique(x).size > 1


def test_a_key_is_the_same_on_every_machine():
    assert key_of("rms_norm", 3) == 300046930456063380376665207400411243085
    program = "from gradcheck.draw import key_of; print(key_of('rms_norm', 3))"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(out.stdout) == key_of("rms_norm", 3)


def test_names_cannot_run_into_each_other():
    assert key_of("a", "b") != key_of("ab") != key_of("a b")
    assert key_of(1, 2) != key_of(12)


def test_normal_values_look_normal_and_lie_on_the_grid():
    x = Draw("normal").normal(4000)
    assert abs(x.mean()) < 0.06
    assert abs(x.std() - 1) < 0.04
    assert np.array_equal(x * GRID, np.round(x * GRID))
    assert np.array_equal(Draw("normal").normal(4000, scale=0.25), x / 4)


def test_ranges_are_kept():
    x = Draw("range").uniform(-0.302, 0.7005, 2000)  # ends that are not on the grid themselves
    assert (x.min(), x.max()) == (-38 / GRID, 89 / GRID)
    x = np.abs(Draw("range").signed(2000))
    assert (x.min(), x.max()) == (0.5, 1.5)
    x = Draw("range").positive(2000)
    assert (x.min(), x.max()) == (0.125, 2.0)
    assert set(Draw("range").signs(100)) == {-1.0, 1.0}
    assert set(Draw("range").integers(2, 5, 100)) == {2, 3, 4}
    assert sorted(Draw("range").permutation(9)) == list(range(9))
    assert np.all(np.abs(Draw("range").near(100.0, 500) - 100) <= 2.0**-7)


def test_powers_are_powers_of_two_of_both_signs():
    x = Draw("powers").powers(500)
    mantissa, exponent = np.frexp(np.abs(x))
    assert np.all(mantissa == 0.5)
    assert exponent.max() - exponent.min() == 8
    assert np.any(x < 0) & np.any(x > 0)


def test_values_keep_their_distance_from_every_point():
    points = (-1.25, -1.0, 0.0, 1.0)
    x = Draw("away").away(points, 2000)
    assert np.min(np.abs(x[:, None] - points)) == 0.125
    assert np.min(np.abs(Draw("away").away(0.5, 2000) - 0.5)) == 0.125
    assert Draw("away").away(0.0, 2, 3).shape == (2, 3)


def test_points_that_leave_no_room_are_an_error_and_no_endless_loop():
    with pytest.raises(ValueError, match="widen the scale"):
        Draw("away").away(0.0, 4, scale=2.0**-10)


def test_probabilities_sum_to_about_one_and_none_vanishes():
    x = Draw("p").probabilities(50, 6)
    np.testing.assert_allclose(x.sum(axis=-1), 1, atol=6 / GRID)
    assert x.min() >= 1 / GRID
    assert x.max() < 1
