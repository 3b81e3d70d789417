"""Results for tests, made from the fields of their case and their finding at one level."""

from __future__ import annotations

from dataclasses import fields, replace

from gradcheck.results.case_result import CaseId, CaseResult
from gradcheck.results.finding import Finding

OF_CASE = {field.name for field in fields(CaseId)}


def case_result(*, repro="", **plain):
    """A result; `name` is the case's, `output` the finding's name."""
    case, finding = _parted(plain)
    return CaseResult(case=CaseId(**case), finding=Finding(**finding), repro=repro)


def changed(result, *, repro=None, **plain):
    """A copy of a result, some of whose fields are others."""
    case, finding = _parted(plain)
    return CaseResult(
        case=replace(result.case, **case),
        finding=replace(result.finding, **finding),
        repro=result.repro if repro is None else repro,
    )


def _parted(plain):
    finding = {name: value for name, value in plain.items() if name not in OF_CASE}
    if "output" in finding:
        finding["name"] = finding.pop("output")
    return {name: value for name, value in plain.items() if name in OF_CASE}, finding
