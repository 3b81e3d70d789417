"""The findings of one check as text: the short answer first, a table, then what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from gradcheck.judge.finding import Finding
from gradcheck.judge.verdict import SEVERITY, worst
from gradcheck.record import Record
from gradcheck.report import words


def table(subject: str, dtype: str, findings: Sequence[Finding]) -> str:
    """What `gradcheck.check` found; `subject` names the function that was judged."""
    ranked = sorted(findings, key=lambda finding: SEVERITY.index(finding.verdict))
    records = {id(finding): _record(subject, dtype, finding) for finding in findings}
    verdict = worst(finding.verdict for finding in findings)
    lines = [f"{words.word(verdict)} {words.clean(subject)}, {dtype}"]
    first = ranked[0] if ranked else None
    if first is not None and first.reason:
        lines[0] += f": {words.gradient(first.name)}: {words.clean(first.reason)}"
    body = [
        [
            words.gradient(finding.name),
            words.word(finding.verdict),
            words.cell(records[id(finding)]),
            f"{finding.compared:,}",
        ]
        for finding in findings
    ]
    heads = ["gradient", "verdict", "worst error", "elements"]
    lines += [
        "",
        tabulate(body, heads, disable_numparse=True, colalign=("left",) * 3 + ("right",)),
    ]
    for finding in ranked:
        if finding.reason:
            lines += ["", f"{words.gradient(finding.name)}: {words.clean(finding.reason)}"]
            facts = [] if finding.verdict.expected else words.facts(records[id(finding)])
            lines += [f"  {label}: {text}" for label, text in facts]
    return "\n".join(lines)


def _record(subject: str, dtype: str, finding: Finding) -> Record:
    """A finding in the form that the wording of reports knows."""
    return Record(
        name=subject,
        hash="",
        implementation="",
        op=subject,
        dialect="",
        sample="",
        dtype=dtype,
        output=finding.name,
        verdict=finding.verdict,
        seed=0,
        repro="",
        reason=finding.reason,
        compared=finding.compared,
        failed=finding.failed,
        unresolved=finding.unresolved,
        kinked=finding.kinked,
        smallest_visible_error=finding.smallest_visible_error,
        worst=finding.worst,
    )
