"""Cases judged by other processes, each of which loads the plan once and finds cases by name."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from gradcheck.errors import LoadError
from gradcheck.explain.case_diagnosis import LazyDiagnoser
from gradcheck.implementations.bound import Implementation
from gradcheck.run.judge_case import hash_of, judge_next, why_of
from gradcheck.run.plan import Plan, load_all
from gradcheck.run.workers.pool import Pool
from gradcheck.run.workers.run_queue import Answer, RunQueue
from gradcheck.run.workers.units import Unit
from gradcheck.spec.case import AnyCase
from gradcheck.spec.loading import load_suite
from gradcheck.spec.suite import Suite

NOWHERE: Final = Suite("nowhere", "0", ())
"""Stands for the suite, which each process loads for itself."""

_PLAN: Plan
_BINDINGS: Sequence[Implementation]
_WHY: LazyDiagnoser


@contextmanager
def working(plan: Plan, cases: Sequence[AnyCase]) -> Iterator[RunQueue]:
    """Judge cases on processes of this machine, until the block ends."""
    queue = RunQueue(plan, cases, plan.jobs)
    own = {*plan.implementations} == {"reference"}
    with Pool(queue, judge, plan.jobs, begin, (sent(plan),), ahead=own):
        yield queue


def sent(plan: Plan) -> Plan:
    """A plan without its suite and its cases, which cannot be sent."""
    return replace(plan, suite=NOWHERE, cases=(), models=(), rules=(), only=None, build=False)


def begin(plan: Plan) -> None:
    """Load a plan that was sent, and keep it in this process.

    Raises:
        LoadError: an implementation or a suite does not load here.
    """
    global _PLAN, _BINDINGS, _WHY  # noqa: PLW0603  what a worker process keeps
    _PLAN = replace(plan, suite=load_suite(plan.suites))
    _WHY = why_of(_PLAN)
    _BINDINGS, troubles = load_all(_PLAN)
    if troubles:
        raise LoadError("; ".join(troubles))


def judge(unit: Unit) -> Answer:
    """Judge a unit; without asks, return the hash of its case."""
    start, left_out = time.perf_counter(), dict(unit.left_out)
    case = _PLAN.suite.case(*unit.names)
    if not unit.asks:
        return Answer(hash=hash_of(case))
    found = judge_next(
        _PLAN, case, _BINDINGS, _WHY, lambda word, *_: left_out.get(word, ""), unit.asks
    )
    return Answer(records=(*found,), seconds=time.perf_counter() - start)
