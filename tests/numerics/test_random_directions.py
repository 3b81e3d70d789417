"""Runs of a pool: named, repeatable, dense; larger ones are drawn."""

import numpy as np
import pytest

from gradcheck.numerics.random_directions import POOL, run_of_cotangent, run_of_direction

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
