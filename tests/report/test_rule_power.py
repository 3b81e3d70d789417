"""The report of an attack on update rules: what survives is told, and the last line says so."""

import json
from dataclasses import replace

import gradcheck_cases
import pytest

from gradcheck.power.rule import Kills, RulePower, RuleScore, rule_mutants_of
from gradcheck.report.rule_power import FORMATS, render, summary

MUTANT = rule_mutants_of(gradcheck_cases.SUITE)["clip_norm"][0]
CASES = (f"default/{MUTANT.killer}", "default/other")
KILLED = Kills(MUTANT, CASES, CASES[:1])
MISSED = Kills(MUTANT, CASES, CASES[1:])


def of(*kills):
    score = RuleScore(kills=kills, judged=4)
    return RulePower(suite="s", suite_version="1", seed=0, scores=(score,))


SOUND = of(KILLED)


def test_a_mutant_counts_as_rejected_only_by_the_sample_that_was_named():
    assert SOUND.sound
    missed = of(KILLED, MISSED)
    assert not missed.sound
    assert summary(missed) == "POWER fail mutants=1/2 alarms=0 survivors=1"


def test_nothing_tried_is_not_sound():
    assert not of().sound


def test_a_right_rule_that_does_not_pass_is_an_alarm():
    alarm = RuleScore(kills=(KILLED,), alarms=("clip_norm/default/typical/float32",))
    alarmed = replace(SOUND, scores=(alarm,))
    assert not alarmed.sound
    text = render(alarmed, "terminal")
    assert "the right rule does not pass" in text
    assert text.endswith("POWER fail mutants=1/1 alarms=1 survivors=0\n")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_names_the_survivor_and_what_is_wrong_with_it(format):
    text = render(of(MISSED), format)
    assert MUTANT.name in text
    if format != "json":
        assert f"is not rejected by {MUTANT.killer}" in text.replace("\\", "")


def test_json_holds_what_was_tried_and_killed():
    plain = json.loads(render(SOUND, "json"))
    assert plain["sound"] is True
    assert plain["mutants"][0]["killed"] == [f"default/{MUTANT.killer}"]


def test_markdown_escapes_what_is_foreign():
    evil = replace(MUTANT, says="a|b <script>")
    text = render(of(replace(KILLED, mutant=evil)), "markdown")
    assert "a\\|b &lt;script&gt;" in text
