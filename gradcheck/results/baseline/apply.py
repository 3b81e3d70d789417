"""A run held against a baseline: what is known, and each line that closes the gate."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from gradcheck.results.baseline.entry import Baseline, Entry
from gradcheck.results.baseline.match import (
    Found,
    Scope,
    largest,
    matched,
    measured,
    part_of,
    within,
)
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Part
from gradcheck.results.run import Run
from gradcheck.results.verdict import Breach, Expected, Gate, Known, Problem, Verdict
from gradcheck.results.words import clean, number, plural, title
from gradcheck.results.words import word as shown
from gradcheck.spec.defect import UNKNOWN

MANY: Final = 20
"""Cases above which an entry hides more than anybody looks at."""
NAMED: Final = 3
"""Results that a line names."""
BEYOND: Final = (Verdict.INVALID, Verdict.NOTRUN)
"""What no entry can excuse."""


def applied(run: Run, baseline: Baseline, scope: Scope, day: date) -> Run:
    """The run with what the baseline makes of it; verdicts stay as they are.

    Args:
        run: what was judged.
        baseline: what is known.
        scope: which cases there are, and which of them the run reached.
        day: the day it is.
    """
    found = matched(run, baseline)
    judged = _judged(run, baseline, found)
    unneeded = list(_unneeded(found, baseline, scope))
    over = _over(found, baseline, day, {problem.line for problem in unneeded})
    problems = [*judged.problems(), *unneeded, *over]
    problems.sort(key=lambda problem: (problem.line is None, problem.line or 0))
    gate = Gate(
        baseline=baseline.name,
        digest=baseline.digest,
        results=judged.results,
        problems=tuple(problems),
        warnings=(*_older(run, baseline), *_broad(found, baseline)),
    )
    return replace(run, gate=gate)


def accepted(run: Run, baseline: Baseline) -> Run:
    """The run with what the baseline makes of its results, and nothing of what it lacks.

    For a part of a run, with whole cases in it: which entries excuse nothing can be said only of
    the whole, and so what one says of a pass that compared nothing.
    """
    judged = _judged(run, baseline, matched(run, baseline))
    gate = Gate(baseline=baseline.name, digest=baseline.digest, results=judged.results)
    return replace(run, gate=gate)


def _judged(run: Run, baseline: Baseline, found: Sequence[Found]) -> _Judged:
    entries: dict[tuple[str, ...], list[Entry]] = {}
    for one in found:
        for result in one.results:
            entries.setdefault(result.key, []).append(one.entry)
    judged = _Judged(baseline)
    for result in run.results:
        judged.judge(result, entries.get(result.key, []))
    return judged


def breach_of(entry: Entry, result: CaseResult) -> Breach | None:
    """Why an entry does not excuse a result that it is about; None: it does."""
    if not result.finding.verdict.checked:
        return Breach.UNSUPPORTED
    if result.finding.verdict is Verdict.PASS:
        return None if entry.flaky else Breach.XPASS
    if not entry.flaky and result.finding.verdict.value != entry.verdict:
        return Breach.VERDICT
    if entry.label and result.finding.defect != entry.label:
        return Breach.CLASS
    return None if within(measured(result), entry.max_error) else Breach.WORSE


class _Judged:
    """What becomes of each result; what is wrong is collected by entry."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.results: dict[tuple[str, ...], Expected] = {}
        self.breaches: dict[tuple[Entry, Breach], list[CaseResult]] = {}
        self.unlisted: list[CaseResult] = []

    def judge(self, result: CaseResult, entries: Sequence[Entry]) -> None:
        if result.finding.verdict in BEYOND:
            return
        if not entries:
            if not result.finding.verdict.expected:
                self.unlisted.append(result)
            return
        first = next((e for e in entries if breach_of(e, result) is None), entries[0])
        breach = breach_of(first, result)
        known = Known.XPASS if breach is Breach.XPASS else None
        if breach is None and result.finding.verdict is not Verdict.PASS:
            known = Known.XFAIL
        self.results[result.key] = Expected(
            accepted=breach is None,
            known=known,
            entry=self.baseline.where(first),
            reason=first.reason,
            link=first.link,
        )
        if breach is not None:
            self.breaches.setdefault((first, breach), []).append(result)

    def problems(self) -> Iterator[Problem]:
        """A line per entry and thing that is wrong with it, and one for what is not listed."""
        for (entry, breach), results in self.breaches.items():
            says = _says(entry, breach, results)
            yield Problem(breach=breach, file=self.baseline.name, line=entry.line, says=says)
        if self.unlisted:
            name, them = self.baseline.name, "them" if len(self.unlisted) > 1 else "it"
            says = (
                f"{_those(self.unlisted)}: fix {them}, or list {them} "
                f"(`gradcheck baseline update {name}`)"
            )
            yield Problem(breach=Breach.UNLISTED, file=name, line=None, says=says)


