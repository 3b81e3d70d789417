"""Whatever a terminal shows fits it, from 60 columns up, and loses nothing that is looked for."""

import json

import pytest
from gradcheck_cases import SUITE

from gradcheck.report import catalogue
from gradcheck.report.terminal import render
from gradcheck.spec.choice import Choice

WIDTHS = [*range(60, 84, 3), 100, 120, 160]
COPIED = ("  run: ", "RESULT ")
NAMES = ["rms_norm", "relu", "softmax", "attention", "llama", "gpt2", "adamw", "sgd"]


def wide(text, width):
    return [line for line in text.splitlines() if len(line) > width and not line.startswith(COPIED)]


@pytest.mark.suite(keep=22)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_of_every_run_fits(any_run, width):
    assert wide(render(any_run, width=width), width) == []


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_of_what_is_wrong_says_the_same_at_every_width(failing, width):
    def words(text):
        return text[text.index("\nINVALID ") :].split()

    assert words(render(failing, width=width)) == words(render(failing, width=100))


@pytest.mark.slow(keep=11)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_explained_fits_but_for_formulas(name, width):
    text = catalogue.explain(SUITE, name, width)
    formula = getattr({**SUITE.operators, **SUITE.rules}.get(name), "formula", "")
    assert [line for line in wide(text, width) if line not in formula] == []
    usual = catalogue.explain(SUITE, name).split()
    assert [w for w in text.split() if set(w) != {"-"}] == [w for w in usual if set(w) != {"-"}]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_fits_and_names_everything(width):
    chosen = Choice().everything(SUITE)
    text = catalogue.as_table(SUITE, chosen, width)
    assert wide(text, width) == []
    for name in SUITE.home:
        assert f"\n{name} " in text


def test_into_a_pipe_every_operator_is_one_line(run_list):
    lines = run_list("list").splitlines()
    assert max(map(len, lines)) > 100
    named = [line.split()[0] for line in lines if line.split()]
    assert all(named.count(name) == 1 for name in SUITE.operators)


@pytest.fixture
def run_list(capsys, monkeypatch):
    """What a command writes to a pipe."""
    from gradcheck.cli.main import main

    points = {"builtin": "gradcheck_cases:SUITE"}
    monkeypatch.setattr("gradcheck.system.entry_points.entry_points", lambda group: points)

    def call(*words):
        assert main([*words]) == 0
        return capsys.readouterr().out

    return call


def test_as_json_it_has_no_width(run_list):
    assert json.loads(run_list("list", "--json", "--op", "relu"))["operators"]
