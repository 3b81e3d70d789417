"""A difference as one JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gradcheck.results.diff.change import Mark
from gradcheck.results.stored.plain import dumped, header_dict

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.diff.change import Change, Diff, Side

SCHEMA: Final = 1


def render(diff: Diff) -> str:
    """Everything of which there is something to say, an entry a line; the rest is counted."""
    head = {
        "schema": SCHEMA,
        "old": _side(diff.old),
        "new": _side(diff.new),
        "implementations": [{"old": old, "new": new} for old, new in diff.pairs.items()],
        "factor": diff.factor,
        "worse": diff.worse,
        "compared": diff.compared,
        "same": diff.same,
        "counts": {mark.value: diff.counts.get(mark, 0) for mark in Mark},
    }
    entries = ",\n".join(f"    {dumped(_entry(diff, entry))}" for entry in diff.entries)
    first = dumped(head, indent=2).removesuffix("\n}")
    return f'{first},\n  "entries": [\n{entries}\n  ]\n}}\n'


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "complete": side.run.complete,
        "troubles": list(side.run.troubles),
        "header": header_dict(side.run.header),
    }


def _entry(diff: Diff, entry: Change) -> dict[str, Any]:
    of = entry.of
    return {
        "mark": entry.mark.value,
        "worse": entry.worse,
        "why": entry.why or None,
        "name": of.case.name,
        "op": of.case.op,
        "dialect": of.case.dialect,
        "sample": of.case.sample,
        "dtype": of.case.dtype,
        "part": of.finding.part.value,
        "output": of.finding.name,
        "old": _result(diff.old, entry.old),
        "new": _result(diff.new, entry.new),
    }


def _result(side: Side, record: CaseResult | None) -> dict[str, Any] | None:
    """How a result stood; `output` is another than the entry's where it is of the whole call."""
    if record is None:
        return None
    top, known = record.finding.top, side.run.expected(record)
    return {
        "implementation": record.case.implementation,
        "output": record.finding.name,
        "hash": record.case.hash,
        "seed": record.case.seed,
        "verdict": record.finding.verdict.value,
        "known": known.known.value if known is not None and known.known else None,
        "error": top.error if top else None,
        "bound": top.bound if top else None,
        "times_bound": record.finding.times_bound if top else None,
        "class": record.finding.defect or None,
        "reason": record.finding.reason or None,
        "compared": record.finding.compared,
        "repro": record.repro,
    }
