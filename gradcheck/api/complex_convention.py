"""The convention by which a complex gradient is right, and errors specific to complex numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gradcheck.api.complex_numbers import OTHER, PARTS, Findings, Parts
from gradcheck.api.elementwise_check import Request
from gradcheck.numerics.arrays import Array
from gradcheck.results.finding import Diagnosis, Finding
from gradcheck.results.verdict import SEVERITY, Verdict, worst
from gradcheck.spec.defect import Defect

SYSTEMS: Final[Mapping[str, str]] = {"torch": "PyTorch's", "jax": "JAX's"}
"""The system whose convention it is."""
FORMULAS: Final[Mapping[str, str]] = {"torch": "dL/dRe + i·dL/dIm", "jax": "dL/dRe − i·dL/dIm"}
"""The gradient of a real L in each convention."""


def judge_complex(request: Request, primals: tuple[Array, ...], convention: str | None) -> Findings:
    """The findings of `request` where primals, or outputs, are complex.

    Without a `convention`, by the one that passes, or else by the one that explains most; where the
    two differ, the first finding names the one that passed.
    """
    if convention is not None:
        return _by_convention(Parts(request, primals, convention))
    torch, jax = Parts(request, primals, "torch"), Parts(request, primals, "jax")
    passed = torch.judge_quickly()
    first, second = (
        (torch, jax) if passed is not None or jax.judge_quickly() is None else (jax, torch)
    )
    found = first.judged(passed)
    if _pass(found):
        return _noted(found, first)
    if not _open(found) or not first.differs():
        return _Explained(first, found).findings
    other = second.judged()
    if _pass(other):
        return _noted(other, second)
    if _rank(other) < _rank(found):
        return _Explained(second, other, found).findings
    return _Explained(first, found, other).findings


def _by_convention(way: Parts) -> Findings:
    """The findings by the convention asked for; a failure is compared with the other one."""
    found = way.judged()
    if _pass(found):
        return found
    if not _open(found) or not way.differs():
        return _Explained(way, found).findings
    other = Parts(replace(way.request, explain=False), way.primals, OTHER[way.system])
    return _Explained(way, found, other.judged(), asked=True).findings


def _noted(found: Findings, way: Parts) -> Findings:
    """A pass with a note on its convention, where the other one gives another gradient."""
    if not way.differs():
        return found
    first, *others = found
    note = f"by {SYSTEMS[way.system]} convention ({FORMULAS[way.system]} of a real L)"
    return replace(first, reason="; ".join(filter(None, (first.reason, note)))), *others


def _pass(found: Findings) -> bool:
    return all(finding.verdict is Verdict.PASS for finding in found)


def _open(found: Findings) -> bool:
    """Whether numbers were wrong or unknown; a broken contract is the same by both conventions."""
    return worst(f.verdict for f in found) in (Verdict.FAIL, Verdict.INCONCLUSIVE)


def _rank(found: Findings) -> tuple[int, bool, int]:
    """A sort key: the findings that a convention explains best come first."""
    named = any(f.diagnosis is not None and f.diagnosis.label for f in found)
    severity = SEVERITY.index(worst(f.verdict for f in found))
    return -severity, not named, sum(f.failed for f in found)


@dataclass(frozen=True, slots=True)
class _Explained:
    """Diagnoses of errors specific to complex numbers, for the failures among `found`.

    `other` are the findings by the other convention, where it gives another gradient; `asked`: the
    user chose this convention.
    """

    way: Parts
    found: Findings
    other: Findings = ()
    asked: bool = False

    @property
    def findings(self) -> Findings:
        """The findings, with their diagnoses."""
        return tuple(map(self._explained, self.found))

    def _explained(self, finding: Finding) -> Finding:
        guilty = finding.verdict is Verdict.FAIL and finding.compared
        name = finding.name
        if not guilty or name not in self.way.request.names:
            return finding
        says, label = "", Defect.SIGN
        if any(f.name == name and f.verdict is Verdict.PASS for f in self.other):
            says = self._in_other(name)
        elif finding.diagnosis is not None and finding.diagnosis.label:
            return finding
        elif self.way.is_complex(name):
            lost = self._lost(finding)
            if lost:
                says, label = f"d{name} has no {lost} part", Defect.TERM
            elif self._is_conjugate(name):
                says = f"d{name} is the conjugate of the right value"
        if not says:
            return finding
        return replace(finding, diagnosis=Diagnosis(label=label, says=says, rule="conjugate"))

    def _in_other(self, name: str) -> str:
        system = OTHER[self.way.system]
        mine, theirs = SYSTEMS[self.way.system], SYSTEMS[system]
        if not self.asked:
            return f"d{name} is by {theirs} convention, others are by {mine}: decide for one"
        if not self.way.is_complex(name):
            return f"d{name} is by {theirs} convention: pass convention={system!r}, or conjugate ct"
        fix = "conjugate ct and what vjp returns"
        if not self.way.gives_complex:
            fix = "return its conjugate"
        kind = f"the conjugate, by {theirs} convention"
        return f"d{name} is {kind}: pass convention={system!r}, or {fix}"

    def _lost(self, finding: Finding) -> str:
        """The part that the gradient lacks and should have: a word, or empty."""
        found = (self.way.asked() or {}).get(finding.name)
        if found is None or found.shape[-1] != len(PARTS) or not found.any():
            return ""
        for part, word in enumerate(("real", "imaginary")):
            due = any(m.tensor.endswith(PARTS[part]) and m.want for m in finding.worst)
            if due and not found[..., part].any():
                return word
        return ""

    def _is_conjugate(self, name: str) -> bool:
        """Whether the conjugate in its place passes."""
        way = self.way
        request = replace(way.request, explain=False, order=1, jvp=None, double_vjp=None)
        found = Parts(request, way.primals, way.system, frozenset({name})).judged()
        return any(f.name == name and f.verdict is Verdict.PASS for f in found)
