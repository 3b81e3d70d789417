"""`gradcheck power`: its exit codes, its parts, and the places where it writes."""

import json
from pathlib import Path

import pytest
from gradcheck_cases.mutants.contract import MUTANTS

from gradcheck.cli.main import main

ATTACKED = r"""
from dataclasses import replace
import os
import numpy as np
from gradcheck import Mutant, OpSpec, Sample, Slack, Suite

def square(xp, x): return x * x
def double(xp, ct, x): return 2 * ct * x
def triple(xp, ct, x): return 3 * ct * x
def right(xp, ct, x): return ct * x + x * ct
def stops(xp, ct, x): raise KeyboardInterrupt
def dies(xp, ct, x): os._exit(3)
def good(draw): return (draw.signed(3),)
def many(draw): return good(draw) * 2
def shaped(draw): return (draw.signed(int(draw.integers(1, 4))),), {}

def op(name="square", vjp=double, primals=good, **more):
    sample = Sample(name="only", primals=primals, hunts="2")
    return OpSpec(name=name, signature="()->()", forward=square, vjp=vjp, formula="x^2",
                  source="none", samples=(sample,), **more)

def mutant(vjp, op="square", killer="only", **more):
    return Mutant(op=op, name="wrong", says="It is wrong.", label="F", killer=killer, vjp=vjp,
                  **more)

def suite(word, *operators):
    return Suite("mine", "1", operators, mutants=f"attacked:{word}_MUTANTS")

GREEN = Slack(ulp=1e30, because="somebody wanted it green")

SOUND_MUTANTS = [mutant(triple)]
SOUND = suite("SOUND", op(), op("other"))
SURVIVOR_MUTANTS = [mutant(right)]
SURVIVOR = suite("SURVIVOR", op())
REFUTED_MUTANTS = [mutant(triple, killer="", equivalent="1 = 1.", inputs=shaped)]
REFUTED = suite("REFUTED", op())
MISNAMED_MUTANTS = [mutant(lambda xp, ct, x: ct if x.size > 3 else 2 * ct * x)]
MISNAMED = suite("MISNAMED", replace(op(), samples=(
    Sample(name="only", primals=good, hunts="2"),
    Sample(name="large", primals=lambda draw: (draw.signed(4),), hunts="size"),
)))
ALARM = Suite("mine", "1", [op(vjp=triple)])
TROUBLE_MUTANTS = [mutant(right), mutant(triple, op="many")]
TROUBLE = suite("TROUBLE", op(), op("many", primals=many))
BROKEN_MUTANTS = [mutant(lambda xp, ct, x: xp.nothing(x))]
BROKEN = suite("BROKEN", op())
USELESS = Suite("mine", "1", [op(slack=GREEN)])
STOPS_MUTANTS = [mutant(right), mutant(stops, op="stopped")]
STOPS = suite("STOPS", op(), op("stopped"), op("never"))
DIES_MUTANTS = [mutant(dies, op="op-7")]
DIES = suite("DIES", *(op(f"op-{i}") for i in range(8)))
EMPTY = Suite("mine", "1", [])
BAD_MUTANTS = [mutant(triple, killer="onyl")]
BAD = suite("BAD", op())
STRANGE_MUTANTS = 3
STRANGE = suite("STRANGE", op())
PRINTS_MUTANTS = [mutant(lambda xp, ct, x: print("printed by a mutant") or ct)]
PRINTS = suite("PRINTS", op())
print("printed on import")
"""

FULL = "-o /dev/full:markdown"


@pytest.fixture(autouse=True)
def attacked(folder):
    """A module with a suite for everything that may happen."""
    Path("attacked.py").write_text(ATTACKED)


@pytest.fixture
def power(run):
    """`gradcheck power` with one of the suites."""

    def call(word, *words):
        return run("--suite", f"attacked:{word}", *words, command="power")

    return call


