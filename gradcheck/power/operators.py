"""Mutation runs of operators: impostors, mutants and narrow mutants, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradcheck.power.run_mutants import MutationReport, Work
from gradcheck.power.score import Score, Trial, score
from gradcheck.spec.mutant_registry import mutants_of

load = mutants_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Power(MutationReport[Score]):
    """The scores of operators."""

    def trials(self, kind: str) -> list[Trial]:
        """All trials of one kind."""
        return [trial for found in self.scores for trial in found.of(kind)]

    @property
    def survivors(self) -> list[tuple[Score, Trial]]:
        """Wrong answers that nothing rejects."""
        return [(s, t) for s in self.scores for t in s.trials if t.survives]

    @property
    def refuted(self) -> list[tuple[Score, Trial]]:
        """Mutants declared equivalent that are rejected."""
        return [(s, t) for s in self.scores for t in s.trials if t.doubt and t.killed]

    @property
    def misnamed(self) -> list[tuple[Score, Trial]]:
        """Mutants that another sample than the named one rejects."""
        return [(s, t) for s in self.scores for t in s.trials if t.killed and not t.killed_as_said]

    @property
    def sound(self) -> bool:
        """Whether all wrong answers, one at least, are rejected, and all right ones pass."""
        tried = any(found.trials for found in self.scores)
        return self.complete and tried and all(found.sound for found in self.scores)

    @property
    def checked(self) -> bool:
        """Whether any wrong answer was tried, or a right one failed."""
        return any(score.trials or score.alarms for score in self.scores)

    @property
    def invalid(self) -> bool:
        """Whether something could not be tried, or a sample rejects nothing."""
        return any(score.troubles or score.useless for score in self.scores)


REPORT = Power


def scores(work: Work, op: str) -> Sequence[Score]:
    """Judge the wrong answers of one operator."""
    plan, spec = work.plan, work.suite.operators[op]
    cases = work.suite.cases([op], seed=plan.seed)
    return [score(spec, cases, work.mutants[op], plan.dtypes, plan.part)]
