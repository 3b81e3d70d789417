from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from gradcheck.judge.compare import (
    ERROR_BAR_FACTOR,
    MAX_WORST,
    TOLERANCES,
    Interval,
    Tolerance,
    compare,
    largest_scale,
    tolerance_of,
)
from gradcheck.numerics.estimator import Estimate
from gradcheck.results.verdict import Verdict

# Every number in these is a power of two: no comparison is a near miss.
DYADIC = Tolerance("float64", u=2.0**-12, rtol=0.0, negligible_scale=2.0**-20, underflow=0.0)
BOUND = 2.0**-10  # of an element of scale 1 with one term: 4 u
TINY = 2.0**-40


def known(value, bar=0.0, scale=None, terms=1):
    """A truth [q, n]; its scale is that of a gradient in which nothing cancels."""
    value = np.atleast_2d(np.asarray(value, dtype=np.float64))
    return Estimate(
        value=value,
        bar=np.broadcast_to(np.asarray(bar, dtype=np.float64), value.shape).copy(),
        scale=np.broadcast_to(np.abs(value) if scale is None else scale, value.shape).copy(),
        terms=np.full(value.shape[1], terms),
        settled=np.zeros(value.shape, dtype=bool),
    )


def against(got, truth, rules=DYADIC, **options):
    return compare(np.atleast_2d(np.asarray(got, dtype=np.float64)), truth, rules, **options)


def finding(found, shape=None):
    names = tuple(f"ct{i}" for i in range(found.got.shape[0]))
    return found.finding("x", found.got.shape[1:] if shape is None else shape, names)


def verdict(got, truth, rules=DYADIC, **options):
    return finding(against(got, truth, rules, **options)).verdict


# ── what is no number ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=12)
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("value", [1.0, 0.0, np.nan, np.inf])
@pytest.mark.parametrize("bar", [0.0, 1e300, np.inf, np.nan])
def test_a_gradient_that_is_no_number_fails_whatever_the_truth(dtype, bad, value, bar):
    found = finding(against([1.0, bad], known([1.0, value], [0.0, bar], 1.0), TOLERANCES[dtype]))
    assert (found.verdict, found.failed) == (Verdict.FAIL, 1)
    assert found.reason == "1 of 2 elements is not finite"
    assert found.worst_index == (1,)


def test_a_gradient_that_is_no_number_fails_on_a_kink():
    everything = Interval(np.array([[True]]), np.array([[-np.inf]]), np.array([[np.inf]]))
    assert verdict([np.nan], known([1.0]), kinks=[everything]) is Verdict.FAIL
    assert verdict([np.inf], known([1.0]), kinks=[everything]) is Verdict.FAIL
    assert verdict([1e300], known([1.0]), kinks=[everything]) is Verdict.PASS


@pytest.mark.parametrize("got", [1.0, -1.0, 1e300, 0.0])
@pytest.mark.parametrize(
    ("value", "bar"), [(1.0, np.nan), (1.0, np.inf), (np.nan, 0.0), (np.inf, 0.0), (np.nan, np.nan)]
)
def test_an_unknown_truth_neither_passes_nor_fails(got, value, bar):
    found = against([1.0, got], known([1.0, value], [0.0, bar], 1.0))
    assert not found.certified[0, 1]
    assert not found.failed[0, 1]
    assert finding(found).verdict is Verdict.INCONCLUSIVE
    assert finding(found).unresolved == 1


def test_a_scale_that_is_no_number_allows_nothing():
    for scale in (np.nan, np.inf):
        truth = known([1.0, 1.0], scale=np.array([[1.0, scale]]))
        assert largest_scale(truth) == 1.0
        assert against([1.0, 1.5], truth).failed.tolist() == [[False, True]]


# ── the bound ────────────────────────────────────────────────────────────────────────────────


def test_an_error_of_exactly_the_bound_passes_and_the_next_number_fails():
    found = against([1.0 - BOUND], known([1.0]))
    assert found.error == found.bound == BOUND
    assert found.certified.all()
    assert verdict([np.nextafter(1.0 - BOUND, 0.0)], known([1.0])) is Verdict.FAIL


