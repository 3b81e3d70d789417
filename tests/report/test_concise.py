"""A line per failing gradient, for `grep`; nothing else looks like one."""

import re

import pytest

from gradcheck.report import render
from gradcheck.report.failures import groups
from gradcheck.results.finding import Part
from gradcheck.results.run import AT_FIRST
from gradcheck.results.verdict import Verdict

LINE = re.compile(r"^\S+/\S+/\S+/\S+:.+? [A-Z]+( .*)?$")


def concise(run, **how):
    return render(run, "concise", **how).splitlines()


def test_every_line_is_one_and_the_last_is_for_scripts(any_run):
    lines = concise(any_run)
    assert lines[-1] == any_run.summary
    assert [line for line in lines if line.startswith("RESULT")] == [any_run.summary]
    assert all(line and line.isprintable() for line in lines)


def test_every_failing_gradient_has_a_line_and_no_passing_one(failing):
    found = [line for line in concise(failing) if LINE.match(line)]
    assert len(found) == len(groups(failing)) > 1
    assert not any(" PASS" in line for line in found)


def test_each_result_has_one_where_all_are_asked_for(failing):
    found = [line for line in concise(failing, verbosity=1) if LINE.match(line)]
    assert len(found) == sum(map(failing.fails, failing.results)) > len(groups(failing))
    assert not any("more)" in line for line in found)


def test_a_line_says_where_what_and_why(make):
    run = make.run(
        make.result(output="w", verdict=Verdict.FAIL, diagnosis=make.why(), sample="typical"),
        make.result(output="w", verdict=Verdict.FAIL, sample="zero", diagnosis=make.why()),
    )
    first, last = concise(run)
    assert first == (
        "rms_norm/weight/typical/float64:w FAIL 4.5e-04 > 1.0e-08 — scale: dw is 1/3 of the right "
        "value (and 1 more)"
    )
    assert last.startswith("RESULT fail ")


def test_what_is_no_gradient_is_called_by_its_name(make):
    run = make.run(
        make.result("silu", "linear", Verdict.FAIL, part=Part.CONTRACT, worst=(), reason="r"),
        make.result("silu", "vjp", Verdict.CRASH, reason="SIGSEGV", dtype="float32"),
    )
    crash, contract, _ = concise(run)
    assert crash == "silu/weight/typical/float32:vjp CRASH — SIGSEGV"
    assert contract == "silu/weight/typical/float64:contract: linear FAIL — r"


def test_whose_it_is_stands_there_where_there_are_several(make):
    run = make.run(
        make.result(verdict=Verdict.FAIL, implementation="torch"),
        make.result(implementation="jax"),
        implementations=("torch", "jax"),
    )
    assert " > 1.0e-08 (torch) — 3 of 24 " in concise(run)[0]


def test_what_closes_the_gate_besides_has_a_line(outdated):
    found = concise(outdated)
    for problem in outdated.gate.problems:
        assert problem.text in found


def test_a_known_failure_has_none(known):
    assert not any(" FAIL " in line for line in concise(known))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"complete": False, "stopped": AT_FIRST}, f"incomplete: {AT_FIRST}"),
        ({"troubles": ("k:IMPL: no\x1b module",)}, r"problem: k:IMPL: no\x1b module"),
        ({}, "nothing was checked"),
    ],
)
def test_what_a_run_lacks_has_a_line(make, changes, said):
    assert said in concise(make.run(**changes))
