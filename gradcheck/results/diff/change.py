"""What can have changed between two runs, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import BY_BUDGET, NO_FEATURES, Run
from gradcheck.results.verdict import Verdict


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


SHARE: Final = 0.1
"""Of the bound: a change of an error that is no larger is none."""
SPOILT: Final = "it is not asked where the gradient or the call itself is wrong"
DEAD: Final = (Verdict.CRASH, Verdict.TIMEOUT)


def both(
    old: CaseResult, new: CaseResult, of: CaseResult, factor: float, *, spoilt: bool = False
) -> Change | None:
    """What became of a result that both runs have; None where nothing did.

    Either may be about the whole call; `of` is the one that is not. `spoilt` says that what is
    left out (SKIP) is so because the case fails.
    """
    why = unlike(old, new)
    mark = Mark.NOT_COMPARABLE if why else _mark(old, new, factor)
    if mark is None:
        return None
    if mark is Mark.NOT_REACHED:
        why = (new if _not_reached(new) else old).finding.reason
    elif spoilt and mark in (Mark.SUPPORT_LOST, Mark.SUPPORT_GAINED):
        mark, why = Mark.NOT_REACHED, SPOILT
    return Change(mark=mark, of=of, old=old, new=new, worse=_worse(mark, old, new), why=why)


def unlike(old: CaseResult, new: CaseResult) -> str:
    """Why two results are not of the same case; empty where they are.

    >>> from types import SimpleNamespace as R
    >>> unlike(R(seed=0, hash="a1b2"), R(seed=1, hash="c3d4"))
    'seed 0, now 1'
    """
    if old.case.seed != new.case.seed:
        return f"seed {old.case.seed}, now {new.case.seed}"
    if old.case.hash != new.case.hash:
        return "the case changed its meaning: its hash is another"
    return ""


def _mark(old: CaseResult, new: CaseResult, factor: float) -> Mark | None:
    before, after = old.finding.verdict, new.finding.verdict
    if _not_reached(old) is not _not_reached(new):
        return Mark.NOT_REACHED
    if not after.expected:
        if after in DEAD and before not in DEAD:
            return Mark.NEWLY_CRASHING
        return Mark.NEWLY_FAILING if before.expected else _failing(old, new, factor)
    if before.checked and not after.checked:
        return Mark.SUPPORT_LOST
    if not before.expected:
        return Mark.FIXED
    if not after.checked:
        return None
    return _moved(old, new, factor) if before.checked else Mark.SUPPORT_GAINED


def _not_reached(result: CaseResult) -> bool:
    """Whether a run did not ask: NOTRUN, or left out by its flags or their defaults."""
    found = result.finding
    unasked = found.verdict is Verdict.SKIP and found.reason.startswith((BY_BUDGET, NO_FEATURES))
    return unasked or found.verdict is Verdict.NOTRUN


def _failing(old: CaseResult, new: CaseResult, factor: float) -> Mark:
    """What became of a failure that is one still: what is worse goes before what is other."""
    moved = _moved(old, new, factor)
    classes = old.finding.defect, new.finding.defect
    if old.finding.verdict is not new.finding.verdict:
        return Mark.OTHERWISE
    if moved is Mark.ERROR_GREW:
        return moved
    if all(classes) and len({*classes}) > 1:
        return Mark.OTHERWISE
    return moved or Mark.STILL_FAILING


def _moved(old: CaseResult, new: CaseResult, factor: float) -> Mark | None:
    """Whether an error grew or shrank beyond the factor; what is no number is infinite."""
    if old.finding.top is None or new.finding.top is None:
        return None
    before, after = old.finding.times_bound, new.finding.times_bound
    if _beyond(before, after, factor):
        return Mark.ERROR_GREW
    return Mark.IMPROVED if _beyond(after, before, factor) else None


def _beyond(less: float, more: float, factor: float) -> bool:
    """Whether `more` is so; inf − inf is nan, which is beyond nothing."""
    return more / factor > less and more - less > SHARE


def _worse(mark: Mark, old: CaseResult, new: CaseResult) -> bool:
    """A failure that is not known to have been one is worse, and so is less evidence."""
    if mark in (Mark.NEWLY_CRASHING, Mark.ERROR_GREW, Mark.SUPPORT_LOST):
        return True
    unknown = old.finding.verdict.expected or old.finding.verdict is Verdict.NOTRUN
    return mark is not Mark.STILL_FAILING and unknown and not new.finding.verdict.expected


def alone(result: CaseResult, old: Run, new: Run, *, of_old: bool, spoilt: bool) -> Change:
    """What it means that only one run has a result: the old one, if `of_old`.

    `spoilt` says that the other run failed at the whole case, so that nothing else was asked.
    """
    why, mark = "", Mark.REMOVED if of_old else Mark.ADDED
    mine, other = (old, new) if of_old else (new, old)
    name = "new" if of_old else "old"
    if spoilt:
        mark, why = Mark.NOT_REACHED, SPOILT
    elif result.case.dtype not in other.header.dtypes:
        mark, why = Mark.NOT_COMPARABLE, f"the {name} run has no {result.case.dtype}"
    elif other.header.suite != mine.header.suite:
        mark, why = Mark.NOT_COMPARABLE, f"the {name} run is of the suite {other.header.suite}"
    elif other.header.shard not in ("", mine.header.shard):
        mark, why = Mark.NOT_REACHED, f"the {name} run is shard {other.header.shard}"
    elif not other.complete:
        mark, why = Mark.NOT_REACHED, f"the {name} run stopped early"
    lost = mark is Mark.REMOVED or (mark is Mark.NOT_REACHED and not (spoilt or new.complete))
    return Change(
        mark=mark,
        of=result,
        old=result if of_old else None,
        new=None if of_old else result,
        worse=lost if of_old else not result.finding.verdict.expected,
        why=why,
    )
