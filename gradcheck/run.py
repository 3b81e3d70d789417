"""The only loop: every case, every implementation, every dtype; nothing already known is lost."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

import gradcheck
from gradcheck import pool
from gradcheck.binding import Binding, Implementation
from gradcheck.binding.load import load
from gradcheck.errors import GradcheckError, LoadError
from gradcheck.finding import Finding
from gradcheck.judge.operator import CaseTruth, Unsuitable, certified, judge_case
from gradcheck.record import Header, Record, Run
from gradcheck.selection import LOW
from gradcheck.suite import Case, Suite, load_suite
from gradcheck.verdict import Verdict

Progress = Callable[[int, int, str], None]
NOWHERE: Final = Suite("nowhere", "0", ())
"""Stands for a suite that a process is to load for itself: a suite cannot be sent."""
FAULTS: Final = (Exception, SystemExit)
"""What a suite may raise; the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to judge: cases of a suite, implementations by their `--impl` words, dtypes.

    `suites` are the `--suite` references, repeated in repro lines. `convention` names the system
    whose choices on kinks are the only ones allowed (empty: any subgradient). More than one of
    `jobs` needs a suite that another process can load: an installed one, or one of `suites`.
    """

    suite: Suite
    cases: Sequence[Case]
    implementations: Sequence[str]
    dtypes: Sequence[str]
    seed: int
    suites: Sequence[str] = ()
    convention: str = ""
    jobs: int = 1


def execute(plan: Plan, progress: Progress | None = None) -> Run:
    """Judge everything in the plan.

    An implementation that does not load is a trouble, not the end: the others are judged.
    Interrupted (Ctrl-C), the run returns what it has, marked incomplete.

    Raises:
        UnknownNameError: a word names no implementation.
        LoadError: none of the implementations can be loaded.
    """
    bindings, troubles = _load_all(plan)
    results: list[Record] = []
    complete = True
    digest = hashlib.blake2b(digest_size=4)
    try:
        with closing(_judged(plan, bindings)) as judged:
            for done, case in enumerate(plan.cases):
                if progress is not None:
                    progress(done, len(plan.cases), case.name)
                results.extend(next(judged))
                digest.update(f"{case.name}#{results[-1].hash}".encode() if results else b"")
    except KeyboardInterrupt:
        complete = False
    except pool.Died as error:
        complete = False
        troubles.append(f"{error}; run again with -j 1 to see where")
    header = Header(
        version=gradcheck.__version__,
        suite=plan.suite.name,
        suite_version=plan.suite.version,
        cases=digest.hexdigest(),
        implementations=tuple(plan.implementations),
        dtypes=tuple(plan.dtypes),
        seed=plan.seed,
        numpy=np.__version__,
    )
    ordered = sorted(results, key=lambda r: plan.implementations.index(r.implementation))
    return Run(header=header, results=tuple(ordered), complete=complete, troubles=tuple(troubles))


def judge(plan: Plan, case: Case, binding: Binding) -> list[Record]:
    """The records of one case and one implementation, for callers with a loop of their own."""
    return list(_judge(plan, case, [binding]))


def _judged(plan: Plan, bindings: Sequence[Binding]) -> Generator[Iterable[Record]]:
    """The records of each case, in order; from other processes, if several jobs are asked for."""
    if plan.jobs == 1:
        for case in plan.cases:
            yield _judge(plan, case, bindings)  # lazy: what is known is kept on Ctrl-C
        return
    remote = replace(plan, suite=NOWHERE, cases=())
    names = [(c.spec.name, c.dialect.name, c.sample.name, c.seed) for c in plan.cases]
    yield from pool.each(_judge_there, names, plan.jobs, _begin_there, (remote,))


_PLAN: Plan
_BINDINGS: Sequence[Implementation]


def _begin_there(plan: Plan) -> None:
    global _PLAN, _BINDINGS  # noqa: PLW0603  what a worker process keeps
    _PLAN = replace(plan, suite=load_suite(plan.suites))
    _BINDINGS, _ = _load_all(_PLAN)


def _judge_there(names: tuple[str, str, str, int]) -> list[Record]:
    op, dialect, sample, seed = names
    suite = _PLAN.suite
    spec = suite.operators[op]
    found = next(s for s in spec.samples if s.name == sample)
    case = Case(spec, spec.dialect(dialect), found, seed, suite.home[op])
    return list(_judge(_PLAN, case, _BINDINGS))


def _load_all(plan: Plan) -> tuple[list[Implementation], list[str]]:
    bindings: list[Implementation] = []
    troubles: list[str] = []
    first: LoadError | None = None
    for word in plan.implementations:
        try:
            bindings.append(load(word, plan.suite))
        except LoadError as error:
            troubles.append(str(error))
            first = first or error
    if first is not None and not bindings:
        raise first
    return bindings, troubles


def _judge(plan: Plan, case: Case, bindings: Sequence[Binding]) -> Iterator[Record]:
    fingerprint = ""
    try:
        fingerprint = case.fingerprint
        truths = _truths(plan, case)
        trouble = ""
    except FAULTS as error:  # a case at fault is a verdict
        truths, trouble = {}, _describe(error)
    for binding in bindings:
        for dtype in plan.dtypes:
            for finding in _findings(truths.get(dtype), trouble, binding, dtype):
                yield _record(plan, case, fingerprint, binding.name, dtype, finding)


def _truths(plan: Plan, case: Case) -> dict[str, CaseTruth | Finding]:
    """What is true in each dtype, or why the case cannot be put in it."""
    truths: dict[str, CaseTruth | Finding] = {}
    exact: CaseTruth | None = None
    for dtype in plan.dtypes:
        if dtype in LOW:
            try:
                truths[dtype] = CaseTruth.in_low(case, plan.convention, dtype)
            except Unsuitable as reason:
                truths[dtype] = Finding(name="vjp", verdict=Verdict.SKIP, reason=str(reason))
        else:
            truths[dtype] = exact = exact or CaseTruth(case, plan.convention)
    return truths


def _findings(
    truth: CaseTruth | Finding | None, trouble: str, binding: Binding, dtype: str
) -> list[Finding]:
    if isinstance(truth, Finding):
        return [truth]
    if truth is not None:
        try:
            return certified(truth, judge_case(truth, binding, dtype), dtype)
        except FAULTS as error:
            trouble = _describe(error)
    return [Finding(name="vjp", verdict=Verdict.INVALID, reason=trouble)]


def _describe(error: BaseException) -> str:
    if isinstance(error, GradcheckError):
        return str(error)
    return f"the case itself raised {type(error).__name__}: {' '.join(str(error).split())}"


def _record(
    plan: Plan, case: Case, fingerprint: str, implementation: str, dtype: str, finding: Finding
) -> Record:
    words = ["gradcheck", "run"]
    for reference in plan.suites:
        words += _flag("--suite", reference)
    words += ["--op", case.spec.name, "--dialect", case.dialect.name]
    words += ["--sample", case.sample.name, "--dtype", dtype]
    if implementation != "reference":
        words += _flag("--impl", implementation)
    if plan.convention:
        words += _flag("--convention", plan.convention)
    if plan.seed:
        words += ["--seed", str(plan.seed)]
    return Record(
        name=f"{case.name}/{dtype}",
        hash=fingerprint,
        implementation=implementation,
        op=case.spec.name,
        dialect=case.dialect.name,
        sample=case.sample.name,
        dtype=dtype,
        output=finding.name,
        verdict=finding.verdict,
        seed=plan.seed,
        repro=shlex.join(words),
        hunts=case.sample.hunts,
        reason=finding.reason,
        compared=finding.compared,
        failed=finding.failed,
        unresolved=finding.unresolved,
        kinked=finding.kinked,
        smallest_visible_error=finding.smallest_visible_error,
        oracle=finding.oracle,
        conventions=finding.conventions,
        certificate=finding.certificate,
        worst=finding.worst,
        part=finding.part,
        evaluations=finding.evaluations,
        taylor=finding.taylor,
        blames=finding.blames,
    )


def _flag(flag: str, value: str) -> list[str]:
    """A flag and its value; a value that looks like a flag needs an equals sign."""
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]
