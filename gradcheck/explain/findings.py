"""Findings with diagnoses of what is wrong, of cases with a spec and of functions without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gradcheck.explain.engine import RULES, diagnose
from gradcheck.explain.function_probes import Checked, FunctionProbes
from gradcheck.explain.hypotheses.shape_or_state import malformed, state_defect
from gradcheck.explain.hypothesis import Rule
from gradcheck.explain.probe import Probe
from gradcheck.judge.contract_check import PROPERTIES
from gradcheck.results.finding import COMPARING_PROPERTIES, Diagnosis, Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.defect import Defect


@dataclass(frozen=True, slots=True)
class ContractDefect:
    """The class of a violated property, with a sentence.

    Each of `variants` is a part of the reason that the property gives, with the class and the
    sentence that hold where the reason contains it.
    """

    label: str
    says: str
    variants: tuple[tuple[str, str, str], ...] = ()


CONTRACT_DEFECTS: Final = {
    "linear": ContractDefect(Defect.NONLINEAR, "the backward is not linear in the cotangent"),
    "zero": ContractDefect(
        Defect.COTANGENT,
        "a cotangent of zeros still gives a gradient: it does not come from the cotangent",
        (
            (
                "is nan",
                Defect.NON_FINITE,
                "a cotangent of zeros gives NaN: something is divided by it",
            ),
        ),
    ),
    "scaling": ContractDefect(
        Defect.NONLINEAR,
        "the backward is not linear in the cotangent: it compares it with a constant",
    ),
    "repeatable": ContractDefect(
        Defect.NONDETERMINISM, "the same arguments do not always give the same bits"
    ),
    "stateless": ContractDefect(
        Defect.SAVED_VALUE, "an answer is computed from values of an earlier call"
    ),
    "pure": ContractDefect(
        Defect.ALIASING, "the backward writes over an argument that others may still read"
    ),
    "owned": ContractDefect(
        Defect.ALIASING, "a gradient that was returned is written over by the next call"
    ),
    "dtype": ContractDefect(
        Defect.PRECISION, "on some paths a gradient comes in another precision than its primal"
    ),
    "sizes": ContractDefect(Defect.SHAPE, "the gradient is wrong at some sizes alone"),
    "attributes": ContractDefect(
        Defect.ATTRIBUTE,
        "an attribute is taken at another value than is given",
        (("is ignored", Defect.ATTRIBUTE, "an attribute is ignored"),),
    ),
    "layouts": ContractDefect(
        Defect.LAYOUT, "memory is read as if it were contiguous, whatever its strides"
    ),
    "subsets": ContractDefect(
        Defect.SLOT, "a gradient is lost, or another, where not all are asked for"
    ),
    "accumulates": ContractDefect(
        Defect.ACCUMULATION, "a gradient overwrites its buffer, to which it is to be added"
    ),
    "written": ContractDefect(
        Defect.ACCUMULATION, "a gradient depends on what its buffer held before"
    ),
    "aliases": ContractDefect(
        Defect.ALIASING, "an argument is written over before it has been read for the last time"
    ),
    "bounds": ContractDefect(Defect.INDEX, "an index leaves the memory of a gradient"),
}
"""By the names of properties."""
PROPERTY_SENTENCES: Final = {asked.name: asked.says for asked in PROPERTIES}
STATE_PROPERTIES: Final = ("repeatable", "stateless")
"""Properties whose violation may come from state, for which the code is asked again."""
CONSEQUENCES: Final = {
    "repeatable": COMPARING_PROPERTIES,
    "stateless": COMPARING_PROPERTIES,
    "dtype": ("linear", "scaling"),
}
"""Violations that follow from another property's: changing answers are not linear either."""
BROKEN: Final = (Verdict.FAIL, Verdict.ERROR, Verdict.MISSING)


