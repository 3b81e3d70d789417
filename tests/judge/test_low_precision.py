"""float16 and bfloat16: right kernels pass, wrong ones and truncating ones do not."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import SpecError
from gradcheck.implementations.bound import Bound
from gradcheck.implementations.reference import Reference
from gradcheck.judge.compare import tolerance_of
from gradcheck.judge.low_precision import (
    DRAWS,
    MAX_RATIO,
    MIN_BIAS_ERRORS,
    MIN_LEANING_ERRORS,
    Dispersion,
    bias,
    judge_spread,
    last_place,
    loses_values,
    scattered_arithmetics,
)
from gradcheck.judge.operator import certified, judge_case
from gradcheck.judge.operator_truth import CaseTruth, Unsuitable
from gradcheck.numerics.arithmetic import F32
from gradcheck.numerics.arrays import as_tuple, dtype_named
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.estimator import certain
from gradcheck.numerics.narrow import ScatteredArithmetic
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec import OpSpec, Sample
from gradcheck.spec.suite import Case

LOW = ["float16", "bfloat16"]


def gate_forward(xp, x, w):
    return xp.tanh(x) * w


def gate_vjp(xp, ct, x, w):
    y = xp.tanh(x)
    return ct * w * (1 - y * y), ct * y


def case(primals):
    spec = OpSpec(
        name="gate", signature="(),()->()", forward=gate_forward, vjp=gate_vjp, formula="x",
        source="y", samples=(Sample(name="s", primals=primals, hunts="anything"),),
    )  # fmt: skip
    return Case(spec, spec.dialects[0], spec.samples[0], 0, "tests")


CASE = case(lambda draw: (draw.signed(5, 7), draw.signed(5, 7)))


def judged(dtype, change, truth=None):
    """What is said of the reference's gradients after `change(dx, dw)`, computed in float32."""
    kind = dtype_named(dtype)

    class Kernel:
        name = "kernel"

        def bind(self, case, _):
            def vjp(ct, x, w):
                wide = (a.astype(np.float32) for a in (ct, x, w))
                return change(*gate_vjp(F32, *wide), kind)

            return Bound(vjp=vjp, forward=None, attrs=case.attrs)

    truth = truth or CaseTruth.in_low(CASE, "", dtype)
    return {f.name: f for f in judge_case(truth, Kernel(), dtype)}


def rounded(dx, dw, kind):
    return dx.astype(kind), dw.astype(kind)


def truncated(dx, dw, kind):
    """Toward zero: what is left after the bits are cut off."""
    out = []
    for g in (dx, dw):
        near = g.astype(kind)
        bits = near.view(np.uint16) - (np.abs(near.astype(np.float32)) > np.abs(g))
        out.append(bits.astype(np.uint16).view(kind))
    return tuple(out)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", LOW)
def test_float32_inside_and_one_rounding_pass_and_so_does_the_reference(dtype):
    assert {f.verdict for f in judged(dtype, rounded).values()} == {"pass"}
    truth = CaseTruth.in_low(CASE, "", dtype)
    assert {f.verdict for f in judge_case(truth, Reference(), dtype)} == {"pass"}


@pytest.mark.parametrize("dtype", LOW)
def test_truncation_is_a_bias_that_no_bound_sees_and_no_pass(dtype):
    found = judged(dtype, truncated)
    assert {f.verdict for f in found.values()} == {"inconclusive"}
    assert "ulp toward zero: they are truncated" in found["x"].reason
    assert found["x"].failed == 0


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda dx, dw, kind: rounded(1.25 * dx, dw, kind),
        lambda dx, dw, kind: rounded(-dx, dw, kind),
        lambda dx, dw, kind: rounded(0 * dx, dw, kind),
        lambda dx, dw, kind: rounded(dw, dx, kind),
        lambda dx, dw, kind: rounded(dx * np.nan, dw, kind),
        lambda dx, dw, kind: (dx, dw.astype(kind)),  # left in float32
    ],
    ids=["25% off", "sign", "zeros", "swapped", "nan", "float32"],
)
def test_wrong_gradients_are_rejected(dtype, wrong):
    found = judged(dtype, wrong)["x"]
    assert found.verdict == "fail"


@pytest.mark.parametrize("dtype", LOW)
def test_five_percent_never_pass(dtype):
    off = lambda dx, dw, kind: rounded(1.05 * dx, dw, kind)  # noqa: E731
    assert judged(dtype, off)["x"].verdict == "fail"


def test_what_bfloat16_cannot_see_stands_in_the_certificate():
    certificate = CaseTruth.in_low(CASE, "", "bfloat16").certificate(0, "bfloat16")
    assert {"one-percent", "one-element"} <= set(certificate.blind)
    assert {"zeros", "negated", "double", "half"} <= set(certificate.rejected)


