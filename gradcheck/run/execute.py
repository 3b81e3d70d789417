"""The loop of a run: every case, implementation and dtype; an interrupted run keeps its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

import gradcheck
from gradcheck.explain.case_diagnosis import LazyDiagnoser
from gradcheck.implementations.bound import Implementation
from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import BY_BUDGET, Header, Run, Timing, digest_of
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import plural
from gradcheck.run.judge_case import judge_next, not_reached, why_of
from gradcheck.run.limits import CrashLimit, TimeLimit, TimeUp
from gradcheck.run.plan import LoadedPlan, Plan, loaded
from gradcheck.run.telling import most_telling
from gradcheck.run.workers import WorkersLostError
from gradcheck.spec.case import AnyCase

if TYPE_CHECKING:
    from gradcheck.run.workers.run_queue import RunQueue


class Progress(Protocol):
    """Shows how far a run is."""

    def __call__(self, done: int, total: int, name: str, took: float | None = None, /) -> None:
        """A case of that name begins after `done` others, or, with `took`, ended elsewhere.

        `took` is its share of the elapsed time: a worker's seconds over the number of workers.
        """


class Observer(Protocol):
    """Observes a run as it goes."""

    def begins(self, header: Header) -> None:
        """Take the header before the first case; it lacks the hash of the cases."""

    def sees(self, results: Sequence[CaseResult]) -> str:
        """Take the results of one case; returns why the run must stop now, or nothing."""


def execute(
    plan: Plan,
    progress: Progress | None = None,
    observer: Observer | None = None,
    ended: Callable[[LoadedPlan, Run], Run] | None = None,
) -> Run:
    """Judge everything in a plan.

    An implementation that does not load is a trouble of the run; the others are judged. After
    Ctrl-C the run has the results so far, marked incomplete. When the plan's time is up, the
    remaining cases are NOTRUN. When its budget is spent, they are SKIP, or NOTRUN where nothing of
    their dialect was judged; with a budget, the most telling cases come first.

    Args:
        plan: what is judged, and how.
        progress: shows how far the run is.
        observer: observes the run, and may stop it.
        ended: completes the run while the implementations are still loaded.

    Raises:
        UnknownNameError: a word names no implementation.
        LoadError: none of the implementations loads.
        ManifestError: a manifest is wrong for one of the cases.
    """
    with TimeLimit(plan.max_time, plan.budget) as limit, ExitStack() as stack:
        try:
            ready = stack.enter_context(limit.entered(loaded(plan)))
        except TimeUp:
            ready = LoadedPlan(plan, (), ())
        found = executed(ready, progress, observer, limit)
        return found if ended is None else ended(ready, found)


def executed(
    ready: LoadedPlan,
    progress: Progress | None = None,
    observer: Observer | None = None,
    limit: TimeLimit | None = None,
) -> Run:
    """Judge everything in a loaded plan; the clock of `limit` runs already."""
    plan, troubles, limit = ready.plan, [*ready.troubles], limit or TimeLimit(None)
    began, seconds = time.monotonic(), dict[str, float]()
    cases, header = plan.everything, header_of(plan, ready.bindings)
    if plan.budget is not None:
        cases = most_telling(plan.suite, cases)
    limit.judging()
    found: dict[int, list[CaseResult]] = {}
    records: list[CaseResult]
    crashes, stopped, late = CrashLimit(), "", False
    if observer is not None:
        observer.begins(header)
    try:
        with limit.entered(_judging(ready, cases, crashes, progress or _silent)) as judging:
            try:
                for place in range(len(cases)):
                    if limit.spent:
                        found |= _finished(judging, crashes, found)
                        break
                    records, start = [], time.monotonic()
                    found[place] = records
                    try:
                        with limit.breaking():
                            records.extend(crashes.applied(place, judging.judged(place)))
                    finally:  # Ctrl-C within a case keeps its results so far
                        stopped = observer.sees(records) if observer is not None else ""
                    waited = time.monotonic() - start
                    seconds[cases[place].name] = judging.seconds(place, waited)
                    crashes.count(place, records)
                    if stopped:
                        break
            except (KeyboardInterrupt, WorkersLostError):
                found |= _finished(judging, crashes, found)
                raise
    except TimeUp:
        stopped, late = limit.why, True
    except KeyboardInterrupt:
        stopped = "interrupted"
    except WorkersLostError as error:
        stopped = str(error)
        troubles.append(f"{error}; {error.advice}")
    else:
        if limit.spent and not stopped:
            _leave_out(plan, ready, cases, found)
        stopped = stopped if len(found) < len(cases) else ""
    reached = sum(map(bool, found.values()))
    if late:
        words = [binding.name for binding in ready.bindings] or plan.implementations
        for place, case in enumerate(cases):
            known = found.setdefault(place, [])
            known += not_reached(plan, case, words, known, stopped)
    results = [record for place in sorted(found) for record in found[place]]
    ordered = sorted(results, key=lambda r: plan.implementations.index(r.case.implementation))
    return Run(
        header=replace(header, cases=digest_of(ordered)),
        results=tuple(ordered),
        complete=not stopped,
        stopped=_not_reached(stopped, reached, len(cases)) if stopped else "",
        troubles=tuple(troubles),
        timing=Timing(seconds=time.monotonic() - began, cases=seconds),
    )


def _finished(
    judging: _Local | _Remote, crashes: CrashLimit, found: Mapping[int, list[CaseResult]]
) -> dict[int, list[CaseResult]]:
    """By place, the results of cases that were judged ahead of their turn."""
    ahead = judging.finished().items()
    return {p: found.get(p) or [*crashes.counted(p, results)] for p, results in ahead}


def _leave_out(
    plan: Plan,
    ready: LoadedPlan,
    cases: Sequence[AnyCase],
    found: dict[int, list[CaseResult]],
) -> None:
    """Add a result for each case that a budget leaves out: SKIP, or NOTRUN of what nobody saw.

    A dialect of which an implementation was judged in one case at least is known in part.
    """
    judged = {
        (r.case.implementation, r.case.kind, r.case.op, r.case.dialect, r.case.dtype)
        for results in found.values()
        for r in results
        if r.finding.verdict not in (Verdict.SKIP, Verdict.NOTRUN)
    }
    for place, case in enumerate(cases):
        known = found.setdefault(place, [])
        for left in not_reached(plan, case, [b.name for b in ready.bindings], known, ""):
            of = left.case
            seen = (of.implementation, of.kind, of.op, of.dialect, of.dtype) in judged
            verdict, reason = Verdict.SKIP, f"{BY_BUDGET} {plan.budget:g}"
            if not seen:
                verdict = Verdict.NOTRUN
                reason = f"--budget {plan.budget:g} was spent before any case of it"
            finding = replace(left.finding, verdict=verdict, reason=reason)
            known.append(replace(left, finding=finding))


def _not_reached(why: str, reached: int, planned: int) -> str:
    """Why a run ended early, with the number of cases that it did not reach."""
    if reached == planned:
        return why
    return f"{why}; not reached: {planned - reached:,} of {plural(planned, 'case')}"


def header_of(plan: Plan, bindings: Sequence[Implementation]) -> Header:
    """The header of a run before its first case, without the hash of the cases."""
    return Header(
        version=gradcheck.__version__,
        suite=plan.suite.name,
        suite_version=plan.suite.version,
        implementations=tuple(plan.implementations),
        dtypes=tuple(_dtypes(plan)),
        seed=plan.seed,
        numpy=np.__version__,
        versions={b.name: said for b in bindings if (said := getattr(b, "version", ""))},
        shard=plan.shard,
        require=tuple(plan.require),
    )


def _dtypes(plan: Plan) -> list[str]:
    """Every dtype in which a case is judged."""
    some = plan.dtypes if plan.cases or plan.rules or not plan.models else ()
    return list(dict.fromkeys([*(plan.model_dtypes if plan.models else ()), *some]))


def _silent(*_: object) -> None:
    """Progress that shows nothing."""


@dataclass(frozen=True, slots=True)
class _Local:
    """Judges cases in this process, result by result."""

    plan: Plan
    bindings: Sequence[Implementation]
    cases: Sequence[AnyCase]
    crashes: CrashLimit
    progress: Progress
    why: LazyDiagnoser

    def judged(self, place: int) -> Iterable[CaseResult]:
        """Judge the case at a place."""
        case = self.cases[place]
        self.progress(place, len(self.cases), case.name)
        left_out = partial(self.crashes.why, place)
        return judge_next(self.plan, case, self.bindings, self.why, left_out)

    def seconds(self, place: int, waited: float) -> float:
        """How long the case at a place took: this process waited for it."""
        return waited

    def finished(self) -> dict[int, list[CaseResult]]:
        """Results of cases that were judged ahead: none."""
        return {}


@dataclass(slots=True)
class _Remote:
    """Takes cases from other processes, which judge all of them at once."""

    work: RunQueue
    cases: Sequence[AnyCase]
    progress: Progress
    done: int = 0
    _took: dict[int, float] = field(default_factory=dict)

    def judged(self, place: int) -> Iterable[CaseResult]:
        """Wait for the case at a place."""
        if not place:
            self.progress(0, len(self.cases), self.cases[0].name)
        for arrived in self.work.until(place):
            self.done += 1
            self._took[arrived.place] = arrived.seconds
            name = self.cases[arrived.place].name
            self.progress(self.done, len(self.cases), name, arrived.seconds / self.work.slots)
        return self.work.result(place)

    def seconds(self, place: int, waited: float) -> float:
        """How long the case at a place took, where it was judged."""
        return self._took.get(place, waited)

    def finished(self) -> dict[int, list[CaseResult]]:
        """Results of cases that were judged ahead, by place."""
        return self.work.finished()


@contextmanager
def _judging(
    ready: LoadedPlan, cases: Sequence[AnyCase], crashes: CrashLimit, progress: Progress
) -> Iterator[_Local | _Remote]:
    """Judge cases in this process or in others."""
    plan = ready.plan
    if plan.jobs == 1 and plan.executor == "local":
        yield _Local(plan, ready.bindings, cases, crashes, progress, why_of(plan))
        return
    if plan.executor == "dask":
        from gradcheck.run.cluster.client import working  # door: an extra
    else:
        from gradcheck.run.workers.remote import working  # door: worker processes

    able = replace(plan, implementations=[binding.name for binding in ready.bindings])
    with working(able, cases) as work:
        yield _Remote(work, cases, progress)
