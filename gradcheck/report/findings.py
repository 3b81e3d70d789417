"""The findings of one check as text: the short answer first, a table, then what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tabulate import tabulate

from gradcheck.report import ascii_plots, failure_text
from gradcheck.report.heat import FINE
from gradcheck.results import printed, words
from gradcheck.results.case_result import CaseId, CaseResult
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import SEVERITY, worst

ROWS: Final = 16
"""Rows of a map that is shown."""


def table(subject: str, dtype: str, findings: Sequence[Finding]) -> str:
    """What `gradcheck.check` found; `subject` names the function that was judged."""
    ranked = sorted(findings, key=lambda finding: SEVERITY.index(finding.verdict))
    verdict = worst(finding.verdict for finding in findings)
    lead = f"{words.word(verdict)} {words.clean(subject)}, {dtype}"
    blocks = [
        _block(subject, dtype, finding) for finding in ranked if finding.reason or finding.diagnosis
    ]
    if blocks:
        blocks[0][0] = f"{lead}: {blocks[0][0]}"
    first, *others = blocks or [[lead]]
    body = [
        [
            words.subject(finding.name, finding.part),
            words.word(finding.verdict),
            words.cell(finding),
            f"{finding.compared:,}",
        ]
        for finding in findings
    ]
    heads = ["gradient", "verdict", "worst error", "elements"]
    aligned = ["left", "left", "left", "right"]
    if any(finding.evaluations for finding in findings):
        heads += ["one wrong element shows from", "forwards"]
        aligned += ["left", "right"]
        for row, finding in zip(body, findings, strict=True):
            row += [_lone(finding), f"{finding.evaluations:,}"]
    if any(finding.slack for finding in findings):
        heads.append("allowed by")
        aligned.append("left")
        for row, finding in zip(body, findings, strict=True):
            row.append(words.clean(finding.slack.partition(":")[0].removeprefix("by ")))
    grid = tabulate(body, heads, disable_numparse=True, colalign=aligned)
    return "\n\n".join(["\n".join(first), grid, *map("\n".join, others)])


def _lone(finding: Finding) -> str:
    """How wrong one element of the typical size must be to be seen where sums are compared."""
    least = finding.smallest_visible_error
    if least is None:
        return ""
    return f"{least:.0e}" if least < 1 else f"{words.number(least, 2)} ×"


def _block(subject: str, dtype: str, finding: Finding) -> list[str]:
    said = failure_text.alone(_result(subject, dtype, finding))
    name = words.subject(finding.name, finding.part)
    # A reason that names its subject ("vjp raised …") needs no other in front.
    lines = [said.lead if said.lead.startswith(f"{finding.name} ") else f"{name}: {said.lead}"]
    if not finding.verdict.expected:
        lines += [f"  {label}: {text}" for label, text in said.facts]
        lines += _map(said.result)
        lines += printed.marked(finding.printed, "  ")
    return lines


def _map(result: CaseResult) -> list[str]:
    """Where the error is, in a gradient of which only a part is wrong."""
    found = result.finding.heat
    if found is None or FINE not in found.cells or found.rows > ROWS:
        return []
    said, *drawn = ascii_plots.map_of(result.finding)
    return [f"  {said}", *(f"    {line}" for line in drawn)]


def _result(subject: str, dtype: str, finding: Finding) -> CaseResult:
    """A finding in the form that the wording of reports knows."""
    case = CaseId(
        name=subject,
        hash="",
        implementation="",
        op=subject,
        dialect="",
        sample="",
        dtype=dtype,
        seed=0,
    )
    # The table has columns for the evaluations.
    return CaseResult(case=case, finding=replace(finding, evaluations=0, taylor=None), repro="")
