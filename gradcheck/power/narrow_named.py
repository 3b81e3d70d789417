"""Diagnoses of rejected narrow mutants: is the type named to which they round?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradcheck.explain.case_diagnosis import LazyDiagnoser
from gradcheck.numerics.narrow import WHAT
from gradcheck.power.killed_binding import caught, leading
from gradcheck.power.narrow import LABEL, narrow_mutant, narrow_of
from gradcheck.results.finding import Diagnosis
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.selection import DTYPES
from gradcheck.spec.suite import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedNarrow:
    """The diagnoses of one narrow mutant in one dtype, at the sample that rejects it.

    `what` is rounded to `type`; `found` are the diagnoses of its failing gradients by name.
    """

    op: str
    family: str
    name: str
    dtype: str
    what: str
    type: str
    found: tuple[tuple[str, Diagnosis], ...]

    @property
    def place(self) -> str:
        """What is rounded, without the name of an operand."""
        return self.what if self.what in WHAT else "one operand"

    @property
    def first(self) -> Diagnosis | None:
        """The diagnosis with a label that explains most gradients; None if none has one."""
        return leading(self.found)

    @property
    def verdict(self) -> str:
        """`right` where the type is named, `wrong` by another name, `none` without a pattern."""
        if self.first is None:
            return "none"
        typed = re.search(rf"(?<!\w){re.escape(self.type)}(?!\w)", self.first.says)
        return "right" if typed and self.first.label == LABEL else "wrong"


def name_narrow(
    cases: Sequence[Case], operators: Mapping[str, OpSpec], holds: Callable[..., bool]
) -> Iterator[NamedNarrow]:
    """Diagnose the narrow mutants of one operator that belong to a part and are rejected.

    Raises:
        SpecError: the spec's VJP breaks off in an arithmetic that keeps numbers narrow.
    """
    here = {f"{case.dialect.name}/{case.sample.name}": case for case in cases}
    for tried in narrow_of(cases, DTYPES, holds) if cases else ():
        if not tried.killer:
            continue
        case = here[tried.killer]
        wrong = caught(narrow_mutant(tried.rounding, case, tried.dtype), [case])
        why = LazyDiagnoser(operators)
        explained = why.explained(wrong.case, wrong.binding, wrong.dtype, wrong.findings)
        yield NamedNarrow(
            op=case.spec.name,
            family=case.spec.family,
            name=tried.rounding.mutant,
            dtype=tried.dtype,
            what=tried.rounding.what,
            type=tried.rounding.type.title,
            found=tuple((f.name, f.diagnosis) for f in explained if f.diagnosis is not None),
        )
