"""Units of work: the cases of a run as they are sent to workers, their cost, and their order.

A unit is a case with some of its implementations and dtypes: mostly all of them, since they share
the truth of the case. A model or an update rule that would keep other workers waiting is divided.
A case of an operator never is: its truth is refined as it is asked, so that the digits of an answer
depend on earlier questions.

Costs are seconds of one core, fitted to all cases of the built-in suite (docs/adr/0034). Only
their ratios matter, and only between cases that differ several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gradcheck.judge.model import CERTIFICATE
from gradcheck.judge.model_truth import MAX_EXACT_PARAMETERS
from gradcheck.run.plan import Plan
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.dtype_selection import LOW

if TYPE_CHECKING:
    from gradcheck.spec.model import ModelCase
    from gradcheck.spec.rule import RuleCase
    from gradcheck.spec.suite import Case

Names = tuple[str, str, str, int]
"""The names of a case: its operator, model or rule; dialect; sample; seed."""
Ask = tuple[str, str]
"""An implementation, by its `--impl` word, and a dtype."""
LONG_SHARE: Final = 0.01
"""The share of a slot's work from which a unit is long: by so much may slots end apart."""
MAX_PART: Final = 0.7
"""The longest part of a divided case, at most: each part computes the truth again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Some of the asks of one case.

    Attributes:
        place: the place of the case in the run.
        names: the names of the case.
        asks: implementations and dtypes, in the order of the run.
        seconds: the expected time, on some machine.
        first: whether it is begun before all units that are not.
        left_out: implementations that are left out, each with the reason.
    """

    place: int
    names: Names
    asks: tuple[Ask, ...]
    seconds: float = 0.0
    first: bool = False
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def owner(self) -> tuple[str, str]:
        """The operator, model or rule, and the dialect; a worker diagnoses each once."""
        return self.names[0], self.names[1]


def asks_of(plan: Plan, case: AnyCase) -> tuple[Ask, ...]:
    """All asks of a case, in the order of a run."""
    dtypes = plan.dtypes_of(case)
    return tuple((word, dtype) for word in plan.implementations for dtype in dtypes)


def units_of(plan: Plan, cases: Sequence[AnyCase], slots: int) -> list[Unit]:
    """The units of a run, in its order, for a number of workers."""
    asks = [asks_of(plan, case) for case in cases]
    costs = [cost_of(plan, case, each) for case, each in zip(cases, asks, strict=True)]
    share = sum(cost.whole for cost in costs) / slots
    return [
        Unit(place=place, names=case.address, asks=part, seconds=seconds)
        for place, case in enumerate(cases)
        for part, seconds in _parts(case, asks[place], costs[place], share / 2)
    ]


def _parts(
    case: AnyCase, asks: Sequence[Ask], cost: Cost, room: float
) -> list[tuple[tuple[Ask, ...], float]]:
    """The parts of a case: one, unless it exceeds `room` seconds and its parts are much shorter.

    A case is divided by implementations, then by dtypes.
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
    if case.kind is Kind.OPERATOR:
        return best
    for finer in (by(lambda ask: ask[0]), by(lambda ask: ask)):
        longest = max((seconds for _, seconds in best), default=0.0)
        if longest > room and max(seconds for _, seconds in finer) < MAX_PART * longest:
            best = finer
    return best


def divided(units: Sequence[Unit]) -> dict[int, set[str]]:
    """By the place of a case, the implementations whose asks are in several units."""
    asked = Counter((unit.place, word) for unit in units for word in {w for w, _ in unit.asks})
    found: dict[int, set[str]] = {}
    for (place, word), count in asked.items():
        if count > 1:
            found.setdefault(place, set()).add(word)
    return found


def begun(units: Sequence[Unit], slots: int) -> list[Unit]:
    """The order in which units are begun: long ones first, the longest before all others.

    The others keep the order of the run, so that a log in that order hardly waits; they are short
    enough for the slots to end together.
    """
    long = LONG_SHARE * sum(unit.seconds for unit in units) / slots
    first = sorted((unit for unit in units if unit.seconds > long), key=lambda u: -u.seconds)
    others = [unit for unit in units if unit.seconds <= long]
    return [*(replace(unit, first=True) for unit in first), *others]


# ── their cost ───────────────────────────────────────────────────────────────────────────────────

TRUTH: Final = 8e-3
"""The truth of an operator at a smooth sample."""
KINKED: Final = 8
"""The factor of a sample on a kink, where every one-sided derivative is computed."""
ANSWER: Final = 2e-3
"""A call of an implementation, and the comparison."""
CONTRACT: Final = 0.1
"""The contract."""
STAGE: Final = 2.5e-3
"""A stage of a model in a float dtype."""
DIGITS: Final = 6e-4
"""A model in 50 digits: times (stages × parameters)^¾."""
STEP: Final = 3e-3
"""A step of an update rule."""
SEARCH: Final = 6
"""The factor of a rule whose gradients follow its parameters."""
TRAINED: Final = 1.0
"""The training of a model by every rule."""
UNKNOWN: Final = 0.1
"""An invalid case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds for the truth of a case, once in each process, and for each ask."""

    truth: float
    asks: tuple[float, ...]

    @property
    def whole(self) -> float:
        """The cost in one process."""
        return self.truth + sum(self.asks)


def cost_of(plan: Plan, case: AnyCase, asks: Sequence[tuple[str, str]]) -> Cost:
    """The cost of a case for some implementations and dtypes."""
    try:
        return COSTS[case.kind](plan, case, asks)
    except Exception:  # noqa: BLE001  judging it reports the suite's fault
        return Cost(truth=0.0, asks=(UNKNOWN,) * len(asks))


def _operator(plan: Plan, case: Case, asks: Sequence[tuple[str, str]]) -> Cost:
    contract = CONTRACT * (case.name in plan.contract_at)
    return Cost(
        truth=TRUTH * (KINKED if case.sample.at_kink else 1),
        asks=tuple(
            ANSWER + contract * plan.owes_contract(word) + TRUTH * (dtype in LOW)
            for word, dtype in asks
        ),
    )


def _rule(plan: Plan, case: RuleCase, asks: Sequence[tuple[str, str]]) -> Cost:
    step = STEP * case.sample.count * (SEARCH if case.sample.slope is not None else 1)
    return Cost(truth=step / 2, asks=(step,) * len(asks))


def _model(plan: Plan, case: ModelCase, asks: Sequence[tuple[str, str]]) -> Cost:
    stages = len(case.program.stages)
    size = sum(array.size for array in case.params.values())
    trained = TRAINED * (plan.train and case.size == case.spec.sizes[0])
    digits: float = DIGITS * (size * stages) ** 0.75 * (size <= MAX_EXACT_PARAMETERS)

    def cost(word: str, dtype: str) -> float:
        if dtype == CERTIFICATE:
            return digits * (word == "reference")
        return STAGE * stages + trained

    return Cost(truth=STAGE * stages, asks=tuple(cost(*ask) for ask in asks))


COSTS: Final[Mapping[Kind, Callable[[Plan, Any, Sequence[tuple[str, str]]], Cost]]] = {
    Kind.OPERATOR: _operator,
    Kind.MODEL: _model,
    Kind.RULE: _rule,
}
"""By the kind of a case, the function that estimates its cost."""
