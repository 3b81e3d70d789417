"""Units of work: what of a run is judged at once, sent by names, and in which order.

A unit is a case with some of its implementations and dtypes: mostly all of them, for they share
what is true of the case. A model or an update rule that is long enough to keep the other slots
waiting is divided. An operator's case never is: its truth is refined as it is asked, so that the
digits of an answer depend on what was asked before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gradcheck.run.plan import AnyCase, Plan, point_of
from gradcheck.run.workers.cost import Cost, cost_of
from gradcheck.spec.model import ModelCase
from gradcheck.spec.suite import Case

Names = tuple[str, str, str, int]
"""What a case is called: its operator, model or rule; dialect; sample; seed."""
Ask = tuple[str, str]
"""An implementation, by its `--impl` word, and a dtype."""
LONG: Final = 0.01
"""The share of a slot's work from which on a unit is long: by so much may slots end apart."""
SHORTER: Final = 0.7
"""What the longest part of a case is at most, for what they share is made for each again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Some of what is asked about one case.

    `place` is the case's in the run, `asks` are in the order of a run, `seconds` is what the unit
    is expected to take on some machine, `first` says whether it is begun before all that are not.
    `left_out` says why nothing of an implementation is run, where that is known already.
    """

    place: int
    names: Names
    asks: tuple[Ask, ...]
    seconds: float = 0.0
    first: bool = False
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def owner(self) -> tuple[str, str]:
        """The operator, model or rule, and the dialect: diagnoses are made once for them."""
        return self.names[0], self.names[1]


def names_of(case: AnyCase) -> Names:
    """By what another process finds a case in the suite that it has loaded."""
    return case.spec.name, case.dialect.name, point_of(case).name, case.seed


def asks_of(plan: Plan, case: AnyCase) -> tuple[Ask, ...]:
    """All that is asked about a case, in the order of a run."""
    dtypes = plan.model_dtypes if isinstance(case, ModelCase) else plan.dtypes
    return tuple((word, dtype) for word in plan.implementations for dtype in dtypes)


def units_of(plan: Plan, cases: Sequence[AnyCase], slots: int) -> list[Unit]:
    """What a run consists of, in its order, for so many workers."""
    asks = [asks_of(plan, case) for case in cases]
    costs = [cost_of(plan, case, each) for case, each in zip(cases, asks, strict=True)]
    share = sum(cost.whole for cost in costs) / slots
    return [
        Unit(place=place, names=names_of(case), asks=part, seconds=seconds)
        for place, case in enumerate(cases)
        for part, seconds in _parts(case, asks[place], costs[place], share / 2)
    ]


def _parts(
    case: AnyCase, asks: Sequence[Ask], cost: Cost, room: float
) -> list[tuple[tuple[Ask, ...], float]]:
    """A case as it is sent: whole, unless it leaves no room and its parts are so much shorter.

    It is divided by implementations, and, where that is not enough, by dtypes too.
    """
    priced = [*zip(asks, cost.asks, strict=True)]

    def by(key: Callable[[Ask], object]) -> list[tuple[tuple[Ask, ...], float]]:
        groups: dict[object, list[tuple[Ask, float]]] = {}
        for ask, seconds in priced:
            groups.setdefault(key(ask), []).append((ask, seconds))
        return [
            (tuple(ask for ask, _ in group), cost.truth + sum(seconds for _, seconds in group))
            for group in groups.values()
        ]

    best = by(lambda ask: None)
    if isinstance(case, Case):
        return best
    for finer in (by(lambda ask: ask[0]), by(lambda ask: ask)):
        longest = max((seconds for _, seconds in best), default=0.0)
        if longest > room and max(seconds for _, seconds in finer) < SHORTER * longest:
            best = finer
    return best


def divided(units: Sequence[Unit]) -> dict[int, set[str]]:
    """By the place of a case, the implementations that are asked about it in several units."""
    asked = Counter((unit.place, word) for unit in units for word in {w for w, _ in unit.asks})
    found: dict[int, set[str]] = {}
    for (place, word), count in asked.items():
        if count > 1:
            found.setdefault(place, set()).add(word)
    return found


def begun(units: Sequence[Unit], slots: int) -> list[Unit]:
    """The order in which units are begun: long ones first, the longest before all others.

    All others keep the order of the run, so that a log that is written in that order hardly waits;
    they are short enough for the slots to end together.
    """
    long = LONG * sum(unit.seconds for unit in units) / slots
    first = sorted((unit for unit in units if unit.seconds > long), key=lambda u: -u.seconds)
    others = [unit for unit in units if unit.seconds <= long]
    return [*(replace(unit, first=True) for unit in first), *others]
