"""What is broken where a backward's numbers are right: a class of defects for each property."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gradcheck.judge.contract.battery import PROPERTIES
from gradcheck.results.finding import Diagnosis, Finding, Part
from gradcheck.results.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Owed:
    """The class of a property's breach, in a sentence; `told` are others, by what was seen.

    Each of `told` is a part of the text that the property gives, and the class and the sentence
    that it stands for.
    """

    label: str
    says: str
    told: tuple[tuple[str, str, str], ...] = ()


OWED: Final = {
    "linear": Owed("NL", "the backward is not linear in the cotangent"),
    "zero": Owed(
        "U",
        "a cotangent of zeros still gives a gradient: it does not come from the cotangent",
        (("is nan", "N", "a cotangent of zeros gives NaN: something is divided by it"),),
    ),
    "scaling": Owed(
        "NL", "the backward is not linear in the cotangent: it compares it with a constant"
    ),
    "repeatable": Owed("C", "the same arguments do not always give the same bits"),
    "stateless": Owed("V", "an answer is computed from values of an earlier call"),
    "pure": Owed("X", "the backward writes over an argument that others may still read"),
    "owned": Owed("X", "a gradient that was returned is written over by the next call"),
    "dtype": Owed("O", "on some paths a gradient comes in another precision than its primal"),
    "sizes": Owed("W", "the gradient is wrong at some sizes alone"),
    "attributes": Owed(
        "P",
        "an attribute is taken at another value than is given",
        (("is ignored", "P", "an attribute is ignored"),),
    ),
    "layouts": Owed("L", "memory is read as if it were contiguous, whatever its strides"),
    "subsets": Owed("G", "a gradient is lost, or another, where not all are asked for"),
    "accumulates": Owed("A", "a gradient overwrites its buffer, to which it is to be added"),
    "written": Owed("A", "a gradient depends on what its buffer held before"),
    "aliases": Owed("X", "an argument is written over before it has been read for the last time"),
    "bounds": Owed("I", "an index leaves the memory of a gradient"),
}
"""By the names of properties."""
SAYS: Final = {asked.name: asked.says for asked in PROPERTIES}
REMEMBERS: Final = ("repeatable", "stateless")
"""Properties whose breach may be the memory of a call, of which the code can be asked."""
COMPARED: Final = ("linear", "zero", "scaling", "sizes", "attributes", "layouts", "subsets")
"""Properties that compare several answers."""
FOLLOW: Final = {
    "repeatable": COMPARED,
    "stateless": COMPARED,
    "dtype": ("linear", "scaling"),
}
"""Per property, whose breaches follow from its own: what answers each call otherwise is not linear
either."""
BROKEN: Final = (Verdict.FAIL, Verdict.ERROR, Verdict.MISSING)


def owed(finding: Finding) -> Finding:
    """A finding about a property, with its diagnosis where it is broken."""
    if finding.name not in OWED or finding.verdict not in BROKEN:
        return finding
    row = OWED[finding.name]
    label, says = row.label, row.says
    seen = finding.reason.removeprefix(f"{SAYS[finding.name]} Here ")
    for part, other, sentence in row.told:
        if part in seen.lower():
            label, says = other, sentence
            break
    found = Diagnosis(label=label, says=says, rule=finding.name, evidence=(seen,))
    return replace(finding, diagnosis=found)


def concerted(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; a breach that follows from another one has that one's diagnosis."""
    by_name = {f.name: f for f in findings if f.part is Part.CONTRACT and f.verdict in BROKEN}
    out = {id(f): f for f in findings}
    for name, followers in FOLLOW.items():
        cause = by_name.get(name)
        if cause is None or cause.diagnosis is None:
            continue
        for follower in followers:
            finding = by_name.pop(follower, None)
            if finding is not None and finding.diagnosis is not None:
                evidence = (*finding.diagnosis.evidence, f"it follows from `{name}`")
                told = replace(cause.diagnosis, evidence=evidence)
                out[id(finding)] = replace(finding, diagnosis=told)
    return list(out.values())
