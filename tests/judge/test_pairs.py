"""Two measurements of the same numbers: agreement, contradiction, and what cannot be seen."""

import numpy as np
import pytest

from gradcheck.judge.compare import RULES, Rules
from gradcheck.judge.pairs import Pairs, bound_of
from gradcheck.results.verdict import Verdict

F64 = RULES["float64"]


def judged(got, want, bar=0.0, natural=1.0, bound=1e-8):
    got, want, bar, natural, bound = (
        np.array(v, dtype=np.float64)
        for v in np.broadcast_arrays(*map(np.atleast_1d, (got, want, bar, natural, bound)))
    )
    pairs = Pairs(got=got, want=want, bar=bar, scale=natural, natural=natural)
    return pairs.finding("row", F64, bound, ("they differ", "they are blurred"))


def test_agreement_passes_and_says_what_it_could_see():
    found = judged([1.0, 2.0], [1.0, 2.0 + 1e-9], bar=1e-6)
    assert (found.verdict, found.compared, found.reason) == (Verdict.PASS, 2, "")
    assert found.smallest_visible_error == pytest.approx(2e-6, rel=0.02)


@pytest.mark.parametrize("got", [1.1, 0.0, -1.0, np.nan, np.inf, -np.inf])
def test_what_lies_outside_bound_and_bar_fails(got):
    found = judged([1.0, got], [1.0, 1.0], bar=1e-3)
    assert (found.verdict, found.failed) == (Verdict.FAIL, 1)
    assert found.reason == "they differ (1 of 2 random directions)"
    assert len(found.worst) == 1
    np.testing.assert_equal((found.got, found.want), (got, 1.0))


def test_a_failure_is_never_outranked_by_a_blurred_number():
    found = judged([1.0, 5.0], [1.1, 1.0], bar=[np.inf, 0.0])
    assert (found.verdict, found.got, found.unresolved) == (Verdict.FAIL, 5.0, 1)


@pytest.mark.parametrize("bar", [0.2, np.inf, np.nan])
def test_bars_that_hide_a_tenth_of_the_size_decide_nothing(bar):
    found = judged([1.0, 1.0], [1.0, 1.3], bar=[1e-9, bar])
    assert found.verdict is (Verdict.INCONCLUSIVE)
    assert found.reason == "they are blurred (1 of 2 random directions)"
    assert found.want == 1.3


@pytest.mark.parametrize("want", [np.nan, np.inf])
def test_without_a_truth_nothing_is_decided(want):
    assert judged(1.0, want).verdict is Verdict.INCONCLUSIVE


def test_zero_is_judged_against_what_one_expects():
    assert judged(0.0, 0.0, bar=1e-9, natural=1.0).verdict is Verdict.PASS
    assert judged(0.0, 0.0, bar=1e-9, natural=1e-9).verdict is Verdict.INCONCLUSIVE
    assert judged(0.0, 0.0, bar=1e-9, natural=0.0).verdict is Verdict.INCONCLUSIVE
    assert judged(1e-6, 0.0, bar=1e-9, natural=1.0).verdict is Verdict.FAIL


def test_the_bound_follows_the_units():
    for unit in (1.0, 1e100, 1e-100):
        numbers = np.array([1.0, -2.0]) * unit
        pairs = Pairs(numbers, numbers, np.zeros(2), np.abs(numbers), np.abs(numbers))
        np.testing.assert_allclose(bound_of(pairs, F64, 9) / np.abs(numbers), 1.0625e-8, rtol=1e-6)


def test_the_bound_is_the_one_that_is_promised():
    rules = Rules("float64", u=2.0**-12, rtol=2.0**-6, negligible=0.0, underflow=2.0**-30)
    for got, want in ((1.0, -4.0), (-4.0, 1.0)):
        pairs = Pairs(*(np.array([v]) for v in (got, want, 0.0, 8.0, 1.0)))
        (bound,) = bound_of(pairs, rules, 9)
        assert bound == 2.0**-6 * 4 + (2.0**-10 + 4 * 3 * 2.0**-12) * 8 + 2.0**-30


def test_a_number_that_is_none_has_a_finite_bound():
    pairs = Pairs(np.array([np.nan]), np.array([1.0]), np.zeros(1), np.ones(1), np.ones(1))
    assert bound_of(pairs, F64, 1) == pytest.approx(1.0625e-8)


def test_what_fails_is_not_counted_as_unresolved_too():
    found = judged([5.0, 1.0], [1.0, 1.0], bar=[0.3, 0.0])
    assert (found.verdict, found.failed, found.unresolved) == (Verdict.FAIL, 1, 0)
