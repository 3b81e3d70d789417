"""A failure at second order stands where shorter steps confirm it."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.second import CONFIRMING_LEVELS, FINER, SHARPER, Second
from gradcheck.numerics.direction import Slopes


def slopes(value, bar):
    one = np.ones(1)
    return Slopes(value * one, bar * one, one, one, True)


def judged(*shorter):
    """What becomes of an error of 8 with a bound of 1, where shorter ladders give (value, bar)."""
    found = slopes(8.0, 0.1), slopes(0.0, 0.1)
    asked = []

    def measure(finer):
        asked.append(finer)
        value, bar = shorter[len(asked) - 1]
        return slopes(value, bar), slopes(0.0, 0.0)

    got, want = Second._finer(SimpleNamespace(), found, 1.0, measure)
    return float(got.value[0]), float(want.bar[0]), asked


def test_the_first_shorter_ladder_that_explains_it_and_could_have_shown_it_counts():
    assert SHARPER == 4
    assert judged((0.5, 0.1)) == (0.5, 0.0, [FINER[0]])
    assert judged((1.5, 0.25)) == (1.5, 0.0, [FINER[0]])  # within bound and error bars


def test_what_a_much_shorter_one_confirms_stands():
    late = [(8.0, 0.1)] * len(FINER)
    assert max(FINER) >= CONFIRMING_LEVELS
    assert judged(*late) == (8.0, 0.1, [*FINER])


@pytest.mark.parametrize("shorter", [(2.1, 0.6), (0.0, 1.01)])
def test_what_none_confirms_is_not_known(shorter):
    """It explains the error, but could not have shown it: a fourth of it."""
    assert judged(*[shorter] * len(FINER)) == (8.0, np.inf, [*FINER])
