"""What became of one result that both runs have, or that one of them lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.results.diff.change import Change, Mark
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run

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
        why = (new if new.finding.verdict is Verdict.NOTRUN else old).finding.reason
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
    """How one verdict follows another of the same case."""
    before, after = old.finding.verdict, new.finding.verdict
    if (before is Verdict.NOTRUN) is not (after is Verdict.NOTRUN):
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