@pytest.mark.parametrize("dtype", LOW)
def test_the_truth_is_that_of_the_rounded_primals(dtype):
    coarse = case(lambda draw: (draw.signed(4) + 2.0**-20, draw.signed(4) * 300 + 1 / 128))
    truth = CaseTruth.in_low(coarse, "", dtype)
    kind = dtype_named(dtype)
    for primal, drawn in zip(truth.primals, coarse.primals, strict=True):
        assert np.array_equal(primal, drawn.astype(kind).astype(np.float64))
    assert not np.array_equal(truth.primals[1], coarse.primals[1])
    assert {f.verdict for f in judged(dtype, rounded, truth).values()} == {"pass"}
    assert truth.truth(0).differences.estimate.settled.all()


def test_a_sample_too_coarse_to_tell_hides_no_failure():
    # One row of layer_norm at length 1: the gradient of x is zero, and bfloat16 allows for much.
    (case,) = SUITE.cases(["layer_norm"], ["plain"], ["row-length-1"])
    truth = CaseTruth.in_low(case, "", "bfloat16")

    class Wrong:
        name = "wrong"

        def __init__(self, value):
            self.value = value

        def bind(self, case, _):
            return Bound(vjp=lambda ct, x, **_: x * 0 + x.dtype.type(self.value), forward=None,
                         attrs=case.attrs)  # fmt: skip

    def verdicts(value):
        findings = judge_case(truth, Wrong(value), "bfloat16")
        return {f.verdict for f in certified(truth, findings, "bfloat16")}

    assert verdicts(0.0) == {"skip"}
    assert verdicts(np.nan) == {"fail"}


def test_a_case_at_fault_is_not_blamed_on_the_dtype():
    def forward(xp, x, w):
        return gate_forward(xp, x, w) * xp.const("nan")

    spec = replace(CASE.spec, forward=forward)
    with pytest.raises(SpecError, match="forward gives NaN"):
        CaseTruth.in_low(replace(CASE, spec=spec), "", "bfloat16")


@pytest.mark.parametrize(
    ("dtype", "value", "says"),
    [
        ("float16", 1e6, "does not hold the primals"),
        ("float16", 2.0**-30, "does not hold the primals"),
        ("bfloat16", 2.0**-120, "does not hold the results"),
    ],
)
def test_a_case_that_a_dtype_does_not_hold_is_left_out_with_a_reason(dtype, value, says):
    unsuited = case(lambda draw: (np.full(3, value), np.full(3, value)))
    with pytest.raises(Unsuitable, match=says):
        CaseTruth.in_low(unsuited, "", dtype)


@pytest.mark.parametrize(
    ("before", "after", "is_lost"),
    [
        (1.0, 1.0, False),
        (1e6, np.inf, True),
        (1e-9, 0.0, True),
        (np.inf, np.inf, False),
        (0.0, 0.0, False),
    ],
)
def test_a_number_that_becomes_zero_or_infinite_is_lost(before, after, is_lost):
    index, value = np.array([1, 0]), np.array([2.0, -3.0])
    with_it = [value, index, np.array([1.0, before])]
    assert loses_values(with_it, [value, 0 * index, np.array([1.0, after])]) is is_lost


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_truncation_leans_and_rounding_to_nearest_does_not(sign):
    want = sign * np.random.default_rng(0).uniform(1, 2, (1, 4 * MIN_LEANING_ERRORS))
    near = want.astype(np.float16).astype(float)
    down = (np.floor(np.abs(want) * 2.0**10) / 2.0**10) * np.sign(want)

    def off(got, size=want.size, draws=(near, near)):
        rows = want[:, :size]
        return bias(got[:, :size], rows, "float16", lambda: [d[:, :size] for d in draws])

    assert off(down) == pytest.approx(-0.5, abs=0.1)
    assert off(down, MIN_BIAS_ERRORS) == pytest.approx(-0.5, abs=0.2)
    assert off(near) is None
    assert off(down, MIN_BIAS_ERRORS - 1) is None
    assert off(want * 1.01) is None  # further off than by the last step
    leaning = (down, 2 * want - down)
    assert off(down, draws=leaning) == pytest.approx(-0.5, abs=0.1)  # all lean: no such factor
    some = np.where(np.arange(want.size) % 5 > 0, down, 2 * want - down)
    assert off(some) == pytest.approx(-0.3, abs=0.1)
    assert off(some, draws=leaning) is None
    assert off(down, MIN_BIAS_ERRORS, leaning) is None


