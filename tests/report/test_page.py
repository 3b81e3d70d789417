"""Tables fit, lose no word while they can, and look as they always did where there is room."""

import json

import pytest
from gradcheck_cases import SUITE
from tabulate import tabulate

from gradcheck.report import catalogue
from gradcheck.report.page import wrapped_table
from gradcheck.report.terminal import render
from gradcheck.spec.case_selection import CaseSelection

HEADS = ("operator", "family", "names of its dialects", "samples")
BODY = [
    ("rms_norm", "norm", "weight, unit-offset, plain", 15),
    ("cross_entropy", "loss", "mean, sum, label-smoothing-mean", 9),
    ("empty", "", "", 0),
]
ALIGN = ("left", "left", "left", "right")


def test_where_there_is_room_nothing_changes():
    usual = tabulate(BODY, HEADS, disable_numparse=True, colalign=ALIGN)
    assert (
        wrapped_table(HEADS, BODY, None, ALIGN) == wrapped_table(HEADS, BODY, 100, ALIGN) == usual
    )


@pytest.mark.parametrize("width", range(52, 90))
def test_it_fits_and_every_word_is_there(width):
    lines = wrapped_table(HEADS, BODY, width, ALIGN).splitlines()
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    for row in (HEADS, *BODY):
        assert {word for cell in row for word in str(cell).split()} <= words


@pytest.mark.parametrize("width", range(30, 52))
def test_what_is_spare_is_left_out_only_where_it_must(width):
    text = wrapped_table(HEADS, BODY, width, ALIGN, spare=("family", "names of its dialects"))
    assert max(map(len, text.splitlines())) <= width
    assert "family" not in text
    assert ("label-smoothing-mean" in text) == (width >= 44)
    assert "cross_entropy" in text


def test_what_cannot_fit_is_shown_all_the_same():
    text = wrapped_table(("name",), [("a-name-that-is-long",)], 5)
    assert "a-name-that-is-long" in text
    assert "a-name-that-is-long" in wrapped_table(
        ("name",), [("a-name-that-is-long",)], 5, spare=("x",)
    )


def test_numbers_stay_right_and_the_rule_spans_the_wrapped_columns():
    lines = wrapped_table(HEADS, BODY, 60, ALIGN).splitlines()
    (rule,) = (line for line in lines if set(line) == {"-", " "})
    assert len(rule) == max(map(len, lines)) <= 60
    assert next(line for line in lines if line.startswith("rms_norm")).endswith("     15")


def test_an_empty_table_is_its_heads():
    assert wrapped_table(HEADS, [], 40).split()[0] == "operator"


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
    """In full; usually a cause is cut to a few lines, and in the list at the end to one."""

    def words(width):
        text = render(failing, width=width, verbosity=1)
        *sections, _, _ = text[text.index("\nINVALID ") :].split("\n\n")
        return " ".join(sections).split()

    assert words(width) == words(100)


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
    chosen = CaseSelection().everything(SUITE)
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
