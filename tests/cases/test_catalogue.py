"""The suite against the list of what it must hold; more may be registered than is listed."""

import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import gradcheck_cases
import pytest

from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.run.execute import execute
from gradcheck.run.plan import Plan

SUITE = gradcheck_cases.SUITE
LIST = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
MODELS, RULES = LIST.pop("models"), LIST.pop("rules")  # the others are families of operators
OPERATORS = {name: row for rows in LIST.values() for name, row in rows.items()}
SPECS = {**SUITE.operators, **SUITE.models, **SUITE.rules}
SEEDS = {"gemma", "ane", "ggml", "llmgo", "pr921", "beyond"}


def test_every_listed_family_operator_model_and_rule_is_registered():
    assert [*LIST] == [*gradcheck_cases.FAMILIES]
    families = {name: SUITE.operators[name].family for name in OPERATORS}
    assert families == {name: family for family, rows in LIST.items() for name in rows}
    assert set(MODELS) <= set(SUITE.models)
    assert set(RULES) <= set(SUITE.rules)


@pytest.mark.parametrize("field", ["dialects", "kinks", "samples", "sizes"])
def test_what_is_listed_of_a_spec_is_there(field):
    lacking = {}
    for name, row in {**OPERATORS, **MODELS, **RULES}.items():
        found = {part.name for part in getattr(SPECS[name], field, ())}
        if not set(row.get(field, ())) <= found:
            lacking[name] = {*row[field]} - found
    assert lacking == {}


def test_the_sizes_of_models_that_sit_on_kinks_are_listed():
    on_kinks = {name: [s.name for s in SUITE.models[name].sizes if s.at_kink] for name in MODELS}
    assert on_kinks == {name: row.get("at_kink", []) for name, row in MODELS.items()}


def test_a_row_has_known_keys_and_says_where_the_spec_comes_from():
    keys = {"seeds", "dialects", "kinks", "samples", "sizes", "at_kink"}
    rows = {**OPERATORS, **MODELS, **RULES}
    assert {
        name for name, row in rows.items() if not {"seeds", "dialects"} <= set(row) <= keys
    } == set()
    assert {seed for row in OPERATORS.values() for seed in row["seeds"]} == SEEDS
    assert {seed for row in MODELS.values() for seed in row["seeds"]} == SEEDS - {"beyond"}
    assert {seed for row in RULES.values() for seed in row["seeds"]} <= SEEDS


# ── a case that an earlier implementer gave up on ────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.001, "fail"), (0.999, "fail")])
def test_the_unsolved_case_is_solved(monkeypatch, dtype, factor, verdict):
    (case,) = SUITE.cases(["rms_norm"], samples=["unsolved"])

    def vjp(ct, x):
        return factor * case.spec.vjp(FLOATS[dtype], ct, x, **case.attrs)

    monkeypatch.setitem(sys.modules, "user", SimpleNamespace(IMPL={"rms_norm/plain": {"vjp": vjp}}))
    plan = Plan(suite=SUITE, cases=[case], implementations=["user:IMPL"], dtypes=[dtype], seed=0,
                contract=False)  # fmt: skip
    (result,) = execute(plan).results
    assert (result.finding.name, result.finding.verdict) == ("x", verdict)
    # Beside it, in float32, the truth is known as well as float64's bound of 1e-8 confirms it.
    bar = {"float64": 1e-8, "float32": 1.1e-8}[dtype]
    assert result.finding.top.error_bar < bar * abs(result.finding.top.want)
    assert result.finding.top.bound < 5e-4 * abs(result.finding.top.want)
