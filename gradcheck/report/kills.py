"""The self-check: which wrong gradients the checks of an operator reject, sample by sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gradcheck.results import words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Run

NAN: Final = "nan"
"""The impostor that every comparison rejects, and that proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One impostor in one sample: `kind` is "rejected", "partly", "blind", "tolerated" or "equal".

    Of the gradients and dtypes checked there: rejected by all in which it is wrong; by some; by
    none; wrong by less than any of them allows; or wrong in none of them. `glyph` says without
    colour what `tone` says with it.
    """

    kind: str
    glyph: str
    tone: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One sample: a mark per impostor; `blind` if it rejects nothing that proves anything."""

    dialect: str
    sample: str
    marks: tuple[Mark, ...]
    blind: bool

    @property
    def holed(self) -> bool:
        """Whether some check does not see some impostor."""
        return any(mark.kind in UNSEEN for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One operator of one implementation; `missed` are impostors wrong somewhere, never rejected.

    `rejected` of `tried` counts over all samples, gradients and dtypes.
    """

    implementation: str
    op: str
    impostors: tuple[str, ...]
    lines: tuple[Line, ...]
    missed: tuple[str, ...]
    rejected: int
    tried: int

    @property
    def holes(self) -> tuple[Line, ...]:
        """The samples in which some wrong number passes some check."""
        return tuple(line for line in self.lines if line.holed)


MARKS: Final = {
    "rejected": ("✓", "good"),
    "partly": ("◐", "warn"),
    "blind": ("○", "bad"),
    "tolerated": ("≈", "soft"),
    "equal": ("=", "calm"),
}
"""Glyph and tone of each kind."""
MOST: Final = 20
LEGEND: Final = {
    "rejected": "rejected",
    "partly": "partly rejected",
    "blind": "not detected",
    "tolerated": "within the tolerance",
    "equal": "equal to the right gradient",
}
"""What each mark is called below a matrix."""
UNSEEN: Final = ("partly", "blind")
"""Kinds of an impostor that passes for the truth somewhere."""
MEANS: Final = {
    "rejected": "rejected",
    "partly": "rejected by some checks, not detected by others",
    "blind": "not detected",
    "tolerated": "within the tolerance of the dtype",
    "equal": "equal to the right gradient here",
}


def matrices(run: Run) -> list[Matrix]:
    """One matrix per implementation and operator that has certificates, in the run's order."""
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for result in run.results:
        if result.finding.certificate is not None:
            groups.setdefault((result.case.implementation, result.case.op), []).append(result)
    return [matrix(results) for results in groups.values()]


def holed(run: Run) -> list[Matrix]:
    """The matrices that have holes, those with the most first, and no more than fit a page."""
    found = [one for one in matrices(run) if one.holes]
    return sorted(found, key=lambda one: -len(one.holes))[:MOST]


def matrix(results: list[CaseResult]) -> Matrix:
    """The matrix of one operator's results, all of which have a certificate."""
    impostors = tuple(dict.fromkeys(name for r in results for part in _of(r) for name in part))
    samples: dict[tuple[str, str], list[CaseResult]] = {}
    for result in results:
        samples.setdefault((result.case.dialect, result.case.sample), []).append(result)
    lines = tuple(_line(*key, impostors, found) for key, found in samples.items())
    seen = {name for r in results for name in _of(r)[0]}
    return Matrix(
        implementation=words.clean(results[0].case.implementation),
        op=words.clean(results[0].case.op),
        impostors=tuple(map(words.clean, impostors)),
        lines=lines,
        missed=tuple(words.clean(name) for name in impostors if name not in seen),
        rejected=sum(len(_of(r)[0]) for r in results),
        tried=sum(len(part) for r in results for part in _of(r)[:2]),
    )


def _line(dialect: str, sample: str, impostors: Iterable[str], results: list[CaseResult]) -> Line:
    marks = tuple(_mark(name, results) for name in impostors)
    proves = any(name != NAN for r in results for name in _of(r)[0])
    return Line(
        dialect=words.clean(dialect), sample=words.clean(sample), marks=marks, blind=not proves
    )


def _mark(name: str, results: list[CaseResult]) -> Mark:
    rejecting = [r for r in results if name in _of(r)[0]]
    blind = [r for r in results if name in _of(r)[1]]
    if blind:
        kind = "partly" if rejecting else "blind"
    elif rejecting:
        kind = "rejected"
    else:
        kind = "tolerated" if any(name in _of(r)[2] for r in results) else "equal"
    whose = ", ".join(f"{words.gradient(r.finding.name)} in {words.clean(r.case.dtype)}"
                      for r in blind)  # fmt: skip
    glyph, tone = MARKS[kind]
    says = f"{words.clean(name)}: {MEANS[kind]}" + (f" by the check of {whose}" if whose else "")
    return Mark(kind=kind, glyph=glyph, tone=tone, says=says)


def _of(result: CaseResult) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The names of what is rejected, of what passes, and of what is tolerated."""
    found = result.finding.certificate
    assert found is not None
    return found.rejected, found.blind, tuple(name.partition(":")[0] for name in found.tolerated)
