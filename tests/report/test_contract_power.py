import json
from dataclasses import replace

import pytest

from gradcheck.power.contract import NUMBERS, ContractMutant, ContractPower, Killed
from gradcheck.report.contract_power import render, summary


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
        assert "linear is the only one to reject nothing" in text
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
