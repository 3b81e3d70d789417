"""Which results of a run each entry of a baseline matches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from re import compile as regex
from typing import TYPE_CHECKING, Final

from gradcheck.results.baseline import condition
from gradcheck.results.baseline.entry import Baseline, Entry
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Part
from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import SIDE_CONDITION, filed, relative, subject
from gradcheck.spec.dtype_selection import CERTIFIED, DTYPES, LOW

if TYPE_CHECKING:
    from gradcheck.spec.suite import Suite

CALL: Final = "vjp"
"""The name of a result of the whole call, which belongs to no gradient."""


@dataclass(slots=True, kw_only=True)
class Found:
    """The results that one entry matches, and counts of others that its globs match.

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
                (filed(r.finding.name, r.finding.part), r.finding.part) for r in results
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
    name, part = result.finding.name, result.finding.part
    own = part is Part.GRADIENT and entry.output == name
    known = {filed(name, part), subject(name, part)}
    return own or any(one == entry.output or fnmatchcase(one, entry.output) for one in known)


def part_of(entry: Entry) -> Part:
    """What an entry is about, as its output is written: "contract: linear", "stage ln_f"."""
    if entry.output.startswith(SIDE_CONDITION):
        return Part.CONTRACT
    parts = (Part.CONTRACT, Part.STAGE, Part.TRAINING)
    return next((p for p in parts if entry.output.startswith(p.value)), Part.GRADIENT)


def circumstances(run: Run, result: CaseResult) -> condition.Circumstances:
    """What a condition may ask about a result."""
    return condition.Circumstances(
        dtype=result.case.dtype,
        implementation=result.case.implementation,
        version=run.header.versions.get(result.case.implementation, ""),
    )


ROOM: Final = Decimal("1.5")
"""What an entry allows, in multiples of what was measured."""
DIGITS: Final = 2


def measured(result: CaseResult) -> float | None:
    """The relative error of a failure's worst element, as reports print it.

    Infinite where it is no number; None where nothing was compared (a crash, a property).
    """
    if result.finding.verdict is not Verdict.FAIL or result.finding.top is None:
        return None
    ratios = relative(result.finding.top)
    return math.inf if ratios is None or math.isnan(ratios[0]) else ratios[0]


def largest(results: Iterable[CaseResult]) -> float | None:
    """The largest error of several results; None where none has one."""
    return max((error for r in results if (error := measured(r)) is not None), default=None)


def allowance(error: float) -> float:
    """What an entry allows where `error` was measured: half as much again, rounded up.

    >>> allowance(0.0267), allowance(0.1)
    (0.041, 0.15)
    """
    exact = Decimal(repr(error)) * ROOM
    last = Decimal(1).scaleb(exact.adjusted() - DIGITS + 1)
    return float(exact.quantize(last, rounding=ROUND_CEILING))


def within(error: float | None, most: float | None) -> bool:
    """Whether an error is no larger than an entry says; an entry need not say it."""
    return most is None or error is None or error <= most


class Names:
    """Names of cases, to be searched by globs."""

    def __init__(self, names: Iterable[str]) -> None:
        """Keep them by operator: most globs name one."""
        self._of: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            self._of.setdefault(name.partition("/")[0], []).append(name)

    def matching(self, glob: str) -> Iterator[str]:
        """The names that match."""
        for op in filter(matcher(glob.partition("/")[0]), self._of):
            yield from filter(matcher(glob), self._of[op])


class Scope:
    """The names of a suite's cases, and of those that a run reached."""

    def __init__(self, suite: Suite, usual: Iterable[str], ran: Iterable[str]) -> None:
        """`usual` are the dtypes of a full run, `ran` the cases reached (with their dtypes)."""
        self._usual = Names(_names_in(suite, {*usual}))
        self._every = Names(_names_in(suite, {*DTYPES, *LOW, CERTIFIED}))
        self._ran = frozenset(ran)

    @classmethod
    def of(cls, suite: Suite, baseline: Baseline, run: Run) -> Scope:
        """What a baseline is about: the dtypes that it names, or the usual ones, and the run's."""
        usual = {*(baseline.dtypes or DTYPES), *run.header.dtypes}
        return cls(suite, usual, (result.case.name for result in run.results))

    def reached(self, glob: str) -> list[str]:
        """The names that match, of the cases that the run reached."""
        return [*filter(matcher(glob), self._ran)]

    def exists(self, glob: str) -> bool:
        """Whether any case matches, run or not."""
        return any(self._every.matching(glob))

    def missed(self, glob: str) -> list[str]:
        """The names that match and belong to a full run, of the cases that were not reached.

        Where a full run has none of them (a dtype that is named nowhere else), of all.
        """
        names = [*self._usual.matching(glob)] or [*self._every.matching(glob)]
        return [name for name in names if name not in self._ran]


@lru_cache(maxsize=4096)
def matcher(glob: str) -> Callable[[str], bool]:
    """Whether a name matches; `*` never crosses a slash, as name and glob have three each."""
    match = regex(translate(glob)).match
    return lambda name: match(name) is not None


def _names_in(suite: Suite, dtypes: set[str]) -> Iterator[str]:
    """Every case of a suite, in each dtype in which its kind can be judged."""
    kinds = (
        (suite.cases(), dtypes - {CERTIFIED}),
        (suite.model_cases(), dtypes - {*LOW}),
        (suite.rule_cases(), dtypes - {CERTIFIED}),
    )
    for cases, judged in kinds:
        for case in cases:
            yield from (f"{case.name}/{dtype}" for dtype in judged)
