"""The V of central differences: what falls with h², what grows with 1/h, and who stands above."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.judge.evidence_curves import CURVE_STEPS, curve_steps, v_curve
from gradcheck.judge.operator import judge_case, with_v_curves
from gradcheck.judge.operator_truth import CaseTruth
from gradcheck.results.finding import Finding, VCurve
from gradcheck.results.verdict import Verdict
from gradcheck.spec import Kink, OpSpec, Sample
from gradcheck.spec.suite import Case
from tests.judge.changed import Changed, truth_of


def of_spec(forward, vjp, primals, **options):
    options = {"name": "own", "signature": "()->()", "formula": "x", "source": "y"} | options
    sample = Sample(name="typical", primals=primals, hunts="anything", at_kink="kinks" in options)
    spec = OpSpec(forward=forward, vjp=vjp, samples=(sample,), **options)
    return CaseTruth(Case(spec, spec.dialects[0], sample, 0, "tests"))


def cube(scale=1.0):
    """x³: the central difference is off by h² to the last term."""
    return of_spec(
        lambda xp, x: x * x * x, lambda xp, ct, x: 3 * x * x * ct,
        lambda draw: (draw.signed(3, 4) * scale,),
    )  # fmt: skip


def curves(truth, change=lambda g: g, dtype="float64", *, every=False):
    found = with_v_curves(truth, judge_case(truth, Changed(change), dtype), every=every)
    return {f.name: f.curve for f in found}


def wrong(gradient):
    return gradient * np.asarray(1.01, gradient.dtype)


def third(truth, curve):
    """|ct|: a sixth of the third derivative of Σ ct·x³ at the element."""
    row = truth.cotangents.names.index(curve.cotangent)
    return float(np.abs(truth.cotangents.values[row][0][curve.index]))


def explained(curve, a, truncation=0.0):
    """Whether every point is a·h² away, or what rounding and the truth's bar add to that."""
    return all(
        abs(error - a * h**2) <= bar + curve.error_bar + truncation * a * h**2
        for h, error, bar in zip(curve.steps, curve.errors, curve.bars, strict=True)
    )


# ── the two sides of the V ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scale", [1.0, 32.0, 2.0**-10, 2.0**13])
def test_every_point_is_truncation_and_what_rounding_explains(scale):
    truth = cube(scale)
    curve = curves(truth, wrong)["x"]
    a = third(truth, curve)
    assert len(curve.steps) == CURVE_STEPS
    assert explained(curve, a, 1e-5)
    # The same points are not those of another third derivative, of another truth, of less noise.
    assert not explained(curve, 1.1 * a)
    assert not explained(dataclasses.replace(curve, errors=_moved(curve, a)), a, 1e-5)
    assert not explained(
        dataclasses.replace(curve, bars=(0.0,) * CURVE_STEPS, error_bar=0.0), a, 1e-5
    )


def _moved(curve, a):
    """The errors against a derivative that is wrong by ten times the floor."""
    return tuple(abs(e + 10 * curve.floor) for e in curve.errors)


def test_truncation_falls_with_the_square_of_the_step():
    curve = curves(cube(), wrong)["x"]
    clear = [e for e, bar in zip(curve.errors, curve.bars, strict=True) if e > 100 * bar]
    assert len(clear) > 5
    ratios = [a / b for a, b in itertools.pairwise(clear)]
    assert ratios == pytest.approx([10.0] * len(ratios), rel=0.05)


