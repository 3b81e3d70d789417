"""Report formats, and the fields of the JSON, from the schema that is published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module, resources
from typing import Any, Final

from _pages.text import block, code, front, joined, link, table, text
from gradcheck import report
from gradcheck.cli import listing

PAGE: Final = "reference/reports.md"


def pages() -> Iterator[tuple[str, str]]:
    """The page's path and Markdown."""
    yield (
        PAGE,
        joined(
            front("Reports and JSON", "The formats of reports, and the fields of the JSON"),
            "# Reports",
            "Every format is rendered from the record of a run, at once or later (`gradcheck "
            "report`). `-o FILE` selects a format by the file's ending, `-o FILE:FORMAT` by name; "
            "`--format` selects that of stdout.",
            table(["format", "endings", "content"], _formats()),
            "[An example HTML report](../example/report.html): three kernels, one of them "
            "wrong, judged while this site was built.",
            "Two runs of one command on one machine give the same bytes. Text of judged "
            "code (names, messages, output) is escaped in every format.",
            "## JSON",
            "One document: `header`, `results` (one per gradient output of a case), `footer`. "
            'Non-finite numbers are the strings "nan", "inf" and "-inf". Fields are added, never '
            "renamed; readers should ignore unknown fields. The log (`.jsonl`) has these objects, "
            "one per line. The schemas:",
            block("console", "\n".join(f"gradcheck schema {word}" for word in listing.SCHEMAS)),
            *_definitions(_schema()),
            "## The last line of the terminal report",
            "For scripts: `RESULT pass|fail checked=… pass=… fail=…`, then every verdict in the "
            "run, `elements` and `unresolved`; with a baseline `xfail`, `xpass` and `stale` too.",
        ),
    )


def _formats() -> list[list[str]]:
    rows = []
    for name, renderer in report.RENDERERS.items():
        endings = [ending for ending, form in report.ENDINGS.items() if form == name]
        module, _, function = renderer.partition(".")
        render = getattr(import_module(f"gradcheck.report.{module}"), function)
        said = (render.__doc__ or "").split("\n\n")[0]
        rows.append([code(name), ", ".join(map(code, endings)), text(said)])
    return rows


def _schema() -> Mapping[str, Any]:
    """The schema of a report, as it is published."""
    file = resources.files("gradcheck.results.stored") / "schemas" / listing.SCHEMAS["report"]
    found: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def _definitions(whole: Mapping[str, Any]) -> Iterator[str]:
    """The document, then every object that it is made of."""
    yield f"### {whole['title']} {{#document}}"
    yield _fields(whole)
    for name, part in whole["$defs"].items():
        yield f"### {name} {{#{name.lower()}}}"
        if part.get("description"):
            yield text(part["description"])
        if "properties" in part:
            yield _fields(part)
        elif "enum" in part:
            yield "One of " + ", ".join(code(word) for word in part["enum"]) + "."


def _fields(part: Mapping[str, Any]) -> str:
    needed = part.get("required", ())
    rows = [
        [
            code(name),
            _kind(field),
            text(field.get("description", "")),
            "" if name in needed else "may be absent",
        ]
        for name, field in part["properties"].items()
    ]
    return table(["field", "is", "meaning", "presence"], rows)


def _kind(field: Mapping[str, Any]) -> str:
    """What a field holds, in a word or two."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return link(name, f"#{name.lower()}")
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(dict.fromkeys(_kind(one) for one in field[key]))
    if field.get("type") == "array":
        items = field.get("items")
        return f"list of {_kind(items)}" if items else "list"
    if "enum" in field:
        return ", ".join("null" if word is None else code(word) for word in field["enum"])
    kind = field.get("type", "anything")
    return ", ".join(kind) if isinstance(kind, list) else str(kind)
