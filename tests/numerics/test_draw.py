"""Numbers that depend on names alone, and fill the mantissa of float64."""

import subprocess
import sys

import numpy as np
import pytest

from gradcheck.numerics.draw import LEAST, POOL, Draw, key_of, run_of_cotangent, run_of_direction
from gradcheck.numerics.narrow import BFLOAT16, FLOAT16, TYPES

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
DESIGNED = {"signs", "powers", "integers", "permutation"}
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_the_same_names_give_the_same_numbers_and_others_give_others(kind):
    make = KINDS[kind]
    assert np.array_equal(make(Draw(0, "a", "b")), make(Draw(0, "a", "b")))
    for other in (Draw(1, "a", "b"), Draw(0, "ab"), Draw(0, "b", "a"), Draw(0, "a", "b", "")):
        assert not np.array_equal(make(Draw(0, "a", "b")), make(other))


@each_kind
def test_float32_loses_no_value(kind):
    x = KINDS[kind](Draw("exact"))
    assert x.dtype == (np.int64 if kind in ("integers", "permutation") else np.float64)
    assert np.all(np.isfinite(x.astype(np.float32)))
    assert np.array_equal(x == 0, x.astype(np.float32) == 0)
    assert np.unique(x).size > 1


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - DESIGNED))
def test_no_narrower_type_holds_a_value(kind):
    x = KINDS[kind](Draw("exact"))
    x = x[x != LEAST]  # a probability that was raised to the least
    for narrow in TYPES:
        assert not np.any(narrow.rounded(x) == x)
    assert np.unique(x).size == x.size
    last = np.ldexp(np.frexp(x)[0], 53).astype(np.int64) % 8  # of 53 bits, the last three
    assert np.any(last % 2)  # to the very last, whatever the kind adds or multiplies


@pytest.mark.parametrize("kind", sorted(DESIGNED))
def test_every_type_holds_the_values_that_are_designed(kind):
    x = np.asarray(KINDS[kind](Draw("exact")), dtype=np.float64)
    assert all(np.array_equal(narrow.rounded(x), x) for narrow in TYPES)


def test_a_key_is_the_same_on_every_machine():
    assert key_of("rms_norm", 3) == 300046930456063380376665207400411243085
    program = "from gradcheck.numerics.draw import key_of; print(key_of('rms_norm', 3))"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(out.stdout) == key_of("rms_norm", 3)


def test_names_cannot_run_into_each_other():
    assert key_of("a", "b") != key_of("ab") != key_of("a b")
    assert key_of(1, 2) != key_of(12)


def test_normal_values_look_normal_and_are_scaled_exactly():
    x = Draw("normal").normal(4000)
    assert abs(x.mean()) < 0.06
    assert abs(x.std() - 1) < 0.04
    assert np.array_equal(Draw("normal").normal(4000, scale=0.25), x / 4)


def test_ranges_are_kept():
    for x, low, high in (
        (Draw("range").uniform(-0.302, 0.7005, 2000), -0.302, 0.7005),
        (np.abs(Draw("range").signed(2000)), 0.5, 1.5),
        (Draw("range").positive(2000), 0.125, 2.0),
    ):
        assert low <= x.min() <= low + 0.01  # and they are filled to their ends
        assert high - 0.01 <= x.max() <= high
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
    assert 0.125 <= np.min(np.abs(x[:, None] - points)) <= 0.13
    assert 0.125 <= np.min(np.abs(Draw("away").away(0.5, 2000) - 0.5)) <= 0.13
    assert Draw("away").away(0.0, 2, 3).shape == (2, 3)


def test_points_that_leave_no_room_are_an_error_and_no_endless_loop():
    with pytest.raises(ValueError, match="widen the scale"):
        Draw("away").away(0.0, 4, scale=2.0**-10)


def test_probabilities_sum_to_about_one_and_none_vanishes():
    x = Draw("p").probabilities(50, 6)
    np.testing.assert_allclose(x.sum(axis=-1), 1, atol=6 * LEAST)
    assert x.min() >= LEAST
    assert x.max() < 1


@pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16])
def test_a_running_sum_in_half_precision_loses_what_is_swamped(kind):
    x = Draw("swamped").swamped(131)
    total = 0.0
    for term in x:
        total = float(kind.rounded(total + kind.rounded(term)))
    assert np.all(x > 0)
    assert x[0] == 1
    lost = (x.sum() - total) / x.sum()
    assert lost > 40 * 2.0**-kind.bits


RUNS = [run_of_direction, run_of_cotangent]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("size", [0, 1, 100, POOL, POOL + 1])
def test_the_same_names_give_the_same_numbers_and_others_others(run, size):
    one = run(3, "vjp", size)
    assert one.shape == (size,)
    np.testing.assert_array_equal(one, run(3, "vjp", size))
    if size >= 100:
        for other in (run(4, "vjp", size), run(3, "other", size)):
            assert np.mean(one == other) < 0.05


@pytest.mark.parametrize("run", RUNS)
def test_a_run_may_begin_anywhere_and_is_read_only(run):
    for seed in range(50):
        found = run(seed, "x", POOL)
        assert found.shape == (POOL,)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1.0


def test_directions_are_dense_and_signed():
    found = run_of_direction(0, "x", POOL)
    size = np.abs(found)
    assert size.min() >= 0.5
    assert size.max() <= 1.5
    assert abs(np.mean(found)) < 0.02
    assert 0.45 < np.mean(found > 0) < 0.55


def test_cotangents_are_normal_away_from_zero_and_fill_the_mantissa():
    found = run_of_cotangent(0, "x", POOL)
    assert np.abs(found).min() >= 0.125
    assert 0.9 < np.std(found) < 1.2
    assert abs(np.mean(found)) < 0.02
    assert np.all(found != found.astype(np.float32))
