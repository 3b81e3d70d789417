"""What a check would have rejected: certificates that know where a sample is blind."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.implementations.bound import Bound
from gradcheck.implementations.reference import Reference
from gradcheck.judge.compare import TOLERANCES
from gradcheck.judge.impostors import IMPOSTORS, NARROWINGS, Answers, NarrowedGradients
from gradcheck.judge.operator import certified, judge_case
from gradcheck.judge.operator_truth import CaseTruth
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.narrow import narrower
from gradcheck.results.verdict import Verdict
from gradcheck.spec import OpSpec, Sample, Slack
from gradcheck.spec.suite import Case

NAMES = [impostor.name for impostor in IMPOSTORS]


def narrow(dtype):
    """What rounds in a gate, in code of a dtype: there is no sum in it."""
    return [one.name for one in NARROWINGS if one.below(dtype) and one.what != "sums"]


def gate_forward(xp, x, w):
    return x * w


def gate_vjp(xp, ct, x, w):
    return ct * w, ct * x


def case(primals, slack=None):
    spec = OpSpec(
        name="gate", signature="(),()->()", forward=gate_forward, vjp=gate_vjp, formula="x",
        source="y", slack=slack,
        samples=(Sample(name="s", primals=primals, hunts="anything"),),
    )  # fmt: skip
    return Case(spec, spec.dialects[0], spec.samples[0], 0, "tests")


def typical(draw):
    return draw.signed(3, 3), draw.signed(3, 3)


def judged(primals, dtype, slack=None):
    truth = CaseTruth(case(primals, slack))
    findings = certified(truth, judge_case(truth, Reference(), dtype), dtype)
    return {f.name: f for f in findings}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_ordinary_sample_rejects_every_impostor(dtype):
    found = judged(typical, dtype)
    for name in "xw":
        certificate = found[name].certificate
        assert certificate.blind == ()
        assert set(certificate.rejected) == {*NAMES, *narrow(dtype)} - {"elsewhere"}
        assert certificate.tolerated == ()
    assert found["forward"].certificate is None


def test_what_equals_the_truth_at_a_sample_proves_nothing():
    found = judged(lambda draw: (draw.signed(5), np.zeros(5)), "float64")
    # dx = ct·0: zeros, signs and factors are the truth; what depends on ct is not.
    assert found["x"].certificate.rejected == ("ones", "cotangent", "nan", "swapped")
    assert found["x"].certificate.blind == ()


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sample_with_no_power_is_invalid(dtype):
    slack = Slack(ulp=1e30, because="somebody wanted it green")
    found = judged(typical, dtype, slack)
    assert found["vjp"].verdict == "invalid"
    assert "this sample rejects only NaN" in found["vjp"].reason
    assert "zeros" in found["vjp"].reason


def test_a_wide_bound_is_seen_in_the_certificate():
    slack = Slack(ulp=2.0**45, because="a bound of half a per cent or so")
    certificate = judged(typical, "float64", slack)["x"].certificate
    assert "double" in certificate.rejected
    assert set(certificate.blind) >= {"one-element"}


def test_the_certificate_agrees_with_the_judgement_itself():
    truth = CaseTruth(case(typical))
    answers = Answers(
        gradients=[truth.truth(i).settled()[0].reshape(3, 3) for i in (0, 1)],
        ct=truth.cotangents.values[0],
        ignored=lambda: [truth.truth(i).settled()[2].reshape(3, 3) for i in (0, 1)],
        earlier=lambda: [truth.truth(i).settled()[1].reshape(3, 3) for i in (0, 1)],
    )
    certificate = truth.certificate(0, "float64")
    for impostor in IMPOSTORS:
        wrong = impostor.make(answers, 0)
        if wrong is None:
            assert impostor.name == "elsewhere"
            continue
        rows = truth.truth(0).settled().copy()
        rows[0] = wrong.reshape(-1)
        verdict = truth.truth(0).judge(rows, TOLERANCES["float64"]).verdict
        assert (verdict == "fail") == (impostor.name in certificate.rejected)


@pytest.mark.parametrize("ulp", [0.0, 2.0**16, 2.0**45])
def test_what_is_asked_once_for_both_dtypes_is_what_each_of_them_rejects(ulp):
    truth = CaseTruth(case(typical, Slack(ulp=ulp, because="of its tables") if ulp else None))
    shared = {dtype: set(truth.certificate(0, dtype).rejected) for dtype in FLOATS}
    for dtype in FLOATS:
        names, stack = truth._certifier._made[0]
        failed = truth.truth(0).rejects(stack, TOLERANCES[dtype])
        assert shared[dtype] == {name for name, ok in zip(names, failed, strict=True) if ok}
    if ulp == 2.0**16:  # too wide for one of them alone
        assert shared["float32"] < shared["float64"]


def test_a_truth_that_is_refined_between_the_dtypes_is_asked_again():
    truth = CaseTruth(case(typical))
    assert "one-element" in truth.certificate(0, "float64").rejected
    truth.truth(0).differences.estimate.bar[:] = 2.0**20  # wider than any gradient
    assert set(truth.certificate(0, "float32").rejected) == {"nan"}


# ── the impostors themselves ─────────────────────────────────────────────────────────────────


def answers(*gradients, ct):
    more = [None if g is None else g + 1 for g in gradients]
    return Answers(gradients, (ct,), lambda: more, lambda: more, lambda: gradients)


@pytest.mark.suite(keep=16)
@pytest.mark.parametrize("impostor", IMPOSTORS, ids=NAMES)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (3, 3), (0, 3), (0,)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_impostor_keeps_shape_and_dtype_and_touches_nothing(impostor, shape, dtype):
    gradient = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    before = gradient.copy()
    wrong = impostor.make(answers(gradient, None, ct=np.ones(shape, dtype)), 0)
    assert wrong is None or (wrong.shape, wrong.dtype) == (shape, dtype)
    assert np.array_equal(gradient, before)
    assert wrong is None or not np.shares_memory(wrong, gradient) or impostor.name == "elsewhere"


def test_what_makes_no_sense_is_left_out():
    alone = answers(np.ones((2, 3)), ct=np.ones(2))
    absent = {i.name for i in IMPOSTORS if i.make(alone, 0) is None}
    assert absent == {"cotangent", "transposed", "swapped"}


# ── narrower types ───────────────────────────────────────────────────────────────────────────


def short(primals, dtype, **marks):
    """The findings of a sample, with what is said of the case as a whole."""
    it = case(primals)
    sample = Sample(name="s", primals=primals, hunts="anything", **marks)
    truth = CaseTruth(Case(it.spec, it.dialect, sample, 0, "tests"))
    found = certified(truth, judge_case(truth, Reference(), dtype), dtype)
    return {f.name: f for f in found}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sample_of_short_numbers_is_invalid_unless_it_needs_them(dtype):
    def halves(draw):
        return np.round(draw.signed(3, 3) * 8) / 8, np.round(draw.signed(3, 3) * 8) / 8

    found = short(halves, dtype)
    assert found["vjp"].verdict is Verdict.INVALID
    assert "fit in bfloat16" in found["vjp"].reason
    assert "vjp" not in short(halves, dtype, exact=True)
    # One full primal is enough: whoever rounds the operands fails by it.
    assert "vjp" not in short(lambda draw: (halves(draw)[0], draw.signed(3, 3)), dtype)


def test_numbers_of_float32_are_short_in_float64_alone():
    def single(draw):
        return tuple(draw.signed(3, 3).astype(np.float32).astype(np.float64) for _ in "xw")

    assert "fit in float32" in short(single, "float64")["vjp"].reason
    assert "vjp" not in short(single, "float32")


def test_zeros_are_not_short():
    assert "vjp" not in short(lambda draw: (np.zeros(4), np.zeros(4)), "float64")


def test_what_a_dtype_must_tolerate_is_told_with_the_bits_at_which_it_shows():
    def once(draw):  # 1 + 2^-13 in TF32 is 1: off by 1.2e-4, where float32 is allowed 1.06e-4
        return np.array([1 + 2.0**-14 + 2.0**-30]), np.array([1 + 2.0**-14 + 2.0**-31])

    found = short(once, "float32")["x"].certificate
    assert "operands-tf32: shows from 9 bits" in found.tolerated
    assert "operands-tf32" not in (*found.rejected, *found.blind)
    assert "operands-tf32" in short(once, "float64")["x"].certificate.rejected


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("narrowing", NARROWINGS, ids=lambda one: one.name)
def test_each_narrow_impostor_is_what_a_narrow_kernel_gives(narrowing, dtype):
    """The judgement of a kernel that rounds agrees with the certificate."""
    if not narrowing.below(dtype) or narrowing.what in ("products", "sums"):
        return

    def kept(array):
        return narrowing.type.rounded(array).astype(array.dtype)

    def vjp(ct, x, w):
        if narrowing.what == "operands":
            x, w = kept(x), kept(w)
        elif narrowing.what == "cotangent":
            ct = kept(ct)
        found = ct * w, ct * x
        return tuple(map(kept, found)) if narrowing.what == "result" else found

    truth = CaseTruth(case(typical))
    found = judge_case(truth, Kernel(vjp), dtype)
    assert [f.verdict for f in found] == [Verdict.FAIL, Verdict.FAIL]


class Kernel:
    """Code that gives these gradients."""

    name = "kernel"

    def __init__(self, vjp):
        self.vjp = vjp

    def bind(self, case, dtype):
        return Bound(vjp=self.vjp, forward=None, attrs={})


@pytest.mark.parametrize("kept", narrower("float64"), ids=lambda kept: kept.name)
def test_each_number_lies_a_unit_of_the_type_away_and_an_index_stays(kept):
    x, index = np.array([1.0, -3.0, 0.0, 1e6]), np.array([2, 1])
    moved, same = NarrowedGradients._beside(SimpleNamespace(primals=[x, index]), kept)
    np.testing.assert_allclose(np.abs(moved - x), 2.0**-kept.bits * np.abs(x), rtol=1e-6)
    assert same is index
