"""All narrow mutants and narrow stages of a suite: who is rejected, and why nobody else can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gradcheck.power import narrow, narrow_model
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Suite

OPERATOR: Final = "operator"
STAGE: Final = "stage"
WHOLE: Final = "whole model"
PLACES: Final = {"stage": STAGE, "gradients": WHOLE}


class Outcome(NamedTuple):
    """One rounding in the code of one operator (`op/dialect`) or of one stage of a model.

    `judged` says by what: the operator's gradients, the stage's alone, or the whole model's. Where
    it is not `rejected`, `reason` proves why it cannot be; an empty one is a miss.
    """

    subject: str
    judged: str
    what: str
    type: str
    dtype: str
    rejected: bool
    reason: str


@dataclass(frozen=True)
class NarrowPower:
    """What became of every rounding, in the order of the suite."""

    suite: str
    suite_version: str
    seed: int
    outcomes: tuple[Outcome, ...]

    @property
    def missed(self) -> list[Outcome]:
        """Roundings that pass, and of which nobody knows why."""
        return [one for one in self.outcomes if not (one.rejected or one.reason)]

    @property
    def sound(self) -> bool:
        """Whether every rounding is rejected, or is proved to change too little."""
        return not self.missed


def narrow_power(
    suite: Suite,
    ops: Sequence[str],
    models: Sequence[str],
    dtypes: Sequence[str],
    seed: int = 0,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> NarrowPower:
    """Put every rounding of the operators and models named to the judgement.

    Raises:
        SpecError: a case contradicts its spec.
    """
    outcomes: list[Outcome] = []
    total = len(ops) + len(models)
    for done, name in enumerate((*ops, *models)):
        progress(done, total, name)
        found = _operator if done < len(ops) else _model
        outcomes += found(suite, name, dtypes, seed)
    return NarrowPower(suite.name, suite.version, seed, tuple(outcomes))


def _operator(suite: Suite, op: str, dtypes: Sequence[str], seed: int) -> Iterator[Outcome]:
    for _, dialect, what, kind, dtype, verdict, reason in narrow.narrow_rows(
        suite, [op], dtypes, seed
    ):
        proof = reason if verdict == "equivalent" else ""
        yield Outcome(f"{op}/{dialect}", OPERATOR, what, kind, dtype, verdict == "killed", proof)


def _model(suite: Suite, model: str, dtypes: Sequence[str], seed: int) -> Iterator[Outcome]:
    for row in narrow_model.narrow_rows(suite, [model], dtypes, seed):
        rejected = row.verdict == Verdict.FAIL.value
        yield Outcome(
            f"{row.subject}/{row.stage}", PLACES[row.judged], row.kind, row.type, row.dtype,
            rejected, row.reason,
        )  # fmt: skip
