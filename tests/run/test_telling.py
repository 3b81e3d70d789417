"""A run with a budget begins with what tells most, and says what it has left out."""

from collections import Counter
from types import SimpleNamespace

import gradcheck_cases
import pytest

from gradcheck import Suite, Verdict
from gradcheck.run.execute import execute
from gradcheck.run.limits import TimeLimit
from gradcheck.run.plan import Plan
from gradcheck.run.telling import most_telling
from gradcheck.spec.mutant import KnownMutants

SUITE = gradcheck_cases.SUITE
OPS = ("rms_norm", "relu", "softmax")
"""Five dialects, of several samples each."""


def plan(**changes):
    settings = {"implementations": ["reference"], "dtypes": ["float64"], "seed": 0, "budget": 60.0}
    return Plan(suite=SUITE, cases=SUITE.cases(OPS), **{**settings, **changes})


@pytest.fixture
def spent_after(monkeypatch):
    """Let the budget be spent after some cases, whatever the clock says."""

    def after(count):
        asked = iter(range(10**6))
        monkeypatch.setattr(TimeLimit, "spent", property(lambda _: next(asked) >= count))

    return after


def test_typical_samples_come_first_and_then_what_rejects_most():
    cases = SUITE.cases(OPS)
    ordered = most_telling(SUITE, cases)
    assert sorted(c.name for c in ordered) == sorted(c.name for c in cases)
    dialects = [*dict.fromkeys((c.spec.name, c.dialect.name) for c in cases)]
    first, second = ordered[:5], ordered[5:10]
    for turn in (first, second):
        assert [(c.spec.name, c.dialect.name) for c in turn] == dialects
    assert {c.sample.name for c in first} == {"typical"}
    kills = Counter((m.op, m.killer) for op in OPS for m in KnownMutants(SUITE)[op])
    for case in second:
        others = [c for c in cases if (c.spec, c.dialect) == (case.spec, case.dialect)]
        most = max(kills[c.spec.name, c.sample.name] for c in others if c.sample.name != "typical")
        assert kills[case.spec.name, case.sample.name] == most > 0


def test_a_suite_without_mutants_keeps_its_order_in_each_round():
    bare = Suite("bare", "1", [SUITE.operators[op] for op in OPS], mutants="no_such:TABLE")
    names = [c.sample.name for c in most_telling(bare, bare.cases(["relu"]))]
    kink = next(c.sample.name for c in bare.cases(["relu"]) if c.sample.at_kink)
    assert names == [c.sample.name for c in bare.cases(["relu"])]
    assert names[0] != kink


def verdicts(run):
    return Counter(r.finding.verdict for r in run.results)


def test_what_a_budget_leaves_out_is_skipped_and_the_gate_is_open(spent_after):
    spent_after(5)
    run = execute(plan())
    assert (run.complete, run.passed) == (True, True)
    assert {r.case.sample for r in run.results if r.finding.verdict is Verdict.PASS} == {"typical"}
    left = [r for r in run.results if r.finding.verdict is Verdict.SKIP]
    assert len({r.case.name for r in left}) == len(left) == len(SUITE.cases(OPS)) - 5
    assert {r.finding.reason for r in left} == {"left out by --budget 60"}
    assert left[0].repro.startswith("gradcheck repro ")
    assert f"skip={len(left)}" in run.summary


def test_what_nobody_has_seen_closes_the_gate(spent_after):
    spent_after(3)
    run = execute(plan())
    lost = [r for r in run.results if r.finding.verdict is Verdict.NOTRUN]
    assert {(r.case.op, r.case.dialect) for r in lost} == {
        ("relu", "default"),
        ("softmax", "default"),
    }
    assert {r.finding.reason for r in lost} == {"--budget 60 was spent before any case of it"}
    assert (run.complete, run.passed, run.footer.counts["skip"] > 0) == (True, False, True)
    spent_after(0)
    assert {*verdicts(execute(plan()))} == {Verdict.NOTRUN}


@pytest.mark.slow
def test_workers_take_the_cases_in_that_order(spent_after):
    spent_after(5)
    settings = {"suites": ["gradcheck_cases:SUITE"], "jobs": 2}
    run = execute(plan(**settings))
    assert [r.case.name for r in run.results if r.finding.name in ("x", "vjp")][:5] == [
        f"{c.name}/float64" for c in most_telling(SUITE, SUITE.cases(OPS))[:5]
    ]
    assert {*verdicts(run)} == {Verdict.PASS, Verdict.SKIP}
    assert len({r.case.name for r in run.results}) == len(SUITE.cases(OPS))


@pytest.mark.slow
def test_a_budget_that_suffices_changes_nothing_but_the_order():
    whole, asked = execute(plan(budget=None)), execute(plan())
    assert {r.key: r for r in whole.results} == {r.key: r for r in asked.results}
    assert [r.key for r in whole.results] != [r.key for r in asked.results]
    assert execute(plan()).results == asked.results


def test_the_budget_runs_from_the_first_case(monkeypatch):
    now = SimpleNamespace(value=100.0)
    monkeypatch.setattr("gradcheck.run.limits.time", SimpleNamespace(monotonic=lambda: now.value))
    limit, endless = TimeLimit(None, 2.0), TimeLimit(None)
    now.value = 103.0  # it takes its time to load
    limit.judging()
    endless.judging()
    assert not limit.spent
    now.value = 105.0
    assert (limit.spent, limit.over, endless.spent) == (True, False, False)
