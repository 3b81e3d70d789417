"""How long a case takes to judge, roughly, from what its spec says: long ones are begun first.

Only ratios matter, and only between cases that differ several times; the figures are seconds of
one core, fitted to all cases of the built-in suite (docs/adr/0034).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.judge.model import CERTIFICATE
from gradcheck.judge.model_truth import MAX_EXACT_PARAMETERS
from gradcheck.run.plan import AnyCase, Plan
from gradcheck.spec.model import ModelCase
from gradcheck.spec.rule import RuleCase
from gradcheck.spec.selection import LOW

TRUTH: Final = 8e-3
"""An operator's truth, where it is smooth."""
KINKED: Final = 8
"""On a kink every one-sided derivative is asked for."""
ANSWER: Final = 2e-3
"""To ask an implementation, and compare."""
CONTRACT: Final = 0.1
"""All that a backward owes beyond its numbers."""
STAGE: Final = 2.5e-3
"""A stage of a model in a float dtype."""
DIGITS: Final = 6e-4
"""A model in 50 digits: times (stages × parameters)^¾."""
STEP: Final = 3e-3
"""A step of an update rule."""
SEARCH: Final = 6
"""A rule whose gradients follow its parameters makes and judges more of them."""
TRAINED: Final = 1.0
"""A model that is trained by every rule."""
UNKNOWN: Final = 0.1
"""A case that is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds for what is true of a case, once in each process, and for each ask."""

    truth: float
    asks: tuple[float, ...]

    @property
    def whole(self) -> float:
        """All of it in one process."""
        return self.truth + sum(self.asks)


def cost_of(plan: Plan, case: AnyCase, asks: Sequence[tuple[str, str]]) -> Cost:
    """What a case costs of which these implementations and dtypes are asked."""
    try:
        if isinstance(case, ModelCase):
            return _model(plan, case, asks)
        if isinstance(case, RuleCase):
            step = STEP * case.sample.count * (SEARCH if case.sample.slope is not None else 1)
            return Cost(truth=step / 2, asks=(step,) * len(asks))
    except Exception:  # noqa: BLE001  a suite at fault is told by who judges it
        return Cost(truth=0.0, asks=(UNKNOWN,) * len(asks))
    contract = CONTRACT * (case.name in plan.contract_at)
    return Cost(
        truth=TRUTH * (KINKED if case.sample.at_kink else 1),
        asks=tuple(
            ANSWER + contract * plan.owes_contract(word) + TRUTH * (dtype in LOW)
            for word, dtype in asks
        ),
    )


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
