"""The only loop: every case, every implementation, every dtype; nothing already known is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

import gradcheck
from gradcheck.explain.lazy_diagnosis import LazyDiagnoser
from gradcheck.implementations.bound import Implementation
from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Header, Run, digest_of
from gradcheck.run.crash_limit import CrashLimit
from gradcheck.run.judge_case import judge_next, not_reached, why_of
from gradcheck.run.loaded_plan import LoadedPlan, loaded
from gradcheck.run.plan import AnyCase, Plan
from gradcheck.run.time_limit import TimeLimit, TimeUp
from gradcheck.run.workers.task_queue import Died

if TYPE_CHECKING:
    from gradcheck.run.workers import executor


class Progress(Protocol):
    """Is told how far a run is, of how many cases."""

    def __call__(self, done: int, total: int, name: str, took: float | None = None, /) -> None:
        """So many are done, and that of this name begins; or, it `took` so long elsewhere.

        The unit is seconds in which nothing else was done: those of a worker by their number.
        """


class Witness(Protocol):
    """Is told of a run as it goes; `Run` says the same again at its end."""

    def begins(self, header: Header) -> None:
        """Before the first case; the header does not know the hash of the cases."""

    def sees(self, results: Sequence[CaseResult]) -> str:
        """What came of one case; returns why the run is to stop now, or nothing."""


def execute(
    plan: Plan,
    progress: Progress | None = None,
    witness: Witness | None = None,
    ended: Callable[[LoadedPlan, Run], Run] | None = None,
) -> Run:
    """Judge everything in the plan; `ended` has the last word while the code is still loaded.

    An implementation that does not load is a trouble, not the end: the others are judged.
    Interrupted (Ctrl-C), the run returns what it has, marked incomplete; so it does when the time
    of the plan is up, and what it has not reached is NOTRUN.

    Raises:
        UnknownNameError: a word names no implementation.
        LoadError: none of the implementations can be loaded.
        ManifestError: a manifest that yields nonsense for one of the cases.
    """
    with TimeLimit(plan.max_time) as limit, ExitStack() as stack:
        try:
            ready = stack.enter_context(limit.entered(loaded(plan)))
        except TimeUp:
            ready = LoadedPlan(plan, (), ())
        found = executed(ready, progress, witness, limit)
        return found if ended is None else ended(ready, found)


def executed(
    ready: LoadedPlan,
    progress: Progress | None = None,
    witness: Witness | None = None,
    limit: TimeLimit | None = None,
) -> Run:
    """Judge everything in a plan that is loaded; a witness sees it as it goes, and may end it.

    So may the `limit`, whose clock runs already (None: there is none).
    """
    plan, troubles, limit = ready.plan, [*ready.troubles], limit or TimeLimit(None)
    cases, header = plan.everything, header_of(plan, ready.bindings)
    found: dict[int, list[CaseResult]] = {}
    cutoff, stopped, late = CrashLimit(), "", False
    if witness is not None:
        witness.begins(header)
    try:
        with limit.entered(_judging(ready, cases, cutoff, progress or _silent)) as judging:
            try:
                for place in range(len(cases)):
                    records = found[place] = []
                    try:
                        with limit.breaking():
                            records.extend(cutoff.applied(judging.judged(place)))
                    finally:  # Ctrl-C within a case: what is known of it is kept
                        stopped = witness.sees(records) if witness is not None else ""
                    cutoff.sees(records)
                    if stopped:
                        break
            except (KeyboardInterrupt, Died):
                for place, results in judging.finished().items():
                    found[place] = found.get(place) or [*cutoff.after(results)]
                raise
    except TimeUp:
        stopped, late = limit.why, True
    except KeyboardInterrupt:
        stopped = "interrupted"
    except Died as error:
        stopped = str(error)
        troubles.append(f"{error}; {error.advice}")
    else:
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
    )


def _not_reached(why: str, reached: int, planned: int) -> str:
    """Why a run ended early, and how much of it there would have been."""
    if reached == planned:
        return why
    return f"{why}; not reached: {planned - reached:,} of {planned:,} cases"


def header_of(plan: Plan, bindings: Sequence[Implementation]) -> Header:
    """What is known of a run before it begins: all but the hash of its cases."""
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
    """Every dtype in which something is judged."""
    some = plan.dtypes if plan.cases or plan.rules or not plan.models else ()
    return list(dict.fromkeys([*(plan.model_dtypes if plan.models else ()), *some]))


def _silent(*_: object) -> None:
    """Nobody wants to know how far it is."""


@dataclass(frozen=True, slots=True)
class _Here:
    """Cases that are judged in this process, record by record: Ctrl-C leaves what is known."""

    plan: Plan
    bindings: Sequence[Implementation]
    cases: Sequence[AnyCase]
    cutoff: CrashLimit
    progress: Progress
    why: LazyDiagnoser

    def judged(self, place: int) -> Iterable[CaseResult]:
        """Judge the case at a place."""
        case = self.cases[place]
        self.progress(place, len(self.cases), case.name)
        return judge_next(self.plan, case, self.bindings, self.why, self.cutoff.why)

    def finished(self) -> dict[int, list[CaseResult]]:
        """What is judged already and was not asked for: nothing."""
        return {}


@dataclass(slots=True)
class _Elsewhere:
    """Cases that are judged in other processes, all of them under way at once."""

    work: executor.Working
    cases: Sequence[AnyCase]
    progress: Progress
    done: int = 0

    def judged(self, place: int) -> Iterable[CaseResult]:
        """Wait for the case at a place."""
        if not place:
            self.progress(0, len(self.cases), self.cases[0].name)
        for arrived in self.work.until(place):
            self.done += 1
            name = self.cases[arrived.place].name
            self.progress(self.done, len(self.cases), name, arrived.seconds / self.work.slots)
        return self.work.result(place)

    def finished(self) -> dict[int, list[CaseResult]]:
        """What is judged already, of all places."""
        return self.work.finished()


@contextmanager
def _judging(
    ready: LoadedPlan, cases: Sequence[AnyCase], cutoff: CrashLimit, progress: Progress
) -> Iterator[_Here | _Elsewhere]:
    """What judges the case at a place, here or in other processes."""
    plan = ready.plan
    if plan.jobs == 1 and plan.executor == "local":
        yield _Here(plan, ready.bindings, cases, cutoff, progress, why_of(plan))
        return
    from gradcheck.run.workers import executor  # deferred: what it takes to have other processes

    able = replace(plan, implementations=[binding.name for binding in ready.bindings])
    with executor.working(able, cases) as work:
        yield _Elsewhere(work, cases, progress)
