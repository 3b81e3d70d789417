"""A mutant's failure made small, and counted: how few elements show what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.explain.shrink import shrink
from gradcheck.power.attack import REJECTED
from gradcheck.power.killed_binding import caught
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.suite import Case

FEW: Final = 8
"""Elements of all primals together that a reader takes in at a glance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """What became of one mutant's first failure.

    `output` names the gradient ("vjp": the call as a whole), `label` the class that was found and
    kept ("" where none was). `before` and `after` count the elements of all primals, `largest`
    those of the largest of them after.
    """

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
        output=output,
        label="" if diagnosis is None else diagnosis.label,
        before=sum(p.size for p in found.case.primals),
        after=sum(sizes),
        largest=max(sizes),
    )
