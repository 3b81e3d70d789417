"""Taylor remainders of right and of wrong gradients, against exact derivatives."""

import dataclasses

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.reference import Reference
from gradcheck.judge.evidence_curves import FIT_STEPS, TaylorLine, _fitted
from gradcheck.judge.operator import judge_case
from gradcheck.judge.operator_truth import CaseTruth
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.direction import Along, draw_direction
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Point
from gradcheck.results.verdict import Verdict
from tests.functions import softmax, softmax_vjp
from tests.judge.changed import Changed, truth_of

SEEDS = 100


def rms_norm(x, eps=1e-6):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def rms_norm_vjp(ct, x, eps=1e-6):
    r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return r * (ct - x * r * r * np.mean(ct * x, axis=-1, keepdims=True))


# name: forward, its VJP
FUNCTIONS = {
    "tanh": (np.tanh, lambda ct, x: ct / np.cosh(x) ** 2),
    "exp": (np.exp, lambda ct, x: ct * np.exp(x)),
    "cubic": (lambda x: x**3 - 2 * x, lambda ct, x: ct * (3 * x * x - 2)),
    "seventh": (lambda x: x**7, lambda ct, x: 7 * ct * x**6),
    "reciprocal": (lambda x: 1 / x, lambda ct, x: -ct / x**2),
    "softmax": (softmax, softmax_vjp),
    "rms_norm": (rms_norm, rms_norm_vjp),
    "linear": (lambda x: 3 * x, lambda ct, x: 3 * ct),
}
INPUTS = [("tanh", 0, 8), ("exp", 0, 4), ("softmax", 0, 10), ("softmax", 1000, 3),
          ("rms_norm", 0, 1e-4), ("rms_norm", 0, 2.0**10), ("reciprocal", 0, 1e-3)]  # fmt: skip


def line(forward, x, direction=None, ct=None, seed=0):
    along = Along(Point(lambda x: (forward(x),), (x,)))
    if direction is None:
        direction = draw_direction(Draw(seed, "direction"), (x,), {0})[0]
    ct = np.ones(along.base.size) if ct is None else ct.reshape(-1)
    return TaylorLine(along, (direction,), ct)


def curves(name, mean=0.0, spread=1.0, offs=(0.0,), seeds=SEEDS):
    """Per seed and error `off` of the first element: the curve, what it should find, and Σ|g·d|."""
    forward, vjp = FUNCTIONS[name]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        x, ct = mean + spread * rng.normal(size=(3, 6)), rng.normal(size=(3, 6))
        direction = draw_direction(Draw(seed, "direction"), (x,), {0})[0]
        gradient = vjp(ct, x)
        here = line(forward, x, direction, ct)
        for off in offs:
            error = np.zeros_like(x)
            error[0, 0] = off
            curve = here.left_by([gradient + error])
            yield curve, -np.sum(error * direction), np.sum(np.abs(gradient * direction))


def test_without_a_finite_value_at_the_finest_step_there_is_no_curve():
    x = np.array([1.0, 2.0])
    here = line(lambda y: y if np.array_equal(x, y) else y * np.nan, x)
    assert here.left_by([np.ones(2)]) is None


def test_too_few_steps_to_fit_are_no_curve():
    least = 2.0**-26 * FIT_STEPS

    def narrow(x):
        if not np.abs(x - 1).max() <= least:
            raise ValueError("domain")
        return x**3

    assert line(narrow, np.ones(1), np.ones(1)).left_by([np.full(1, 3.0)]) is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_leaves_no_curve(value):
    assert line(np.tanh, np.array([0.5, 1.0])).left_by([np.array([0.5, value])]) is None


@pytest.mark.parametrize("refusal", [ValueError("domain"), SystemExit(1), None])
def test_steps_that_forward_refuses_are_left_out_with_all_beyond_them(refusal):
    def root(x):
        if refusal is not None and not np.all(x > 0):
            raise refusal
        return np.sqrt(x)

    x = np.array([0.01, 2.0])
    direction = np.array([0.25, 1.0])  # x − hd is negative at h = 1/2 … 1/16
    curve = line(root, x, direction).left_by([0.5 / np.sqrt(x)])
    assert curve.steps[0] == 2.0**-5
    assert np.isfinite(curve.remainders).all()
    assert abs(curve.intercept) <= curve.error_bar <= 1e-9


