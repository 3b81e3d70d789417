"""Mutation runs: wrong answers of one kind, put to the judgement that everybody's code gets.

A kind is a module of this package with a class `REPORT`, a function `load(suite)`, which returns
the suite's wrong answers and refuses mistakes in them, and a function `scores(work, name)`, which
judges those of one operator, model or update rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import gradcheck
from gradcheck.errors import LoadError
from gradcheck.numerics.draw import key_of
from gradcheck.run.workers.collect import Workers, collect
from gradcheck.spec.loading import load_suite, resolve
from gradcheck.spec.suite import Suite

Progress = Callable[[int, int, str], None]
Score = TypeVar("Score")
T = TypeVar("T")
KINDS: Final = {
    "operators": "gradcheck.power.operators",
    "models": "gradcheck.power.model",
    "rules": "gradcheck.power.rule",
    "contracts": "gradcheck.power.contract",
    "narrow": "gradcheck.power.narrow",
    "diagnosis": "gradcheck.power.diagnosis",
}
"""The kinds of mutation runs, and their modules."""


@dataclass(frozen=True, slots=True)
class Part:
    """The `number`-th of `of` parts of all wrong answers, chosen by their names."""

    number: int = 1
    of: int = 1

    def holds(self, *names: str) -> bool:
        """Whether a wrong answer belongs to it; the same on every machine, for ever."""
        return int(key_of("power", *names)) % self.of == self.number - 1


WHOLE: Final = Part()


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationPlan:
    """A mutation run.

    Attributes:
        kind: one of `KINDS`.
        names: operators, models or update rules, in order.
        dtypes: where a kind has a choice.
        suites: references of `--suite`; empty: the installed suites.
        seed: the seed of all inputs.
        part: a part of all wrong answers.
        jobs: the number of processes.
        black_box: diagnose without specs, as `gradcheck.check` does.
    """

    kind: str
    names: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    seed: int = 0
    part: Part = WHOLE
    jobs: int = 1
    black_box: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationReport(ABC, Generic[Score]):
    """The results of a mutation run: `scores`, one or more per name.

    `complete` is false where the run was interrupted, or lost a process; `troubles` say so.
    """

    version: str = ""
    suite: str
    suite_version: str
    dtypes: tuple[str, ...] = ()
    seed: int
    scores: tuple[Score, ...]
    complete: bool = True
    troubles: tuple[str, ...] = ()
    part: Part = WHOLE

    @property
    def checked(self) -> bool:
        """Whether anything was judged."""
        return bool(self.scores)

    @property
    def invalid(self) -> bool:
        """Whether the suite is invalid."""
        return False

    @property
    @abstractmethod
    def sound(self) -> bool:
        """Whether every wrong answer is rejected, and every right one passes."""


@dataclass(frozen=True, slots=True)
class Work:
    """The plan, the suite, and its wrong answers of the kind, kept in each process."""

    plan: MutationPlan
    suite: Suite
    mutants: Any


def from_tables(references: Sequence[str], kind: type[T]) -> Iterator[T]:
    """The wrong answers in the tables at "module:NAME", in order.

    Raises:
        LoadError: a table cannot be imported, or holds something else.
    """
    for reference in references:
        table = resolve(reference)
        if not isinstance(table, Sequence) or not all(isinstance(one, kind) for one in table):
            raise LoadError(f"{reference}: make it a tuple of {kind.__name__}")
        yield from table


_WORK: Work


def run(
    plan: MutationPlan, progress: Progress | None = None, workers: Workers | None = None
) -> Any:
    """Judge the wrong answers of a plan; after Ctrl-C or a loss, report the results so far.

    Returns:
        A report of the kind's class.

    Raises:
        LoadError: the suite, or a table of its wrong answers, cannot be imported.
        SpecError: a wrong answer contradicts its operator, model or update rule.
    """
    suite = load_suite(plan.suites)
    module = import_module(KINDS[plan.kind])
    module.load(suite)  # mistakes are reported before any process starts
    found = collect(
        _scores, plan.names, plan.jobs, _prepare, (plan,), progress=progress, workers=workers
    )
    return module.REPORT(
        version=gradcheck.__version__,
        suite=suite.name,
        suite_version=suite.version,
        dtypes=plan.dtypes,
        seed=plan.seed,
        part=plan.part,
        scores=tuple(chain.from_iterable(found.results)),
        complete=found.complete,
        troubles=found.troubles,
        **({"black_box": True} if plan.black_box else {}),
    )


def _prepare(plan: MutationPlan) -> None:
    global _WORK  # noqa: PLW0603  a worker process keeps it
    suite = load_suite(plan.suites)
    _WORK = Work(plan, suite, import_module(KINDS[plan.kind]).load(suite))


def _scores(name: str) -> Sequence[Any]:
    found: Sequence[Any] = import_module(KINDS[_WORK.plan.kind]).scores(_WORK, name)
    return found