def contract_diagnosis(finding: Finding) -> Finding:
    """A finding about the contract, with its diagnosis if the property is violated."""
    if finding.name not in CONTRACT_DEFECTS or finding.verdict not in BROKEN:
        return finding
    row = CONTRACT_DEFECTS[finding.name]
    label, says = row.label, row.says
    seen = finding.reason.removeprefix(f"{PROPERTY_SENTENCES[finding.name]} Here ")
    for part, other, sentence in row.variants:
        if part in seen.lower():
            label, says = other, sentence
            break
    found = Diagnosis(label=label, says=says, rule=finding.name, evidence=(seen,))
    return replace(finding, diagnosis=found)


def with_causes(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; a violation that follows from another has its diagnosis."""
    by_name = {f.name: f for f in findings if f.part is Part.CONTRACT and f.verdict in BROKEN}
    out = {id(f): f for f in findings}
    for name, followers in CONSEQUENCES.items():
        cause = by_name.get(name)
        if cause is None or cause.diagnosis is None:
            continue
        for follower in followers:
            finding = by_name.pop(follower, None)
            if finding is not None and finding.diagnosis is not None:
                evidence = (*finding.diagnosis.evidence, f"it follows from `{name}`")
                variants = replace(cause.diagnosis, evidence=evidence)
                out[id(finding)] = replace(finding, diagnosis=variants)
    return list(out.values())


# ── without a spec ───────────────────────────────────────────────────────────────────────────


def explained(checked: Checked, findings: Sequence[Finding]) -> list[Finding]:
    """The findings of `gradcheck.check`; those of wrong gradients with their diagnoses.

    Nothing is asked where nothing is wrong. A diagnosis may depend on how fast forward is, the
    verdict never does.
    """
    wrong = frozenset(f.name for f in findings if f.verdict.wrong)
    source, only = FunctionProbes(checked, wrong), checked.rules
    rules = RULES if only is None else tuple(rule for rule in RULES if rule.name in only)

    def explained(finding: Finding) -> Finding:
        def diagnosis() -> Diagnosis | None:
            probes = source.probes(finding.name, compared=bool(finding.compared))
            return diagnosis_of(finding, probes, rules) if probes else None

        return with_diagnosis(finding, checked.names, source.own, diagnosis)

    return [explained(f) if f.verdict.wrong else f for f in findings]


# ── with or without ───────────────────────────────────────────────────────────────────────────────


def with_diagnosis(
    finding: Finding,
    names: Sequence[str],
    own: Callable[[], Probe | None],
    diagnosis: Callable[[], Diagnosis | None],
) -> Finding:
    """A finding with its diagnosis: its state, if its answers change, or `diagnosis()`.

    `names` are those of the primals, `own()` is a probe at the point judged.
    """
    if is_unsteady(finding):
        return with_state(finding, own())
    if finding.diagnosis is not None or finding.name not in names:
        return finding
    found = diagnosis()
    return finding if found is None else replace(finding, diagnosis=found)


def diagnosis_of(
    finding: Finding, probes: Sequence[Probe], rules: Sequence[Rule] = RULES
) -> Diagnosis | None:
    """Why a gradient is wrong, or why its form is, where no numbers were compared.

    None where no array of numbers was ever returned: the finding's reason says what was.
    """
    if not finding.compared and not any(finding.name in probe.raw for probe in probes):
        return None
    formed = None if finding.compared else malformed(finding.name, probes)
    return formed or diagnose(finding.name, probes, rules)


def is_unsteady(finding: Finding) -> bool:
    """Whether the same call was seen to give different answers."""
    if finding.part is Part.CONTRACT:
        return finding.name in STATE_PROPERTIES
    before = finding.diagnosis
    return finding.name == "vjp" and before is not None and before.label == Defect.NONDETERMINISM


def with_state(finding: Finding, probe: Probe | None) -> Finding:
    """The finding with what further calls show of the code's state."""
    before = finding.diagnosis
    if probe is None or before is None:
        return finding
    found = state_defect(probe, before.label)
    if found is None:
        return finding
    evidence = (*before.evidence, *found.evidence)
    return replace(finding, diagnosis=replace(found, evidence=evidence))
