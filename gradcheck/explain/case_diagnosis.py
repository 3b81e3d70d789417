"""The findings of one case, each with its diagnosis where something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gradcheck.errors import raised
from gradcheck.implementations.bound import Binding
from gradcheck.implementations.processes.crash_or_hang import LIMITS
from gradcheck.implementations.returned import failures
from gradcheck.results.finding import Diagnosis, Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case

if TYPE_CHECKING:
    from gradcheck.explain.operator_probes import Diagnoses
    from gradcheck.spec.mutant import Mutant

ASKED: Final = "asked"
"""The rule of a diagnosis that says how asking for one ended."""
ENDS: Final = (*LIMITS, Verdict.ERROR)


@dataclass
class LazyDiagnoser:
    """Diagnoses of failures, made once per operator, dialect, dtype and implementation.

    They do not depend on the order in which cases are judged. `operators` are the suite's: a
    gradient may be another operator's. `mutants()` returns their known defects by operator, and is
    called at the first failure. Nothing that explains is imported before that.
    """

    operators: Mapping[str, OpSpec] = field(default_factory=dict)
    mutants: Callable[[], Mapping[str, Sequence[Mutant]]] = dict

    def explained(
        self, case: Case, binding: Binding, dtype: str, findings: Sequence[Finding]
    ) -> list[Finding]:
        """The findings; those of wrong gradients with their diagnoses."""
        if not any(finding.guilty for finding in findings):
            return [*findings]
        with failures() as failed:
            found = only_adds(
                findings, lambda: self._diagnoses.explained(case, binding, dtype, findings)
            )
        return _ending(found, failed)

    @cached_property
    def _diagnoses(self) -> Diagnoses:
        from gradcheck.explain.operator_probes import Diagnoses

        return Diagnoses(self.operators, self.mutants)


def only_adds(
    findings: Sequence[Finding], explained: Callable[[], Sequence[Finding]]
) -> list[Finding]:
    """The explained findings; if explaining fails, the findings as they are, with the reason."""
    try:
        return [*explained()]
    except (Exception, SystemExit) as error:  # noqa: BLE001  the code's or the engine's
        return _noted(findings, f"why could not be told: asking again raised {raised(error)}")


def _ending(findings: Sequence[Finding], failed: Sequence[Finding]) -> list[Finding]:
    """The findings, with the way in which the code ended when it was asked again."""
    ends = [f.reason for f in failed if f.verdict in ENDS]
    return _noted(findings, f"asked again for its diagnosis: {ends[0]}") if ends else [*findings]


def _noted(findings: Sequence[Finding], says: str) -> list[Finding]:
    """The findings, the first wrong one with a sentence about the diagnosis itself."""
    found = [*findings]
    at = next((i for i, finding in enumerate(found) if finding.verdict.wrong), None)
    if at is not None:
        before = found[at].diagnosis
        noted = (
            Diagnosis(label="", says=says, rule=ASKED)
            if before is None
            else replace(before, evidence=(*before.evidence, says))
        )
        found[at] = replace(found[at], diagnosis=noted)
    return found
