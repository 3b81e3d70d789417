"""The formats that are JSON: the report, the log of a whole run, the badge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from gradcheck.results.run import Run
from gradcheck.results.stored.log import whole
from gradcheck.results.stored.plain import dumped, footer_dict, header_dict, result_dict
from gradcheck.results.verdict import Known, Verdict


def report(run: Run) -> Iterator[str]:
    """One JSON document, in pieces of a line per result."""
    yield f'{{\n  "header": {_indented(header_dict(run.header))},\n  "results": [\n'
    between = ""
    for result in run.results:
        yield f"{between}    {dumped(result_dict(run, result))}"
        between = ",\n"
    yield f'\n  ],\n  "footer": {_indented(footer_dict(run))}\n}}\n'


def _indented(value: Any) -> str:
    return dumped(value, indent=2).replace("\n", "\n  ")  # a string's newline is the escape \n


def log(run: Run) -> Iterator[str]:
    """The lines that `-o run.jsonl` writes while a run goes on."""
    return (line.decode("ascii") for line in whole(run))


BADGE_SCHEMA: Final = 1
"""Version of shields.io's endpoint badge, whose description is the source of the fields."""


def badge(run: Run) -> str:
    """JSON for the endpoint of shields.io, with counts in it and never a percentage."""
    message, color = _said(run)
    plain = {
        "schemaVersion": BADGE_SCHEMA,
        "label": "gradcheck",
        "message": message,
        "color": color,
    }
    return json.dumps(plain, indent=2) + "\n"


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
