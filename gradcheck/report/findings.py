"""The findings of one check as text: the short answer first, a table, then what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tabulate import tabulate

from gradcheck.report import ascii_plots, causes, failure_text
from gradcheck.report.heat import FINE
from gradcheck.results import printed, words
from gradcheck.results.case_result import CaseId, CaseResult
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import SEVERITY, worst

ROWS: Final = 16
"""Rows of a map that is shown."""
BLOCKS: Final = 3
"""Gradients of which more than a table's row is shown."""


def table(subject: str, dtype: str, findings: Sequence[Finding], *, details: bool = False) -> str:
    """What `gradcheck.check` found; `subject` names the function that was judged.

    The first lines say what is wrong; with `details`, everything that is known about it.
    """
    ranked = sorted(findings, key=lambda finding: SEVERITY.index(finding.verdict))
    verdict = worst(finding.verdict for finding in findings)
    told = [f for f in ranked if f.reason or f.diagnosis or not f.verdict.expected]
    block = _detailed if details else causes.brief
    blocks = [block(_result(subject, dtype, f)) for f in told[: None if details else BLOCKS]]
    if len(told) > len(blocks):
        blocks.append([f"… and {words.plural(len(told) - BLOCKS, 'more gradient')}: details()"])
    if not told or told[0].verdict is not verdict:  # a note, beside a pass
        blocks.insert(0, [f"{words.word(verdict)} {words.clean(subject)}, {dtype}"])
    first, *others = blocks
    body = [
        [
            words.subject(finding.name, finding.part),
            words.word(finding.verdict),
            words.cell(finding),
            f"{finding.compared:,}",
        ]
        for finding in findings
    ]
    heads = ["gradient", "verdict", "rel. err and tol", "elements"]
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


def _detailed(result: CaseResult) -> list[str]:
    finding = result.finding
    said = failure_text.alone(result)
    name = words.subject(finding.name, finding.part)
    # A reason that names its subject ("vjp raised …") needs no other in front.
    told = said.lead.startswith(f"{finding.name} ")
    lead = said.lead if told else ": ".join(filter(None, (name, said.lead)))
    title = f"{words.word(finding.verdict)} {words.clean(result.case.op)}, {result.case.dtype}"
    lines = [f"{title}: {lead}"]
    if not finding.verdict.expected:
        lines += [f"  {label}: {text}" for label, text in said.facts]
        lines += _map(result)
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