BAR = 2.0**-13
UNCERTAINTY = ERROR_BAR_FACTOR * BAR


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (0.0, "certified"),
        (BOUND - UNCERTAINTY, "certified"),
        (BOUND - UNCERTAINTY + TINY, "open"),
        (BOUND, "open"),
        (BOUND + UNCERTAINTY, "open"),
        (BOUND + UNCERTAINTY + TINY, "failed"),
        (1.0, "failed"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_error_bar_opens_a_gap_between_certified_and_failed(error, outcome, sign):
    found = against([1.0 + sign * error], known([1.0], BAR))
    states = {name: getattr(found, name).all() for name in ("certified", "open", "failed")}
    assert [name for name, holds in states.items() if holds] == [outcome]


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_more_terms_and_a_larger_scale_allow_more(dtype):
    def bound(**options):
        return float(against([1.0], known([1.0], **options), TOLERANCES[dtype]).bound[0, 0])

    one, u = bound(), TOLERANCES[dtype].u
    assert bound(terms=10_000) - one == pytest.approx(4 * u * 99, rel=1e-6)
    assert bound(scale=2.0) - one == pytest.approx(TOLERANCES[dtype].rtol / 16 + 4 * u, rel=1e-6)
    assert bound() == pytest.approx(TOLERANCES[dtype].rtol * 17 / 16, rel=1e-2)


@pytest.mark.parametrize(("got", "want"), [(1.0, 4.0), (4.0, 1.0), (-4.0, 1.0), (0.0, 4.0)])
@pytest.mark.parametrize("accumulate", [None, 2.0**-20])
def test_the_bound_is_the_one_that_is_promised(got, want, accumulate):
    """By the larger of |a| and |d|, by Σ|ct·J| and its terms, and by where numbers end: exactly."""
    rules = Tolerance(
        "float64", u=2.0**-12, rtol=2.0**-6, negligible_scale=0.0, underflow=2.0**-30,
        accumulate=accumulate,
    )  # fmt: skip
    found = against([got], known([want], scale=8.0, terms=9), rules)
    roundings = 4 * 3 * 2.0**-12 if accumulate is None else 4 * (3 * 2.0**-20 + 2.0**-12)
    assert found.bound == 2.0**-6 * max(abs(got), want) + (2.0**-10 + roundings) * 8 + 2.0**-30
    assert found.uncertainty == 0
    assert against([got], known([want], 0.25), rules).uncertainty == 0.5


def test_an_extra_allowance_saves_only_the_elements_that_it_covers():
    truth = known([1.0, 1.0, 1.0])
    found = against([1.02, 1.02, 1.02], truth, extra=np.array([[0.05, 0.01, 0.0]]))
    assert found.failed.tolist() == [[False, True, True]]


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_structural_zeros_may_round_but_not_be_wrong(dtype):
    truth = known([0.0, 0.0], scale=1.0)
    assert verdict([1e-17, -1e-17], truth, TOLERANCES[dtype]) is Verdict.PASS
    assert verdict([0.0, 1e-3], truth, TOLERANCES[dtype]) is Verdict.FAIL


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_huge_elements_hide_no_tiny_one(dtype):
    want = np.array([1e6, -2e6, 1e-6, 3e6])
    got = np.array([1e6, -2e6, -1e-6, 3e6])
    assert np.linalg.norm(got - want) < 1e-12 * np.linalg.norm(want)
    found = finding(against(got, known(want), TOLERANCES[dtype]))
    assert (found.verdict, found.failed, found.worst_index) == (Verdict.FAIL, 1, (2,))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("unit", [2.0**-40, 1e-12, 1e12, 2.0**40])
def test_the_units_of_the_gradient_do_not_matter(dtype, unit):
    rng = np.random.default_rng(0)
    want, scale = rng.normal(size=(3, 50)), rng.uniform(0.5, 2.0, (3, 50))
    bar = rng.choice([0.0, 1e-12, 1e-7, 1e-4, np.inf], (3, 50))
    got = want * (1 + rng.choice([0.0, 1e-9, 1e-6, 1e-2, -2.0], (3, 50)))

    def states(k):
        found = against(k * got, known(k * want, k * bar, k * scale), TOLERANCES[dtype])
        return found.certified, found.failed

    certified, failed = states(1.0)
    assert all(mask.any() for mask in (certified, failed, ~(certified | failed)))
    assert all(map(np.array_equal, states(unit), (certified, failed)))


def test_where_the_numbers_of_a_dtype_end_anything_small_passes():
    for rules in TOLERANCES.values():
        truth = known([0.0])
        assert verdict([rules.underflow], truth, rules) is Verdict.PASS
        assert verdict([rules.underflow * 1.01], truth, rules) is Verdict.FAIL


@pytest.mark.parametrize(
    ("dtype", "end"),
    [
        ("float64", 256 * np.finfo(np.float64).smallest_normal),
        ("float32", 256 * np.finfo(np.float32).smallest_normal),
        ("bfloat16", 2.0**-118),
        ("float16", 8 * np.finfo(np.float16).smallest_subnormal),
    ],
)
def test_a_dtype_rounds_and_ends_where_it_does(dtype, end):
    rules = tolerance_of(dtype)
    assert rules.u == 0.5 * float(ml_dtypes.finfo(dtype).eps)
    assert rules.rtol == {"float64": 1e-8, "float32": 1e-4}.get(dtype, 2 * rules.u)
    assert rules.negligible_scale == {"float64": 1e-7, "float32": 1e-3}.get(dtype, 1e-2)
    assert (rules.accumulate or 2.0**-24, rules.max_useful_bound) == (2.0**-24, 0.1)
    assert verdict([float(end)], known([0.0]), tolerance_of(dtype)) is Verdict.PASS
    assert verdict([float(end) * 1.01], known([0.0]), tolerance_of(dtype)) is Verdict.FAIL


@pytest.mark.parametrize(
    ("extra", "expected"), [(0.09, Verdict.PASS), (0.11, Verdict.INCONCLUSIVE)]
)
def test_a_bound_of_a_tenth_of_the_tensor_is_blunt(extra, expected):
    wrong = 1 + extra / 2
    assert verdict([wrong, 1.0], known([1.0, 1.0]), extra=np.full((1, 2), extra)) is expected


# ── what cannot be resolved ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("got", "scale", "widest"),
    [(1.0, 1.0, 2.0**-13), (0.0, 1.0, 2.0**-13), (2.0**-3, 2.0**-4, 2.0**-16)],
)
def test_what_one_pair_of_steps_shows_agrees_up_to_a_certain_error_bar(got, scale, widest):
    """2^-13 of the element or of the terms that cancel in it, if that is little in the tensor."""
    for negligible, most in ((2.0**-8, widest), (2.0**-20, 2.0**-20)):
        rules = replace(DYADIC, u=2.0**-40, negligible_scale=negligible)
        for uncertainty in (most, most * (1 + 2.0**-20)):
            bar = uncertainty / ERROR_BAR_FACTOR
            truth = known([got, 1.0], [[bar, 0.0]], scale=[[scale, 1.0]])
            truth.screened = np.array([True, False])
            found = against([got, 1.0], truth, rules)
            assert found.open.tolist() == [[True, False]]
            assert found.agreed.tolist() == [[uncertainty == most, False]]


