"""`gradcheck run --model`, `list` and `explain` of models and rules."""

import json
from pathlib import Path

import gradcheck_cases
import pytest

SUITE = gradcheck_cases.SUITE
SMALL = ("--model", "quadratic", "--sample", "tiny")

TRAINER = r"""
import numpy as np

def right(params, inputs):
    x, a = params["x"], params["a"]
    return {"x": 2 * a * x, "a": x * x, "b": np.ones_like(x)}

def wrong(params, inputs):
    found = right(params, inputs)
    return {**found, "a": -found["a"]}

RIGHT = {"quadratic": {"gradients": right}}
WRONG = {"quadratic": {"gradients": wrong}}
"""


def test_a_model_alone_is_judged_in_fifty_digits_and_in_both_dtypes(run, judged):
    found = judged(*SMALL)
    assert found.code == 0
    assert found.header["dtypes"] == ["mp50", "float64", "float32"]
    assert {r["kind"] for r in found.results} == {"model"}
    assert {r["verdict"] for r in found.results} == {"pass"}
    for dtype in ("mp50", "float64", "float32"):
        parts = [r["part"] for r in found.results if r["dtype"] == dtype]
        assert (parts.count("gradient"), parts.count("stage")) == (3, 4)
    text = run(*SMALL).out
    assert "\nquadratic " in text
    for name in ("dx", "da", "db", *(s.name for s in SUITE.models["quadratic"].build().stages)):
        assert f"\n{name} " in text


def test_operators_and_models_are_run_together(run):
    found = run("--op", "relu", *SMALL, "--sample", "typical", "--dtype", "float64")
    assert found.code == 0
    assert "\noperator  gradient" in found.out
    assert "\nquadratic  float64" in found.out
    assert " · float64 · " in found.out


def test_somebody_elses_model_is_not_asked_for_fifty_digits(judged):
    Path("trainer.py").write_text(TRAINER)
    found = judged(*SMALL, "--impl", "trainer:RIGHT")
    assert found.code == 0
    assert {r["dtype"] for r in found.results} == {"float64", "float32"}
    found = judged(*SMALL, "--impl", "trainer:RIGHT", "--dtype", "mp50")
    assert (found.code, {r["verdict"] for r in found.results}) == (4, {"unsupported"})


def test_a_line_to_run_again_runs_the_same_case_again(judged):
    Path("trainer.py").write_text(TRAINER)
    found = judged(*SMALL, "--impl", "trainer:WRONG", "--seed", "3")
    assert found.code == 1
    (failed,) = [r for r in found.results if r["dtype"] == "float32" and r["verdict"] == "fail"]
    assert failed["output"] == "a"
    words = failed["repro"].split()[2:]
    again = judged(*words)
    (same,) = [r for r in again.results if r["verdict"] == "fail"]
    assert same == failed
    assert {r["sample"] for r in again.results} == {"tiny"}


def test_the_terminal_says_who_is_to_blame(run):
    Path("trainer.py").write_text(TRAINER)
    found = run(*SMALL, "--impl", "trainer:WRONG")
    *_, failure, blame, summary, result = found.out.strip().split("\n\n")
    assert failure.startswith("FAIL quadratic · da")
    assert "\n  faulty stage: times_a (1 of 4 stages)" in failure
    assert blame.startswith("stages at fault in quadratic/default (tiny in float64, float32)\n")
    assert "assumption: " in blame
    assert summary.startswith("2 of 6 checks failed: quadratic · da: faulty stage: times_a (1 of ")
    assert result.startswith("RESULT fail ")


@pytest.mark.slow
def test_several_processes_find_the_same(judged):
    words = ("--model", "quadratic", "--model", "svm", "--dtype", "float64")
    assert judged(*words, "-j", "2").results == judged(*words).results


def test_models_and_rules_are_listed_after_operators(run):
    found = run(command="list")
    heads = [line.split()[0] for line in found.out.splitlines() if line and line[0] != " "]
    assert heads.index("operator") < heads.index("model") < heads.index("rule")
    for name in (*SUITE.models, *SUITE.rules):
        assert name in heads
    counted = f"{len(SUITE.models)} models, {len(SUITE.model_cases())} cases"
    assert f"{counted} (model × variant × size)\n" in found.out


@pytest.mark.parametrize(("flag", "name"), [("--model", "gpt2"), ("--rule", "adam")])
def test_a_list_of_one_kind_leaves_the_others_out(run, flag, name):
    found = run(flag, name, command="list")
    assert found.code == 0
    assert len(found.out.split("\n\n")) == 2
    assert f"\n{name} " in found.out
    assert "operator" not in found.out


def test_the_list_as_json_tells_stages_and_cases(run):
    listed = json.loads(run("--json", "--model", "gpt2", "--sample", "tiny", command="list").out)
    (model,) = listed["models"]
    assert (listed["operators"], listed["rules"]) == ([], [])
    program = SUITE.models["gpt2"].build()
    assert model["parameters"] == list(program.params)
    assert [stage["name"] for stage in model["stages"]] == [s.name for s in program.stages]
    assert [case["name"] for case in model["cases"]] == ["gpt2/default/tiny"]
    listed = json.loads(run("--json", "--rule", "adam", command="list").out)
    (rule,) = listed["rules"]
    assert len(rule["cases"]) == len(SUITE.rule_cases(["adam"]))


@pytest.mark.slow(keep=2, rest=4)
@pytest.mark.parametrize("name", SUITE.models)
def test_every_model_explains_itself(run, name):
    found = run(name, command="explain")
    model = SUITE.models[name]
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith(f"{name}: ")
    assert max(map(len, found.out.splitlines())) <= 120
    for size in model.sizes:
        assert f"\n  {size.name} " in found.out
    program = model.build(**{**model.defaults, **model.dialects[0].attrs, **model.sizes[0].attrs})
    said = " ".join(found.out.split())
    for stage in program.stages:
        line = f"{', '.join(stage.outputs)} = {stage.op.name}({', '.join(stage.reads)}"
        assert f" {stage.name} {line}" in said
    for parameter in program.params:
        assert f"\n  {parameter} " in found.out


def test_every_rule_explains_itself(run):
    for name, rule in SUITE.rules.items():
        found = run(name, command="explain")
        assert (found.code, found.err) == (0, "")
        assert found.out.startswith(f"{name}: gives new ")
        for word in (*rule.defaults, *(s.name for s in rule.samples)):
            assert f"\n  {word} " in found.out


@pytest.mark.slow
def test_a_rule_is_judged_beside_whatever_else_is_named(run, judged):
    words = ("--rule", "sgd", "--sample", "typical", "--dtype", "float64")
    found = judged(*words)
    assert (found.code, {r["kind"] for r in found.results}) == (0, {"rule"})
    assert {r["part"] for r in found.results} == {"update"}
    assert {r["op"] for r in judged(*words, "--op", "relu").results} == {"relu", "sgd"}
    assert "\nrule  dialect" in run(*words).out
    again = judged(*found.results[0]["repro"].split()[2:])
    assert found.results[0] in again.results


@pytest.mark.slow
def test_a_model_is_trained_if_that_is_asked_for(run, judged):
    words = (*SMALL, "--dtype", "float64")
    assert "training" not in {r["part"] for r in judged(*words).results}
    found = judged(*words, "--train")
    trained = [r for r in found.results if r["part"] == "training"]
    assert found.code == 0
    assert trained
    assert all(r["verdict"] == "pass" and "--train" in r["repro"] for r in trained)
    text = run(*words, "--train").out
    assert f"\n── {len(trained)} trainings ──" in text
    assert "\ntraining: quadratic/default/tiny/float64: loss " in text