@pytest.mark.parametrize(("beyond", "leans"), [(4, False), (5, True)])
def test_a_fifth_of_the_errors_may_be_beyond_half_a_unit(beyond, leans):
    place = 2.0**-10
    want = np.full((1, 20), 1 + place / 2)
    got = want - place * np.where(np.arange(20) < beyond, 0.9, 0.5)
    assert (bias(got, want, "float16", list) is not None) is leans


class Rounding:
    """A kernel that rounds after every operation, unlike any that is drawn; then `change`."""

    name = "rounding"

    def __init__(self, change=lambda g: g):
        self.change = change

    def bind(self, case, dtype):
        kind = dtype_named(dtype)

        def run(function, *arrays):
            rng = np.random.Generator(np.random.Philox(key=key_of("kernel", case.name)))
            xp = ScatteredArithmetic(kind, rng)
            held = [xp.asarray(a) if a.dtype == kind else a for a in arrays]
            made = function(xp, *held, **case.attrs)
            out = tuple(None if g is None else np.asarray(g) for g in as_tuple(made))
            return out if isinstance(made, tuple) else out[0]

        def vjp(ct, *primals, **_):
            made = run(case.spec.vjp, ct, *primals)
            if not isinstance(made, tuple):
                return self.change(made).astype(kind)
            return tuple(None if g is None else self.change(g).astype(kind) for g in made)

        def forward(*primals, **_):
            return run(case.spec.forward, *primals).astype(kind)

        return Bound(vjp=vjp, forward=forward, attrs=case.attrs)


BLUNT = ["layer_norm/plain/square", "label_smoothing_cross_entropy/all-classes/typical",
         "kl_divergence/probabilities/typical"]  # fmt: skip


def of(name):
    (case,) = SUITE.cases(*([part] for part in name.split("/")))
    return CaseTruth.in_low(case, "", "bfloat16")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", BLUNT)
def test_what_bounds_leave_open_passes_where_errors_are_those_of_rounding(name, monkeypatch):
    truth = of(name)
    assert {f.verdict.value for f in judge_case(truth, Rounding(), "bfloat16")} == {"pass"}
    with monkeypatch.context() as undone:
        undone.setattr(Dispersion, "judge", lambda self, finding, *_: finding)
        found = {f.verdict.value for f in judge_case(truth, Rounding(), "bfloat16")}
    assert found == {"pass", "inconclusive"}


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("name", BLUNT)
@pytest.mark.parametrize("change", [lambda g: 1.1 * g, lambda g: 0 * g, lambda g: g[::-1]])
def test_and_what_is_wrong_does_not(name, change):
    found = judge_case(of(name), Rounding(change), "bfloat16")
    assert "pass" not in {f.verdict.value for f in found if f.name != "forward"}


def known(dtype, count=40):
    rng = np.random.default_rng(0)
    want = rng.uniform(1, 2, (2, count)) * np.array([[1.0], [100.0]])
    place = last_place(want, dtype)
    draws = [want + 2 * place * rng.standard_normal(want.shape) for _ in range(DRAWS)]
    return want, place, Dispersion.of(dtype, certain(want), draws, np.isfinite(want)), rng


def said(dtype, got, want, spread, verdict=Verdict.PASS):
    finding = Finding(name="x", verdict=verdict, reason="", compared=want.size)
    form = (want.shape[1:], ("normal", "powers"))
    return judge_spread(finding, got, want, dtype, lambda: spread, form)


@pytest.mark.parametrize("dtype", LOW)
def test_errors_are_held_against_the_spread_in_the_mean_and_in_one_element(dtype):
    want, place, spread, rng = known(dtype)
    noise = rng.standard_normal(want.shape)
    for verdict in (Verdict.PASS, Verdict.INCONCLUSIVE):
        right = said(dtype, want + 2 * place * noise, want, spread, verdict)
        assert right.verdict is Verdict.PASS
        assert said(dtype, want + 6 * place * noise, want, spread, verdict).verdict != "pass"
        assert said(dtype, want + 20 * place * noise, want, spread, verdict).verdict == "fail"
    got = want + place
    got[1, 7] += 2.5 * MAX_RATIO * spread.spread[1, 7]
    one = said(dtype, got, want, spread)
    assert (one.verdict, one.failed, one.worst[0].index) == ("fail", 1, (7,))
    assert one.worst[0].cotangent == "powers"
    assert one.worst[0].error > 2 * one.worst[0].bound
    failed = Finding(name="x", verdict=Verdict.FAIL, reason="by bounds", compared=want.size)
    assert judge_spread(failed, want, want, dtype, None, ((40,), ("a", "b"))) is failed


@pytest.mark.parametrize("dtype", LOW)
def test_what_lies_beyond_the_spread_is_a_failure_from_twice_its_limit_on(dtype):
    want, _, spread, _ = known(dtype)
    for times, verdict in ((2, "pass"), (3, "inconclusive"), (5, "fail")):  # 2.16 is explained
        found = said(dtype, want + times * spread.spread, want, spread)
        assert (times, found.verdict) == (times, verdict)


