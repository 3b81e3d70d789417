"""What can have changed between two runs, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Run


class Mark(StrEnum):
    """What became of one result, the most urgent first; the values are promises."""

    NEWLY_CRASHING = "newly crashing"
    """It crashes or hangs, and did not."""
    NEWLY_FAILING = "newly failing"
    """The gate does not accept its verdict, and did accept the old one."""
    ERROR_GREW = "error grew"
    """In multiples of the bound, by more than the factor and by more than a tenth."""
    SUPPORT_LOST = "support lost"
    """It was put to the test, and is not any more."""
    REMOVED = "removed"
    """The new run does not have it."""
    NOT_REACHED = "not reached"
    """One of the runs did not come to it."""
    NOT_COMPARABLE = "not comparable"
    """The two results are not of the same case."""
    OTHERWISE = "fails otherwise"
    """It fails as it did, with another verdict, or with a diagnosis of another class."""
    ADDED = "added"
    """The old run did not have it."""
    SUPPORT_GAINED = "support gained"
    """It is put to the test, and was not."""
    IMPROVED = "improved"
    """The error shrank as `ERROR_GREW` says of growing."""
    FIXED = "fixed"
    """It passes, and did not."""
    STILL_FAILING = "still failing"
    """It fails as it did. This is no change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What became of one result.

    `of` says which one: it is the old or the new result, and the other may be about the whole call
    (a crash stands for every gradient that the call owes). `worse` says that the new run cannot be
    taken in place of the old one; `why` says what the marks `NOT_REACHED` and `NOT_COMPARABLE`
    mean here.
    """

    mark: Mark
    of: CaseResult
    old: CaseResult | None
    new: CaseResult | None
    worse: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs; `name` is the file that it was read from, or what else tells it."""

    name: str
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two runs held against each other.

    `pairs` maps the implementations that are compared, the old run's to the new one's; `factor` is
    what an error has to grow by. `entries` has everything of which there is something to say, by
    `Mark`, then in the order of the runs; `same` counts the rest, and `compared` the results that
    both runs have of the same case.
    """

    old: Side
    new: Side
    pairs: Mapping[str, str]
    factor: float
    entries: tuple[Change, ...] = ()
    same: int = 0
    compared: int = 0
    counts: Mapping[Mark, int] = field(default_factory=dict)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The entries without those that only go on."""
        return tuple(e for e in self.entries if e.mark is not Mark.STILL_FAILING)

    @property
    def worse(self) -> bool:
        """Whether anything is worse in the new run."""
        return any(entry.worse for entry in self.entries)

    @property
    def two(self) -> bool:
        """Whether two implementations are compared, and not one over time."""
        return any(old != new for old, new in self.pairs.items())

    @property
    def summary(self) -> str:
        """The last line, for a script to read."""
        state = "worse" if self.worse else "changed" if self.changes else "same"
        always = (Mark.NEWLY_CRASHING, Mark.NEWLY_FAILING, Mark.FIXED)
        counts = [
            f"{slug(mark)}={self.counts.get(mark, 0)}"
            for mark in Mark
            if self.counts.get(mark) or mark in always
        ]
        said = state if self.compared else "nothing"
        return f"DIFF {said} compared={self.compared} same={self.same} {' '.join(counts)}"


def slug(mark: Mark) -> str:
    """A mark as one word, for flags and scripts.

    >>> slug(Mark.NEWLY_FAILING)
    'newly-failing'
    """
    return mark.value.replace(" ", "-")


def chosen(entries: Iterable[Change], words: Iterable[str]) -> bool:
    """Whether an entry is among what `words` name: slugs of marks, "worse", or "change"."""
    named = {*words}
    return any(
        slug(entry.mark) in named
        or ("worse" in named and entry.worse)
        or ("change" in named and entry.mark is not Mark.STILL_FAILING)
        for entry in entries
    )
