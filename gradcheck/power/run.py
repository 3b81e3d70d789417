"""Every operator selected, attacked; one process per job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gradcheck
from gradcheck.power.score import WHOLE, Part, Score, Trial, score
from gradcheck.run.workers.collect import Workers, collect
from gradcheck.spec.loading import load_suite
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.mutant_registry import mutants_of
from gradcheck.spec.suite import Suite

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What to attack: operators by name, in dtypes, with a part of all wrong answers.

    `suites` are `--suite` references (empty: the installed ones).
    """

    suites: tuple[str, ...] = ()
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    seed: int = 0
    part: Part = WHOLE
    jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What the attack showed.

    `complete` is false where it was interrupted, or lost a process; `troubles` say so.
    """

    version: str
    suite: str
    suite_version: str
    dtypes: tuple[str, ...]
    seed: int
    part: Part
    scores: tuple[Score, ...]
    complete: bool = True
    troubles: tuple[str, ...] = ()

    def trials(self, kind: str) -> list[Trial]:
        """All trials of one kind."""
        return [trial for found in self.scores for trial in found.of(kind)]

    @property
    def survivors(self) -> list[tuple[Score, Trial]]:
        """What nothing rejects, though it is wrong."""
        return [(s, t) for s in self.scores for t in s.trials if t.survives]

    @property
    def refuted(self) -> list[tuple[Score, Trial]]:
        """Mutants that were said to be the right VJP after all, and are rejected."""
        return [(s, t) for s in self.scores for t in s.trials if t.doubt and t.killed]

    @property
    def misnamed(self) -> list[tuple[Score, Trial]]:
        """Mutants that others catch, but not the sample that was to catch them."""
        return [(s, t) for s in self.scores for t in s.trials if t.killed and not t.killed_as_said]

    @property
    def sound(self) -> bool:
        """Whether all wrong answers, one at least, are rejected and all right ones pass."""
        tried = any(found.trials for found in self.scores)
        return self.complete and tried and all(found.sound for found in self.scores)


_SUITE: Suite
_MUTANTS: dict[str, list[Mutant]]
_ATTACK: Attack


def attack(plan: Attack, progress: Progress | None = None, workers: Workers | None = None) -> Power:
    """Attack the operators one after another; cut short, return what is known.

    Raises:
        LoadError: the suite, or its table of mutants, cannot be imported.
        SpecError: a mutant contradicts its operator.
    """
    suite = load_suite(plan.suites)
    mutants_of(suite)  # mistakes are told here, before any process starts
    found = collect(
        _score, plan.ops, plan.jobs, _prepare, (plan,), progress=progress, workers=workers
    )
    return Power(
        version=gradcheck.__version__,
        suite=suite.name,
        suite_version=suite.version,
        dtypes=plan.dtypes,
        seed=plan.seed,
        part=plan.part,
        scores=tuple(found.results),
        complete=found.complete,
        troubles=found.troubles,
    )


def _prepare(plan: Attack) -> None:
    global _SUITE, _MUTANTS, _ATTACK  # noqa: PLW0603  what a worker process keeps
    _ATTACK, _SUITE = plan, load_suite(plan.suites)
    _MUTANTS = mutants_of(_SUITE)


def _score(op: str) -> Score:
    spec = _SUITE.operators[op]
    cases = _SUITE.cases([op], seed=_ATTACK.seed)
    return score(spec, cases, _MUTANTS[op], _ATTACK.dtypes, _ATTACK.part)
