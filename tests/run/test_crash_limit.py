"""What crashes or hangs too often is left out in the order of a run, however it was carried out."""

import sys
from dataclasses import replace

import pytest
from gradcheck_cases import SUITE

from gradcheck.results.verdict import Verdict
from gradcheck.run.execute import execute
from gradcheck.run.limits import CrashLimit
from gradcheck.run.merge import Named, merged
from gradcheck.run.plan import Plan, shard_of
from tests.case_results import changed

SAMPLES = [case.sample.name for case in SUITE.cases(["relu"])][:6]
"""In two dtypes these are more than ten crashes; each starts a process."""
CRASHES = """
import os
def relu(ct, x): os.abort()
def tanh(ct, x): return ct
IMPL = {"relu": {"vjp": relu}, "tanh": {"vjp": tanh}}
"""


@pytest.fixture
def crashing(tmp_path, monkeypatch):
    """A plan whose relu crashes in every case, in a process of its own."""
    (tmp_path / "aborts.py").write_text(CRASHES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    words = {"implementations": ["aborts:IMPL", "reference"], "dtypes": ["float64", "float32"]}
    cases = [
        *SUITE.cases(["relu"], samples=SAMPLES), *SUITE.cases(["tanh"], samples=["typical"])
    ]  # fmt: skip
    suites = ["gradcheck_cases:SUITE"]
    return Plan(suite=SUITE, cases=cases, seed=0, isolate=True, suites=suites, **words)


def crashed(run):
    return [
        r.finding.verdict
        for r in run.results
        if (r.case.implementation, r.case.op) == ("aborts:IMPL", "relu")
    ]


@pytest.mark.slow(rest=0)
def test_jobs_and_shards_leave_out_the_same(crashing):
    run = execute(crashing)
    assert len(SAMPLES) == 6
    verdicts = crashed(run)
    assert verdicts[:10] == [Verdict.CRASH] * 10
    assert verdicts[10:] == [Verdict.NOTRUN] * (2 * len(SAMPLES) - 10)
    last = next(r for r in run.results if r.finding.verdict is Verdict.NOTRUN)
    assert last.finding.reason == "not run after 10 crashes of relu"
    assert last.repro.startswith(f"gradcheck repro {last.case.name} --suite")
    others = [
        r for r in run.results if (r.case.implementation, r.case.op) != ("aborts:IMPL", "relu")
    ]
    assert {r.finding.verdict for r in others if r.case.implementation == "reference"} == {
        Verdict.PASS
    }
    assert execute(replace(crashing, jobs=2)) == run
    parts = [replace(crashing, shard=f"{number}/2") for number in (1, 2)]
    ran = [Named(part.shard, execute(part)) for part in parts]
    assert Verdict.NOTRUN not in crashed(ran[0].run)
    assert merged(ran) == run


def test_what_has_ended_well_costs_nothing():
    crashes, run = CrashLimit(), execute(plan())
    for place in range(20):
        crashes.count(place, run.results)
    assert [*crashes.applied(20, run.results)] == [*run.results]


def plan():
    return Plan(suite=SUITE, cases=SUITE.cases(["relu"], samples=["typical"]), seed=0,
                implementations=["reference"], dtypes=["float64"])  # fmt: skip


@pytest.mark.parametrize(("verdict", "limit"), [(Verdict.CRASH, 10), (Verdict.TIMEOUT, 3)])
def test_another_operator_dialect_and_implementation_go_on(verdict, limit):
    (result, *_) = execute(plan()).results
    relu = "reference", "relu", "default"
    bad = changed(result, verdict=verdict)
    crashes = CrashLimit()
    for place in reversed(range(limit)):  # in any order: those before a place count
        assert crashes.why(limit, *relu) == "", place
        crashes.count(place, [bad])
    assert crashes.why(limit - 1, *relu) == ""
    assert crashes.why(limit, *relu).startswith(f"not run after {limit} ")
    others = [("reference", "tanh", "default"), ("torch", "relu", "default")]
    assert {crashes.why(limit, *of) for of in [*others, ("reference", "relu", "leaky")]} == {""}
    (left,) = crashes.applied(limit, [result, changed(result, output="x")])
    assert (left.finding.verdict, left.finding.name) == (Verdict.NOTRUN, "vjp")
    assert left.finding.worst == ()
    assert [*crashes.applied(limit, [left])] == [left]


def test_a_part_has_the_cases_of_its_shard():
    whole = plan()
    cases = SUITE.cases(["relu"])
    some = replace(whole, cases=cases, shard="2/3")
    assert some.everything == [*shard_of(cases, "2/3")]
    only = frozenset(case.name for case in cases[3:6])
    assert replace(some, only=only).everything == [cases[4]]
