"""One stage's judgement: its operator's VJP at the reference's own values and cotangents."""

import functools
from dataclasses import replace

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.judge.model_truth import ModelTruth, StageTruth
from gradcheck.judge.stage import judge_stage
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.narrow import narrower, short
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.fault import PLACES, narrowed

CASE = next(c for c in gradcheck_cases.SUITE.model_cases(["gpt2"]) if c.size.name == "tiny")
TRUTH = ModelTruth(CASE)
NARROW = [(dtype, narrow) for dtype in ("float64", "float32") for narrow in narrower(dtype)]


def judged(name, change, dtype="float64"):
    """The finding on one stage whose gradients are changed."""
    xp = FLOATS[dtype]

    def vjp(stage, cts, values):
        return tuple(change([np.array(g) for g in stage.vjp(xp, cts, values)], values))

    return judge_stage(TRUTH, CASE.program.stage(name), vjp, dtype)


def kept(found, values):
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", [s.name for s in CASE.program.stages if s.op.name != "encoder"])
def test_every_stage_passes_and_a_thousandth_off_in_any_gradient_fails(name, dtype):
    assert judged(name, kept, dtype).verdict is Verdict.PASS
    stage = CASE.program.stage(name)
    for index, read in enumerate(stage.reads):
        if StageTruth(TRUTH, stage).primals[index].dtype.kind != "f":
            continue

        def off(found, values, index=index):
            found[index] = found[index] * found[index].dtype.type(1.001)
            return found

        found = judged(name, off, dtype)
        assert found.verdict is Verdict.FAIL
        assert found.part is Part.STAGE
        assert found.top.tensor == read
        assert read in found.reason


def test_a_stale_value_fails_at_the_stage_that_reads_it():
    stage = CASE.program.stage("h.1.ln_2")

    def vjp(stage, cts, values):
        stale = {**values, stage.reads[0]: values[other]}
        return stage.vjp(FLOATS["float64"], cts, stale)

    shape = TRUTH.values64[stage.reads[0]].shape
    other = next(n for n, v in TRUTH.values64.items() if v.shape == shape and n != stage.reads[0])
    assert judge_stage(TRUTH, stage, vjp, "float64").verdict is Verdict.FAIL


def test_the_reference_cotangent_alone_would_miss_what_only_another_shows():
    # Rows whose cotangent is zero in this model: a defect there needs the random one.
    stage = CASE.program.stage("h.0.mlp.gelu")
    known = StageTruth(TRUTH, stage)
    assert known.names == ("reference", "random")
    assert np.abs(known.cts[1][0]).min() >= 0.5


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("dtype", "narrow"), NARROW, ids=str)
def test_a_stage_that_computes_in_a_narrower_type_fails(dtype, narrow, place):
    xp, wrong = FLOATS[dtype], narrowed(place, narrow)
    for name in ("h.0.ln_1", "h.0.attn", "h.1.mlp.fc", "h.1.mlp.gelu", "unembed"):
        found = judge_stage(
            TRUTH, CASE.program.stage(name), lambda *asked: wrong(xp, *asked), dtype
        )
        assert found.verdict is Verdict.FAIL, name


def test_each_dtype_is_asked_at_numbers_that_fill_its_mantissa():
    stage = CASE.program.stage("h.1.mlp.fc")
    wide, single = (TRUTH.at(dtype).stage(stage) for dtype in ("float64", "float32"))
    for known, bits in ((wide, 53), (single, 24)):
        arrays = [*known.primals, *(part for ct in known.cts for part in ct)]
        for array in arrays:
            assert np.array_equal(array, short(array, bits))
            assert not np.array_equal(array, short(array, bits - 1))


def test_a_vjp_that_is_wrong_in_float64_alone_gives_no_truth_in_float32():
    """Its 50 digits are right: they are asked again at the numbers of float32."""
    stage = CASE.program.stage("h.0.mlp.gelu")

    @functools.wraps(stage.op.vjp)
    def vjp(xp, *args, **attrs):
        found = stage.op.vjp(xp, *args, **attrs)
        return found * 2 if xp is FLOATS["float64"] else found

    spoilt = replace(stage, op=replace(stage.op, vjp=vjp))
    wide = StageTruth(TRUTH, spoilt)
    beside = StageTruth(TRUTH.at("float32"), spoilt, wide)
    sound = TRUTH.at("float32").stage(stage)
    np.testing.assert_allclose(beside.gradients[0], sound.gradients[0], rtol=1e-12)
    assert not np.allclose(beside.own[0], sound.gradients[0])


def test_a_shape_of_another_kind_is_one_line():
    found = judged("ln_f", lambda found, values: [found[0].T, *found[1:]])
    assert found.verdict is Verdict.FAIL
    assert "shape" in found.reason


def test_the_number_of_gradients_is_part_of_the_contract():
    found = judged("ln_f", lambda found, values: found[:2])
    assert found.verdict is Verdict.ERROR
    assert found.name == "ln_f"


# ── a sum that cancels ───────────────────────────────────────────────────────────────────────

GEMMA = next(c for c in gradcheck_cases.SUITE.model_cases(["gemma"]) if c.size.name == "uneven")


def cancelling(stage):
    """A truth in which the scale's gradient is next to nothing for the random cotangent."""
    truth = ModelTruth(GEMMA)
    known = truth.stage(stage)
    x, (ct,) = known.primals[0], known.cts[1]
    at = np.unravel_index(np.argmax(np.abs(x)), x.shape)
    ct[at] -= (np.sum(x * ct) - 5e-6 * np.sum(np.abs(x * ct))) / x[at]
    return truth


def scaled(factor, row):
    """The finding on that stage; `factor` on its scale's gradient for one of its cotangents."""
    xp, stage = FLOATS["float32"], GEMMA.program.stage("layers.0.q_scale")
    truth = cancelling(stage)
    cts = truth.at("float32").stage(stage).typed("float32")[row][0]

    def vjp(stage, given, values):
        dx, ds = stage.vjp(xp, given, values)
        return dx, ds * xp.dtype.type(factor if np.array_equal(given[0], cts) else 1)

    return judge_stage(truth, stage, vjp, "float32")


def test_what_cancels_under_one_cotangent_is_judged_by_the_other():
    right = scaled(1, 0)
    assert right.verdict is Verdict.PASS
    assert right.unresolved == 1
    assert scaled(1.01, 0).verdict is Verdict.FAIL


def test_what_cancels_is_wrong_all_the_same_beyond_what_rounding_may_cost():
    assert scaled(3, 1).verdict is Verdict.FAIL