def test_a_forward_that_overflows_at_long_steps_is_seen_at_short_ones():
    x = np.array([350.0, 352.0])
    curve = line(np.exp, x, np.full(2, 800.0)).left_by([np.exp(x)])
    assert curve.steps[0] == 0.25
    assert abs(curve.intercept) <= curve.error_bar <= 1e-8 * curve.product


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e200, 1e300])
def test_squares_that_overflow_or_underflow_widen_the_bar_at_most(scale):
    x = np.array([0.5, -1.0, 0.25])
    here = line(lambda x: scale * np.tanh(x), x)
    right, missing = (here.left_by([g]) for g in (scale / np.cosh(x) ** 2, np.zeros(3)))
    assert abs(right.intercept) <= right.error_bar
    slope = np.sum(
        np.asarray(scale / np.cosh(x) ** 2) * draw_direction(Draw(0, "direction"), (x,), {0})[0]
    )
    assert abs(missing.intercept - slope) <= missing.error_bar


def test_a_forward_that_is_infinite_everywhere_leaves_no_curve():
    assert line(lambda x: x / 0.0, np.ones(2)).left_by([np.ones(2)]) is None


@pytest.mark.suite(keep=2, rest=7)
@pytest.mark.parametrize(
    ("name", "mean", "spread"), [*((name, 0, 1) for name in FUNCTIONS), *INPUTS]
)
def test_the_bar_covers_the_error_of_the_intercept(name, mean, spread):
    covered = [
        abs(curve.intercept - wanted) <= curve.error_bar
        for curve, wanted, _ in curves(name, mean, spread, offs=(0.0, 1e-6))
    ]
    assert len(covered) == 2 * SEEDS
    assert np.mean(covered) >= 0.995


@pytest.mark.slow
def test_a_bar_a_thousand_times_shorter_would_not_cover_it():
    outside = [
        not abs(curve.intercept) <= curve.error_bar / 1000 for curve, _, _ in curves("seventh")
    ]
    assert np.mean(outside) > 0.5


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_of_a_millionth_is_seen_far_above_its_bar(name):
    for curve, wanted, size in curves(name, offs=(1e-6,), seeds=20):
        if size > 1e4:  # 1/x near zero
            continue
        assert curve.intercept == pytest.approx(wanted, rel=1e-2)
        assert curve.error_bar <= 1e-2 * abs(wanted)


@pytest.mark.parametrize("name", ["tanh", "exp", "cubic", "softmax", "rms_norm"])
def test_slopes_are_three_for_a_right_gradient_and_one_for_a_wrong_one(name):
    right, _, _ = next(curves(name))
    wrong, _, _ = next(curves(name, offs=(1.0,)))
    middle = slice(4, 9)  # 1/32 … 1/512: neither of higher order nor noise
    np.testing.assert_allclose(right.slopes[middle], 3, atol=0.2)
    np.testing.assert_allclose(wrong.slopes[10:], 1, atol=1e-3)
    assert len(right.slopes) == len(right.remainders) - 1 == len(right.steps) - 1


def test_where_all_is_noise_slopes_are_not_three():
    curve, _, _ = next(curves("tanh"))
    assert np.median(curve.slopes[-6:]) < 1.5


def test_steps_are_halved_and_remainders_are_those_of_the_definition():
    x, d, g = np.array([1.0]), np.array([2.0]), np.array([3.0])
    curve = line(lambda x: x**3, x, d).left_by([g])
    h = np.array(curve.steps)
    assert h[0] == 0.5
    np.testing.assert_array_equal(h[1:], h[:-1] / 2)
    r = (x + h * d) ** 3 - (x - h * d) ** 3 - 2 * h * g * d
    np.testing.assert_allclose(curve.remainders, r / (2 * h), atol=1e-7)
    np.testing.assert_allclose(curve.remainders[:8], d**3 * h[:8] ** 2, rtol=1e-9)
    assert curve.product == 6


@pytest.mark.parametrize(
    ("forward", "gradient"),
    [(lambda x: 3 * x, 3.0), (lambda x: x * x, 2 * 0.3), (lambda x: x * 0 + 5, 0.0)],
)
def test_a_forward_without_a_third_order_is_called_linear(forward, gradient):
    curve = line(forward, np.array([0.3])).left_by([np.array([gradient])])
    assert curve.linear
    assert abs(curve.intercept) <= curve.error_bar <= 1e-12


def test_a_wrong_gradient_of_a_linear_forward_is_not_all_noise():
    curve = line(lambda x: 3 * x, np.array([0.3]), np.ones(1)).left_by([np.array([3.001])])
    assert not curve.linear
    assert curve.intercept == pytest.approx(-1e-3)
    np.testing.assert_allclose(curve.slopes[:12], 1, atol=1e-6)


def test_a_cubic_is_not_linear():
    curve = line(lambda x: x**3, np.array([0.3])).left_by([np.array([0.27])])
    assert not curve.linear


