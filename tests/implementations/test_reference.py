import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.reference import Reference
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.spec import OpSpec, Sample
from gradcheck.spec.suite import Case

DTYPES = ["float64", "float32"]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_answers_in_the_dtype_asked_for(dtype):
    for spec in SUITE:
        case = SUITE.cases([spec.name])[0]
        bound = Reference().bind(case, dtype)
        primals = [p.astype(dtype) if p.dtype.kind == "f" else p for p in case.primals]
        with np.errstate(all="ignore"):
            out = bound.forward(*primals, **bound.attrs)
        outputs = out if isinstance(out, tuple) else (out,)
        assert [o.dtype for o in outputs] == [dtype] * len(outputs), spec.name
        ct = tuple(np.cos(np.arange(o.size)).reshape(o.shape).astype(dtype) for o in outputs)
        gradients = bound.vjp(ct if len(ct) > 1 else ct[0], *primals, **bound.attrs)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        forms = [(g.dtype.name, g.shape) if g is not None else None for g in gradients]
        assert forms == [(dtype, p.shape) if p.dtype.kind == "f" else None for p in primals], (
            spec.name
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_attributes_are_those_of_the_case(dtype):
    (case,) = SUITE.cases(["rms_norm"], ["unit-offset"], ["eps-0.1"])
    bound = Reference().bind(case, dtype)
    assert dict(bound.attrs) == {"eps": 0.1, "unit_offset": True}
    x, w = case.primals
    expected = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 0.1) * (1 + w)
    found = bound.forward(x.astype(dtype), w.astype(dtype), **bound.attrs)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def forward(xp, x):
    return xp.exp(x)


def off_in_the_tail(xp, ct, x):
    return xp.where(x > 4, 1.001, 1.0) * ct * xp.exp(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_suites_own_vjp_is_judged_like_any_other(dtype):
    spec = OpSpec(
        name="exp", signature="()->()", forward=forward, vjp=off_in_the_tail,
        samples=(Sample(name="s", primals=lambda _: (np.array([1.0, 5.0]),), hunts="it"),),
        formula="e^x", source="here",
    )  # fmt: skip
    case = Case(spec, spec.dialects[0], spec.samples[0], 0, "tests")
    found = {f.name: f for f in judge_case(CaseTruth(case), Reference(), dtype)}
    assert found["forward"].verdict == "pass"
    assert (found["x"].verdict, found["x"].worst_index) == ("fail", (1,))


def test_its_name_is_the_word_on_the_command_line():
    assert Reference.name == "reference"
