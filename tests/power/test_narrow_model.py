"""Stages of models that compute in narrower types: rejected, or said why nothing can show."""

from __future__ import annotations

import pytest
from gradcheck_cases import SUITE

from gradcheck.explain.model_blame import ModelBlame
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.narrow import narrower
from gradcheck.power.model import shorten
from gradcheck.power.narrow_model import Trial, narrow_rows
from gradcheck.spec.fault import PLACES

MODELS = ("linear_regression", "svm", "gpt2")


@pytest.fixture(scope="module")
def rows():
    return list(narrow_rows(SUITE, MODELS))


@pytest.mark.suite
def test_every_stage_is_tried_with_every_type_in_every_place(rows):
    assert len(set(rows)) == len(rows)
    types = {dtype: len(narrower(dtype)) for dtype in ("float64", "float32")}
    stages = sum(len(SUITE.model_cases([name])[0].program.stages) for name in MODELS)
    assert len(rows) == stages * sum(types.values()) * len(PLACES) * 2


@pytest.mark.suite
def test_each_is_rejected_or_said_why_not(rows):
    for row in rows:
        assert bool(row.reason) == (row.verdict != "fail"), row
    assert {row.verdict for row in rows} == {"fail", "pass"}


@pytest.mark.suite
def test_where_a_gradient_depends_on_what_is_rounded_nearly_all_are_rejected(rows):
    seen = [row for row in rows if not row.reason or "tolerance" in row.reason]
    missed = [row for row in seen if row.reason]
    assert len(missed) <= 0.03 * len(seen)
    assert not [row for row in missed if row.type == "bfloat16" and row.stage != "penalty"]
    assert not [row for row in missed if row.dtype == "float64" and row.type != "float32"]


@pytest.mark.suite
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_blame_names_the_stage_and_the_type(dtype):
    (case,) = SUITE.model_cases(["gpt2"], sizes=["tiny"])
    truth = ModelTruth(case)
    found = list(shorten(truth, ModelBlame(truth, dict), dtype))
    assert [one.stage for one in found] == [stage.name for stage in case.program.stages]
    assert all(one.sound for one in found)
    for one in found:
        if one.killed:
            assert one.blamed == (one.stage,)
            assert one.says.split(" to ")[1].rstrip(".") in " ".join(one.named)


def test_a_right_stage_is_not_rejected():
    (case,) = SUITE.model_cases(["svm"], sizes=["tiny"])
    for dtype in ("float64", "float32"):
        trial = Trial(ModelTruth(case), dtype)
        for stage in case.program.stages:

            def right(xp, stage, cts, values):
                return stage.vjp(xp, cts, values)

            assert trial.of_stage(stage, right) == "pass"
            assert trial.of_model(stage, right) == "pass"