@pytest.mark.parametrize("dtype", LOW)
def test_a_sign_changes_nothing_of_what_would_be_seen(dtype):
    want, place, spread, _ = known(dtype)
    minus = replace(spread, want=-want)
    seen, of_minus = (
        said(dtype, one.want + place, one.want, one, Verdict.INCONCLUSIVE).smallest_visible_error
        for one in (spread, minus)
    )
    assert seen == of_minus == pytest.approx(np.max(MAX_RATIO * spread.spread / want))


@pytest.mark.parametrize("dtype", LOW)
def test_what_does_not_count_is_not_held_against_any_spread(dtype):
    want = known(dtype)[0]
    counts = np.ones(want.shape, dtype=bool)
    counts[0, 3] = False
    value = want.copy()
    value[1, 5] = np.nan  # nor does what is not known
    draws = [want * (1 + tolerance_of(dtype).u * (-1) ** k) for k in range(DRAWS)]
    spread = Dispersion.of(dtype, certain(value), draws, counts)
    got = want.copy()
    got[0, 3] = got[1, 5] = 1e3
    got[0, 0] += last_place(want, dtype)[0, 0] * 1.01
    assert said(dtype, got, value, spread).verdict is Verdict.PASS
    got[0, 4] = 1e3
    assert said(dtype, got, value, spread).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW)
def test_terms_that_cancel_leave_half_a_unit_of_each(dtype):
    """Sixteen of size 1, whose sum is 1/1000: in the mean they lose 0.5 · u · √16, six times."""
    want, u = np.full((1, 40), 1e-3), tolerance_of(dtype).u
    truth = replace(certain(want), scale=np.full((1, 40), 16.0), terms=np.full(40, 16))
    spread = Dispersion.of(dtype, truth, [want] * DRAWS, np.isfinite(want))
    np.testing.assert_allclose(spread.spread, 0.5 * u * 4, rtol=1e-4)


@pytest.mark.parametrize("dtype", LOW)
def test_a_kernel_that_rounds_once_must_do_so_everywhere(dtype):
    want, _, spread, _ = known(dtype)
    typed = want.astype(dtype_named(dtype)).astype(np.float64)
    got = typed.copy()
    got[0, 3] += 4 * spread.spread[0, 3]
    assert said(dtype, got, want, spread).verdict == "inconclusive"
    noisy = typed + 0.8 * spread.spread
    noisy[0, 3] = got[0, 3]
    assert said(dtype, noisy, want, spread).verdict == "pass"


@pytest.mark.parametrize("dtype", LOW)
def test_a_row_that_rounding_destroys_settles_nothing_unless_the_kernel_keeps_it(dtype):
    want = np.random.default_rng(0).uniform(1, 2, (1, 40))
    draws = [want * (1 + 0.5 * (-1) ** k) for k in range(DRAWS)]
    spread = Dispersion.of(dtype, certain(want), draws, np.isfinite(want))
    for off, verdict in ((0.05, "pass"), (0.4, "inconclusive")):
        got = want * (1 + off)
        assert said(dtype, got, want, spread, Verdict.INCONCLUSIVE).verdict == verdict
    nothing = np.full((1, 40), 1e-9)
    spread = Dispersion.of(dtype, certain(nothing), draws, np.isfinite(want))
    assert said(dtype, want, nothing, spread, Verdict.INCONCLUSIVE).verdict == "inconclusive"


@pytest.mark.parametrize("dtype", LOW)
def test_the_arithmetic_rounds_whatever_is_computed_and_nothing_that_fits(dtype):
    kind = dtype_named(dtype)
    for xp in scattered_arithmetics(dtype):
        x, y = xp.asarray([1.5, -3.0]), xp.asarray([0.25, 7.0])
        table = xp.asarray([[1.5, 0.1], [0.25, 0.3]])
        for made in (x / 3, x + y / 3, xp.exp(x), xp.erf(x), xp.sum(y / 3, axis=0), x @ table,
                     xp.einsum("i,ij->j", x, table), xp.erf(x) / 3,
                     xp.scatter_add(y / 3, np.array([0, 0]), 2)):  # fmt: skip
            plain = np.asarray(made, dtype=np.float64)
            assert np.array_equal(plain.astype(kind).astype(np.float64), plain)
        assert np.array_equal(np.asarray(x * y), [0.375, -21.0])
    thirds = [float((xp.asarray([1.0]) / 3)[0]) for xp in scattered_arithmetics(dtype)]
    assert min(thirds) < 1 / 3 < max(thirds)
