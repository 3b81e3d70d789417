"""The only loop: every case, every implementation, every dtype; nothing already known is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np

import gradcheck
from gradcheck import executor, pool
from gradcheck.binding import Implementation
from gradcheck.cutoff import Cutoff
from gradcheck.judging import judge_next, why_of
from gradcheck.plan import AnyCase, Plan
from gradcheck.ready import Ready, loaded
from gradcheck.record import Header, Record, Run, digest_of

Progress = Callable[[int, int, str], None]
Judging = tuple[Callable[[int], Iterable[Record]], Callable[[], dict[int, list[Record]]]]
"""Judges the case at a place; says what is judged already, of all places."""


class Witness(Protocol):
    """Is told of a run as it goes; `Run` says the same again at its end."""

    def begins(self, header: Header) -> None:
        """Before the first case; the header does not know the hash of the cases."""

    def sees(self, results: Sequence[Record]) -> str:
        """What came of one case; returns why the run is to stop now, or nothing."""


def execute(plan: Plan, progress: Progress | None = None, witness: Witness | None = None) -> Run:
    """Judge everything in the plan.

    An implementation that does not load is a trouble, not the end: the others are judged.
    Interrupted (Ctrl-C), the run returns what it has, marked incomplete.

    Raises:
        UnknownNameError: a word names no implementation.
        LoadError: none of the implementations can be loaded.
        ManifestError: a manifest that yields nonsense for one of the cases.
    """
    with loaded(plan) as ready:
        return executed(ready, progress, witness)


def executed(ready: Ready, progress: Progress | None = None, witness: Witness | None = None) -> Run:
    """Judge everything in a plan that is loaded; a witness sees it as it goes, and may end it."""
    plan, troubles = ready.plan, [*ready.troubles]
    cases, header = plan.everything, header_of(plan, ready.bindings)
    found: dict[int, list[Record]] = {}
    cutoff, stopped = Cutoff(), ""
    if witness is not None:
        witness.begins(header)
    try:
        with _judging(plan, ready.bindings, cases, cutoff) as (judged, finished):
            try:
                for place, case in enumerate(cases):
                    if progress is not None:
                        progress(place, len(cases), case.name)
                    records = found[place] = []
                    try:
                        records.extend(cutoff.applied(judged(place)))
                    finally:  # Ctrl-C within a case: what is known of it is kept
                        stopped = witness.sees(records) if witness is not None else ""
                    cutoff.sees(records)
                    if stopped:
                        break
            except (KeyboardInterrupt, pool.Died):
                for place, results in finished().items():
                    found[place] = found.get(place) or [*cutoff.after(results)]
                raise
    except KeyboardInterrupt:
        stopped = "interrupted"
    except pool.Died as error:
        stopped = str(error)
        troubles.append(f"{error}; run again with -j 1 to see where")
    else:
        stopped = stopped if len(found) < len(cases) else ""
    results = [record for place in sorted(found) for record in found[place]]
    ordered = sorted(results, key=lambda r: plan.implementations.index(r.implementation))
    reached = sum(map(bool, found.values()))
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
    )


def _dtypes(plan: Plan) -> list[str]:
    """Every dtype in which something is judged."""
    some = plan.dtypes if plan.cases or plan.rules or not plan.models else ()
    return list(dict.fromkeys([*(plan.model_dtypes if plan.models else ()), *some]))


@contextmanager
def _judging(
    plan: Plan, bindings: Sequence[Implementation], cases: Sequence[AnyCase], cutoff: Cutoff
) -> Iterator[Judging]:
    """What judges the case at a place, here or in another process, and what is judged already.

    Here it is judged record by record, so that Ctrl-C leaves what is known; there all are under
    way at once.
    """
    if plan.jobs == 1:
        why = why_of(plan)
        yield lambda place: judge_next(plan, cases[place], bindings, why, cutoff), dict
        return
    with executor.working(plan, cases) as work:
        yield work.result, work.finished
