"""A failure at second order stands where shorter steps confirm it."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.compare import TOLERANCES, Tolerance
from gradcheck.judge.second_order import (
    CONFIRMING_LEVELS,
    FINER,
    SHARPER_FACTOR,
    ScalarComparison,
    SecondOrder,
    scalar_bound,
)
from gradcheck.numerics.direction import Slopes
from gradcheck.results.verdict import Verdict


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

    got, want = SecondOrder._finer(SimpleNamespace(), found, 1.0, measure)
    return float(got.value[0]), float(want.bar[0]), asked


def test_the_first_shorter_ladder_that_explains_it_and_could_have_shown_it_counts():
    assert SHARPER_FACTOR == 4
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


F64 = TOLERANCES["float64"]


def judged_pairs(got, want, bar=0.0, natural=1.0, bound=1e-8):
    got, want, bar, natural, bound = (
        np.array(v, dtype=np.float64)
        for v in np.broadcast_arrays(*map(np.atleast_1d, (got, want, bar, natural, bound)))
    )
    pairs = ScalarComparison(got=got, want=want, bar=bar, scale=natural)
    return pairs.finding("row", F64, bound, ("they differ", "they are blurred"))


def test_agreement_passes_and_says_what_it_could_see():
    found = judged_pairs([1.0, 2.0], [1.0, 2.0 + 1e-9], bar=1e-6)
    assert (found.verdict, found.compared, found.reason) == (Verdict.PASS, 2, "")
    assert found.smallest_visible_error == pytest.approx(2e-6, rel=0.02)


@pytest.mark.parametrize("got", [1.1, 0.0, -1.0, np.nan, np.inf, -np.inf])
def test_what_lies_outside_bound_and_bar_fails(got):
    found = judged_pairs([1.0, got], [1.0, 1.0], bar=1e-3)
    assert (found.verdict, found.failed) == (Verdict.FAIL, 1)
    assert found.reason == "they differ (1 of 2 random directions)"
    assert len(found.worst) == 1
    np.testing.assert_equal((found.got, found.want), (got, 1.0))


def test_a_failure_is_never_outranked_by_a_blurred_number():
    found = judged_pairs([1.0, 5.0], [1.1, 1.0], bar=[np.inf, 0.0])
    assert (found.verdict, found.got, found.unresolved) == (Verdict.FAIL, 5.0, 1)


@pytest.mark.parametrize("bar", [0.2, np.inf, np.nan])
def test_bars_that_hide_a_tenth_of_the_size_decide_nothing(bar):
    found = judged_pairs([1.0, 1.0], [1.0, 1.3], bar=[1e-9, bar])
    assert found.verdict is (Verdict.INCONCLUSIVE)
    assert found.reason == "they are blurred (1 of 2 random directions)"
    assert found.want == 1.3


@pytest.mark.parametrize("want", [np.nan, np.inf])
def test_without_a_truth_nothing_is_decided(want):
    assert judged_pairs(1.0, want).verdict is Verdict.INCONCLUSIVE


def test_zero_is_judged_against_what_one_expects():
    assert judged_pairs(0.0, 0.0, bar=1e-9, natural=1.0).verdict is Verdict.PASS
    assert judged_pairs(0.0, 0.0, bar=1e-9, natural=1e-9).verdict is Verdict.INCONCLUSIVE
    assert judged_pairs(0.0, 0.0, bar=1e-9, natural=0.0).verdict is Verdict.INCONCLUSIVE
    assert judged_pairs(1e-6, 0.0, bar=1e-9, natural=1.0).verdict is Verdict.FAIL


def test_the_bound_follows_the_units():
    for unit in (1.0, 1e100, 1e-100):
        numbers = np.array([1.0, -2.0]) * unit
        pairs = ScalarComparison(numbers, numbers, np.zeros(2), np.abs(numbers))
        np.testing.assert_allclose(
            scalar_bound(pairs, F64, 9) / np.abs(numbers), 1.0625e-8, rtol=1e-6
        )


def test_the_bound_is_the_one_that_is_promised():
    rules = Tolerance("float64", u=2.0**-12, rtol=2.0**-6, negligible_scale=0.0, underflow=2.0**-30)
    for got, want in ((1.0, -4.0), (-4.0, 1.0)):
        pairs = ScalarComparison(*(np.array([v]) for v in (got, want, 0.0, 8.0)))
        (bound,) = scalar_bound(pairs, rules, 9)
        assert bound == 2.0**-6 * 4 + (2.0**-10 + 4 * 3 * 2.0**-12) * 8 + 2.0**-30


def test_a_number_that_is_none_has_a_finite_bound():
    pairs = ScalarComparison(np.array([np.nan]), np.array([1.0]), np.zeros(1), np.ones(1))
    assert scalar_bound(pairs, F64, 1) == pytest.approx(1.0625e-8)


def test_what_fails_is_not_counted_as_unresolved_too():
    found = judged_pairs([5.0, 1.0], [1.0, 1.0], bar=[0.3, 0.0])
    assert (found.verdict, found.failed, found.unresolved) == (Verdict.FAIL, 1, 0)