@pytest.mark.slow(keep=8)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("code", "word", "words"),
    [
        (0, "SOUND", ""),
        (0, "SOUND", "--op other --dtype float32 --seed 7"),
        (0, "PRINTS", ""),
        (1, "SURVIVOR", ""),
        (1, "REFUTED", ""),
        (1, "MISNAMED", ""),
        (1, "ALARM", ""),
        (2, "SOUND", FULL),
        (2, "BAD", ""),
        (3, "STRANGE", ""),
        (3, "ABSENT", ""),
        (4, "EMPTY", ""),
        (4, "SOUND", "--part 1/100000"),
        (5, "TROUBLE", ""),
        (5, "TROUBLE", "--op many"),
        (5, "BROKEN", ""),
        (5, "USELESS", ""),
        (130, "STOPS", ""),
        # where several apply, the worst one wins
        (2, "SURVIVOR", FULL),
        (2, "EMPTY", FULL),
        (5, "TROUBLE", FULL),
        (5, "USELESS", "--part 1/100000"),
        (130, "STOPS", FULL),
    ],
)
def test_the_exit_code_says_what_happened(power, code, word, words):
    found = power(word, *words.split())
    assert found.code == code
    assert "Traceback" not in found.err
    refused = word in ("BAD", "STRANGE", "ABSENT")
    passes = word in ("SOUND", "PRINTS") and code != 4
    last = [] if refused else ["POWER pass" if passes else "POWER fail"]
    assert [line[:10] for line in found.out.splitlines()[-1:]] == last


def test_a_sound_suite_shows_matrix_cheapest_killer_and_certificate(power):
    found = power("SOUND", "--op", "square")
    assert found.err == "printed on import\n"
    lines = [line.split() for line in found.out.splitlines()]
    assert ["wrong", "F", "default/only", "●"] in lines
    assert ["1", "default/only", "(3):", "19", "of", "19"] in lines
    assert "roundings: 28 of 28 rejected" in found.out
    assert (
        "equivalent, its backward adds nothing up: sums (tf32, bfloat16, float16, float32)"
        in found.out
    )
    assert found.out.endswith(
        "\nPOWER pass mutants=1/1 equivalent=0 impostors=18/18 alarms=0 survivors=0 "
        "narrow=28/28 narrow_equivalent=7\n"
    )


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("SURVIVOR", "square/wrong survives: It is wrong. No sample rejects it; add one that does"),
        ("REFUTED", "square/wrong: it is declared equivalent (1 = 1.), but default/only rejects"),
        ("MISNAMED", "square/wrong: its killer 'only' does not catch it, default/large does; name"),
        ("ALARM", "square/default/only/float64: the right VJP does not pass; run it with"),
        ("TROUBLE", "many/default/only: the sample draws 2 primals, forward takes ['x']"),
        ("BROKEN", "mutant square/wrong raises AttributeError: `xp.nothing` is not in the"),
        (
            "USELESS",
            "square/default/only: this sample rejects nothing; change its values or remove it",
        ),
        ("STOPS", "incomplete: the run stopped early"),
        ("EMPTY", "nothing was attacked"),
    ],
)
def test_what_is_amiss_is_said_with_what_to_change(power, word, said):
    assert said in " ".join(power(word).out.split())


def test_what_code_prints_is_no_part_of_the_report(power):
    found = power("PRINTS")
    assert "printed" not in found.out
    assert found.err.count("printed by a mutant") > 2


def test_a_bad_mutant_is_refused_with_what_to_change(power):
    found = power("BAD")
    assert found.out == ""
    assert found.err.splitlines()[-1] == (
        "gradcheck: mutant square/wrong: its killer 'onyl' is no sample of square; known: ['only']"
    )


# ── files ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_files_hold_every_matrix(power):
    wanted = ("p.md", "p.json", "p.txt", "other:markdown")
    assert power("DIES", "--op", "op-[0-5]", *(w for f in wanted for w in ("-o", f))).code == 0
    assert Path("p.txt").read_text().count("cases (elements)") == 6
    assert Path("p.md").read_text().count("<details>") == 6
    assert Path("other").read_text() == Path("p.md").read_text()
    document = json.loads(Path("p.json").read_text(), parse_constant=pytest.fail)
    assert [found["op"] for found in document["operators"]] == [f"op-{i}" for i in range(6)]
    assert document["sound"] is True


def test_an_interrupted_run_writes_what_it_has(power):
    found = power("STOPS", "-o", "part.json", "-o", "part.md")
    assert found.code == 130
    part = json.loads(Path("part.json").read_text())
    assert (part["complete"], part["sound"]) == (False, False)
    assert [o["op"] for o in part["operators"]] == ["square"]
    assert "square/wrong survives" in found.out
    assert Path("part.md").read_text().startswith("**gradcheck power: incomplete")


