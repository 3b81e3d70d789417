"""Every mutant diagnosed at the sample that must catch it, and held against its own classes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gradcheck.explain.lazy_diagnosis import LazyDiagnoser
from gradcheck.power.killed_binding import caught, held_out, leading
from gradcheck.power.narrow_named import NamedNarrow, name_narrow
from gradcheck.power.score import WHOLE, Part
from gradcheck.power.shrink_stats import Small, small
from gradcheck.results.finding import Diagnosis, Finding
from gradcheck.run.workers.collect import Collected, Workers, collect
from gradcheck.spec.loading import load_suite
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.mutant_registry import mutants_of
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case, Suite

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What one mutant was diagnosed with.

    `labels` are the classes written beside it, `found` the diagnoses of its failing gradients by
    name; the first is the one that explains most of them. `held_out`: no rule was written with it
    in sight. `small` is what became of its first failure when it was made small.
    """

    op: str
    family: str
    name: str
    says: str
    labels: tuple[str, ...]
    held_out: bool
    found: tuple[tuple[str, Diagnosis], ...]
    small: Small | None = None

    @property
    def first(self) -> Diagnosis | None:
        """The diagnosis with a label that explains most gradients; None if none has one."""
        return leading(self.found)

    @property
    def exact(self) -> bool:
        """Whether it is named by the class written first, and not by another that is true too."""
        return self.first is not None and self.first.label == self.labels[0]

    @property
    def verdict(self) -> str:
        """`right`, `wrong`, or `none` where no pattern was found."""
        if self.first is None:
            return "none"
        return "right" if self.first.label in self.labels else "wrong"


def named(
    mutant: Mutant, cases: Sequence[Case], operators: Mapping[str, OpSpec] = MappingProxyType({})
) -> Named:
    """Judge and diagnose one mutant at its killer, and make its first failure small.

    It may be named as another of the suite's `operators`, but not as a known defect: it is one.

    Raises:
        SpecError: the sample that must catch it does not.
    """
    found = caught(mutant, cases)
    explained = LazyDiagnoser(operators).explained(
        found.case, found.binding, found.dtype, found.findings
    )
    return Named(
        op=mutant.op,
        family=found.case.spec.family,
        name=mutant.name,
        says=mutant.says,
        labels=mutant.labels,
        held_out=held_out(mutant),
        found=tuple(_diagnosed(explained)),
        small=small(mutant, cases),
    )


def _diagnosed(findings: Sequence[Finding]) -> Generator[tuple[str, Diagnosis]]:
    for finding in findings:
        if finding.diagnosis is not None:
            yield finding.name, finding.diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What to diagnose: mutants of operators, a fixed part of them, without those held out or with.

    `narrow` asks for the mutants made from the specs, beside those written by hand. `suites` are
    `--suite` references (empty: the installed ones).
    """

    suites: tuple[str, ...] = ()
    ops: tuple[str, ...]
    seed: int = 0
    part: Part = WHOLE
    jobs: int = 1
    held_out: bool = True
    narrow: bool = True


_SUITE: Suite
_PLAN: Naming
_MUTANTS: dict[str, list[Mutant]]


def name_all(
    plan: Naming, progress: Progress | None = None, workers: Workers | None = None
) -> Collected[list[Named | NamedNarrow]]:
    """Diagnose all mutants, operator by operator: those written by hand, then the narrow ones."""
    return collect(
        _named_of, plan.ops, plan.jobs, _prepare, (plan,), progress=progress, workers=workers
    )


def _prepare(plan: Naming) -> None:
    global _SUITE, _MUTANTS, _PLAN  # noqa: PLW0603  what a worker process keeps
    _PLAN, _SUITE = plan, load_suite(plan.suites)
    _MUTANTS = mutants_of(_SUITE)


def _named_of(op: str) -> list[Named | NamedNarrow]:
    cases = _SUITE.cases([op], seed=_PLAN.seed)
    written = [
        named(mutant, cases, _SUITE.operators)
        for mutant in _MUTANTS[op]
        if not mutant.equivalent
        and _PLAN.part.holds(mutant.op, mutant.name)
        and (_PLAN.held_out or not held_out(mutant))
    ]
    if not _PLAN.narrow:
        return [*written]
    return [*written, *name_narrow(cases, _SUITE.operators, _PLAN.part.holds)]
