"""Planted faults of the models: every one is found, blamed on its stage, and within suspects."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.faults import FAULTS
from gradcheck_cases.faults.llama import NORMS, TRAINER

from gradcheck.explain.model_blame import ModelBlame
from gradcheck.implementations.reference import Reference
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.power.model import Planted, plant
from gradcheck.power.narrow_stages import KIND as NARROW
from gradcheck.results.verdict import Verdict
from gradcheck.spec.fault import KINDS, faults_of
from gradcheck.spec.mutant import mutants_of
from tests.sizes import few

FEW = {"quadratic", "test_opt", "linear_regression", "svm", "mnist_fc"}
"""Models with fewer than ten stages."""
COMMON = (
    "stale activation", "missing residual", "wrong scale", "mask off by one", "position offset",
    "last layer only", "one head only", "one element",
)  # fmt: skip
TRANSFORMERS = ("gemma", "llama", "gpt2", "baby_llama", "baby_llama_lora")


FIRST = {next(f for f in FAULTS if f.kind == kind).full_name for kind in {f.kind for f in FAULTS}}
"""One fault of each kind; and one of each model:"""
FIRST |= {next(f for f in FAULTS if f.model == model).full_name for model in SUITE.models}


@cache
def point(model, dialect):
    size = SUITE.models[model].sizes[0].name
    (case,) = SUITE.model_cases([model], [dialect], [size])
    truth = ModelTruth(case)
    return truth, ModelBlame(truth, lambda: mutants_of(SUITE))


def dialect_of(fault):
    return fault.dialects[0] if fault.dialects else SUITE.models[fault.model].dialects[0].name


def test_every_model_has_ten_at_different_stages():
    table = faults_of(SUITE)
    assert set(table) == set(SUITE.models)
    for model, faults in table.items():
        assert len(faults) >= 10
        stages = {fault.stages for fault in faults}
        known = len(SUITE.models[model].build().stages)
        assert len(stages) >= (min(known, 4) if model in FEW else 10)


def test_every_kind_of_fault_is_planted():
    assert {fault.kind for fault in FAULTS} == set(KINDS) - {NARROW}  # which are generated
    for model in TRANSFORMERS:
        kinds = {fault.kind for fault in FAULTS if fault.model == model}
        assert kinds >= set(COMMON) - {"wrong scale", "position offset"}
    for model in ("gemma", "gpt2", "quadratic", "svm"):
        kinds = {fault.kind for fault in FAULTS if fault.model == model}
        assert "tied gradient overwritten" in kinds


@pytest.mark.suite(keep=3, by="gradcheck power --model '*'")
@pytest.mark.parametrize(  # `gradcheck power --model '*'`, which CI runs, plants all, too
    "fault", few(FAULTS, lambda fault: fault.full_name in FIRST), ids=lambda fault: fault.full_name
)
def test_it_fails_and_blame_falls_on_its_stage(fault):
    truth, guilt = point(fault.model, dialect_of(fault))
    sown = plant(truth, guilt, fault, "float64")
    assert sown.rejected > 0
    assert sorted(sown.blamed) == sorted(fault.stages)
    assert sown.contained
    if len(fault.stages) == 1:
        assert len(sown.suspects) == 1
        assert len(sown.suspects[0]) < sown.of or sown.of < 10


# ── a trainer's own backward ─────────────────────────────────────────────────────────────────

SHORT = "rms_norm/second-term-short"
STALE = "reads `layers.{0}.x` where it needs `layers.{0}.x_att`"
SAYS = {
    "trainer.rms": [SHORT],
    "trainer.ffn-norm-input": [],
    "trainer.no-norm-weights": ["no gradient of"],
    "trainer": [SHORT, "no gradient of"],
}


def named(truth, guilt, fault, dtype):
    """What blame says, by stage."""
    found = guilt.blamed(judge_model(truth, Planted(fault), dtype), dtype)
    blames = [blame for finding in found for blame in finding.blames]
    assert all(blame.exact for blame in blames)
    assert [blame.round for blame in blames] == list(range(1, len(blames) + 1))
    return {blame.stages[0]: " ".join(blame.names) for blame in blames}


@pytest.mark.suite(keep=1, rest=4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("fault", TRAINER, ids=lambda fault: fault.name)
def test_the_trainers_defects_are_named(fault, dtype):
    said = named(*point("llama", "default"), fault, dtype)
    assert set(said) == set(fault.stages)
    for stage, text in said.items():
        for part in SAYS[fault.name]:
            assert part in text
        if stage.endswith("rms_ffn") and fault.name in ("trainer", "trainer.ffn-norm-input"):
            assert STALE.format(stage.split(".")[1]) in text


@pytest.mark.suite(keep=1, rest=2)
@pytest.mark.parametrize("rms", [2.0**-4, 1 - 2.0**-10, 1 + 2.0**-12, 2.0**4])
def test_the_missing_factor_is_found_at_any_rms(rms):
    """Also where the missing factor 1/rms is nearly 1, which hides it from a looser check."""
    (case,) = SUITE.model_cases(["llama"], sizes=["tiny"], seed=3)
    given = {name: value.copy() for name, value in case.given.items()}
    table = given["token_embedding"]
    table *= rms / np.sqrt(np.mean(table**2, axis=-1, keepdims=True))
    for name in given:  # the residuals add next to nothing: every norm sees about this rms
        if name.endswith((".wo", ".w2")):
            given[name] *= 2.0**-14
    given["token_embedding"] = table.astype(np.float32).astype(np.float64)
    case.__dict__["given"] = given
    truth = ModelTruth(case)
    seen = truth.values64["layers.1.x"]
    assert np.max(np.abs(np.sqrt(np.mean(seen**2, axis=-1)) / rms - 1)) < 2.0**-8
    guilt = ModelBlame(truth, lambda: mutants_of(SUITE))
    right = judge_model(truth, Reference(), "float64")
    assert all(f.verdict in (Verdict.PASS, Verdict.SKIP) for f in right.findings)
    said = named(truth, guilt, TRAINER[0], "float64")
    assert set(said) == set(NORMS)
    assert all(SHORT in text for text in said.values())
