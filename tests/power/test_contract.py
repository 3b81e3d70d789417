from dataclasses import replace
from types import SimpleNamespace

import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.mutants.contract import MUTANTS

from gradcheck import Suite
from gradcheck.errors import LoadError, SpecError
from gradcheck.judge.contract_check import PROPERTIES
from gradcheck.power.contract import (
    NUMBERS,
    ContractMutant,
    ContractPower,
    Killed,
    Mutated,
    contract_mutants_of,
    killers,
    scores,
)
from gradcheck.power.run_mutants import MutationPlan, Work

WRONG = [m for m in MUTANTS if not m.right]
(CASE,) = SUITE.cases(["rms_norm"], ["weight"], ["typical"])
ALONE = {
    "clips-relative": "linear",
    "normalises-dy": "zero",
    "flushes-small": "scaling",
    "race": "repeatable",
    "cached-by-shape": "stateless",
    "scales-dy": "pure",
    "reused-buffer": "owned",
    "double-zeros": "dtype",
    "no-tail": "sizes",
    "ignores-eps": "attributes",
    "flat-dy": "layouts",
    "projection-with-dw": "subsets",
    "overwrites": "accumulates",
    "skips-zero-rows": "written",
    "two-steps": "aliases",
    "whole-blocks": "bounds",
}


def test_there_are_at_least_26_of_one_right_backward():
    assert len(WRONG) >= 26
    assert [m.name for m in MUTANTS if m.right] == ["right"]
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert set(ALONE.values()) == {p.name for p in PROPERTIES}


@pytest.mark.suite(keep=4, by="gradcheck power --contract")
@pytest.mark.parametrize("mutant", WRONG, ids=lambda m: m.name)
def test_every_mutant_is_rejected_and_each_property_alone_rejects_one(mutant):
    by = killers(mutant, CASE)
    assert by
    if mutant.name in ALONE:
        assert by == (ALONE[mutant.name],)


def test_the_right_one_is_rejected_by_nothing():
    (right,) = (m for m in MUTANTS if m.right)
    assert killers(right, CASE) == ()


def test_each_judge_has_an_instance_of_its_own(monkeypatch):
    made = []

    def make():
        made.append(1)
        return WRONG[0].make()

    killers(ContractMutant(op="rms_norm", dialect="weight", name="m", says="M.", make=make), CASE)
    assert len(made) == 2 * (1 + len(PROPERTIES))


def small_suite(monkeypatch, mutants):
    module = SimpleNamespace(TABLE=mutants)
    monkeypatch.setitem(__import__("sys").modules, "contract_table", module)
    spec = SUITE.operators["rms_norm"]
    return Suite("small", "1", [spec], contract_mutants="contract_table:TABLE")


def test_an_attack_tells_survivors_idle_properties_and_alarms(monkeypatch):
    by_name = {m.name: m for m in MUTANTS}
    alarming = ContractMutant(
        op="rms_norm", dialect="weight", name="righteous", says="Not so.", right=True,
        make=by_name["overwrites"].make,
    )  # fmt: skip
    harmless = ContractMutant(
        op="rms_norm", dialect="weight", name="harmless", says="Nothing is.",
        make=by_name["right"].make,
    )  # fmt: skip
    suite = small_suite(monkeypatch, (alarming, harmless, by_name["ignores-eps"]))
    plan = MutationPlan(kind="contracts", names=("rms_norm",))
    work = Work(plan, suite, contract_mutants_of(suite))
    power = ContractPower(
        suite="s", suite_version="1", seed=0, scores=tuple(scores(work, "rms_norm"))
    )
    assert power.case == "rms_norm/weight/typical"
    assert power.judges[0] == NUMBERS
    assert power.alarms == ["rms_norm/weight/typical: the right one is rejected by accumulates"]
    assert [m.name for m in power.survivors] == ["harmless"]
    assert power.sole("attributes") == ["ignores-eps"]
    assert "attributes" not in power.idle
    assert "linear" in power.idle
    assert not power.sound


def test_only_an_attack_with_mutants_is_sound():
    empty = ContractPower(
        suite="s", suite_version="1", seed=0, judges=(NUMBERS, "linear"), scores=()
    )
    assert not empty.sound
    assert replace(empty, scores=(Killed(WRONG[0], ("linear",)),)).sound


@pytest.mark.parametrize(
    ("table", "error", "said"),
    [
        ({"a": 1}, LoadError, "make it a tuple of ContractMutant"),
        ((1,), LoadError, "make it a tuple of ContractMutant"),
        ((WRONG[0], WRONG[0]), SpecError, "two contract mutants are called rms_norm/"),
    ],
)
def test_a_table_that_holds_something_else_is_refused(monkeypatch, table, error, said):
    with pytest.raises(error, match=said):
        contract_mutants_of(small_suite(monkeypatch, table))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"op": "softmax"}, "no operator 'softmax'"),
        ({"dialect": "plane"}, "plane"),
    ],
)
def test_a_mutant_of_nothing_is_refused(monkeypatch, changes, said):
    plain = {"op": "rms_norm", "dialect": "weight", "name": "m", "says": "M.", "make": object}
    with pytest.raises(Exception, match=said):
        contract_mutants_of(small_suite(monkeypatch, (ContractMutant(**{**plain, **changes}),)))


@pytest.mark.parametrize(("name", "says"), [("Not a name", "M."), ("m", " ")])
def test_a_mutant_says_its_name_and_what_is_wrong(name, says):
    with pytest.raises(SpecError):
        ContractMutant(op="rms_norm", dialect="weight", name=name, says=says, make=object)


def test_a_mutant_is_bound_as_an_entry_of_a_table():
    bound = Mutated.of(WRONG[0]).bind(CASE, "float64")
    assert bound.into is not None
    assert bound.into.accumulates == {"w"}
    assert bound.asked is not None
    assert bound.strided