def test_every_element_is_certified_failed_or_open_and_only_one_of_them():
    rng = np.random.default_rng(1)
    want = rng.normal(size=(3, 200))
    bar = rng.choice([0.0, 1e-12, 1e-3, np.inf, np.nan], want.shape)
    got = want * (1 + rng.choice([0.0, 1e-4, 1e-2, np.nan, np.inf], want.shape))
    found = against(got, known(want, bar))
    together = np.stack([found.certified, found.failed, found.open]).sum(axis=0)
    assert (together == 1).all()
    told = finding(found)
    assert (told.compared, told.failed, told.unresolved) == (600, *(
        int(mask.sum()) for mask in (found.failed, found.open)
    ))  # fmt: skip


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_blur_is_tolerated_only_where_it_is_negligible_in_the_tensor(dtype):
    rules = TOLERANCES[dtype]
    limit = rules.negligible_scale / ERROR_BAR_FACTOR
    for share, expected in ((1.0, Verdict.PASS), (1.01, Verdict.INCONCLUSIVE)):
        truth = known([1.0, 0.0], [0.0, limit * share], np.array([[1.0, 0.0]]))
        found = finding(against([1.0, 0.0], truth, rules))
        assert (found.verdict, found.unresolved) == (expected, 1)
    assert found.reason == (
        "1 of 2 elements cannot be resolved: their uncertainty is larger than their tolerance"
    )


