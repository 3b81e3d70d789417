"""The findings of one case, each failing gradient with its diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gradcheck.binding import Binding
from gradcheck.explain.diagnose import diagnose
from gradcheck.explain.interrogate import Interrogation
from gradcheck.explain.probe import Probe
from gradcheck.finding import Diagnosis, Finding, Part
from gradcheck.suite import Case
from gradcheck.verdict import Verdict

WRONG: Final = (Verdict.FAIL, Verdict.MISSING, Verdict.ERROR)
"""Verdicts that say that a gradient is wrong, and not that nobody knows."""


@dataclass
class Why:
    """Diagnoses of whatever fails, made once per operator, dialect, dtype and implementation.

    They do not depend on the order in which cases are judged: what is asked is fixed by names.
    """

    _asked: dict[tuple[str, str, str, str, int], Interrogation] = field(default_factory=dict)

    def explained(
        self, case: Case, binding: Binding, dtype: str, findings: Sequence[Finding]
    ) -> list[Finding]:
        """The findings; those of wrong gradients with their diagnoses."""
        if not any(_guilty(finding) for finding in findings):
            return [*findings]
        key = (binding.name, case.spec.name, case.dialect.name, dtype, case.seed)
        asked = self._asked.setdefault(key, Interrogation(binding, dtype))
        return [self._with(finding, case, asked) for finding in findings]

    def _with(self, finding: Finding, case: Case, asked: Interrogation) -> Finding:
        if not _guilty(finding) or finding.name not in case.primal_names:
            return finding
        found = _told(finding.name, asked.probes(case), asked.own(case))
        return finding if found is None else replace(finding, diagnosis=found)


def _guilty(finding: Finding) -> bool:
    return finding.part is Part.GRADIENT and finding.verdict in WRONG


def _told(output: str, every: Sequence[Probe], own: Sequence[Probe]) -> Diagnosis | None:
    """What holds at all points; failing that, what holds at the case itself."""
    found = diagnose(output, every)
    if found is not None and found.label:
        return found
    alone = diagnose(output, own)
    return alone if alone is not None and alone.label else found or alone
