"""The diagnoses of wrong gradients, each made once for whatever shares it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from gradcheck.errors import GradcheckError
from gradcheck.explain.contract_defects import REMEMBERS, concerted, owed
from gradcheck.explain.diagnose import Ruling, diagnose, ruled
from gradcheck.explain.diagnosis_rule import Rule
from gradcheck.explain.form import malformed
from gradcheck.explain.hypotheses.known_mutant import nearest
from gradcheck.explain.hypotheses.other_operator import kin
from gradcheck.explain.hypotheses.table import RULES, joined
from gradcheck.explain.probe import Probe
from gradcheck.explain.probe_collector import ProbeCollector
from gradcheck.explain.statefulness import recalled
from gradcheck.implementations.bound import Binding
from gradcheck.results.finding import Diagnosis, Finding, Part
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case


class Key(NamedTuple):
    """What diagnoses have in common."""

    implementation: str
    op: str
    dialect: str
    dtype: str
    seed: int


@dataclass
class Diagnoses:
    """What `gradcheck.explain.lazy_diagnosis.LazyDiagnoser` is asked of findings that are wrong."""

    operators: Mapping[str, OpSpec]
    mutants: Callable[[], Mapping[str, Sequence[Mutant]]]
    _asked: dict[Key, ProbeCollector] = field(default_factory=dict)
    _usual: dict[tuple[Key, str], Ruling | None] = field(default_factory=dict)

    def explained(
        self, case: Case, binding: Binding, dtype: str, findings: Sequence[Finding]
    ) -> list[Finding]:
        """The findings; those of wrong gradients with their diagnoses."""
        key = Key(binding.name, case.spec.name, case.dialect.name, dtype, case.seed)
        if key not in self._asked:
            self._asked[key] = ProbeCollector(binding, dtype)
        return concerted([self._with(finding, case, key) for finding in findings])

    def _with(self, finding: Finding, case: Case, key: Key) -> Finding:
        if not finding.guilty:
            return finding
        if finding.part is Part.CONTRACT:
            finding = owed(finding)
        if unsteady(finding):
            return remembering(finding, self._asked[key].own(case))
        if finding.diagnosis is not None or finding.name not in case.primal_names:
            return finding
        found = self._told(finding, case, key)
        return finding if found is None else replace(finding, diagnosis=found)

    def _told(self, finding: Finding, case: Case, key: Key) -> Diagnosis | None:
        output, probes, rules = finding.name, self._asked[key].probes(case), self._rules(case)
        if not finding.compared:
            return told(finding, probes, rules)
        usual, likely = self._ruling(output, case, key), self._wide(output, case, key)
        ruling = ruled(output, probes, rules, usual, likely)
        if ruling is None:
            return None
        found = ruling.diagnosis
        if found.label or usual is None or usual.suspicion is None:
            return found
        elsewhere = f"at other samples {usual.suspicion.says}"
        return replace(found, evidence=(*found.evidence, elsewhere))

    def _ruling(self, output: str, case: Case, key: Key) -> Ruling | None:
        """What holds at the dialect's samples, whatever the case."""
        if (key, output) not in self._usual:
            probes = self._asked[key].usual(case)
            likely = self._wide(output, case, key)
            self._usual[key, output] = ruled(output, probes, self._rules(case), None, likely)
        return self._usual[key, output]

    def _wide(self, output: str, case: Case, key: Key) -> Ruling | None:
        """What holds in float64, where more can be told apart: it is the same code."""
        if key.dtype == "float64":
            return None
        wide = key._replace(dtype="float64")
        if wide not in self._asked:
            self._asked[wide] = ProbeCollector(self._asked[key].binding, wide.dtype)
        return self._ruling(output, case, wide)

    def _rules(self, case: Case) -> tuple[Rule, ...]:
        op = case.spec.name
        return joined(kin(op, self.operators), nearest(self._mutants_of(op)))

    @cached_property
    def _known(self) -> Mapping[str, Sequence[Mutant]]:
        return self.mutants()

    def _mutants_of(self, op: str) -> Sequence[Mutant]:
        try:
            return self._known.get(op, ())
        except GradcheckError:  # a table at fault must not hide what is wrong
            return ()


def told(
    finding: Finding, probes: Sequence[Probe], rules: Sequence[Rule] = RULES
) -> Diagnosis | None:
    """Why a gradient is wrong; where no numbers were compared, why its form is.

    None where no array of numbers ever came: the reason says what did.
    """
    if not finding.compared and not any(finding.name in probe.raw for probe in probes):
        return None
    formed = None if finding.compared else malformed(finding.name, probes)
    return formed or diagnose(finding.name, probes, rules)


def unsteady(finding: Finding) -> bool:
    """Whether the same question was seen to get different answers."""
    if finding.part is Part.CONTRACT:
        return finding.name in REMEMBERS
    before = finding.diagnosis
    return finding.name == "vjp" and before is not None and before.label == "C"


def remembering(finding: Finding, probe: Probe | None) -> Finding:
    """The finding, with what the code, asked again, shows of its memory."""
    before = finding.diagnosis
    if probe is None or before is None:
        return finding
    found = recalled(probe, before.label)
    if found is None:
        return finding
    evidence = (*before.evidence, *found.evidence)
    return replace(finding, diagnosis=replace(found, evidence=evidence))
