"""Whole runs on several processes: what one process makes of them, and no result lost."""

import signal
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from gradcheck_cases import SUITE

from gradcheck.results.run import AT_FIRST
from gradcheck.results.verdict import Verdict
from gradcheck.run.execute import execute
from gradcheck.run.limits import TimeLimit
from gradcheck.run.plan import Plan
from gradcheck.run.workers import run_queue

CODE = """
import os, signal
from pathlib import Path
HERE = Path(__file__).parent
def right(ct, x): return ct * (x > 0)
def wrong(ct, x): return ct
def dies(ct, x): os._exit(1)
def once(ct, x):
    try: (HERE / "once").touch(exist_ok=False)
    except FileExistsError: return right(ct, x)
    os.kill(os.getpid(), signal.SIGKILL)
def clips(params, grads, state, t, **attrs): return {n: g / 2 for n, g in grads.items()}, state
def aborts(params, grads, state, t, **attrs):
    if any(g.dtype == "float32" for g in grads.values()): os.abort()
    return clips(params, grads, state, t)
DIES, ONCE = ({"relu": {"vjp": f}} for f in (dies, once))
WRONG = {"relu": {"vjp": wrong}, "clip_norm": {"update": clips}}
APART = {"clip_norm": {"update": aborts}}
"""
BOTH = ["float64", "float32"]


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A module that other processes find, too."""
    (tmp_path / "deadly.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "deadly", raising=False)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    return "deadly:{}".format


def plan(*ops, jobs=2, samples=(), **options):
    cases = SUITE.cases([*ops], samples=samples) if ops else ()
    usual = {"implementations": ["reference"], "dtypes": BOTH, "seed": 3}
    return Plan(suite=SUITE, cases=cases, jobs=jobs, **usual | options)


def in_parts(asked, monkeypatch):
    """A run in which every ask of a case is a unit of its own."""
    whole = run_queue.units_of(asked, asked.everything, 1)
    parts = [replace(unit, asks=(ask,)) for unit in whole for ask in unit.asks]
    assert len(parts) > len(whole)
    with monkeypatch.context() as patch:
        patch.setattr(run_queue, "units_of", lambda *_: parts)
        return execute(asked)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("jobs", [2, 5])
def test_records_do_not_depend_on_the_number_of_processes(jobs):
    asked = plan("relu", "silu", rules=SUITE.rule_cases(["clip*"], samples=["typical"]))
    reported = {}
    found = execute(
        replace(asked, jobs=jobs),
        lambda done, _, name, seconds=0.0: done and reported.update({name: seconds * jobs}),
    )
    alone = execute(replace(asked, jobs=1))
    assert found == alone
    # Each case took what its worker says, however long this process waited for it.
    assert found.timing.cases == pytest.approx(reported)
    names = [case.name for case in asked.everything]
    assert [*found.timing.cases] == [*alone.timing.cases] == names
    assert sum(alone.timing.cases.values()) <= alone.timing.seconds
    assert all(0 < seconds <= found.timing.seconds for seconds in found.timing.cases.values())


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("isolate", [False, True])
def test_nor_on_what_is_sent_as_one(code, monkeypatch, isolate):
    """Right, wrong and deadly: every ask in a worker that is free."""
    words = [code("WRONG"), *([code("APART")] if isolate else []), "reference"]
    asked = plan(implementations=words, models=SUITE.model_cases(["quadratic"]), isolate=isolate,
                 rules=SUITE.rule_cases(["clip*"], samples=["typical", "tiny"]),
                 model_dtypes=["mp50", *BOTH], suites=("gradcheck_cases:SUITE",))  # fmt: skip
    one = execute(replace(asked, jobs=1))
    assert in_parts(asked, monkeypatch) == one
    verdicts = {r.finding.verdict for r in one.results if r.case.kind == "rule"}
    assert verdicts == {Verdict.PASS, Verdict.FAIL} | ({Verdict.CRASH} if isolate else set())


def test_an_implementation_that_kills_its_worker_has_crashed_and_the_run_goes_on(code):
    asked = plan("relu", "rope", implementations=["reference", code("DIES")], samples=["typical"])
    run = execute(asked)
    assert (run.complete, run.troubles) == (True, ())
    alone = execute(replace(asked, implementations=["reference"], jobs=1))
    assert [r for r in run.results if r.case.implementation == "reference"] == [*alone.results]
    crashed = [
        r for r in run.results if r.case.implementation != "reference" and r.case.op == "relu"
    ]
    assert [(r.case.dtype, r.finding.verdict) for r in crashed] == [
        (d, Verdict.CRASH) for d in BOTH
    ]
    for result in crashed:
        assert result.finding.reason == "its worker process ended, in 2 tries: exit status 1"
        assert result.repro.endswith(
            f"relu/default/typical/{result.case.dtype} --impl deadly:DIES --seed 3"
        )


@pytest.mark.slow(rest=0)
def test_too_many_of_them_are_left_out_as_ever(code):
    few = [case.sample.name for case in SUITE.cases(["relu"])[:6]]
    asked = plan("relu", samples=few, implementations=[code("DIES")], contract=False)
    assert len(asked.cases) * 2 == 12
    verdicts = [r.finding.verdict for r in execute(asked).results]
    assert verdicts[:10] == [Verdict.CRASH] * 10
    assert {*verdicts[10:]} == {Verdict.NOTRUN}


@pytest.mark.slow(rest=0)
def test_a_worker_that_is_killed_once_costs_nothing(code, tmp_path):
    asked = plan("relu", "tanh", implementations=["reference", code("ONCE")], contract=False)
    run = execute(asked)
    assert (tmp_path / "once").exists()
    assert run.complete
    assert run == execute(replace(asked, jobs=1))
    assert {r.finding.verdict for r in run.results if r.case.op == "relu"} == {Verdict.PASS}


@pytest.mark.slow
def test_the_first_failure_is_that_of_one_process_whatever_is_begun_first(code):
    """Samples on a kink are begun before all others."""
    asked = plan("relu", implementations=[code("WRONG")], contract=False)
    runs = []
    for jobs in (1, 3):
        observer = SimpleNamespace(
            begins=lambda header: None,
            sees=lambda results: AT_FIRST * any(r.finding.verdict == Verdict.FAIL for r in results),
        )
        runs.append(execute(replace(asked, jobs=jobs), observer=observer))
    assert runs[0] == runs[1]
    assert runs[0].halted


@pytest.mark.slow
def test_an_observer_sees_cases_in_the_order_of_a_run_as_they_become_known():
    asked = plan("relu", "tanh", "scale")
    seen, told = [], []
    observer = SimpleNamespace(
        begins=lambda header: None,
        sees=lambda results: seen.append(results[0].case.name.rpartition("/")[0]) or "",
    )
    execute(asked, lambda *state: told.append(state), observer)
    names = [case.name for case in asked.cases]
    assert seen == names
    assert [done for done, *_ in told] == [*range(len(names) + 1)]
    assert sorted(name for _, _, name, *took in told if took) == sorted(names)


@pytest.mark.slow
def test_what_is_finished_is_kept_when_the_run_is_interrupted():
    asked = plan("relu", "tanh", "scale")
    count = len(asked.cases)

    def stops(done, *_):
        if done == count // 2:
            raise KeyboardInterrupt

    run = execute(asked, stops)
    assert not run.complete
    assert run.stopped.startswith("interrupted; not reached: ")
    whole = execute(replace(asked, jobs=1)).results
    assert [r for r in whole if r in run.results] == [*run.results]
    assert len({r.case.name.rpartition("/")[0] for r in run.results}) >= count // 2


@pytest.mark.slow
def test_what_is_finished_is_kept_when_the_time_is_up_and_the_rest_is_not_run(monkeypatch):
    asked = plan("relu", "tanh", "scale", max_time=1000.0)
    made, count = [], len(asked.cases)
    monkeypatch.setattr(
        "gradcheck.run.execute.TimeLimit", lambda *s: made.append(TimeLimit(*s)) or made[-1]
    )

    def up(done, *_):
        if done == count // 2:
            made[-1]._end = 0.0
            signal.raise_signal(signal.SIGALRM)

    run = execute(asked, up)
    whole = execute(replace(asked, jobs=1, max_time=None)).results
    known = [r for r in run.results if r.finding.verdict != Verdict.NOTRUN]
    assert [r for r in whole if r in known] == known
    assert len({r.case.name.rpartition("/")[0] for r in known}) >= count // 2
    assert {r.finding.reason for r in run.results if r not in known} == {
        "the time of the run, --max-time 1000 s, was up"
    }
    assert {r.case.name for r in run.results} == {r.case.name for r in whole}
