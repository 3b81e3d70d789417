"""Mutation runs of narrow numbers: every rounding in every operator and every stage of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.narrow import narrower
from gradcheck.power.narrow_operators import narrow_of
from gradcheck.power.narrow_stages import StageTrials
from gradcheck.power.run_mutants import MutationReport, Work
from gradcheck.results.verdict import Verdict
from gradcheck.spec.fault import PLACES
from gradcheck.spec.suite import Suite


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowPower(MutationReport[Outcome]):
    """The outcome of every rounding, in the order of the suite."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """All outcomes."""
        return self.scores

    @property
    def missed(self) -> list[Outcome]:
        """Roundings that pass without a proof that they must."""
        return [one for one in self.outcomes if not (one.rejected or one.reason)]

    @property
    def sound(self) -> bool:
        """Whether every rounding is rejected, or is proved to change too little."""
        return not self.missed


REPORT = NarrowPower


def load(suite: Suite) -> None:
    """Load nothing: narrow mutants are made from the specs."""


def scores(work: Work, name: str) -> Sequence[Outcome]:
    """Judge every rounding of one operator or model."""
    of = operator_outcomes if name in work.suite.operators else model_outcomes
    return [*of(work.suite, name, work.plan.dtypes, work.plan.seed)]


def operator_outcomes(
    suite: Suite, op: str, dtypes: Sequence[str], seed: int = 0
) -> Iterator[Outcome]:
    """Every rounding in one operator, dialect by dialect."""
    cases = suite.cases([op], seed=seed)
    for dialect, of in groupby(cases, key=lambda case: case.dialect.name):
        for tried in narrow_of([*of], dtypes):
            rounding = tried.rounding
            yield Outcome(
                f"{op}/{dialect}", "operator", rounding.what, rounding.type.title, tried.dtype,
                bool(tried.killer), tried.equivalent,
            )  # fmt: skip


def model_outcomes(
    suite: Suite, model: str, dtypes: Sequence[str], seed: int = 0
) -> Iterator[Outcome]:
    """Every rounding in every stage of one model at its smallest size, judged both ways."""
    smallest = suite.models[model].sizes[0].name
    for case in suite.model_cases([model], sizes=[smallest], seed=seed):
        truth = ModelTruth(case)
        for dtype in dtypes:
            trials = StageTrials(truth, dtype)
            judges = (("stage", trials.of_stage), ("whole model", trials.of_model))
            for stage in truth.program.stages:
                for narrow in narrower(dtype):
                    for place in PLACES:
                        for judged, judge in judges:
                            verdict, reason = trials.told(judge, stage, place, narrow)
                            yield Outcome(
                                f"{model}/{case.dialect.name}/{stage.name}", judged, place,
                                narrow.name, dtype, verdict is Verdict.FAIL, reason,
                            )  # fmt: skip
