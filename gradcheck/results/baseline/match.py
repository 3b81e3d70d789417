"""Which results an entry is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from gradcheck.results.baseline import condition
from gradcheck.results.baseline.entry import Baseline, Entry
from gradcheck.results.baseline.scope import Names
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Part
from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import subject

CALL: Final = "vjp"
"""What a result is called that is about the whole call, and no gradient."""


@dataclass(slots=True, kw_only=True)
class Found:
    """What there is to an entry: results that it is about, and others that its globs match.

    `asleep` counts those for which its condition does not hold, `unasked` those that were left out
    (SKIP). `outputs` are the names of everything that the matching cases have.
    """

    entry: Entry
    results: list[CaseResult] = field(default_factory=list)
    asleep: int = 0
    unasked: int = 0
    outputs: dict[str, Part] = field(default_factory=dict)


def matched(run: Run, baseline: Baseline) -> list[Found]:
    """What there is to each entry, in the file's order."""
    by_name: dict[str, dict[str, list[CaseResult]]] = {}
    for result in run.results:
        of_name = by_name.setdefault(result.case.name, {})
        of_name.setdefault(result.case.implementation, []).append(result)
    names = Names(by_name)
    return [
        _found(entry, {name: by_name[name] for name in names.matching(entry.match)}, run)
        for entry in baseline.entries
    ]


def _found(entry: Entry, by_name: Mapping[str, Mapping[str, list[CaseResult]]], run: Run) -> Found:
    """What there is to an entry, of the results of cases that it matches."""
    found = Found(entry=entry)
    for name in by_name:
        for results in by_name[name].values():
            found.outputs.update(
                (subject(r.finding.name, r.finding.part), r.finding.part) for r in results
            )
            for result in meant(entry, results):
                if result.finding.verdict is Verdict.SKIP:
                    found.unasked += 1
                elif condition.holds(entry.when, circumstances(run, result)):
                    found.results.append(result)
                else:
                    found.asleep += 1
    telling = [r for r in found.results if not is_empty(r)]
    found.results = telling or found.results
    return found


def is_empty(result: CaseResult) -> bool:
    """Whether a pass compared nothing: arrays without elements say nothing of a failure."""
    counted = result.finding.part not in (Part.CONTRACT, Part.TRAINING)
    return counted and result.finding.verdict is Verdict.PASS and not result.finding.compared


def meant(entry: Entry, results: Sequence[CaseResult]) -> list[CaseResult]:
    """Which results of one case an entry is about that matches the case.

    Where the call as a whole has a result (a crash) and its gradients have none, that is about
    each of them; an entry about the call is about each gradient that it gives after all.
    """
    named = [r for r in results if _names(entry, r)]
    if named or part_of(entry) is not Part.GRADIENT:
        return named
    plain = [r for r in results if r.finding.part is Part.GRADIENT]
    return plain if entry.output == CALL else [r for r in plain if r.finding.name == CALL]


def _names(entry: Entry, result: CaseResult) -> bool:
    """Whether an entry's output means that of a result, by the name in reports or its own."""
    shown = subject(result.finding.name, result.finding.part)
    own = result.finding.part is Part.GRADIENT and entry.output == result.finding.name
    return own or entry.output == shown or fnmatchcase(shown, entry.output)


def part_of(entry: Entry) -> Part:
    """What an entry is about, as its output is written: "contract: linear", "stage ln_f"."""
    parts = (Part.CONTRACT, Part.STAGE, Part.TRAINING)
    return next((p for p in parts if entry.output.startswith(p.value)), Part.GRADIENT)


def circumstances(run: Run, result: CaseResult) -> condition.Circumstances:
    """What a condition may ask about a result."""
    return condition.Circumstances(
        dtype=result.case.dtype,
        implementation=result.case.implementation,
        version=run.header.versions.get(result.case.implementation, ""),
    )
