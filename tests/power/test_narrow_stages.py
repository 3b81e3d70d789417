"""Stages of models that compute in narrower types: rejected, or said why nothing can show."""

from __future__ import annotations

from itertools import islice

import pytest
from gradcheck_cases import SUITE

from gradcheck.explain.model_blame import ModelBlame
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.narrow import narrower
from gradcheck.power.model import shorten
from gradcheck.power.narrow import model_outcomes
from gradcheck.power.narrow_stages import StageTrials
from gradcheck.spec.fault import PLACES

BOTH = ("float64", "float32")
MODELS = {"linear_regression": BOTH, "svm": BOTH, "gpt2": ("float32",)}


@pytest.mark.suite
def test_every_rounding_of_every_stage_is_rejected_or_said_why_not():
    found = []
    for model, dtypes in MODELS.items():
        outcomes = list(model_outcomes(SUITE, model, dtypes))
        stages = len(SUITE.model_cases([model])[0].program.stages)
        types = sum(len(narrower(dtype)) for dtype in dtypes)
        assert len(set(outcomes)) == len(outcomes) == stages * types * len(PLACES) * 2
        found += outcomes
    assert [one for one in found if one.rejected is bool(one.reason)] == []
    assert {one.rejected for one in found} == {True, False}
    # Where a gradient depends on what is rounded, nearly all are rejected.
    missed = [one for one in found if "tolerance" in one.reason]
    assert len(missed) <= 0.03 * (len(missed) + sum(one.rejected for one in found))
    assert {one.subject for one in missed if one.type == "bfloat16"} <= {"svm/default/penalty"}
    assert not [one for one in missed if one.dtype == "float64" and one.type != "float32"]


@pytest.mark.suite
@pytest.mark.parametrize(("model", "dtype"), [("svm", "float64"), ("gpt2", "float32")])
def test_blame_names_the_stage_and_the_type(model, dtype):
    (case,) = SUITE.model_cases([model], sizes=["tiny"])
    truth = ModelTruth(case)
    found = list(islice(shorten(truth, ModelBlame(truth, dict), dtype), 12))
    assert [one.stage for one in found] == [stage.name for stage in case.program.stages][:12]
    assert all(one.sound for one in found)
    for one in found:
        if one.killed:
            assert one.blamed == (one.stage,)
            assert one.says.split(" to ")[1].rstrip(".") in " ".join(one.named)
    assert any(one.killed for one in found)


def test_a_right_stage_is_not_rejected():
    (case,) = SUITE.model_cases(["svm"], sizes=["tiny"])
    for dtype in ("float64", "float32"):
        trial = StageTrials(ModelTruth(case), dtype)
        for stage in case.program.stages:

            def right(xp, stage, cts, values):
                return stage.vjp(xp, cts, values)

            assert trial.of_stage(stage, right) == "pass"
            assert trial.of_model(stage, right) == "pass"