def test_one_cotangent_does_not_make_the_blur_of_another_negligible():
    truth = known([[1e9, 1e9], [1.0, 0.0]], [[0.0, 0.0], [0.0, 2.0**-20]])
    assert verdict([[1e9, 1e9], [1.0, 0.0]], truth) is Verdict.INCONCLUSIVE


def test_a_failure_counts_more_than_what_cannot_be_resolved():
    truth = known([1.0, 1.0], [0.0, np.inf])
    assert verdict([2.0, 1.0], truth) is Verdict.FAIL


@pytest.mark.parametrize("got", [0.0, 0.5, 2.0])
def test_a_bound_as_large_as_the_gradient_certifies_nothing(got):
    truth = known([1.0, 1.0])
    found = against([got, got], truth, extra=np.full((1, 2), 1.5))
    assert not found.certified.any()
    assert finding(found).verdict is Verdict.INCONCLUSIVE
    assert "rounding alone" in finding(found).reason
    assert verdict([1.05, 1.05], truth, extra=np.full((1, 2), 0.09)) is Verdict.PASS


def test_a_blunt_bound_is_harmless_where_the_whole_gradient_is_zero():
    truth = known([0.0, 0.0], scale=0.0)
    assert verdict([1e-17, 0.0], truth, extra=np.full((1, 2), 1e-16)) is Verdict.PASS
    assert verdict([1e-15, 0.0], truth, extra=np.full((1, 2), 1e-16)) is Verdict.FAIL


def test_nothing_compared_is_our_own_fault():
    found = finding(against(np.zeros((3, 0)), known(np.zeros((3, 0)))), (0, 5))
    assert (found.verdict, found.compared, found.worst) == (Verdict.INVALID, 0, ())


def test_a_resolution_blurs_what_is_small_in_the_tensor():
    truth = known([1.0, 0.0], scale=np.array([[1.0, 2.0**-30]]))
    wrong = [1.0, 2.0**-22]
    assert verdict(wrong, truth) is Verdict.FAIL
    assert verdict(wrong, truth, resolution=2.0**-21) is Verdict.PASS  # negligible: 2^-20
    assert verdict(wrong, truth, resolution=2.0**-19) is Verdict.INCONCLUSIVE
    assert verdict([1.5, 0.0], truth, resolution=2.0**-19) is Verdict.FAIL


# ── kinks ────────────────────────────────────────────────────────────────────────────────────


def interval(low, high, at=1, size=3):
    which = np.arange(size)[None] == at
    return Interval(which, np.where(which, low, 0.0), np.where(which, high, 0.0))


@pytest.mark.parametrize("value", [0.5, np.nan])
@pytest.mark.parametrize(
    ("got", "expected"),
    [(0.0, "pass"), (0.5, "pass"), (1.0, "pass"), (-0.1, "fail"), (1.1, "fail"), (2.0, "fail")],
)
def test_on_a_kink_any_slope_between_the_ends_will_do(value, got, expected):
    truth = known([1.0, value, 1.0], [0.0, np.inf, 0.0], 1.0)
    found = finding(against([1.0, got, 1.0], truth, kinks=[interval(0.0, 1.0)]))
    assert (found.verdict.value, found.kinked, found.unresolved) == (expected, 1, 0)
    if expected == "fail":
        assert found.want == np.clip(got, 0.0, 1.0)


def test_a_kink_excuses_no_other_element():
    kinks = [interval(-9.0, 9.0)]
    assert verdict([1.0, 5.0, 1.0], known([1.0, 1.0, 1.0]), kinks=kinks) is Verdict.PASS
    assert verdict([1.0, 1.0, 5.0], known([1.0, 1.0, 1.0]), kinks=kinks) is Verdict.FAIL


def test_several_kinks_each_have_an_interval():
    kinks = [interval(0.0, 1.0, at=0), interval(-3.0, -2.0, at=2)]
    truth = known([9.0, 1.0, 9.0])
    found = finding(against([0.5, 1.0, -2.5], truth, kinks=kinks))
    assert (found.verdict, found.kinked) == (Verdict.PASS, 2)
    assert verdict([-2.5, 1.0, 0.5], truth, kinks=kinks) is Verdict.FAIL


# ── what is told ─────────────────────────────────────────────────────────────────────────────


