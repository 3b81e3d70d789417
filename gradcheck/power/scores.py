"""The diagnoses of all mutants, counted: how many are right, wrong, or say nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import gradcheck
from gradcheck.power.diagnosis import Named, Naming, Progress, name_all
from gradcheck.power.narrow_named import NamedNarrow
from gradcheck.power.score import WHOLE, Part
from gradcheck.power.shrink_stats import Small
from gradcheck.run.workers.collect import Workers
from gradcheck.spec.loading import load_suite
from gradcheck.spec.mutant_registry import mutants_of

ENOUGH: Final = 0.85
"""Share of mutants whose diagnosis must be right."""
READABLE: Final = 0.8
"""Share of failures that few elements must show."""
TYPED: Final = 0.9
"""Share of narrow mutants whose type the diagnosis must name."""
TOLERATED: Final = 0.03
"""Share of mutants whose diagnosis may be wrong; a wrong one is worse than none."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many diagnoses are right and wrong, and how many mutants have none."""

    right: int
    wrong: int
    unnamed: int
    exact: int = 0
    """Of the right ones, those named by the class that is written first."""

    @classmethod
    def of(cls, named: Iterable[Named | NamedNarrow]) -> Tally:
        """The verdicts of some mutants."""
        every = [*named]
        count = Counter(one.verdict for one in every)
        exact = sum(isinstance(one, Named) and one.exact for one in every)
        return cls(count["right"], count["wrong"], count["none"], exact)

    @property
    def all(self) -> int:
        """How many mutants there are."""
        return self.right + self.wrong + self.unnamed

    @property
    def good(self) -> bool:
        """Whether enough are right and few enough wrong; of none, nothing is shown."""
        enough = self.right >= ENOUGH * self.all and self.wrong <= TOLERATED * self.all
        return self.all > 0 and enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """What the diagnosis of mutants showed.

    `named` are the mutants written by hand, `narrow` those made from the specs, which are counted
    apart. `complete` is false where it was interrupted, or lost a process; `troubles` say so.
    """

    version: str
    suite: str
    suite_version: str
    seed: int
    part: Part = WHOLE
    named: tuple[Named, ...]
    narrow: tuple[NamedNarrow, ...] = ()
    complete: bool = True
    troubles: tuple[str, ...] = ()

    @property
    def development(self) -> list[Named]:
        """The two thirds that rules were written with."""
        return [one for one in self.named if not one.held_out]

    @property
    def held_out(self) -> list[Named]:
        """The third that no rule was written with."""
        return [one for one in self.named if one.held_out]

    @property
    def small(self) -> list[Small]:
        """What became of the failures that were made small."""
        return [one.small for one in self.named if one.small is not None]

    @property
    def few(self) -> int:
        """How many of them are shown by few elements."""
        return sum(one.few for one in self.small)

    @property
    def sound(self) -> bool:
        """Whether it is complete, enough mutants are named rightly, and enough are made small."""
        readable = self.few >= READABLE * len(self.small)
        good = readable and Tally.of(self.named).good and self.typed
        return self.complete and not self.troubles and good

    @property
    def typed(self) -> bool:
        """Whether the type of enough narrow mutants is named, if there are any."""
        return Tally.of(self.narrow).right >= TYPED * len(self.narrow)

    def by(self, key: Callable[[Named], str]) -> Iterator[tuple[str, list[Named]]]:
        """The mutants by a property of theirs, in the order of its names."""
        groups: dict[str, list[Named]] = {}
        for one in self.named:
            groups.setdefault(key(one), []).append(one)
        yield from sorted(groups.items())


def confusion(named: Sequence[Named]) -> Counter[tuple[str, str]]:
    """How often a class (its first) was given a label; "" for no label."""
    return Counter((one.labels[0], one.first.label if one.first else "") for one in named)


def diagnose_mutants(
    plan: Naming, progress: Progress | None = None, workers: Workers | None = None
) -> Diagnosed:
    """Diagnose the mutants of a plan; cut short, return what is known.

    Raises:
        LoadError: the suite, or its table of mutants, cannot be imported.
        SpecError: a mutant contradicts its operator, or its sample does not catch it.
    """
    suite = load_suite(plan.suites)
    mutants_of(suite)  # mistakes are told here, before any process starts
    found = name_all(plan, progress, workers)
    every = [one for of_op in found.results for one in of_op]
    return Diagnosed(
        version=gradcheck.__version__,
        suite=suite.name,
        suite_version=suite.version,
        seed=plan.seed,
        part=plan.part,
        named=tuple(one for one in every if isinstance(one, Named)),
        narrow=tuple(one for one in every if isinstance(one, NamedNarrow)),
        complete=found.complete,
        troubles=found.troubles,
    )