def test_a_forward_that_is_zero_all_along_leaves_nothing():
    curve = line(lambda x: x * 0, np.array([0.3, 1.0])).left_by([np.zeros(2)])
    assert set(curve.remainders) == {0.0}
    assert np.isnan(curve.slopes).all()
    assert curve.linear
    assert abs(curve.intercept) <= curve.error_bar


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("off", [0.0, 0.1])
def test_noise_widens_the_bar_and_not_the_verdict(off):
    def coarse(x):
        return np.tanh(x.astype(np.float32)).astype(np.float64)  # behind a float64 face

    outside, bars = 0, []
    for seed in range(100):
        x = np.random.default_rng(seed).normal(size=4)
        d = draw_direction(Draw(seed, "direction"), (x,), {0})[0]
        gradient = 1 / np.cosh(x) ** 2 + np.array([off, 0, 0, 0])
        curve = line(coarse, x, d).left_by([gradient])
        ok = abs(curve.intercept + off * d[0]) <= curve.error_bar
        outside += not ok
        bars.append(curve.error_bar)
    assert outside <= 2
    assert 1e-7 <= np.median(bars) <= 1e-2


def test_float32_values_leave_honest_bars_too():
    outside = 0
    for seed in range(100):
        x = np.random.default_rng(seed).normal(size=6).astype(np.float32)
        curve = line(np.tanh, x, seed=seed).left_by([1 / np.cosh(x.astype(np.float64)) ** 2])
        ok = abs(curve.intercept) <= curve.error_bar
        outside += not ok
        assert curve.error_bar <= 1e-2
    assert outside <= 1


def test_a_function_of_fifth_order_is_known_to_some_thirty_deviations_of_its_noise():
    """One term fewer leaves thousands of them, one more takes twice as many."""
    noise, bars = 1e-12, []
    h = 0.5 ** np.arange(27.0)
    for seed in range(40):
        shaken = noise * np.random.default_rng(seed).normal(size=h.size) / h
        intercept, bar = _fitted(h, 0.25 + h**2 + h**4 + shaken, noise, np.zeros(h.size))
        assert abs(intercept - 0.25) <= bar
        bars.append(bar)
    assert np.median(bars) <= 32 * noise


def test_a_step_that_rounding_takes_away_is_no_error_of_the_gradient():
    x = np.array([1000.0, 1003.0, 998.0])
    d = np.array([1.1, -0.7, 0.3]) / 3
    curve = line(lambda x: 3 * x, x, d).left_by([np.full(3, 3.0)])
    assert np.abs(curve.remainders).max() <= 1e-2  # φ's own rounding over the finest step
    np.testing.assert_allclose(curve.remainders[:10], 0, atol=1e-9)
    assert abs(curve.intercept) <= curve.error_bar <= 1e-9


def test_on_a_kink_the_curve_sees_the_mean_of_both_sides():
    curve = line(lambda x: np.maximum(x, 0), np.zeros(1), np.ones(1)).left_by([np.zeros(1)])
    assert curve.intercept == pytest.approx(0.5)
    assert curve.error_bar <= 1e-6


@pytest.mark.parametrize("distance", [0.3, 1e-2, 1e-4, 1e-6])
def test_beside_a_kink_it_sees_the_near_side(distance):
    x = np.array([distance])

    def bent(x):
        return np.abs(x) + x**3

    curve = line(bent, x, np.ones(1)).left_by([1 + 3 * x * x])
    assert abs(curve.intercept) <= curve.error_bar <= 1e-6


@pytest.mark.parametrize("steepness", [1e2, 1e4, 1e5])
def test_a_forward_that_saturates_at_most_steps_is_not_believed_there(steepness):
    x = np.zeros(1)
    curve = line(lambda x: np.arctan(x * steepness), x).left_by([np.full(1, steepness)])
    assert abs(curve.remainders[0]) >= 0.9 * curve.product  # φ hardly moves, all is left
    assert abs(curve.intercept) <= curve.error_bar <= 0.01 * curve.product


def test_a_network_of_kinks_is_no_alarm():
    outside = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x, w, v = rng.normal(size=(8, 6)), rng.normal(size=(6, 32)), rng.normal(size=(32, 1))

        def network(w, x=x, v=v):
            return np.maximum(x @ w, 0) @ v

        curve = line(network, w, seed=seed).left_by([x.T @ ((x @ w > 0) * v[:, 0])])
        ok = abs(curve.intercept) <= curve.error_bar
        outside += not ok
        assert curve.error_bar <= 1e-3 * max(abs(curve.product), 1)
    assert outside <= 1


