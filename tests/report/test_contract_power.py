import json
import re
from dataclasses import replace

import gradcheck_cases
import pytest

from gradcheck.power.contract import NUMBERS, ContractMutant, ContractPower, Killed
from gradcheck.power.rule import Kills, RulePower, RuleScore, rule_mutants_of
from gradcheck.report.contract_power import render, summary
from gradcheck.report.power_page import FORMATS
from gradcheck.report.rule_power import render as rule_page
from gradcheck.report.rule_power import summary as rule_summary


def mutant(name, says="It is wrong."):
    return ContractMutant(op="rms_norm", dialect="weight", name=name, says=says, make=object,
                          source="B1")  # fmt: skip


@pytest.fixture
def power():
    def of(*killed):
        return ContractPower(
            suite="builtin", suite_version="1", seed=0, judges=(NUMBERS, "linear", "zero"),
            scores=tuple(replace(one, case="rms_norm/weight/typical") for one in killed),
        )  # fmt: skip

    return of


BOTH = (Killed(mutant("bent"), ("linear",)), Killed(mutant("null"), ("zero",)))


def test_a_sound_attack_says_so_in_every_format(power):
    found = power(*BOTH)
    assert summary(found) == "POWER pass mutants=2/2 properties=2/2 alarms=0"
    text = render(found, "terminal")
    assert text.splitlines()[-1] == summary(found)
    assert "bent    linear" in text
    page = render(found, "markdown")
    assert page.startswith("**gradcheck power --contract: every mutant is rejected")
    assert "| `linear` | A backward is linear" in page
    assert "| `bent` | `B1` |  | only |  | It is wrong. |" in page
    plain = json.loads(render(found, "json"))
    assert plain["sound"] is True
    assert plain["mutants"][1]["rejected_by"] == ["zero"]


def test_survivors_idle_properties_and_alarms_are_named(power):
    found = power(Killed(mutant("bent"), ("linear", "zero")), Killed(mutant("sly"), ()),
                  Killed(replace(mutant("fair"), right=True), ("zero",)))  # fmt: skip
    assert summary(found) == "POWER fail mutants=1/2 properties=0/2 alarms=1"
    for form in ("terminal", "markdown"):
        text = render(found, form)
        assert "sly is rejected by nothing: It is wrong." in text
        assert "linear rejects no mutant alone" in text
        assert "the right one is rejected by zero" in text
    assert "NOT SOUND" in render(found, "markdown")


def test_many_judges_are_counted_in_the_terminal(power):
    many = Killed(mutant("loud"), tuple("abcdefg"))
    assert "a, b, c, d, e and 2 more" in render(power(many), "terminal")


def test_hostile_words_are_escaped(power):
    evil = Killed(mutant("evil", "It has | and <b> and \x1b[31m."), ("linear",))
    page = render(power(evil), "markdown")
    assert "\x1b" not in page
    assert "It has \\| and &lt;b&gt; and" in page


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
    assert rule_summary(missed) == "POWER fail mutants=1/2 alarms=0 survivors=1"


def test_nothing_tried_is_not_sound():
    assert not of().sound


def test_a_right_rule_that_does_not_pass_is_an_alarm():
    alarm = RuleScore(kills=(KILLED,), alarms=("clip_norm/default/typical/float32",))
    alarmed = replace(SOUND, scores=(alarm,))
    assert not alarmed.sound
    text = rule_page(alarmed, "terminal")
    assert "the right rule does not pass" in text
    assert text.endswith("POWER fail mutants=1/1 alarms=1 survivors=0\n")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_names_the_survivor_and_what_is_wrong_with_it(format):
    text = rule_page(of(MISSED), format)
    assert MUTANT.name in text
    if format != "json":
        assert f"not rejected by {MUTANT.killer}" in re.sub(r"[\\`]|</?code>", "", text)


def test_json_holds_what_was_tried_and_killed():
    plain = json.loads(rule_page(SOUND, "json"))
    assert plain["sound"] is True
    assert plain["mutants"][0]["killed"] == [f"default/{MUTANT.killer}"]


def test_markdown_escapes_what_is_foreign():
    evil = replace(MUTANT, says="a|b <script>")
    text = rule_page(of(replace(KILLED, mutant=evil)), "markdown")
    assert "a\\|b &lt;script&gt;" in text