def test_the_bar_of_rounding_grows_with_one_over_the_step():
    curve = curves(cube(), wrong)["x"]
    tail = curve.bars[CURVE_STEPS // 2 :]
    assert [b / a for a, b in itertools.pairwise(tail)] == pytest.approx(
        [math.sqrt(10)] * (len(tail) - 1), rel=1e-2
    )
    # It is no wish: the points of the left side come within two decades of it somewhere.
    left = zip(curve.errors[curve.best + 1 :], curve.bars[curve.best + 1 :], strict=True)
    assert max(e / b for e, b in left) > 0.01


@pytest.mark.parametrize("scale", [1.0, 32.0])
def test_the_lowest_point_is_where_both_sides_are_alike(scale):
    truth = cube(scale)
    curve = curves(truth, wrong)["x"]
    h = curve.steps[curve.best]
    rounding = curve.bars[-1] * curve.steps[-1]
    alike = (rounding / (2 * third(truth, curve))) ** (1 / 3)
    assert alike / 10 <= h <= alike * 10
    assert curve.floor <= 30 * third(truth, curve) * alike**2


def test_a_linear_forward_has_no_truncation():
    truth = of_spec(lambda xp, x: 3 * x, lambda xp, ct, x: 3 * ct, lambda draw: (draw.signed(5),))
    curve = curves(truth, wrong)["x"]
    assert explained(curve, 0.0)
    assert curve.best in (0, 1)


# ── right and wrong gradients ────────────────────────────────────────────────────────────────

SEVERAL = ("softmax", "rms_norm", "layer_norm", "gelu", "matmul", "cross_entropy", "attention")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("op", SEVERAL)
def test_a_right_gradient_is_within_the_floor_and_a_wrong_one_above_it(op):
    seen = 0
    for case in SUITE.cases([op])[:8]:
        truth = CaseTruth(case)
        for name, curve in curves(truth, every=True).items():
            if curve is not None:
                assert curve.off <= curve.floor, (case.name, name)
        (name,) = truth.names[:1]
        curve = curves(truth, wrong).get(name)
        if curve is not None:
            assert curve.off > curve.floor, case.name
            assert curve.off > curve.bound
            seen += 1
    assert seen > 2


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("op", SEVERAL)
def test_below_the_best_step_rounding_explains_every_point(op):
    for case in SUITE.cases([op])[:8]:
        for curve in curves(CaseTruth(case), every=True).values():
            if curve is not None:
                both = list(zip(curve.errors, curve.bars, strict=True))[curve.best + 1 :]
                assert all(e <= b + curve.error_bar for e, b in both), case.name


def test_the_curve_is_that_of_the_worst_element_and_its_cotangent():
    truth = truth_of("softmax")

    def one(g):
        out = g.copy()
        out[..., 0, 1] *= 1.5
        return out

    found = with_v_curves(truth, judge_case(truth, Changed(one), "float64"), every=False)[0]
    curve, top = found.curve, found.top
    assert curve.index == top.index
    assert curve.index[-2:] == (0, 1)
    assert (curve.cotangent, curve.tensor) == (top.cotangent, "x")
    assert (curve.off, curve.want, curve.bound) == (top.error, top.want, top.bound)
    assert curve.error_bar == top.error_bar


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_forward_is_differenced_in_float64_whatever_was_judged(dtype):
    case = SUITE.cases(["softmax"], [], ["typical"])[0]
    low = dtype in ("float16", "bfloat16")
    truth = CaseTruth.in_low(case, "", dtype) if low else CaseTruth(case)
    curve = curves(truth, lambda g: g * np.asarray(1.5, g.dtype), dtype)["x"]
    assert curve.floor < 1e-8 < curve.off


# ── who gets one ─────────────────────────────────────────────────────────────────────────────


def test_a_pass_gets_a_curve_only_where_all_are_asked_for():
    truth = truth_of("rms_norm", dialect="weight")
    assert set(curves(truth).values()) == {None}
    assert all(curves(truth, every=True).values())
    half = curves(truth, wrong)
    assert half["x"] is not None
    assert half["w"] is None


def test_nothing_else_of_a_finding_changes():
    truth = truth_of("softmax")
    before = judge_case(truth, Changed(wrong), "float64")
    after = with_v_curves(truth, before, every=False)
    assert [dataclasses.replace(f, curve=None) for f in after] == before


def test_an_inconclusive_gradient_gets_one():
    truth = truth_of("softmax")
    (found,) = judge_case(truth, Changed(lambda g: g), "float64")
    open_ = dataclasses.replace(found, verdict=Verdict.INCONCLUSIVE)
    assert with_v_curves(truth, [open_], every=False)[0].curve is not None


@pytest.mark.parametrize(
    "change", [lambda g: g[..., :-1], lambda g: None, lambda g: g.astype(np.int64)]
)
def test_what_is_no_gradient_has_no_curve(change):
    found = with_v_curves(truth_of("softmax"), judge_case(truth_of("softmax"), Changed(change),
                                                         "float64"), every=True)  # fmt: skip
    assert [f.curve for f in found if f.verdict is not Verdict.PASS] == [None]


def test_a_gradient_that_is_no_number_is_off_by_no_number():
    def spoiled(g):
        out = g.copy()
        out[..., -1] = np.nan
        return out

    curve = curves(truth_of("softmax"), spoiled)["x"]
    assert math.isnan(curve.off)
    assert curve.floor < 1e-8


def test_on_a_kink_there_is_no_derivative_to_differ_from():
    truth = truth_of("relu", "kink")
    on = truth.declared.on(0)

    def where(g):
        out = g.reshape(-1).copy()
        out[np.flatnonzero(on)[0]] = 7.0
        return out.reshape(g.shape)

    (found,) = with_v_curves(truth, judge_case(truth, Changed(where), "float64"), every=False)
    assert found.verdict is Verdict.FAIL
    assert found.curve is None
    assert "!" not in found.heat.cells


def test_beside_a_kink_the_curve_falls_once_the_step_is_shorter_than_the_way_to_it():
    truth = of_spec(
        lambda xp, x: xp.where(x > 0, x, 0 * x), lambda xp, ct, x: xp.where(x > 0, ct, 0 * ct),
        lambda draw: (np.array([0.0078125, 0.0]),),
        kinks=(Kink(name="zero", source="itself", gap=lambda xp, x: xp.abs(x)),),
    )  # fmt: skip
    place, way = (0,), 0.0078125

    def spoiled(g):
        out = g.copy()
        out[place] += 0.5
        return out

    curve = curves(truth, spoiled)["x"]
    assert curve.index == place
    for h, error, bar in zip(curve.steps, curve.errors, curve.bars, strict=True):
        beyond = (h - way) / (2 * h) * third(truth, curve) if h > way else 0.0
        assert error == pytest.approx(beyond, rel=1e-5, abs=bar + curve.error_bar)
        assert h < 1.1 * way or error > bar
    assert curve.steps[curve.best] < way


def test_a_staircase_has_no_slope_and_says_so():
    truth = of_spec(
        lambda xp, x: xp.where(x > 0, 1 + 0 * x, 0 * x), lambda xp, ct, x: 0 * ct,
        lambda draw: (np.array([0.25, -0.5]),),
    )  # fmt: skip
    curve = curves(truth, lambda g: g + 1.0)["x"]
    assert curve.want == 0.0
    assert curve.errors[0] > 0
    assert set(curve.errors[2:]) == {0.0}
    assert curve.off == 1.0 > curve.floor


def test_a_step_that_forward_refuses_is_left_out():
    def log(xp, x):
        if xp.name == "float64" and np.any(np.asarray(x) <= 0):
            raise ValueError("the logarithm of what is not positive")
        return xp.log(x)

    truth = of_spec(log, lambda xp, ct, x: ct / x, lambda draw: (np.array([0.0078125, 3.0]),))

    def first(g):
        return g + np.array([1.0, 0.0])

    curve = curves(truth, first)["x"]
    known = [math.isfinite(e) for e in curve.errors]
    assert [h < 0.0078125 for h in curve.steps] == known
    assert all(math.isnan(b) for b, k in zip(curve.bars, known, strict=True) if not k)
    assert known[curve.best]
    assert curve.floor < 1e-6


def test_where_forward_has_no_value_beside_the_point_there_is_no_curve():
    truth, (found,) = _judged()
    truth.differences.seen_at = lambda *_: (
        np.full(CURVE_STEPS, np.nan),
        np.full(CURVE_STEPS, np.nan),
    )
    assert v_curve(truth, found) is None


class Known:
    """A truth whose differences are those of another one, or as a test sets them."""

    def __init__(self, truth):
        self.kinks, self.shape, self.cotangents = truth.kinks, truth.shape, truth.cotangents
        self.differences = Seen(truth.differences)


class Seen:
    def __init__(self, differences):
        self.evaluator, self.seen_at = differences.evaluator, differences.seen_at


def _judged():
    truth = truth_of("softmax")
    found = judge_case(truth, Changed(wrong), "float64")
    return Known(truth.truth(0)), found


@pytest.mark.parametrize(
    "change", [{"want": math.nan}, {"want": math.inf}, {"error_bar": math.inf}]
)
def test_what_is_not_known_is_not_compared_with(change):
    truth, (found,) = _judged()
    assert v_curve(truth, found) is not None
    top = dataclasses.replace(found.top, **change)
    assert v_curve(truth, dataclasses.replace(found, worst=(top,))) is None
    assert v_curve(truth, dataclasses.replace(found, worst=())) is None


def test_a_large_forward_is_not_called_54_times_more(monkeypatch):
    truth, (found,) = _judged()
    limit = "gradcheck.judge.evidence_curves.MAX_CURVE_ELEMENTS"
    size = truth.differences.evaluator.x.size
    monkeypatch.setattr(limit, size)
    assert v_curve(truth, found) is not None
    monkeypatch.setattr(limit, size - 1)
    assert v_curve(truth, found) is None


def test_a_curve_costs_at_most_60_forwards():
    truth = truth_of("rms_norm", dialect="weight")
    found = judge_case(truth, Changed(wrong), "float64")
    evaluator = truth.truth(0).differences.evaluator
    rows, values = [], evaluator.values
    truth.truth(0).differences.evaluator.values = lambda copies: (
        rows.append(len(copies)) or values(copies)
    )
    assert with_v_curves(truth, found, every=False)[0].curve is not None
    assert 0 < sum(rows) <= 60


# ── the ladder of steps, and what is kept ────────────────────────────────────────────────────


@pytest.mark.parametrize(("largest", "top"), [(0.0, 1.0), (1.0, 1.0), (1000.0, 1000.0), (7e5, 1e6)])
def test_steps_are_half_decades_from_the_size_of_the_primal(largest, top):
    h = curve_steps(np.array([largest, -largest / 2]))
    assert h[0] == pytest.approx(top)
    assert h[::2] == pytest.approx(top / 10.0 ** np.arange(len(h[::2])))
    assert h[-1] / h[0] == pytest.approx(1e-13)


def test_a_curve_depends_on_names_alone():
    first, second = (curves(truth_of("matmul"), wrong) for _ in range(2))
    assert repr(first) == repr(second)
    truth = truth_of("matmul")
    judge_case(truth, Changed(lambda g: g * 2), "float32")  # another one was asked before
    assert repr(curves(truth, wrong)) == repr(first)


def v(errors, bars, error_bar=0.0):
    steps_ = tuple(10.0**-k for k in range(len(errors)))
    return VCurve(index=(), tensor="x", cotangent="one", steps=steps_, errors=errors, bars=bars,
                  off=1.0, want=1.0, bound=1e-9, error_bar=error_bar)  # fmt: skip


@pytest.mark.parametrize(
    ("errors", "bars", "error_bar", "best", "floor"),
    [
        ((1.0, 0.1, 0.01, 0.2), (0.0, 0.0, 0.02, 0.3), 0.0, 2, 0.1),
        ((1.0, 0.0, 1.0, 0.5), (0.0,) * 4, 0.0, 1, 1.0),  # luck is not believed
        ((1.0, 0.1, 0.1, 1.0), (0.0,) * 4, 0.25, 1, 0.25),
        ((math.nan, 0.1, 0.2, math.nan), (0.0,) * 4, 0.0, 1, 0.2),
        ((0.1, 0.2, 0.3, 0.4), (0.0, math.inf, 0.0, 0.0), 0.0, 2, 0.4),
    ],
)
def test_the_best_step_is_as_sure_as_its_surer_neighbour(errors, bars, error_bar, best, floor):
    found = v(errors, bars, error_bar)
    assert (found.best, found.floor) == (best, floor)


@pytest.mark.parametrize(
    "errors", [(), (0.1,), (math.nan, math.nan), (0.1, math.nan, 0.1), (math.inf, 1.0)]
)
def test_where_no_two_neighbours_have_a_value_there_is_no_best_step(errors):
    found = v(errors, (0.0,) * len(errors))
    assert found.best is None
    assert math.isnan(found.floor)


@pytest.mark.parametrize("which", ["steps", "errors", "bars"])
def test_what_is_no_curve_is_refused(which):
    found = v((1.0, 2.0), (1.0, 2.0))
    with pytest.raises(ValueError, match="as many errors and bars as steps"):
        dataclasses.replace(found, **{which: (1.0,)})


def test_a_finding_of_something_else_is_left_alone():
    truth = truth_of("softmax")
    odd = Finding(name="vjp", verdict=Verdict.ERROR, reason="it raised")
    assert with_v_curves(truth, [odd], every=True) == [odd]