def test_a_process_that_dies_leaves_what_is_known_and_one_clear_line(power, monkeypatch, folder):
    monkeypatch.setenv("PYTHONPATH", str(folder))
    found = power("DIES", "-j", "2", "-o", "part.json")
    assert found.code == 130
    (trouble,) = json.loads(Path("part.json").read_text())["troubles"]
    assert "a worker process died of it, twice (exit status 3); run again with -j 1" in trouble
    assert f"\n{trouble}\n" in found.out
    assert "Traceback" not in found.err
    part = json.loads(Path("part.json").read_text())
    assert part["complete"] is False


@pytest.mark.slow
def test_a_stdout_that_takes_nothing_does_not_hide_what_happened(power, monkeypatch):
    monkeypatch.setattr("gradcheck.cli.console.show", lambda text: False)
    codes = {word: power(word, "-o", "p.md").code for word in ("SOUND", "SURVIVOR", "TROUBLE")}
    assert codes == {"SOUND": 2, "SURVIVOR": 2, "TROUBLE": 5}
    assert power("STOPS").code == 130
    assert Path("p.md").exists()


# ── parts ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_parts_hold_every_wrong_answer_exactly_once(power):
    def trials(*words):
        power("SOUND", *words, "-o", "p.json")
        operators = json.loads(Path("p.json").read_text())["operators"]
        return [(o["op"], t["what"]) for o in operators for t in o["trials"]]

    parts = [trials("--part", f"{i}/3") for i in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(trials())
    assert all(len(part) < len(trials()) for part in parts)


# ── faults of models ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_models_are_attacked_with_planted_faults(capsys, tmp_path):
    path = tmp_path / "faults.md"
    assert main(["power", "--model", "svm", "--dtype", "float64", "-o", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("POWER pass faults=13 found=13 exact=13")
    assert "hinge/label-left-out" in out
    assert "hinge/label-left-out" in path.read_text()


# ── update rules ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite
def test_wrong_update_rules_are_rejected_and_reported(run, tmp_path):
    found = run("--rule", "clip_norm", "-o", str(tmp_path / "rules.md"), command="power")
    assert found.code == 0, found.out + found.err
    assert found.out.splitlines()[-1].startswith("POWER pass mutants=9/9 alarms=0")
    assert "every wrong update is rejected" in (tmp_path / "rules.md").read_text()


# ── contracts ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_mutants_of_a_contract_are_rejected_and_reported(run, tmp_path, monkeypatch):
    few = [m for m in MUTANTS if m.name in ("right", "ignores-eps", "two-steps")]
    monkeypatch.setattr("gradcheck_cases.mutants.contract.MUTANTS", tuple(few))
    found = run("--contract", "-o", str(tmp_path / "contract.md"), command="power")
    assert found.code == 1  # the properties that these two mutants do not need
    assert found.out.splitlines()[-1] == "POWER fail mutants=2/2 properties=2/16 alarms=0"
    assert "NOT SOUND" in (tmp_path / "contract.md").read_text()


# ── diagnoses ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_mutants_are_diagnosed_and_the_exit_code_follows_the_score(power):
    found = power("SOUND", "--diagnosis", "-o", "d.json")
    plain = json.loads(Path("d.json").read_text())
    assert plain["mutants"]
    assert found.code == (0 if plain["sound"] else 1)
    assert found.out.splitlines()[-1].startswith(
        f"POWER {'pass' if plain['sound'] else 'fail'} diagnosed="
    )


def test_mutants_are_diagnosed_without_their_specs(power):
    found = power("SOUND", "--diagnosis", "--black-box", "-o", "d.md")
    assert " passed=" in found.out.splitlines()[-1]
    assert "gradcheck power --diagnosis --black-box: " in Path("d.md").read_text()


@pytest.mark.parametrize(("code", "word"), [(4, "EMPTY"), (2, "BAD")])
def test_what_could_not_be_diagnosed_has_its_own_exit_code(power, code, word):
    assert power(word, "--diagnosis").code == code


def test_an_interrupted_diagnosis_says_so(power, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gradcheck.power.diagnosed_mutant.judge_case", stop)
    found = power("SOUND", "--diagnosis")
    assert found.code == 130
    assert "incomplete: the run stopped early" in found.out