def test_the_worst_element_is_told_with_its_place_numbers_and_cotangent():
    want = np.array([[1.0] * 6, [2.0, 2.0, 2.0, 2.0, 3.0, 2.0]])
    got = want + 2.0**-20
    got[1, 4] = 4.0
    top = finding(against(got, known(want, 2.0**-13)), (2, 3)).top
    assert (top.index, top.cotangent, top.got, top.want) == ((1, 1), "ct1", 4.0, 3.0)
    assert (top.error, top.bound, top.error_bar) == (1.0, 3 * BOUND, 2.0**-13)
    assert top.ulp == 2.0**51


def test_an_ulp_is_one_of_the_dtype_and_of_what_is_wanted():
    def ulp(got, want, dtype):
        return finding(against([got], known([want]), TOLERANCES[dtype])).top.ulp

    assert ulp(1.0 + 2.0**-20, 1.0, "float64") == 2.0**32
    assert ulp(1.0 + 2.0**-20, 1.0, "float32") == 2.0**3
    assert ulp(8.0, -8.0, "float32") == 16 / 2.0**-20
    assert ulp(1e-3, 0.0, "float32") is None


def test_what_cannot_be_resolved_is_shown_by_an_element_that_cannot():
    # The first is nearer to its bound, and known; the second is what nobody knows.
    truth = known([1.0, 1.0, 1.0], [0.0, np.inf, 0.0])
    found = finding(against([1.0 + 0.9 * BOUND, 5.0, 1.0], truth))
    assert (found.verdict, found.worst_index) == (Verdict.INCONCLUSIVE, (1,))
    assert found.error_bar == np.inf


def test_failures_are_listed_worst_first_and_no_more_than_can_be_read():
    want = np.ones(50)
    got = want + np.where(np.arange(50) < 30, np.arange(50), 0)
    worst = finding(against(got, known(want))).worst
    assert [miss.index[0] for miss in worst] == list(range(29, 29 - MAX_WORST, -1))
    few = finding(against([1.0, 2.0, 1.0, 3.0], known(np.ones(4)))).worst
    assert [miss.index for miss in few] == [(3,), (1,)]


def test_an_element_that_is_no_number_leads_the_list():
    assert finding(against([9.0, np.nan, 9.0], known(np.ones(3)))).worst_index == (1,)


def test_what_is_unknown_does_not_push_a_failure_off_the_list():
    truth = known(np.where(np.arange(50) == 49, 1.0, np.nan))
    found = finding(against(np.full(50, 1.5), truth))
    assert (found.verdict, [miss.index for miss in found.worst]) == (Verdict.FAIL, [(49,)])


def test_a_pass_names_the_element_that_came_closest_to_failing():
    got = [1.0, 1.0 + 2.0**-12, 1.0 - 2.0**-11, 1.0]
    found = finding(against(got, known(np.ones(4))))
    assert (found.verdict, found.worst_index, len(found.worst)) == (Verdict.PASS, (2,), 1)
    assert (found.error, found.bound, found.got, found.want) == (2.0**-11, BOUND, got[2], 1.0)


def test_the_smallest_visible_error_is_that_of_the_blindest_resolved_element():
    def seen(got, *truth):
        return finding(against(got, known(*truth))).smallest_visible_error

    assert seen([1.0, 1.0], [1.0, 1.0]) == BOUND
    assert seen([1.0, 1.0], [1.0, 1.0], [0.0, BAR]) == BOUND + UNCERTAINTY
    assert seen([1.0, 0.25], [1.0, 0.25], 0.0, 1.0) == 4 * BOUND
    assert seen([1.0, 0.25], [1.0, 0.25], [0.0, np.inf], 1.0) == BOUND  # the other is unresolved
    assert seen([1.0, 0.25], [1.0, 0.25], [0.0, 2.0**-4], 1.0) == BOUND
    assert seen([0.0], [0.0]) is None
    assert seen([1.0], [1.0], np.inf) is None


def test_an_error_of_twice_the_smallest_visible_one_is_seen_anywhere():
    rng = np.random.default_rng(2)
    want = rng.normal(size=40)
    truth = known(want, 1e-6, np.abs(want) + rng.uniform(0, 1, 40))
    rules = TOLERANCES["float32"]
    visible = finding(against(want, truth, rules)).smallest_visible_error
    for element in range(40):
        got = want.copy()
        got[element] *= 1 + 2 * visible
        assert finding(against(got, truth, rules)).worst_index == (element,)
        assert verdict(got, truth, rules) is Verdict.FAIL
