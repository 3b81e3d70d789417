"""float16 and bfloat16: right kernels pass, wrong ones and truncating ones do not."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import SpecError
from gradcheck.implementations.bound import Bound
from gradcheck.implementations.reference import Reference
from gradcheck.judge.operator import CaseTruth, Unsuitable, certified, judge_case
from gradcheck.numerics.arithmetic import F32
from gradcheck.numerics.dtypes import dtype_named
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
