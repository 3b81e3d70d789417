"""One result: the case that was judged, and what was found."""

from __future__ import annotations

from dataclasses import dataclass

from gradcheck.results.finding import Finding
from gradcheck.spec.case import Kind as Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseId:
    """One case in one dtype, of one implementation: what was judged.

    `name` is "operator/dialect/sample/dtype"; a model has its name as `op` and its size as
    `sample`. `hash` changes when the case changes its meaning. `seed` is the seed of all inputs;
    `hunts` names the defect that the sample was designed to expose.
    """

    name: str
    hash: str
    implementation: str
    op: str
    dialect: str
    sample: str
    dtype: str
    seed: int
    hunts: str = ""
    kind: Kind = Kind.OPERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The judgement of one gradient output (or of the forward value) in one case and dtype.

    `repro` is the command that judges it again.
    """

    case: CaseId
    finding: Finding
    repro: str

    @property
    def key(self) -> tuple[str, ...]:
        """What tells a result from all others of its run."""
        return self.case.implementation, self.case.name, self.finding.part, self.finding.name
