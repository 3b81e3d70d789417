"""Two runs held against each other, case by case, in time that grows with their size alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gradcheck.results.case_result import CaseResult
from gradcheck.results.diff.change import Change, Diff, Mark, Side, alone, both, unlike
from gradcheck.results.finding import Part
from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict

FACTOR: Final = 2.0
"""What an error has to grow by, unless somebody says otherwise."""
WHOLE: Final = ("vjp", "gradients", "update", "forward", "loss")
"""What a result may be called that stands for the whole case, where it ended the judgement."""
NUMBERS: Final = (Verdict.PASS, Verdict.FAIL, Verdict.MISSING, Verdict.INCONCLUSIVE)
"""What is said of one gradient; any other verdict ended the judgement of its case."""

Named = dict[tuple[str, str, int], "CaseResult"]
"""The results of one case: part and output, and which of those that share them."""


def compared(old: Side, new: Side, pairs: Mapping[str, str], factor: float = FACTOR) -> Diff:
    """What changed from one run to the other.

    Args:
        old: the run from before.
        new: the run from after, or of another implementation.
        pairs: which implementation of `old` is held against which of `new`; results of others
            are left out, of the two sides, too.
        factor: what an error has to grow by, 1 or more.

    Returns:
        The difference; it has `compared` = 0 where the runs share no case.
    """
    old, new = of(old, pairs), of(new, pairs.values())
    olds = _cases(old.run, dict(pairs))
    news = _cases(new.run, {name: name for name in pairs.values()})
    entries: list[Change] = []
    same = alike = 0
    for key in dict.fromkeys([*news, *olds]):
        case = _Case(_named(olds.get(key, ())), _named(news.get(key, ())))
        for one in case.pairs():
            if one.old is None or one.new is None:
                if one.of.finding.verdict is Verdict.UNBOUND:
                    continue  # `--all` decides whether it is reported
                entries.append(case.lacking(one, old.run, new.run))
                continue
            change = case.change(one, factor)
            alike += not unlike(one.old, one.new)
            if change is None:
                same += 1
            else:
                entries.append(change)
    order = {mark: place for place, mark in enumerate(Mark)}
    return Diff(
        old=old,
        new=new,
        pairs=dict(pairs),
        factor=factor,
        entries=tuple(sorted(entries, key=lambda entry: order[entry.mark])),
        same=same,
        compared=alike,
        counts=Counter(entry.mark for entry in entries),
    )


def of(side: Side, names: Iterable[str]) -> Side:
    """What a side says of these implementations alone."""
    kept = tuple(names)
    results = tuple(r for r in side.run.results if r.case.implementation in kept)
    if len(results) == len(side.run.results):
        return side
    header = replace(side.run.header, implementations=kept)
    return replace(side, run=replace(side.run, header=header, results=results))


def _cases(run: Run, renamed: Mapping[str, str]) -> dict[tuple[str, str], list[CaseResult]]:
    """The results of each case, under the new run's name of its implementation."""
    found: dict[tuple[str, str], list[CaseResult]] = {}
    for result in run.results:
        if result.case.implementation in renamed:
            key = (renamed[result.case.implementation], result.case.name)
            found.setdefault(key, []).append(result)
    return found


def _named(results: Iterable[CaseResult]) -> Named:
    found: Named = {}
    seen: Counter[tuple[str, str]] = Counter()
    for result in results:
        name = (result.finding.part.value, result.finding.name)
        found[*name, seen[name]] = result
        seen[name] += 1
    return found


@dataclass(frozen=True, slots=True)
class _Pair:
    """What is held against each other, of the result `of`."""

    of: CaseResult
    old: CaseResult | None
    new: CaseResult | None


class _Case:
    def __init__(self, old: Named, new: Named) -> None:
        self.old, self.new = old, new
        self.old_whole, self.new_whole = _whole(old.values()), _whole(new.values())

    def pairs(self) -> Iterator[_Pair]:
        """Every result once.

        What only one run has is held against the result that stands for the whole case in the
        other; the latter is then told with it, and not once more by itself.
        """
        gone = [r for name, r in self.old.items() if name not in self.new]
        came = [r for name, r in self.new.items() if name not in self.old]
        owed = [r for r in gone if r is not self.old_whole]
        owing = [r for r in came if r is not self.new_whole]
        told_old = any(_stands_for(self.old_whole, r) for r in owing)
        told_new = any(_stands_for(self.new_whole, r) for r in owed)
        for name, new in self.new.items():
            old = self.old.get(name)
            if old is not None:
                yield _Pair(new, old, new)
        for result in owing:
            whole = self.old_whole if _stands_for(self.old_whole, result) else None
            yield _Pair(result, whole, result)
        for result in owed:
            whole = self.new_whole if _stands_for(self.new_whole, result) else None
            yield _Pair(result, result, whole)
        before = self.old_whole if self.old_whole in gone and not told_old else None
        after = self.new_whole if self.new_whole in came and not told_new else None
        if before is not None and after is not None:
            yield _Pair(after, before, after)
        elif before is not None:
            yield _Pair(before, before, self.new_whole)
        elif after is not None:
            yield _Pair(after, self.old_whole, after)

    def change(self, pair: _Pair, factor: float) -> Change | None:
        old, new = pair.old, pair.new
        assert old is not None
        assert new is not None
        spoilt = any(
            side.finding.verdict is Verdict.SKIP and self._spoilt(side, others)
            for side, others in ((old, self.old), (new, self.new))
        )
        return both(old, new, pair.of, factor, spoilt=spoilt)

    def lacking(self, pair: _Pair, old: Run, new: Run) -> Change:
        """What it means that one of the runs has no such result."""
        of_old = pair.new is None
        spoilt = self._spoilt(pair.of, self.new if of_old else self.old)
        return alone(pair.of, old, new, of_old=of_old, spoilt=spoilt)

    @staticmethod
    def _spoilt(result: CaseResult, others: Named) -> bool:
        """Whether a property of a contract could not be asked, as its case fails."""
        return result.finding.part is Part.CONTRACT and any(
            r.finding.part is not Part.CONTRACT and not r.finding.verdict.expected
            for r in others.values()
        )


def _whole(results: Iterable[CaseResult]) -> CaseResult | None:
    """The result that stands for all others of its case, if there is one."""
    found = [
        r
        for r in results
        if r.finding.name in WHOLE
        and r.finding.part is not Part.CONTRACT
        and r.finding.verdict not in NUMBERS
    ]
    return min(found, key=lambda r: WHOLE.index(r.finding.name), default=None)


def _stands_for(whole: CaseResult | None, result: CaseResult) -> bool:
    """Whether a result that a run lacks is told by what it has of the whole case."""
    return whole is not None and (
        result.finding.part is not Part.CONTRACT or not whole.finding.verdict.checked
    )


def implementations(run: Run) -> Sequence[str]:
    """The implementations of a run, those without results too."""
    return tuple(
        dict.fromkeys([*run.header.implementations, *(r.case.implementation for r in run.results)])
    )
