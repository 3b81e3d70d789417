"""Mutation runs of diagnoses: is the defect of every mutant named, at the sample that rejects it?

`Diagnosed` counts right, wrong and missing diagnoses, and how small the failures can be made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.power.diagnosed_mutant import (
    DiagnosedMutant,
    Named,
    NamedNarrow,
    Small,
    name_narrow,
    named,
)
from gradcheck.power.run_mutants import MutationReport, Work
from gradcheck.spec.mutant import mutants_of

READABLE: Final = 0.8
"""Share of failures that `FEW` elements must show."""
TYPED: Final = 0.9
"""Share of narrow mutants whose type the diagnosis must name."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What a score must reach: the least share named rightly, the largest named wrongly."""

    right: float
    wrong: float


WITH_SPEC: Final = Bar(right=0.85, wrong=0.03)
WITHOUT_SPEC: Final = Bar(right=0.6, wrong=0.12)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many diagnoses are right and wrong, and how many mutants have none.

    `exact` counts the right ones whose label is the class that is written first.
    """

    right: int
    wrong: int
    unnamed: int
    exact: int = 0

    @classmethod
    def of(cls, named: Iterable[DiagnosedMutant]) -> Tally:
        """Count the verdicts of some mutants."""
        every = [*named]
        count = Counter(one.verdict for one in every)
        exact = sum(isinstance(one, Named) and one.exact for one in every)
        return cls(count["right"], count["wrong"], count["none"], exact)

    @property
    def all(self) -> int:
        """How many mutants there are."""
        return self.right + self.wrong + self.unnamed

    def reaches(self, bar: Bar) -> bool:
        """Whether enough are right and few enough wrong; an empty tally reaches nothing."""
        enough = self.right >= bar.right * self.all and self.wrong <= bar.wrong * self.all
        return self.all > 0 and enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed(MutationReport[Named | NamedNarrow]):
    """The diagnoses of all mutants; `black_box`: made without specs."""

    black_box: bool = False

    @property
    def named(self) -> list[Named]:
        """Mutants written by hand, but those that `gradcheck.check` does not fail."""
        return [one for one in self.scores if isinstance(one, Named) and not one.passed]

    @property
    def passed(self) -> int:
        """How many `gradcheck.check` does not fail at their samples."""
        return sum(isinstance(one, Named) and one.passed for one in self.scores)

    @property
    def narrow(self) -> list[NamedNarrow]:
        """Mutants made from the specs."""
        return [one for one in self.scores if isinstance(one, NamedNarrow)]

    @property
    def checked(self) -> bool:
        """Whether any mutant written by hand was diagnosed."""
        return bool(self.named)

    @property
    def invalid(self) -> bool:
        """Whether a process was lost."""
        return bool(self.troubles)

    @property
    def bar(self) -> Bar:
        """What the score of `named` must reach."""
        return WITHOUT_SPEC if self.black_box else WITH_SPEC

    @property
    def development(self) -> list[Named]:
        """The two thirds that hypotheses were written with."""
        return [one for one in self.named if not one.held_out]

    @property
    def held_out(self) -> list[Named]:
        """The third that no hypothesis was written with."""
        return [one for one in self.named if one.held_out]

    @property
    def small(self) -> list[Small]:
        """The failures that were made small."""
        return [one.small for one in self.named if one.small is not None]

    @property
    def few(self) -> int:
        """How many of them are shown by few elements."""
        return sum(one.few for one in self.small)

    @property
    def sound(self) -> bool:
        """Whether it is complete, enough mutants are named rightly, and enough are made small."""
        readable = self.few >= READABLE * len(self.small)
        good = readable and Tally.of(self.named).reaches(self.bar) and self.typed
        return self.complete and not self.troubles and good

    @property
    def typed(self) -> bool:
        """Whether the type of enough narrow mutants is named, if there are any."""
        return Tally.of(self.narrow).right >= TYPED * len(self.narrow)

    def by(self, key: Callable[[Named], str]) -> Iterator[tuple[str, list[Named]]]:
        """Group the mutants by a property, in the order of its names."""
        groups: dict[str, list[Named]] = {}
        for one in self.named:
            groups.setdefault(key(one), []).append(one)
        yield from sorted(groups.items())


load = mutants_of
REPORT = Diagnosed


def scores(work: Work, op: str) -> Sequence[Named | NamedNarrow]:
    """Diagnose the mutants of one operator: those written by hand, then the narrow ones.

    Without specs there are no narrow ones.
    """
    plan, suite = work.plan, work.suite
    cases = suite.cases([op], seed=plan.seed)
    written = [
        named(mutant, cases, suite.operators, black_box=plan.black_box)
        for mutant in work.mutants[op]
        if not mutant.equivalent and plan.part.holds(mutant.op, mutant.name)
    ]
    if plan.black_box:
        return written
    return [*written, *name_narrow(cases, suite.operators, plan.part.holds)]


def confusion(named: Sequence[Named]) -> Counter[tuple[str, str]]:
    """How often a class (its first) was given a label; "" for no label."""
    return Counter((one.labels[0], one.first.label if one.first else "") for one in named)
