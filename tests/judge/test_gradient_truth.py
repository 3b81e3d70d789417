import numpy as np
import pytest

from gradcheck.judge.compare import TOLERANCES, Interval
from gradcheck.judge.declared_kinks import KinkConstraint
from gradcheck.judge.gradient_truth import MAX_REFINED, GradientTruth
from gradcheck.numerics.estimator import Differences, Estimate, noise_lines
from gradcheck.numerics.evaluate import Point
from gradcheck.results.verdict import Verdict

F64 = TOLERANCES["float64"]


class Scripted:
    """Differences whose ladder turns a first estimate into a `better` one."""

    def __init__(self, value, bar, better=None, better_bar=0.0):
        value = np.atleast_2d(np.asarray(value, dtype=np.float64))
        n = value.shape[1]
        self.estimate = Estimate(
            value=value.copy(),
            bar=np.full(value.shape, bar),
            scale=np.ones(value.shape),
            terms=np.ones(n, dtype=np.int64),
            settled=np.zeros(value.shape, dtype=bool),
        )
        self.better = value if better is None else np.broadcast_to(better, value.shape)
        self.better_bar = better_bar
        self.asked = []

    def refine(self, elements):
        self.asked.append(elements.tolist())
        self.estimate.value[:, elements] = self.better[:, elements]
        self.estimate.bar[:, elements] = self.better_bar
        return True


def judged(got, differences, **options):
    got = np.atleast_2d(np.asarray(got, dtype=np.float64))
    truth = GradientTruth("x", got.shape[1:], ("normal",) * len(got), differences, **options)
    return truth.judge(got, F64)


# ── escalation ───────────────────────────────────────────────────────────────────────────────


def test_what_the_triple_certifies_costs_nothing_more():
    differences = Scripted([1.0, 2.0], 1e-12)

    def never(_):
        raise AssertionError

    found = judged([1.0, 2.0], differences, settle=never, allowance=never)
    assert (found.verdict, differences.asked) == (Verdict.PASS, [])


def test_the_ladder_takes_open_and_failing_elements_and_no_others():
    differences = Scripted([1.0, 2.0, 3.0, 4.0], np.array([[0.0, 1e-3, 0.0, 1e-12]]), 5.0)
    found = judged([1.0, 2.0, 5.0, 4.0], differences)
    assert differences.asked == [[1, 2]]
    assert (found.verdict, found.failed, found.worst_index) == (Verdict.FAIL, 1, (1,))


def test_a_failure_of_the_triple_that_the_ladder_explains_is_none():
    differences = Scripted([1.0, 1.0], 0.0, better=2.0)
    assert judged([2.0, 2.0], differences).verdict is Verdict.PASS
    assert differences.asked == [[0, 1]]


@pytest.mark.parametrize("got", [[2.0, 2.0], [2.0, 2.5], [np.nan, 2.0], [1.0, 1.0]], ids=repr)
def test_a_verdict_alone_is_the_verdict_that_is_told(got):
    def judge(details):
        truth = GradientTruth("x", (2,), ("normal",), Scripted([1.0, 1.0], 0.0, better=2.0))
        return truth.judge(np.array([got]), F64, details=details)

    told, bare = judge(details=True), judge(details=False)
    assert (bare.verdict, bare.reason, bare.compared) == (told.verdict, told.reason, told.compared)
    assert told.worst
    assert not bare.worst


def test_one_confirmed_failure_spares_the_other_elements_the_ladder():
    n = 3 * MAX_REFINED
    differences = Scripted(np.ones(n), 0.0)
    found = judged(np.full(n, 2.0), differences)
    assert (found.verdict, found.failed) == (Verdict.FAIL, n)
    assert differences.asked == [list(range(MAX_REFINED))]


def test_many_failures_that_the_ladder_explains_are_all_looked_at():
    n = 2 * MAX_REFINED + 7
    differences = Scripted(np.ones(n), 0.0, better=2.0)
    assert judged(np.full(n, 2.0), differences).verdict is Verdict.PASS
    assert [len(batch) for batch in differences.asked] == [MAX_REFINED, MAX_REFINED, 7]
    assert sorted(e for batch in differences.asked for e in batch) == list(range(n))


def test_a_ladder_that_learns_nothing_ends():
    n = 2 * MAX_REFINED
    differences = Scripted(np.ones(n), np.inf, better_bar=np.inf)
    found = judged(np.ones(n), differences)
    assert (found.verdict, found.unresolved) == (Verdict.INCONCLUSIVE, n)
    assert len(differences.asked) == 2


