"""The badge: JSON for the endpoint of shields.io, with counts in it and never a percentage.

Source of the fields: shields.io's description of its endpoint badge.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from gradcheck.results.expectation import Known
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from gradcheck.results.run import Run

SCHEMA: Final = 1
"""Of the endpoint."""


def render(run: Run) -> str:
    """The run as a badge."""
    message, color = _said(run)
    badge = {"schemaVersion": SCHEMA, "label": "gradcheck", "message": message, "color": color}
    return json.dumps(badge, indent=2) + "\n"


def _said(run: Run) -> tuple[str, str]:
    """What the badge says, and its colour: a gate that is closed is never green."""
    counts = run.footer.counts
    lacking, known = counts[Verdict.UNSUPPORTED], _count(run, Known.XFAIL)
    asked = run.footer.checked + lacking
    if not run.footer.checked:
        return "nothing checked", "lightgrey"
    parts = [f"{counts[Verdict.PASS]:,}/{asked:,}"]
    if not run.complete:
        parts.insert(0, "incomplete")
    if run.troubles:
        parts.append("not all judged")
    if counts[Verdict.INVALID]:
        parts.append(f"{counts[Verdict.INVALID]:,} invalid")
    if known:
        parts.append(f"{known:,} known")
    if lacking:
        parts.append(f"{lacking:,} unsupported")
    if run.unmet:
        parts.append("requirements not met")
    if run.gate is not None and run.gate.problems:
        parts.append("baseline to correct")
    if not run.complete:
        return ", ".join(parts), "orange"
    if not run.passed:
        return ", ".join(parts), "red"
    return ", ".join(parts), "yellowgreen" if known else "green" if lacking else "brightgreen"


def _count(run: Run, known: Known) -> int:
    return run.gate.count(known) if run.gate is not None else 0