def _says(entry: Entry, breach: Breach, results: Sequence[CaseResult]) -> str:
    """What is wrong between an entry and results that it does not excuse, and what to change."""
    those, several = _those(results), len(results) > 1
    be = "are" if several else "is"
    if breach is Breach.XPASS:
        return (
            f"{those} {'pass' if several else 'passes'} now: remove the entry, or narrow its match"
        )
    if breach is Breach.UNSUPPORTED:
        why = f" ({clean(results[0].finding.reason)})" if results[0].finding.reason else ""
        return f"{those} {be} {shown(results[0].finding.verdict)} now{why}: remove the entry"
    if breach is Breach.VERDICT:
        got = ", ".join(sorted({shown(r.finding.verdict) for r in results}))
        return f"{those} {be} {got}, not {entry.verdict}: fix it, or change `verdict`"
    if breach is Breach.CLASS:
        got = ", ".join(sorted({r.finding.defect or UNKNOWN for r in results}))
        return f"{those} {be} of class {got}, not {entry.label}: look again, or change `class`"
    error, most = largest(results) or 0.0, entry.max_error or 0.0
    have = "have relative errors up to" if several else "has a relative error of"
    return (
        f"{those} {have} {number(error)}, above max_error = {number(most)}: "
        "fix what made it worse, or raise max_error"
    )


def _those(results: Sequence[CaseResult]) -> str:
    """Results by name; of several the first, and how many there are."""
    named = "; ".join(title(result) for result in results[:NAMED])
    more = "; …" if len(results) > NAMED else ""
    return named if len(results) == 1 else f"{plural(len(results), 'result')} ({named}{more})"


def _unneeded(found: Sequence[Found], baseline: Baseline, scope: Scope) -> Iterator[Problem]:
    for one in found:
        says = stale(one, scope)
        if says:
            entry = one.entry
            yield Problem(breach=Breach.STALE, file=baseline.name, line=entry.line, says=says)


def stale(found: Found, scope: Scope) -> str:
    """Why an entry is about nothing; empty where it is not, or where this run cannot tell."""
    entry = found.entry
    if found.results or found.asleep or found.unasked:
        return ""
    if not found.outputs:
        if scope.exists(entry.match):
            return ""  # not run this time
        return f"no case matches {clean(entry.match)}: remove the entry, or correct its match"
    if scope.missed(entry.match) or not _asked(entry, found):
        return ""
    have = ", ".join(found.outputs)
    return (
        f"{clean(entry.match)} has no {clean(entry.output)} (it has {have}): "
        "remove the entry, or correct its output"
    )


def _asked(entry: Entry, found: Found) -> bool:
    """Whether the run asked for what an entry is about, which flags can leave out."""
    part = part_of(entry)
    return part is Part.GRADIENT or part in found.outputs.values()


def _over(
    found: Sequence[Found], baseline: Baseline, day: date, unneeded: Collection[int | None]
) -> Iterator[Problem]:
    """Entries whose last day is over; what is to be removed anyway is said once."""
    for one in found:
        last = one.entry.expires
        if last is not None and day > last and one.entry.line not in unneeded:
            yield Problem(
                breach=Breach.EXPIRED, file=baseline.name, line=one.entry.line,
                says=f"{clean(one.entry.about)} was known until {last}: fix it and remove the "
                "entry, or set another date",
            )  # fmt: skip


def _older(run: Run, baseline: Baseline) -> Iterator[str]:
    version = run.header.suite_version
    if baseline.suite and baseline.suite != version:
        yield (
            f"{baseline.name}: it was written for the cases of {baseline.suite}, and these are of "
            f"{version}: look at what changed, then set `suite`"
        )


def _broad(found: Sequence[Found], baseline: Baseline) -> Iterator[str]:
    for one in found:
        count = len({result.case.name for result in one.results})
        if count > MANY:
            where = baseline.where(one.entry)
            yield f"{where}: matches {count} cases; narrow its match: it hides what is new in them"
