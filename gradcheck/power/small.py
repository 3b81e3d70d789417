"""Every mutant's failure made small, and counted: how few elements show what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck import pool
from gradcheck.explain.shrink import shrink
from gradcheck.power.attack import REJECTED
from gradcheck.power.diagnosis import Naming, Progress, caught, held_out
from gradcheck.power.mutant import Mutant
from gradcheck.power.registry import mutants_of
from gradcheck.suite import Case, Suite, load_suite

FEW: Final = 8
"""Elements of all primals together that a reader takes in at a glance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """What became of one mutant's first failure.

    `output` names the gradient ("vjp": the call as a whole), `label` the class that was found and
    kept ("" where none was). `before` and `after` count the elements of all primals, `largest`
    those of the largest of them after.
    """

    op: str
    name: str
    held_out: bool
    output: str
    label: str
    before: int
    after: int
    largest: int

    @property
    def few(self) -> bool:
        """Whether it is small enough to be read."""
        return self.after <= FEW


def small(mutant: Mutant, cases: Sequence[Case]) -> Small:
    """Judge one mutant at its killer, and make its first failure small.

    Raises:
        SpecError: the sample that must catch it does not.
    """
    found = caught(mutant, cases)
    output = next(f.name for f in found.findings if f.verdict in REJECTED)
    shrunk = shrink(found.case, found.binding, found.dtype, output)
    case = found.case if shrunk is None else shrunk.case
    diagnosis = None if shrunk is None else shrunk.finding.diagnosis
    sizes = [p.size for p in case.primals]
    return Small(
        op=mutant.op,
        name=mutant.name,
        held_out=held_out(mutant),
        output=output,
        label="" if diagnosis is None else diagnosis.label,
        before=sum(p.size for p in found.case.primals),
        after=sum(sizes),
        largest=max(sizes),
    )


_SUITE: Suite
_PLAN: Naming
_MUTANTS: dict[str, list[Mutant]]


def shrink_all(plan: Naming, progress: Progress | None = None) -> pool.Collected[list[Small]]:
    """Make the failures of all mutants small, operator by operator."""
    found = pool.each(_small_of, plan.ops, plan.jobs, _prepare, (plan,))
    return pool.collect(found, plan.ops, progress)


def _prepare(plan: Naming) -> None:
    global _SUITE, _MUTANTS, _PLAN  # noqa: PLW0603  what a worker process keeps
    _PLAN, _SUITE = plan, load_suite(plan.suites)
    _MUTANTS = mutants_of(_SUITE)


def _small_of(op: str) -> list[Small]:
    cases = _SUITE.cases([op], seed=_PLAN.seed)
    return [
        small(mutant, cases)
        for mutant in _MUTANTS[op]
        if not mutant.equivalent
        and _PLAN.part.holds(mutant.op, mutant.name)
        and (_PLAN.held_out or not held_out(mutant))
    ]
