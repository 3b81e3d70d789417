"""The report on diagnoses: counts of both parts, and no word about a mutant held out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gradcheck.power.diagnosed_mutant import Named, NamedNarrow, Small
from gradcheck.power.diagnosis import Diagnosed
from gradcheck.report.diagnosis_power import LISTED, render, summary
from gradcheck.report.power_page import FORMATS
from gradcheck.results.finding import Diagnosis


def named(name, label="", held_out=False, **options):
    found = Diagnosis(label=label, says=f"dx of {name}", rule="scale" if label else "")
    usual = {"op": "sqr", "family": "plain", "says": "It is off.", "labels": ("F", "D")}
    return Named(name=name, held_out=held_out, found=(("x", found),), **{**usual, **options})


RIGHT = [named(f"right-{i}", "F") for i in range(18)]
OFF = named("off", "S")
HIDDEN = named("hidden", "S", held_out=True)
FOUND = Diagnosed(
    version="0", suite="s", suite_version="1", seed=0,
    scores=(*RIGHT, OFF, HIDDEN, named("mute", held_out=True)),
)  # fmt: skip


def test_the_last_line_says_how_many_of_both_parts():
    last = (
        "POWER fail diagnosed=18/21 wrong=2 unnamed=1 held_out=0/2 held_out_wrong=1 small=0/0 "
        "narrow=0/0 narrow_wrong=0"
    )
    assert summary(FOUND) == last
    assert render(FOUND, "terminal").splitlines()[-1] == last
    sound = replace(FOUND, scores=tuple(RIGHT))
    assert summary(sound).startswith("POWER pass diagnosed=18/18 wrong=0")
    assert "NOT SOUND" not in render(sound, "markdown")


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_what_is_wrong_is_told_of_the_development_part_alone(form):
    text = render(FOUND, form)
    assert "sqr/off" in text
    assert "dx of off" in text
    assert "hidden" not in text
    assert "1 mutant of the third held out named wrongly" in text
    assert "18 of 21 mutants are named rightly (85.7%), 2 wrongly (9.5%): NOT SOUND" in text


def narrow(what="w", type="TF32", says="w is rounded to 10 bits of mantissa, as TF32 does"):
    found = (("x", Diagnosis(label="O" if says else "", says=says, rule="narrow")),)
    return NamedNarrow(op="f", family="g", name="n", dtype="float32", what=what, type=type,
                       found=found)  # fmt: skip


@pytest.mark.parametrize(
    ("type", "says", "verdict"),
    [
        ("TF32", "w is rounded to 10 bits of mantissa, as TF32 and float16 do", "right"),
        ("float16", "w is rounded to 10 bits of mantissa, as TF32 and float16 do", "right"),
        ("float16", "w is rounded to bfloat16 (7 bits of mantissa)", "wrong"),
        ("float32", "w is rounded to bfloat16 (7 bits of mantissa)", "wrong"),
        ("float32", "", "none"),
    ],
)
def test_a_narrow_mutant_is_named_by_its_type(type, says, verdict):
    assert narrow(type=type, says=says).verdict == verdict


def test_narrow_mutants_have_a_score_of_their_own():
    found = replace(FOUND, scores=(*RIGHT, *[narrow()] * 18, narrow("sums", says="")))
    assert found.sound
    line = "18 of 19 mutants with narrow numbers are named by their type (94.7%), 0 wrongly (0.0%)"
    for form in ("terminal", "markdown"):
        assert line in " ".join(render(found, form).split())
    page = render(found, "markdown")
    assert "| one operand | 18 | 0 | 0 | 100.0% |" in page
    assert "| sums | 0 | 0 | 1 | 0.0% |" in page
    assert "| TF32 in float32 | 18 | 0 | 1 | 94.7% |" in page
    assert summary(found).endswith("narrow=18/19 narrow_wrong=0")
    assert len(json.loads(render(found, "json"))["narrow"]) == 19
    weak = replace(found, scores=(*RIGHT, *[narrow()] * 8, narrow(says="")))
    assert not weak.sound
    assert "NOT SOUND" in render(weak, "terminal")


def test_tables_count_by_class_rule_and_family_and_show_the_confusion():
    page = render(FOUND, "markdown")
    assert "| F scale | 18 | 1 | 0 | 0 | 1 | 1 | 85.7% |" in page
    assert "| scale | 18 | 1 | 0 | 0 | 1 | 0 | 90.0% |" in page
    assert "| none | 0 | 0 | 0 | 0 | 0 | 1 | 0.0% |" in page
    assert "| plain | 18 | 1 | 0 | 0 | 1 | 1 | 85.7% |" in page
    assert "| class | S | F | none |" in page
    assert "| F | 2 | 18 | 1 |" in page


def test_json_holds_every_mutant_with_its_diagnoses():
    plain = json.loads(render(FOUND, "json"))
    assert plain["sound"] is False
    assert plain["held_out"] == {"right": 0, "wrong": 1, "unnamed": 1, "exact": 0}
    last = plain["mutants"][-1]
    assert (last["name"], last["verdict"], last["held_out"]) == ("mute", "none", True)
    assert plain["mutants"][0]["diagnoses"]["x"]["says"] == "dx of right-0"


def test_a_run_cut_short_says_so_in_every_format():
    cut = replace(FOUND, complete=False, troubles=("a worker process died",))
    for form in ("terminal", "markdown"):
        assert "incomplete: the run stopped early" in render(cut, form)
        assert "a worker process died" in render(cut, form)
    assert json.loads(render(cut, "json"))["complete"] is False


def test_the_terminal_counts_what_it_does_not_spell_out():
    many = replace(FOUND, scores=tuple(named(f"off-{i}", "S") for i in range(LISTED + 2)))
    text = render(many, "terminal")
    assert "… and 2 more mutants named wrongly" in text
    assert f"off-{LISTED}" not in text
    assert f"off-{LISTED + 1}" in render(many, "markdown")


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_diagnosed_is_a_report_too(form):
    empty = replace(FOUND, scores=())
    assert render(empty, form).endswith("\n")
    assert "POWER fail diagnosed=0/0" in summary(empty)


def test_hostile_words_are_escaped():
    evil = named("evil", "S", says="It has | and <b> and \x1b[31m.")
    page = render(replace(FOUND, scores=(evil,)), "markdown")
    assert "\x1b" not in page
    assert "It has \\| and &lt;b&gt; and" in page
    assert "\x1b" not in render(replace(FOUND, scores=(evil,)), "terminal")


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_how_few_elements_failures_need_is_told(form):
    few = Small(output="x", label="F", before=20, after=2, largest=1)
    large = replace(few, after=10)
    found = replace(FOUND, scores=(replace(RIGHT[0], small=few), replace(RIGHT[1], small=large)))
    text = " ".join(render(found, form).split())
    assert "1 of 2 failures (50.0%): shown by at most 8 elements" in text
    assert "on average 6.0, where the samples have 20.0" in text
    assert "NOT SOUND" in text
    assert "small=1/2" in text
