"""What stands beside the tables: what was not checked, what printed, what the checks rest on."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report.outline import unique
from gradcheck.report.run_words import Rejected
from gradcheck.results.record import Kind, Part
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck.results.record import Record, Run

NAMED: Final = 8
"""Operators that are named, of those that were not checked for the same reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What was not checked for one and the same reason."""

    verdict: Verdict
    reason: str
    ops: tuple[str, ...]
    count: int

    @property
    def named(self) -> tuple[str, ...]:
        """The first of the operators."""
        return self.ops[:NAMED]

    @property
    def others(self) -> str:
        """How many are not named: ", … and 12 more", or nothing."""
        more = len(self.ops) - NAMED
        return f", … and {more:,} more" if more > 0 else ""


def gaps(run: Run) -> list[Gap]:
    """What was not checked, one entry per verdict and reason.

    What an implementation says nothing about has one reason, however it is worded per operator.
    """
    found: dict[tuple[Verdict, str, str], list[Record]] = {}
    unasked: dict[str, list[Record]] = {}
    for result in run.results:
        if result.part is Part.CONTRACT and not result.verdict.checked:
            unasked.setdefault(result.reason, []).append(result)
        elif not result.verdict.checked:
            unbound = result.verdict is Verdict.UNBOUND
            silent, reason = (result.implementation, "") if unbound else ("", result.reason)
            found.setdefault((result.verdict, silent, reason), []).append(result)
    gaps = [
        Gap(
            verdict=verdict,
            reason=f"{silent} says nothing about {_them(results)}" if silent else reason,
            ops=unique(r.op for r in results),
            count=len(results),
        )
        for (verdict, silent, reason), results in found.items()
    ]
    return [*gaps, *([_unasked(unasked)] if unasked else [])]


def _unasked(found: Mapping[str, Sequence[Record]]) -> Gap:
    """The properties of contracts that could not be asked, all in one: they say little."""
    results = [result for of_one in found.values() for result in of_one]
    reasons = (f"{reason} ({', '.join(unique(r.output for r in of_one))})"
               for reason, of_one in found.items())  # fmt: skip
    return Gap(
        verdict=Verdict.SKIP,
        reason=f"properties that cannot be asked: {'; '.join(reasons)}",
        ops=unique(r.op for r in results),
        count=len(results),
    )


def _them(results: list[Record]) -> str:
    return "them" if len({r.op for r in results}) > 1 else "it"


def talkers(run: Run) -> list[tuple[Record, int]]:
    """What printed although nothing failed there: one result per dialect, and of how many.

    Noise is no failure, but its author may not know of it. What a failure printed stands with it.
    """
    found: dict[tuple[str, Kind, str, str], list[Record]] = {}
    for r in run.results:
        if r.printed.strip():
            found.setdefault((r.implementation, r.kind, r.op, r.dialect), []).append(r)
    calm = [rs for rs in found.values() if all(r.verdict.expected for r in rs)]
    return [(results[0], len(results)) for results in calm]


def slacks(run: Run) -> list[tuple[str, str]]:
    """Who needed a wider bound, "op" or "implementation: op", in how many results, and why."""
    several = len({r.implementation for r in run.results}) > 1
    found = Counter(
        (f"{r.implementation}: {r.op}" if several else r.op, r.slack)
        for r in run.results
        if r.slack
    )
    return [(name, f"{plural(count, 'result')} {slack}") for (name, slack), count in found.items()]


def conventions(run: Run) -> list[tuple[str, tuple[str, ...]]]:
    """Whose conventions were found on kinks: "op" or "implementation: op", and what was found."""
    several = len({r.implementation for r in run.results}) > 1
    found: dict[str, list[str]] = {}
    for result in run.results:
        if result.conventions:
            name = f"{result.implementation}: {result.op}" if several else result.op
            found.setdefault(name, []).extend(result.conventions)
    return [(name, unique(texts)) for name, texts in found.items()]


def curves(run: Run) -> list[tuple[str, int, Record]]:
    """Per dtype, how many Taylor curves there are, and the one that misses the largest part."""
    found: dict[str, list[tuple[float, Record]]] = {}
    for result in run.results:
        if result.taylor is not None:
            found.setdefault(result.dtype, []).append((result.taylor.share, result))
    return [
        (dtype, len(pairs), max(pairs, key=lambda pair: (math.isfinite(pair[0]), pair[0]))[1])
        for dtype, pairs in found.items()
    ]


def certificate(run: Run) -> Rejected | None:
    """The certificates of all results together; None if there are none."""
    certified = [(r, r.certificate) for r in run.results if r.certificate is not None]
    if not certified:
        return None
    blind: dict[str, list[Record]] = {}
    for result, found in certified:
        for name in found.blind:
            blind.setdefault(name, []).append(result)
    return Rejected(
        rejected=sum(len(found.rejected) for _, found in certified),
        tried=sum(found.tried for _, found in certified),
        tolerated=sum(len(found.tolerated) for _, found in certified),
        blind=tuple(
            (name, len(results), f"{results[0].name}/{results[0].output}")
            for name, results in sorted(blind.items(), key=lambda item: -len(item[1]))
        ),
    )