def test_what_is_no_number_needs_no_better_truth():
    differences = Scripted([1.0, 1.0], 0.0)
    found = judged([1.0, np.nan], differences, settle=lambda _: pytest.fail("asked"))
    assert (found.verdict, found.failed, differences.asked) == (Verdict.FAIL, 1, [])


def test_a_certain_source_overrules_what_the_ladder_leaves():
    def settle_at(value):
        differences = Scripted([1.0, 1.0], np.inf, better_bar=1e-3)

        def settle(found):
            assert found.pending.all()
            differences.estimate.value[:] = value
            differences.estimate.bar[:] = 0.0
            return []

        return judged([1.0, 1.0], differences, settle=settle).verdict

    assert settle_at(1.0) is Verdict.PASS
    assert settle_at(1.001) is Verdict.FAIL


def test_a_kink_found_on_the_way_is_judged_by_its_slopes():
    which = np.array([[False, True]])

    def settle(_):
        return [Interval(which, np.zeros((1, 2)), np.ones((1, 2)))]

    for got, verdict in ((0.0, Verdict.PASS), (1.0, Verdict.PASS), (1.5, Verdict.FAIL)):
        found = judged([1.0, got], Scripted([1.0, 0.5], 0.0), settle=settle)
        assert (found.verdict, found.kinked) == (verdict, 1)


def test_the_cost_of_rounding_is_allowed_last_and_only_so_far():
    for error, verdict in ((5e-7, Verdict.PASS), (2e-6, Verdict.FAIL)):
        differences = Scripted([1.0, 1.0], 0.0)
        allowance = lambda rules: np.full((1, 2), 1e-6 * (rules.dtype == "float64"))  # noqa: E731
        assert judged([1.0, 1.0 + error], differences, allowance=allowance).verdict is verdict
        assert differences.asked, "the ladder comes first"


def test_who_asks_again_of_the_same_gradient_gets_the_same_comparison():
    calls = []

    def allowance(rules):
        calls.append(rules)
        return np.full((1, 2), 1e-6)

    truth = GradientTruth("x", (2,), ("normal",), Scripted([1.0, 1.0], 0.0), allowance=allowance)
    got, other = np.array([[1.0, 1 + 5e-7]]), np.array([[1.0, 1 + 3e-7]])
    assert truth.judge(got, F64).verdict is Verdict.PASS
    assert 0 < truth.share(got, F64) < 1
    assert truth.confirmed(got.copy(), F64) is not None
    assert len(calls) == 1
    assert truth.judge(other, F64).verdict is Verdict.PASS
    assert truth.judge(other, TOLERANCES["float32"]).verdict is Verdict.PASS
    assert len(calls) == 2  # by the bound of float32 nothing is open


def test_by_how_much_a_gradient_is_off_and_that_an_unknown_truth_says_nothing():
    truth = GradientTruth("x", (2,), ("normal",), Scripted([1.0, np.nan], 0.0))
    bound = truth.compared(np.array([[1.0, 1.0]]), F64, []).bound[0, 0]
    stack = np.array([[[1.0, 5.0]], [[1.0 - 0.5 * bound, 5.0]], [[1.0 - 3 * bound, 5.0]]])
    np.testing.assert_allclose(truth.excess(stack, F64), [0.0, 0.5, 3.0], rtol=1e-6)


def test_a_declared_kink_needs_neither_ladder_nor_oracle():
    differences = Scripted([0.5], np.inf)
    on = np.array([True])
    interval = Interval(on[None], np.array([[0.0]]), np.array([[1.0]]))
    kinks = KinkConstraint(on, ~on, interval, None, (), "")
    never = lambda _: pytest.fail("asked")  # noqa: E731
    found = judged([1.0], differences, kinks=kinks, settle=never, allowance=never)
    assert (found.verdict, found.kinked) == (Verdict.PASS, 1)


def test_a_real_function_is_judged_in_every_row():
    x = np.array([0.3, -1.2, 2.0])
    cts = np.array([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]])
    point = Point(lambda x: (np.sin(x) * x,), (x,))
    right = cts * (np.sin(x) + x * np.cos(x))

    def verdict(got):
        differences = Differences(point, 0, cts, noise_lines(point))
        return GradientTruth("x", (3,), ("a", "b"), differences).judge(got, F64)

    assert verdict(right).verdict is Verdict.PASS
    for row, column in np.ndindex(2, 3):
        got = right.copy()
        got[row, column] *= 1 + 1e-6
        found = verdict(got)
        assert (found.verdict, found.failed) == (Verdict.FAIL, 1)
        assert (found.worst_index, found.top.cotangent) == ((column,), "ab"[row])
