"""The published schema of a stored run, generated from what is stored.

What every version has written is required, what was added later is optional, and fields that are
not known are allowed: a document of any version of this schema validates.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Final

import msgspec

from gradcheck.results import finding
from gradcheck.results.case_result import CaseId, CaseResult
from gradcheck.results.run import SCHEMA, Footer, Header
from gradcheck.results.stored import plain
from gradcheck.results.verdict import Breach, Known

Plain = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
PARTS: Final = ("Miss", "Taylor", "VCurve", "Heat", "Blame", "Diagnosis")
"""Dataclasses that a result holds as they are."""
WORDS: Final = ("Verdict", "Kind", "Part")
"""Enumerations that it holds."""
TEXT: Final = {"type": "string"}
TEXTS: Final = {"type": "array", "items": TEXT}
COUNT: Final = {"type": "integer"}
TRUTH: Final = {"type": "boolean"}
NULL: Final = {"type": "null"}
NUMBER: Final = {
    "description": "A number; JSON has no word for one that is not finite.",
    "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
}
EXPECTATION: Final = {"enum": ["ok", "unexpected"]}
SHA256: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": plain.SHA256}


def report() -> Plain:
    """The schema of a JSON report, which is one document."""
    return {
        **_head("report", "What `gradcheck run -o FILE.json` writes."),
        **_object({"header": _ref("Header"), "results": _list("Result"), "footer": _ref("Footer")}),
        "$defs": _definitions(),
    }


def log() -> Plain:
    """The schema of one line of a log."""
    parts = _definitions()
    parts["Footer"]["properties"]["sha256"] = SHA256
    parts["Footer"]["required"].append("sha256")
    parts |= _explained({"Named": _named(), "Late": _late()})
    _add(parts["Header"], {"baseline": {"description": plain.NAMED, **_ref("Named")}})
    _add(parts["Baseline"], {"late": {"description": plain.LATE, **_list("Late")}})
    says = (
        "What each line of `gradcheck run -o FILE.jsonl` holds: a header, then results, last a "
        "footer. A log without a footer was cut short."
    )
    lines = [
        {**_object({key: _ref(key.capitalize())}), "additionalProperties": False}
        for key in ("header", "result", "footer")
    ]
    return {**_head("line of a log", says), "oneOf": lines, "$defs": parts}


SCHEMAS: Final = {"report": report, "log": log}
"""By the name under which each is published."""


def name_of(word: str) -> str:
    """The file in which a schema is published."""
    return f"{word}-{SCHEMA}.json"


def text_of(word: str) -> str:
    """A schema as it is published."""
    return json.dumps(SCHEMAS[word](), indent=1, ensure_ascii=False) + "\n"


def _head(what: str, says: str) -> Plain:
    return {"$schema": DIALECT, "title": f"gradcheck {what}, schema {SCHEMA}", "description": says}


def _definitions() -> dict[str, Plain]:
    """Everything that a document consists of, by name."""
    _, found = msgspec.json.schema_components(
        (Header, CaseResult, Footer), ref_template="#/$defs/{name}"
    )
    header, footer, result = _of(Header, found), _of(Footer, found), _result(found)
    _add(header, {"schema": {"const": SCHEMA}}, required=True)
    _add(result, _derived(), required=True)
    _add(result, {"known": _or_null(_ref("Known"))})
    result["properties"].update(
        reason=_or_null(TEXT),
        certificate=_or_null(_ref("Certificate")),
        diagnosis={"anyOf": [_ref("Diagnosis"), TEXT, NULL]},
    )
    _add(footer, {"passed": TRUTH, "troubles": TEXTS}, required=True)
    _add(footer, {"stopped": TEXT, "baseline": _or_null(_ref("Baseline"))})
    parts = {name: _of(getattr(finding, name), found) for name in PARTS}
    _add(parts["Diagnosis"], {"class": _or_null(TEXT)})
    words = {name: {"enum": found[name]["enum"]} for name in WORDS}
    whole = {"Header": header, "Result": result, "Footer": footer, **parts, **_derived_parts()}
    return {**_explained(whole), **words, "Number": NUMBER}


def _result(found: dict[str, Plain]) -> Plain:
    """A result, which is stored flat: its case and its finding, whose name is the output."""
    case, judged, whole = (_of(kind, found) for kind in (CaseId, finding.Finding, CaseResult))
    properties = judged["properties"] | {"output": judged["properties"]["name"]}
    properties |= case["properties"] | {"repro": whole["properties"]["repro"]}
    required = {*case["required"], *judged["required"], "output", "repro"}
    order = [name for name in plain.FIELDS["Result"] if name in properties]
    return {
        **whole,
        "properties": {name: properties[name] for name in order},
        "required": [name for name in order if name in required],
    }


def _explained(parts: dict[str, Plain]) -> dict[str, Plain]:
    """The same, each field of which says in a sentence what it is."""
    for name, part in parts.items():
        for field, schema in part["properties"].items():
            says = plain.FIELDS[name].get(field, "")
            part["properties"][field] = {"description": says, **schema}
    return parts


def _of(kind: type, found: dict[str, Plain]) -> Plain:
    """A dataclass: what has no default was there from the start."""
    schema = found[kind.__name__]
    return {
        "description": (inspect.getdoc(kind) or "").partition("\n")[0],
        "type": "object",
        "properties": {name: _stored(part) for name, part in schema["properties"].items()},
        "required": list(schema["required"]),
    }


def _stored(part: Any) -> Any:
    """A type as JSON stores it: numbers may be words; a default is nothing to rely on."""
    if isinstance(part, list):
        return [*map(_stored, part)]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "number":
        return _ref("Number")
    return {key: _stored(value) for key, value in part.items() if key != "default"}


def _derived() -> Plain:
    """What is stored of a result beside its record; all of it was always written."""
    number = _or_null(_ref("Number"))
    return {
        "expectation": EXPECTATION,
        **dict.fromkeys(("error", "bound", "error_bar", "ulp", "got", "want"), number),
        "worst_index": _or_null({"type": "array", "items": {"type": "integer"}}),
    }


def _derived_parts() -> dict[str, Plain]:
    """What is stored in a form of its own."""
    certificate = _object({"rejected": COUNT, "tried": COUNT, "blind": TEXTS})
    _add(certificate, {"impostors": TEXTS, "tolerated": TEXTS})
    baseline = _object(
        {
            "file": TEXT,
            **{known.value: COUNT for known in Known},
            "problems": _list("Problem"),
            "warnings": TEXTS,
        }
    )
    _add(baseline, {"sha256": TEXT})
    return {
        "Certificate": certificate,
        "Known": _object(
            {"as": _words(Known, None), "entry": TEXT, "reason": TEXT, "link": _or_null(TEXT)}
        ),
        "Baseline": baseline,
        "Problem": _object(
            {"kind": _words(Breach), "file": TEXT, "line": _or_null(COUNT), "says": TEXT}
        ),
    }


def _named() -> Plain:
    """Which baseline a log was made with."""
    named = _object({"file": TEXT})
    _add(named, {"sha256": TEXT})
    return named


def _late() -> Plain:
    """What the footer of a log says of one result."""
    texts = dict.fromkeys(("implementation", "name", "part", "output"), TEXT)
    return _object({**texts, "expectation": EXPECTATION, "known": _ref("Known")})


def _object(properties: Plain) -> Plain:
    """An object that has all of these."""
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _add(part: Plain, properties: Plain, *, required: bool = False) -> None:
    part["properties"].update(properties)
    if required:
        part["required"] += [name for name in properties if name not in part["required"]]


def _ref(name: str) -> Plain:
    return {"$ref": f"#/$defs/{name}"}


def _list(name: str) -> Plain:
    return {"type": "array", "items": _ref(name)}


def _words(kind: type[Known] | type[Breach], *others: None) -> Plain:
    return {"enum": [*(word.value for word in kind), *others]}


def _or_null(part: Plain) -> Plain:
    return {"anyOf": [part, NULL]}
