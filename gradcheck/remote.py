"""What a process does that judges for another: it loads a plan once, then cases by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gradcheck.binding import Implementation
from gradcheck.cutoff import Cutoff
from gradcheck.explain.why import Why
from gradcheck.judging import judge_next, why_of
from gradcheck.model import ModelCase
from gradcheck.plan import AnyCase, Plan, point_of
from gradcheck.ready import load_all
from gradcheck.record import Record
from gradcheck.rule import RuleCase
from gradcheck.suite import Case, Suite, load_suite

NOWHERE: Final = Suite("nowhere", "0", ())
"""Stands for a suite that a process is to load for itself: a suite cannot be sent."""

Names = tuple[str, str, str, int]
"""What a case is called: its operator, model or rule; dialect; sample; seed."""

_PLAN: Plan
_CUTOFF: Cutoff
_BINDINGS: Sequence[Implementation]
_WHY: Why


def sent(plan: Plan) -> Plan:
    """What can be sent of a plan: all but its suite and its cases."""
    return replace(plan, suite=NOWHERE, cases=(), models=(), rules=(), only=None, build=False)


def names_of(case: AnyCase) -> Names:
    """By what another process finds a case in the suite that it has loaded."""
    return case.spec.name, case.dialect.name, point_of(case).name, case.seed


def begin(plan: Plan) -> None:
    """Load what was sent of a plan; this process keeps it."""
    global _PLAN, _BINDINGS, _WHY, _CUTOFF  # noqa: PLW0603  what a worker process keeps
    _PLAN = replace(plan, suite=load_suite(plan.suites))
    _WHY, _CUTOFF = why_of(_PLAN), Cutoff()
    _BINDINGS, _ = load_all(_PLAN)


def judge(names: Names) -> list[Record]:
    """One case; what this process alone has seen is enough to leave out the same, or less."""
    return [*_CUTOFF.after(judge_next(_PLAN, _case(*names), _BINDINGS, _WHY, _CUTOFF))]


def _case(name: str, dialect: str, point: str, seed: int) -> AnyCase:
    """The case of the loaded suite that these names mean."""
    suite = _PLAN.suite
    if name in suite.operators:
        spec = suite.operators[name]
        sample = next(s for s in spec.samples if s.name == point)
        return Case(spec, spec.dialect(dialect), sample, seed, suite.home[name])
    if name in suite.rules:
        rule = suite.rules[name]
        steps = next(s for s in rule.samples if s.name == point)
        return RuleCase(rule, rule.dialect(dialect), steps, seed, suite.home[name])
    model = suite.models[name]
    size = next(s for s in model.sizes if s.name == point)
    return ModelCase(model, model.dialect(dialect), size, seed, suite.home[name])
