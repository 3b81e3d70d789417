"""A run as plain data, under the names that the JSON report and the log promise."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any, Final

import msgspec

from gradcheck.results import printed
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Certificate, Diagnosis
from gradcheck.results.run import Header, Run
from gradcheck.results.verdict import Expected, Gate, Known
from gradcheck.spec.defect import LABELS

RESULT_FIELDS: Final = (
    "name", "hash", "implementation", "op", "dialect", "sample", "dtype", "output", "verdict",
    "seed", "repro", "hunts", "reason", "compared", "failed", "unresolved", "kinked",
    "smallest_visible_error", "oracle", "conventions", "certificate", "worst", "kind", "part",
    "evaluations", "taylor", "blames", "printed", "slack", "diagnosis", "source", "curve",
    "heat", "expectation", "known", "error", "bound", "error_bar", "ulp", "worst_index", "got",
    "want",
)  # fmt: skip
"""The fields of a result in their order; `schemas/report-1.json` describes each."""


def result_dict(run: Run, result: CaseResult) -> dict[str, Any]:
    """A result of a run as plain data, with the field names that the JSON report promises."""
    top = result.finding.top
    finding = result.finding
    plain = {**_plain(finding), "output": finding.name, "repro": result.repro}
    plain |= _plain(result.case)
    plain.update(
        expectation=expectation(run, result),
        known=known_dict(run.expected(result)),
        error=top.error if top else None,
        bound=top.bound if top else None,
        error_bar=top.error_bar if top else None,
        ulp=top.ulp if top else None,
        worst_index=list(top.index) if top else None,
        got=top.got if top else None,
        want=top.want if top else None,
        reason=finding.reason or None,
        diagnosis=_diagnosis(finding.diagnosis),
        printed="\n".join(printed.lines(finding.printed)) if finding.printed else "",
        certificate=_certificate(finding.certificate),
    )
    return {name: plain[name] for name in RESULT_FIELDS}


def expectation(run: Run, result: CaseResult) -> str:
    """Whether the gate accepts a result."""
    return "ok" if run.accepts(result) else "unexpected"


def known_dict(found: Expected | None) -> dict[str, Any] | None:
    """What the entry of a baseline says, and how the result stands to it."""
    if found is None:
        return None
    return {
        "as": found.known.value if found.known else None,
        "entry": found.entry,
        "reason": found.reason,
        "link": found.link or None,
    }


def named(gate: Gate) -> dict[str, str]:
    """Which baseline it was: its file, and the hash of what that held, where there was one."""
    return {"file": gate.baseline, **({"sha256": gate.digest} if gate.digest else {})}


def _gate(gate: Gate | None) -> dict[str, Any] | None:
    if gate is None:
        return None
    return {
        **named(gate),
        **{known.value: gate.count(known) for known in Known},
        "problems": [
            {"kind": p.breach.value, "file": p.file, "line": p.line, "says": p.says}
            for p in gate.problems
        ],
        "warnings": list(gate.warnings),
    }


def _diagnosis(found: Diagnosis | None) -> dict[str, Any] | None:
    if found is None:
        return None
    word = LABELS[found.label].word if found.label in LABELS else None
    return {**_plain(found), "class": word}


def _certificate(found: Certificate | None) -> dict[str, Any] | None:
    """How many impostors are rejected, and the names of those that are not, and that are."""
    if found is None:
        return None
    return {
        "rejected": len(found.rejected),
        "tried": found.tried,
        "blind": list(found.blind),
        "impostors": list(found.rejected),
        "tolerated": list(found.tolerated),
    }


def header_dict(header: Header) -> dict[str, Any]:
    """What was run, as plain data; that nothing was required is not said."""
    plain = _plain(header)
    if not header.require:
        del plain["require"]
    return plain


def footer_dict(run: Run) -> dict[str, Any]:
    """The totals of a run as plain data, and what the gate makes of it."""
    return {
        **_plain(run.footer),
        "passed": run.passed,
        "stopped": run.stopped,
        "troubles": list(run.troubles),
        "baseline": _gate(run.gate),
    }


def dumped(value: Any, indent: int | None = None) -> str:
    """Plain data as strict JSON, in ASCII: a name may hold what no encoding can carry.

    JSON has no word for a number that is not finite; such numbers are the strings "nan", "inf" and
    "-inf".
    """
    encoder = _encoder(indent)
    try:  # nearly all numbers are finite, and to look at each takes longer than the rest
        return encoder.encode(value)
    except ValueError:
        return encoder.encode(_finite(value))


@cache
def _encoder(indent: int | None) -> json.JSONEncoder:
    return json.JSONEncoder(allow_nan=False, indent=indent, default=_scalar, check_circular=False)


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass as plain data, all that is in it included."""
    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_scalar)
    return plain


def _scalar(value: Any) -> Any:
    """What JSON does not know: a NumPy scalar, such as an index that np.argwhere found."""
    if not hasattr(value, "item"):
        raise TypeError(f"{type(value).__name__} is no plain data")
    return value.item()


def _finite(value: Any) -> Any:
    """Plain data in which every number is one that JSON knows."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
