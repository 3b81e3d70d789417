"""One stage's judgement: its operator's VJP at the reference's own values and cotangents."""

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.arithmetic import FLOATS
from gradcheck.finding import Part
from gradcheck.judge.model_truth import ModelTruth, StageTruth
from gradcheck.judge.stage import judge_stage
from gradcheck.verdict import Verdict

CASE = next(c for c in gradcheck_cases.SUITE.model_cases(["gpt2"]) if c.size.name == "tiny")
TRUTH = ModelTruth(CASE)


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


def test_a_shape_of_another_kind_is_one_line():
    found = judged("ln_f", lambda found, values: [found[0].T, *found[1:]])
    assert found.verdict is Verdict.FAIL
    assert "shape" in found.reason


def test_the_number_of_gradients_is_part_of_the_contract():
    found = judged("ln_f", lambda found, values: found[:2])
    assert found.verdict is Verdict.ERROR
    assert found.name == "ln_f"


# ── a sum that cancels ───────────────────────────────────────────────────────────────────────

CANCELS = next(
    c for c in gradcheck_cases.SUITE.model_cases(["gemma"], seed=49) if c.size.name == "uneven"
)
"""A point where the query scale's gradient is next to nothing for the random cotangent."""


def scaled(factor, row):
    """The finding on that stage; `factor` on its scale's gradient for one of its cotangents."""
    truth = ModelTruth(CANCELS)
    xp, stage = FLOATS["float32"], CANCELS.program.stage("layers.0.q_scale")
    cts = truth.stage(stage).typed("float32")[row][0]

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