def test_only_primals_that_move_are_asked_for_their_gradient():
    x, w = np.array([0.5, -1.0]), np.array([2.0, 3.0])
    along = Along(Point(lambda x, w: (np.sin(x) * w,), (x, w)))
    moving = draw_direction(Draw("d"), (x, w), {1})
    curve = TaylorLine(along, moving, np.ones(2)).left_by([None, np.sin(x)])
    assert curve.linear
    both = draw_direction(Draw("d"), (x, w), {0, 1})
    curve = TaylorLine(along, both, np.ones(2)).left_by([w * np.cos(x), np.sin(x)])
    assert not curve.linear
    assert abs(curve.intercept) <= curve.error_bar <= 1e-10


def test_the_same_question_gets_the_same_bits():
    first, again = (list(curves("softmax", offs=(1e-6,), seeds=5)) for _ in range(2))
    assert [repr(curve) for curve, _, _ in first] == [repr(curve) for curve, _, _ in again]


def test_one_line_serves_several_gradients():
    x = np.array([0.5, -1.0])
    here = line(np.tanh, x)
    right, wrong = (here.left_by([g]) for g in (1 / np.cosh(x) ** 2, np.zeros(2)))
    assert abs(right.intercept) <= right.error_bar
    assert abs(wrong.intercept - right.product) <= wrong.error_bar <= 1e-7


def judged(truth, binding=None, dtype="float64"):
    found = judge_case(truth, binding or Reference(), dtype, taylor=True)
    return {finding.name: finding for finding in found}


def test_nobody_gets_a_curve_unasked():
    found = judge_case(truth_of("softmax"), Reference(), "float64")
    assert len(found) == 2
    assert all(finding.taylor is None for finding in found)


def test_what_is_not_a_gradient_has_no_curve():
    found = judged(truth_of("softmax"), Changed(lambda g: g[..., :-1]))
    assert found["x"].verdict is Verdict.FAIL
    assert found["x"].taylor is None
    found = judged(truth_of("softmax"), Changed(lambda g: g * np.nan))
    assert found["x"].verdict is Verdict.FAIL
    assert found["x"].taylor is None
    assert judged(truth_of("softmax"))["forward"].taylor is None


def test_where_there_are_no_elements_there_is_no_curve():
    found = judged(truth_of("softcap_back", "empty"))
    assert all(finding.taylor is None for finding in found.values())


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("op", ["softmax", "rms_norm", "gelu", "matmul", "cross_entropy"])
def test_the_curve_of_a_right_gradient_finds_no_error(op):
    for case in SUITE.cases([op])[:12]:
        truth = CaseTruth(case)
        found = judged(truth)
        for i in truth.floating:
            curve = found[truth.names[i]].taylor
            if curve is None:
                assert truth.primals[i].size == 0
            else:
                assert abs(curve.intercept) <= curve.error_bar < np.inf


def test_a_wrong_gradient_has_an_intercept_and_the_verdict_stays_the_same():
    truth, wrong = truth_of("softmax"), Changed(lambda g: g * (1 + 1e-6))
    found = judged(truth, wrong)["x"]
    curve = found.taylor
    assert curve.intercept == pytest.approx(-1e-6 * curve.product, rel=1e-2)
    assert curve.error_bar <= 1e-3 * abs(curve.intercept)
    (plain,) = judge_case(truth, wrong, "float64")
    assert dataclasses.replace(found, taylor=None) == plain
    assert found.verdict is Verdict.FAIL


def test_float32_rounding_shows_as_the_error_that_it_is():
    curve = judged(truth_of("softmax"), dtype="float32")["x"].taylor
    assert curve.error_bar < abs(curve.intercept) <= 1e-6


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "sample"), [("relu", "kink"), ("relu", "beside"), ("clamp", "kink"), ("max", "ties")]
)
def test_elements_on_a_kink_or_beside_one_stay_where_they_are(op, sample):
    truth = truth_of(op, sample)
    near = truth.declared.near()[0]
    assert near.any()
    right = judged(truth)["x"].taylor
    anything = judged(truth, Changed(lambda g: np.where(near, 7.0, g)))["x"].taylor
    if near.all():
        assert right is None
        return
    assert abs(right.intercept) <= right.error_bar < 1e-9
    assert repr(anything) == repr(right)


def test_a_curve_depends_on_names_alone():
    both = truth_of("matmul")
    alone = truth_of("matmul")
    i = alone.floating[-1]
    found = judged(both)[both.names[i]].taylor
    certain = np.asarray(as_tuple(Reference().bind(alone.case, "float64").vjp(
        alone.cotangents.values[0][0], *alone.primals, **alone.case.attrs))[i])  # fmt: skip
    assert repr(alone.remainders.of(i, certain)) == repr(found)
