"""A run as plain data, under the names that the JSON report and the log promise."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gradcheck.results import printed
from gradcheck.results.verdict import Known
from gradcheck.spec.label import LABELS

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Certificate, Diagnosis
    from gradcheck.results.run import Header, Run
    from gradcheck.results.verdict import Expected, Gate


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
    return {name: plain[name] for name in FIELDS["Result"]}


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
    """What a baseline says of the whole run."""
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
    """Why a gradient is wrong, with the word for its class beside the code."""
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


_HEADER: Final = {
    "version": "Version of gradcheck.",
    "suite": "Name of the suite of cases.",
    "suite_version": "Version of the cases, a calendar version such as 2026.11.",
    "implementations": "Whose code was judged, as --impl names it.",
    "dtypes": "Element types that were asked for.",
    "seed": "Seed of all inputs.",
    "python": "Version of Python.",
    "cases": "Hash that changes when a case that was selected changes its meaning.",
    "platform": "Operating system and processor.",
    "numpy": "Version of NumPy.",
    "schema": "Version of this schema.",
    "versions": "What an implementation says that it is, by its name.",
    "shard": "I/N where only every N-th case was selected, from the I-th on; else empty.",
    "require": "Globs of operators, models and rules that had to be answered; absent: none.",
}
_RESULT: Final = {
    "name": "operator/dialect/sample/dtype; of a model its size stands for the sample.",
    "hash": "Fingerprint of the case: it changes when the case changes its meaning.",
    "implementation": "Whose code was judged.",
    "op": "The operator, model or update rule.",
    "dialect": "Which form of it.",
    "sample": "Which inputs; of a model, which size.",
    "dtype": "Element type of the inputs.",
    "output": "The primal whose gradient was judged; forward, a parameter, a stage or a property.",
    "verdict": "What was found; nothing is a pass but pass.",
    "seed": "Seed of the inputs.",
    "repro": "The command that judges this case again, alone.",
    "hunts": "The defect that the sample was designed to expose.",
    "reason": "The finding in one line.",
    "compared": "Numbers that were compared, over all cotangents.",
    "failed": "How many of them lie outside their bound.",
    "unresolved": "How many of them the check could not resolve.",
    "kinked": "How many of them were judged by the slopes of a kink.",
    "smallest_visible_error": "Smallest relative error that would have shown in the blindest one.",
    "oracle": "Whether 50-digit arithmetic settled an element.",
    "conventions": "Whose convention the gradient follows on each kink.",
    "certificate": "Which wrong answers the same comparison would have rejected.",
    "worst": "The worst elements, worst first: up to 20 of a failure, one of a pass.",
    "kind": "What was judged as a whole.",
    "part": "What of it the result is about.",
    "evaluations": "Evaluations of forward, where there was a choice of how many.",
    "taylor": "What a gradient leaves of forward's change along one direction (--taylor).",
    "blames": "Which stages of a model may be at fault.",
    "printed": "The beginning and the end of what the code judged printed, made printable.",
    "slack": "Why a wider bound than anybody else's was needed.",
    "diagnosis": "Why the gradient is wrong; in older reports, a text: the reason.",
    "source": "File and line of the code judged, where they are known.",
    "curve": "The central difference at one element, step by step.",
    "heat": "Where in the gradient the error is.",
    "expectation": "Whether the gate accepts the result.",
    "known": "What the entry of a baseline says about it.",
    "error": "|got − want| of the worst element.",
    "bound": "What was allowed there.",
    "error_bar": "How uncertain the true derivative is there.",
    "ulp": "The error in units of the last place of the true derivative.",
    "worst_index": "Where the worst element is.",
    "got": "The worst element as it was computed.",
    "want": "The true derivative there.",
}
_FOOTER: Final = {
    "complete": "False where the run was interrupted or lost something.",
    "checked": "Results in which an implementation was put to the test.",
    "elements": "Numbers compared.",
    "unresolved": "Numbers that no check could resolve.",
    "counts": "Results by verdict.",
    "passed": "Whether the gate is open.",
    "stopped": "Why a run that is not complete ended, where that is known.",
    "troubles": "What could not be judged at all, a line each.",
    "baseline": "What a baseline makes of the run.",
}
FIELDS: Final = {
    "Header": _HEADER,
    "Result": _RESULT,
    "Footer": _FOOTER,
    "Miss": {
        "index": "Where it is in the gradient.",
        "got": "The number that was computed.",
        "want": "The true derivative.",
        "error": "|got − want|.",
        "bound": "What was allowed.",
        "error_bar": "How uncertain the true derivative is.",
        "ulp": "The error in units of the last place of the true derivative.",
        "cotangent": "Under which cotangent it was seen.",
        "tensor": "The gradient that it belongs to, where the result does not say it.",
    },
    "Certificate": {
        "rejected": "How many impostors would have been rejected.",
        "tried": "How many differ from the truth at this sample.",
        "blind": "Impostors that would have passed.",
        "impostors": "Those that would have been rejected.",
        "tolerated": "Roundings to a narrower type that are off by less than the dtype is allowed, "
        "and at how many bits of mantissa they would show.",
    },
    "Taylor": {
        "steps": "Steps h along the direction, each half of the last.",
        "remainders": "What is left of forward's change at each, r(h)/2h.",
        "slopes": "log₂(|r(h)|/|r(h/2)|): 3 where the gradient is right, 1 where it is wrong.",
        "intercept": "What is missing from the product, fitted.",
        "error_bar": "How uncertain that is.",
        "linear": "Whether every remainder is noise.",
        "product": "⟨gradient, direction⟩.",
        "noise": "One standard deviation of r(h).",
    },
    "VCurve": {
        "index": "Where the element is.",
        "tensor": "In the gradient of which primal.",
        "cotangent": "Under which cotangent.",
        "steps": "Steps in units of the primal, longest first.",
        "errors": "How far the difference is from the true derivative at each; nan for no value.",
        "bars": "How much of that rounding in forward explains.",
        "off": "How far the gradient judged is from it.",
        "want": "The true derivative.",
        "bound": "How far the gradient judged may be from it.",
        "error_bar": "How uncertain the true derivative is.",
    },
    "Heat": {
        "cotangent": "Under which cotangent.",
        "shape": "Shape of the gradient.",
        "rows": "Rows of the picture.",
        "columns": "Columns of the picture.",
        "cells": "A character per cell: . within the bound, 0 to 9 the power of ten of "
        "error/bound, ! no number, ? unresolved.",
    },
    "Blame": {
        "exact": "Whether each stage gave a wrong gradient by itself; else they are suspects.",
        "stages": "The stages, in the program's order.",
        "of": "How many stages the program has.",
        "assumption": "What is taken for granted.",
        "bounds": "The last right gradient, and the first wrong one.",
        "round": "How many guilty stages were replaced before, and one.",
        "names": "What exactly is wrong, where that is known.",
    },
    "Diagnosis": {
        "label": "Code of the class of defects; empty where no known pattern fits.",
        "says": "What was computed instead, in one sentence.",
        "rule": "The rule that found it.",
        "evidence": "What the sentence rests on.",
        "class": "The word for the class.",
    },
    "Known": {
        "as": "How the result stands to the entry.",
        "entry": "File and line of the entry.",
        "reason": "The entry's reason.",
        "link": "The entry's link.",
    },
    "Baseline": {
        "file": "The baseline.",
        "sha256": "Hash of what it held.",
        "xfail": "Results that fail as an entry says.",
        "xpass": "Results that pass although an entry says that they fail.",
        "problems": "What closes the gate, a line to edit each.",
        "warnings": "What should be looked at.",
    },
    "Named": {
        "file": "The baseline.",
        "sha256": "Hash of what it held.",
    },
    "Late": {
        "implementation": "Whose code was judged.",
        "name": "operator/dialect/sample/dtype.",
        "part": "What of it the result is about.",
        "output": "The primal whose gradient was judged.",
        "expectation": "Whether the gate accepts the result.",
        "known": "What the entry of the baseline says about it.",
    },
    "Problem": {
        "kind": "What is wrong between the baseline and the run.",
        "file": "The file to edit.",
        "line": "The line to edit.",
        "says": "What to change there.",
    },
}
"""By the name of the definition."""
NAMED: Final = "The baseline that was named, if one was."
LATE: Final = (
    "What the baseline says of passes that compared nothing; of others their own line says it."
)
SHA256: Final = "Hash of all lines before this one."
