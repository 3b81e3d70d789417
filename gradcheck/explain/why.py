"""The findings of one case, each with its diagnosis where something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gradcheck.binding import Binding
from gradcheck.finding import Finding
from gradcheck.spec import OpSpec
from gradcheck.suite import Case

if TYPE_CHECKING:
    from gradcheck.explain.diagnoses import Diagnoses
    from gradcheck.power.mutant import Mutant


@dataclass
class Why:
    """Diagnoses of whatever fails, made once per operator, dialect, dtype and implementation.

    They do not depend on the order in which cases are judged: what is asked is fixed by names.
    `operators` are the suite's: a gradient may be another one's. `mutants()` are their known
    defects by operator, asked for at the first failure. Nothing that explains is imported before.
    """

    operators: Mapping[str, OpSpec] = field(default_factory=dict)
    mutants: Callable[[], Mapping[str, Sequence[Mutant]]] = dict

    def explained(
        self, case: Case, binding: Binding, dtype: str, findings: Sequence[Finding]
    ) -> list[Finding]:
        """The findings; those of wrong gradients with their diagnoses."""
        if not any(finding.guilty for finding in findings):
            return [*findings]
        return self._diagnoses.explained(case, binding, dtype, findings)

    @cached_property
    def _diagnoses(self) -> Diagnoses:
        from gradcheck.explain.diagnoses import Diagnoses

        return Diagnoses(self.operators, self.mutants)
