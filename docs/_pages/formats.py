"""Report formats, and the fields of the JSON that is promised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Final

from _pages.text import code, front, joined, table, text
from gradcheck import report
from gradcheck.finding import Blame, Diagnosis, Heat, Miss, Taylor, VCurve
from gradcheck.record import Header, Record

PAGE: Final = "reference/reports.md"

RESULT: Final = {
    "name": "the case: operator/dialect/sample/dtype",
    "hash": "four characters that change when the case changes its meaning",
    "implementation": "whose code: the word of `--impl`",
    "op": "operator, model or update rule",
    "dialect": "which form of it",
    "sample": "which sample, or size of a model",
    "dtype": "float64, float32, float16, bfloat16, mp50",
    "output": "the primal whose gradient it is, `forward`, a parameter, a stage, a property",
    "verdict": "what was found, in small letters (verdicts.md)",
    "seed": "that of all inputs",
    "repro": "a command that repeats this case alone",
    "hunts": "the defect that the sample is there to find",
    "reason": "the finding in one line; null where there is nothing to say",
    "compared": "numbers compared, over all cotangents",
    "failed": "of these, outside their bound",
    "unresolved": "of these, invisible to the check",
    "kinked": "of these, judged by the slopes of a kink",
    "smallest_visible_error": "relative, in the blindest element that was resolved",
    "oracle": "whether 50-digit arithmetic settled an element",
    "conventions": "whose choice was found on kinks",
    "certificate": "impostors: `rejected`, `tried`, `blind` (names), `impostors` (names)",
    "worst": "up to 20 elements of a failure, one of a pass, worst first (below)",
    "kind": "operator, model or rule",
    "part": "gradient, value, stage, update, training or contract",
    "evaluations": "of forward, where there was a choice",
    "taylor": "with `--taylor`: the remainder along one direction (below)",
    "blames": "of a model that fails: which stages may be at fault (below)",
    "printed": "the tail of what the code printed while it was judged, made harmless",
    "slack": "why a wider bound than anybody else's was needed",
    "diagnosis": "why a gradient is wrong (below), and `class`, the word for its class",
    "source": "file and line of the code judged, where known",
    "curve": "the central difference at the worst element, step by step (below)",
    "heat": "where in the gradient the error is (below)",
    "expectation": "`ok` or `unexpected`: what the gate makes of it",
    "known": "what an entry of the baseline says: `as`, `entry`, `reason`, `link`",
    "error": "|got − want| of the worst element",
    "bound": "what was allowed there",
    "error_bar": "how uncertain `want` is there",
    "ulp": "the error in units of the last place of `want`",
    "worst_index": "where the worst element is",
    "got": "the gradient judged, there",
    "want": "the true derivative, there",
}
"""What each field of a result says; the test of this page holds it against a real report."""

HEADER: Final = {
    "version": "the engine's",
    "suite": "the suite's name",
    "suite_version": "its version, a calendar version",
    "implementations": "the words of `--impl`",
    "dtypes": "those of the run",
    "seed": "that of all inputs",
    "python": "its version",
    "cases": "a hash that changes when a case that was selected changes its meaning",
    "platform": "system and machine",
    "numpy": "its version",
    "schema": "the version of this form",
    "versions": "what code behind a manifest says that it is, by implementation",
    "shard": "I/N, where only every N-th case was selected; else empty",
}

FOOTER: Final = {
    "complete": "false: interrupted, or something was lost",
    "checked": "results that put code to the test",
    "elements": "numbers compared",
    "unresolved": "of these, invisible to the check",
    "counts": "results by verdict",
    "passed": "whether the gate is open",
    "stopped": "why a run that is not complete ended, where known",
    "troubles": "what could not be judged at all, one line each",
    "baseline": "what a baseline makes of the run: counts, `problems`, `warnings`; null without one",
}

BELOW: Final = (Miss, Diagnosis, Blame, Taylor, VCurve, Heat)
"""Records inside a result, described by their own docstrings."""


def pages() -> Iterator[tuple[str, str]]:
    """The page's path and Markdown."""
    yield (
        PAGE,
        joined(
            front("Reports and JSON", "The formats of reports, and the fields of the JSON"),
            "# Reports",
            "A run is one record; every format is made of it, at once or later. `-o FILE` writes one "
            "by the file's ending, `-o FILE:FORMAT` by name, `--format` puts one on stdout.",
            table(["format", "endings", "what it is"], _formats()),
            "Two runs of one command on one machine give the same bytes. Text of the code judged "
            "(names, messages, what it prints) is made harmless in every format.",
            "## JSON",
            "One document: `header`, `results` (one per gradient output of a case), `footer`. Numbers "
            'that are not finite are the strings "nan", "inf" and "-inf". Fields are added, never '
            "renamed; readers ignore what they do not know. The log (`.jsonl`) has the same objects, "
            "one a line, each under a key of its own.",
            "### header",
            _fields(HEADER, Header),
            "### results",
            _fields(RESULT, Record),
            *(part for kind in BELOW for part in _inside(kind)),
            "### footer",
            table(["field", "meaning"], [[code(n), text(s)] for n, s in FOOTER.items()]),
            "## The last line of the terminal's report",
            "For scripts: `RESULT pass|fail checked=… pass=… fail=…`, then every verdict that was "
            "found, `elements` and `unresolved`; with a baseline `xfail`, `xpass` and `stale` too.",
        ),
    )


def _formats() -> list[list[str]]:
    rows = []
    for name in report.FORMATS:
        endings = [ending for ending, form in report.ENDINGS.items() if form == name]
        said = (import_module(f"gradcheck.report.{name}").__doc__ or "").split("\n\n")[0]
        rows.append([code(name), ", ".join(map(code, endings)), text(said)])
    return rows


def _fields(said: dict[str, str], kind: type) -> str:
    assert is_dataclass(kind)
    names = [*said, *(field.name for field in fields(kind) if field.name not in said)]
    return table(["field", "meaning"], [[code(n), text(said.get(n, ""))] for n in names])


def _inside(kind: type) -> list[str]:
    """A record inside a result: its own words, and its fields."""
    where = {"Miss": "worst", "VCurve": "curve", "Blame": "blames"}
    name = where.get(kind.__name__, kind.__name__.lower())
    assert is_dataclass(kind)
    names = ", ".join(code(field.name) for field in fields(kind))
    doc = " ".join((kind.__doc__ or "").split())
    return [f"#### {name}", f"{text(doc)} Fields: {names}."]
