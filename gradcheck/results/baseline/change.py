"""What `baseline write`, `update` and `prune` make of a file and a run: its new text, in words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.results.baseline import text as texts
from gradcheck.results.baseline.apply import BEYOND, MANY, stale
from gradcheck.results.baseline.entry import Baseline, Entry
from gradcheck.results.baseline.file import parsed
from gradcheck.results.baseline.match import Found, Scope, allowance, is_empty, largest, matched
from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import clean, number, plural, subject

LONGEST: Final = 200
"""Characters of a reason that is written for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file's new text, a line per change to it, and a line per change that is refused."""

    text: str
    done: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def new(run: Run, name: str, scope: Scope) -> Change:
    """A file that lists every failure of a run."""
    entries = tuple(listed(run, [r for r in run.results if _excusable(r)], scope))
    header = run.header
    baseline = Baseline(
        name=name, entries=entries, suite=header.suite_version, dtypes=tuple(header.dtypes)
    )
    return Change(text=texts.fresh(baseline), done=tuple(f"+ {_told(e)}" for e in entries))


def updated(run: Run, text: str, baseline: Baseline, scope: Scope) -> Change:
    """The file with what was measured now, and with the failures that are not listed yet.

    Entries of which a part was not run stay as they are.
    """
    done: list[str] = []
    refused: list[str] = []
    found = matched(run, baseline)
    for place, one in enumerate(found):
        failing = [r for r in one.results if _excusable(r)]
        changes = list(_changes(one.entry, failing))
        where = baseline.where(one.entry)
        missed = scope.missed(one.entry.match) if changes else []
        if missed:
            refused.append(f"{where}: {_not_run(missed)}: the entry stays as it is")
            continue
        for key, old, value in changes:
            text = texts.changed(text, baseline.name, place, key, value)
            done.append(f"{where}: {key}: {'none' if old is None else old} → {value}")
    about = {result.key for one in found for result in one.results}
    unlisted = [r for r in run.results if _excusable(r) and r.key not in about]
    entries = tuple(listed(run, unlisted, scope))
    if entries:
        text = texts.added(text, entries)
        done += [f"+ {_told(entry)}" for entry in entries]
    parsed(text, baseline.name)  # nothing is written that could not be read again
    return Change(text=text, done=tuple(done), refused=tuple(refused))


def pruned(run: Run, text: str, baseline: Baseline, scope: Scope) -> Change:
    """The file without the entries that excuse nothing any more.

    Those are about no case, or about results that all pass. Entries of which a part was not run
    stay as they are.
    """
    done: list[str] = []
    refused: list[str] = []
    found = matched(run, baseline)
    for place in reversed(range(len(found))):  # what stands behind keeps its place
        one = found[place]
        why = stale(one, scope) or _mended(one)
        if not why:
            continue
        where = baseline.where(one.entry)
        missed = scope.missed(one.entry.match) if one.outputs else []
        if missed:
            refused.append(f"{where}: {_not_run(missed)}: the entry stays as it is")
            continue
        text = texts.removed(text, baseline.name, place)
        done.append(f"- {where}: {clean(one.entry.about)}: {why.partition(': ')[0]}")
    return Change(text=text, done=tuple(reversed(done)), refused=tuple(reversed(refused)))


def listed(run: Run, results: Sequence[CaseResult], scope: Scope) -> Iterator[Entry]:
    """Entries for failures: one for all samples of a gradient, if all of them fail alike."""
    several = len({r.case.implementation for r in run.results}) > 1
    empty = {(r.case.implementation, r.case.name, subject(r.finding.name, r.finding.part))
             for r in run.results if is_empty(r)}  # fmt: skip
    groups: dict[tuple[str, ...], list[CaseResult]] = {}
    for r in results:
        output = subject(r.finding.name, r.finding.part)
        kind = (r.finding.verdict.value, r.finding.defect)
        groups.setdefault(
            (r.case.implementation, r.case.op, r.case.dialect, r.case.dtype, output, *kind), []
        ).append(r)
    for (who, op, dialect, dtype, output, *_), of_one in groups.items():
        when = f"implementation == {who!r}" if several else ""
        glob = "/".join([*map(_literal, (op, dialect)), "*", _literal(dtype)])
        names = {r.case.name for r in of_one}
        others = {*scope.reached(glob)} - names
        alike = all((who, name, output) in empty for name in others)
        everywhere = alike and not scope.missed(glob)
        if everywhere and 1 < len(names) <= MANY:
            yield _entry(glob, of_one, when)
        else:
            yield from (_entry("/".join(map(_literal, r.case.name.split("/"))), [r], when)
                        for r in of_one)  # fmt: skip


def _entry(glob: str, results: Sequence[CaseResult], when: str) -> Entry:
    first, error = results[0], largest(results)
    measurable = error is not None and 0 < error < math.inf
    told = (
        first.finding.diagnosis.says
        if first.finding.diagnosis is not None
        else first.finding.reason
    )
    reason = clean(told or first.finding.reason)[:LONGEST] or "not looked into yet"
    return Entry(
        line=0,
        match=glob,
        output=subject(first.finding.name, first.finding.part),
        verdict=first.finding.verdict.value,
        label=first.finding.defect,
        max_error=allowance(error) if measurable and error is not None else None,
        when=when,
        reason=reason,
    )


def _changes(
    entry: Entry, failing: Sequence[CaseResult]
) -> Iterator[tuple[str, str | float | None, str | float]]:
    """What an entry says otherwise than the failures that it is about: key, old and new value.

    What differs among them stays: the gate says of it what is wrong, and the user which is meant.
    """
    verdicts = {r.finding.verdict.value for r in failing}
    if len(verdicts) != 1:
        return
    (verdict,) = verdicts
    if verdict != entry.verdict and not entry.flaky and entry.max_error is None:
        yield "verdict", entry.verdict, verdict
    labels = {r.finding.defect for r in failing}
    if entry.label and len(labels) == 1 and not labels & {entry.label, ""}:
        yield "class", entry.label, labels.pop()
    error = largest(failing)
    if error is not None and 0 < error < math.inf and allowance(error) != entry.max_error:
        yield "max_error", entry.max_error, allowance(error)


def _mended(found: Found) -> str:
    """That everything which an entry is about passes now; empty where it does not."""
    ok = bool(found.results) and not found.asleep and not found.entry.flaky
    if not ok or not all(r.finding.verdict is Verdict.PASS for r in found.results):
        return ""
    return f"passes now ({plural(len(found.results), 'result')})"


def _excusable(result: CaseResult) -> bool:
    return not result.finding.verdict.expected and result.finding.verdict not in BEYOND


def _literal(part: str) -> str:
    """A name as a glob that matches it alone."""
    return re.sub(r"([*?[])", r"[\1]", part)


def _not_run(missed: Sequence[str]) -> str:
    return f"{plural(len(missed), 'case')} of it not run (as {clean(min(missed))})"


def _told(entry: Entry) -> str:
    """An entry in one line."""
    most = f", max_error {number(entry.max_error)}" if entry.max_error is not None else ""
    label = f", {entry.label}" if entry.label else ""
    when = f", when {entry.when}" if entry.when else ""
    return clean(f"{entry.about}: {entry.verdict}{label}{most}{when}")
