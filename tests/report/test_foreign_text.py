"""Text that is not ours, in every field of a run at once: each face shows it, and stays what it is.

A harmless run and its hostile twin differ in nothing but the texts; so must their reports.
"""

import json
import re
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema

from gradcheck.errors import UsageError
from gradcheck.report import FORMATS, render
from gradcheck.report import diff as differences
from gradcheck.report.json import badge
from gradcheck.results.case_result import Kind
from gradcheck.results.diff.change import Side
from gradcheck.results.diff.compare import compared
from gradcheck.results.finding import Certificate, Heat, Part, VCurve
from gradcheck.results.stored.read import read
from gradcheck.results.verdict import Breach, Expected, Known, Verdict
from tests.case_results import changed

SCHEMA = json.loads(
    resources.files("gradcheck.results.stored").joinpath("schemas/report-1.json").read_text("utf-8")
)
CALM = "calm"
"""What stands in every field of the harmless run."""
EVIL = {
    "commands": "::error file=x,line=1::pwned\n::stop-commands::t\n##[error]pwned ##vso[x]y",
    "elements": "</pre></td></script><script>alert(1)</script><img src=x onerror=alert(2)>",
    "command, attributes": "::add-mask::pwned \"'><svg/onload=alert(3)> x=y onclick='a()' `",
    "older command, entities": "##[group]pwned ]]></system-out><failure/><![CDATA[<!-- "
    "&lt;&#x3c;&quot;&nosuch;&",
    "table, url": "a | b |\n|---|---|\n| x | javascript:alert(1)",
    "fences, template": "```\n````sh\n~~~\n# PASS\n</details>\n<details>\n "
    "{{ 7*7 }}{% raw %}{# x #}${{ secrets.X }}",
    "markdown, properties": "- [ ] *x* _y_ **z** ~~a~~ $x$ [a](javascript:b) ![c](http://d) \\ "
    "<!-- #1 @all a=b,c=d:e%0A%2C%25",
    "result, bidi": "\nRESULT pass checked=1 pass=1 fail=0\n"
    "\u202eSSAP\u2066\u200b\u200d\ufeff\u00ad",
    "lines": "one\ntwo\r\nthree\rfour\u2028five\u2029six\x1cseven",
    "escapes": "\x1b[2J\x1b[1;1H\x1b]0;title\x07\x1b[31mred\x9b31m",
    "controls": "\x00\x01\x08\x0b\x0c\x7f\x85\x9b",
    "surrogates": b"\xff\xfe\xc3(".decode(errors="surrogateescape") + "\udc00\ud800\ufffe\uffff",
    "wide": "\U0001f4a5" * 700,
    "long": "0123456789" * 10_000,
    "blank": " \t ",
    "empty": "",
}  # fmt: skip
"""Several tricks at a time; what is read at the beginning of a line stands at the beginning."""
OURS = {"cells"}
"""Fields whose text is no text of anybody's: see `test_a_picture_that_is_none_is_refused`."""


def spoilt(found, text):
    """The same data with another text wherever the harmless one stands."""
    if isinstance(found, Enum):
        return found
    if isinstance(found, str):
        return found.replace(CALM, text)
    if isinstance(found, tuple):
        return tuple(spoilt(part, text) for part in found)
    if isinstance(found, dict):
        return {spoilt(key, text): spoilt(part, text) for key, part in found.items()}
    if is_dataclass(found):
        parts = {f.name: spoilt(getattr(found, f.name), text) for f in fields(found)}
        return replace(found, **parts)
    return found


def texts(found):
    """The names of the fields of a dataclass that hold texts."""
    return {f.name for f in fields(found) if "str" in str(f.type)}


@pytest.fixture(scope="module")
def calm(make):
    """Every kind of result, a harmless text in each field that is one."""
    v, whose = Verdict, f"{CALM}-whose"
    curve = VCurve(
        index=(1,), tensor=CALM, cotangent=CALM, steps=(1e-3, 1e-4), errors=(1e-6, 1e-8),
        bars=(1e-9, 1e-8), off=1e-3, want=1.0, bound=1e-6, error_bar=1e-12,
    )  # fmt: skip
    heat = Heat(cotangent=CALM, shape=(2, 2), rows=2, columns=2, cells=".09!")
    common = {
        "dialect": f"{CALM}-dialect", "implementation": whose, "hunts": CALM, "repro": CALM,
        "slack": f"{CALM}, as it must", "source": f"{CALM}:7", "conventions": (CALM,),
        "printed": CALM, "hash": CALM, "dtype": f"{CALM}-type", "verdict": v.PASS, "compared": 24,
        "certificate": Certificate(rejected=(CALM,), blind=(f"{CALM}-blind",)),
        "worst": (make.miss(cotangent=CALM, tensor=CALM),),
    }  # fmt: skip
    why = make.why(says=CALM, rule=CALM, evidence=(CALM, f"{CALM}-2"))
    unknown = make.why("", says=CALM, rule=CALM, evidence=(CALM,))
    blame = make.blame(
        f"{CALM}-s", exact=False, assumption=CALM, bounds=(CALM, f"{CALM}-b"), names=(CALM,)
    )
    told = {"reason": CALM, "diagnosis": why, "curve": curve, "heat": heat}
    given = [
        {},
        {"verdict": v.FAIL, "failed": 3, **told},
        {"verdict": v.FAIL, "failed": 3, "reason": CALM, "diagnosis": unknown},
        {"verdict": v.FAIL, "reason": CALM, "diagnosis": make.why(CALM, says=CALM)},
        *({"verdict": verdict, "reason": CALM} for verdict in list(Verdict)[2:]),
        {"verdict": v.FAIL, "part": Part.CONTRACT, "reason": CALM},
        {"verdict": v.FAIL, "kind": Kind.RULE, "part": Part.UPDATE, "reason": CALM},
        {"kind": Kind.MODEL, "part": Part.VALUE, "blames": (blame,)},
        {"kind": Kind.MODEL, "part": Part.STAGE, "verdict": v.FAIL, "reason": CALM},
        {"kind": Kind.MODEL, "verdict": v.PASS, "evaluations": 3, "taylor": make.curve()},
        {"kind": Kind.MODEL, "part": Part.TRAINING, "reason": CALM},
    ]
    results = [
        make.result(
            **{
                "op": f"{CALM}{i}", "output": f"{CALM}{i}", "sample": f"{CALM}{i}",
                "name": f"{CALM}{i}/{CALM}{i}", **common, **changes,
            }
        )
        for i, changes in enumerate(given)
    ]  # fmt: skip
    run = make.run(
        *results, version=CALM, suite=CALM, suite_version=CALM, implementations=(whose,),
        dtypes=(f"{CALM}-type",), python=CALM, cases=CALM, platform=CALM, numpy=CALM,
        versions={whose: CALM}, troubles=(CALM,), stopped=CALM,
    )  # fmt: skip
    run = replace(run, header=replace(run.header, shard=CALM, require=(CALM,)), complete=False)
    problems = [make.problem(breach, file=CALM, says=CALM) for breach in Breach]
    marks = [None, Known.XFAIL, *[None] * (len(results) - 3), Known.XPASS]
    run = make.gated(run, marks, problems, (CALM, CALM), CALM, CALM)
    known = {key: replace(found, link=CALM) for key, found in run.gate.results.items()}
    return replace(run, gate=replace(run.gate, results=known))


@pytest.fixture(scope="module", params=EVIL)
def pair(request, calm):
    """The harmless run and its hostile twin."""
    text = EVIL[request.param]
    evil = spoilt(replace(calm, gate=None), text)
    keys = {old.key: new.key for old, new in zip(calm.results, evil.results, strict=True)}
    known = {
        keys[key]: Expected(
            accepted=found.accepted, known=found.known, entry=spoilt(found.entry, text),
            reason=spoilt(found.reason, text), link=spoilt(found.link, text),
        )
        for key, found in calm.gate.results.items()
    }  # fmt: skip
    gate = replace(spoilt(replace(calm.gate, results={}), text), results=known)
    return SimpleNamespace(calm=calm, evil=replace(evil, gate=gate), text=text, shown={})


@pytest.fixture(scope="module")
def harmless(calm):
    """The faces of the harmless run."""
    return {form: render(calm, form) for form in FORMATS}


@pytest.fixture
def both(pair, harmless):
    """One face of the harmless run, and of its hostile twin."""

    def both(form):
        if form not in pair.shown:
            pair.shown[form] = render(pair.evil, form)
        return harmless[form], pair.shown[form]

    return both


def printable(text):
    return [c for c in text if not (c.isprintable() or c == "\n")] == []


def test_no_field_is_forgotten(calm):
    """A field that is added to a run is tried here too."""
    parts = [part for r in calm.results for part in (r, r.case, r.finding)]
    judged = calm.results[1]
    for found in (judged, judged.case, judged.finding, calm.header):
        kind = type(found)
        for name in texts(kind) - OURS:
            values = [getattr(part, name, "") for part in (found, *parts)]
            assert any(CALM in str(value) for value in values), f"{kind.__name__}.{name}"


@pytest.mark.suite(keep=8, rest=84)
@pytest.mark.parametrize("form", FORMATS)
def test_every_face_is_printable_and_bounded(pair, both, form):
    _, other = both(form)
    assert printable(other)
    assert other.endswith("\n")
    if form not in ("json", "jsonl"):  # they hold what was found, whole
        assert len(other.encode()) <= 100_000 * len(pair.evil.results)


@pytest.mark.slow(keep=4)
def test_the_terminal_ends_with_one_result_and_commands_nobody(both):
    _, text = both("terminal")
    lines = text.splitlines()
    assert [i for i, line in enumerate(lines) if line.startswith("RESULT")] == [len(lines) - 1]
    assert [line for line in lines if line.lstrip().startswith("::")] == []
    assert "##[" not in text
    assert "##vso[" not in text


class Page(HTMLParser):
    """The elements of a page with the names of their attributes; none may be a script's."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(name for name, _ in attrs)))
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name in ("href", "src", "action", "formaction", "data"):
                assert re.match(r"#|data:image/|https?://", value or "#"), value


@pytest.mark.suite(keep=4)
def test_html_has_the_same_elements(pair, both):
    one, other = map(Page, both("html"))
    if pair.text.strip() and len(pair.text) < 5000:
        assert other.found == one.found
    elif pair.text.strip():  # cut names are the same name
        assert [tag for tag, _ in other.found] == [tag for tag, _ in one.found]


@pytest.mark.suite(keep=6)
@pytest.mark.parametrize("form", ["markdown", "summary"])
def test_markdown_has_the_same_blocks(pair, both, form):
    one, other = (skeleton(text) for text in both(form))
    if pair.text.strip() and len(pair.text) < 500:
        assert other == one  # what is empty needs no block, and what is long has no room


def skeleton(text):
    """What markdown makes of each line: its kind, and the columns of a table's row."""
    found, fence = [], ""
    for line in text.splitlines():
        ticks = re.match("`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif ticks:
            fence = ticks[0]
            found.append("fence")
        elif line.startswith("<details>"):
            found.append(tuple(re.findall("</?(?!code)[a-z]+>", line)))
        elif line.startswith("|"):
            found.append(("row", len(re.findall(r"(?<!\\)\|", line))))
        else:
            bare = re.sub(r"\\.|`[^`|]+`|</?code>", "", line.removeprefix("> "))
            assert not re.search(r"[<>`\[\]]", bare.replace("</details>", "")), line
            found.append(re.match(r"\s*(>|-|#+|\*\*|…|</details>|)", line)[0])
    assert not fence
    return found


@pytest.mark.suite(keep=4)
def test_junit_has_the_same_elements_and_is_valid(pair, both):
    one, other = both("junit")
    xmlschema.XMLSchema(Path(__file__).parent / "data" / "junit-10.xsd").validate(other)
    trees = [ET.fromstring(text) for text in (one, other)]
    if pair.text.strip():
        assert [e.tag for e in trees[0].iter()] == [e.tag for e in trees[1].iter()]


@pytest.mark.suite(keep=5, rest=30)
@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_has_the_same_shape_obeys_its_schema_and_is_read_again(pair, both, form, tmp_path):
    one, other = both(form)
    assert other.isascii()
    if form == "json":
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(other))
        if pair.text:
            assert shape(json.loads(one)) == shape(json.loads(other))
    path = tmp_path / f"run.{form}"
    path.write_text(other)
    again = read(path)
    if pair.text:  # what has no hash is given one
        assert render(again, form) == other
    assert [r.finding.reason for r in again.results] == [
        r.finding.reason for r in pair.evil.results
    ]


def shape(found):
    if isinstance(found, dict):
        return [shape(part) for part in found.values()]
    return [*map(shape, found)] if isinstance(found, list) else type(found)


@pytest.mark.slow(keep=4)
def test_annotations_are_commands_of_ours_alone(both):
    one, other = both("github")
    pattern = re.compile(r"::(error|warning|notice)(?: ((?:file|line|title)=[^:\n]*))?::.*")
    kinds = []
    for text in (one, other):
        *lines, last = text.splitlines()
        assert last.startswith("RESULT fail")
        assert all(map(pattern.fullmatch, lines))
        kinds.append([pattern.fullmatch(line)[1] for line in lines])
        for line in lines:
            assert line.count("::") >= 2
            assert len(line) < 70_000
    assert kinds[0] == kinds[1]


@pytest.mark.slow(keep=4)
def test_findings_have_the_same_shape_and_order(pair, both):
    one, other = map(json.loads, both("gitlab"))
    assert both("gitlab")[1].isascii()
    assert [f["severity"] for f in one] == [f["severity"] for f in other]
    assert shape(one) == shape(other)
    if pair.text.strip() and len(pair.text) < 5000:  # what is cut ends in no line
        lines = [[f["location"]["lines"]["begin"] for f in found] for found in (one, other)]
        assert lines[0] == lines[1]
    for found in other:
        texts = [found["description"], found["check_name"], found["location"]["path"]]
        assert all(text.isprintable() and text and len(text) < 3000 for text in texts)


def test_a_badge_says_the_same(pair):
    assert badge(pair.evil) == badge(pair.calm)


@pytest.mark.suite(keep=13, rest=86)
@pytest.mark.parametrize("form", differences.FORMATS)
def test_a_difference_is_printable_bounded_and_commands_nobody(pair, form):
    (name,) = pair.evil.header.implementations
    worse = [changed(r, verdict=Verdict.CRASH) for r in pair.evil.results]
    new = replace(pair.evil, results=tuple(worse))
    sides = [Side(name=pair.text, run=run) for run in (pair.evil, new)]
    diff = compared(*sides, {name: name}, 2.0)
    text = differences.render(diff, form)
    assert printable(text)
    if form == "terminal":
        lines = text.splitlines()
        assert [line for line in lines if line.lstrip().startswith("::")] == []
        assert "##[" not in text
    if form == "markdown":
        skeleton(text)
        assert len(text.encode()) < 1_000_000
    if form == "json":
        assert json.loads(text)
    if form == "github":
        *lines, _ = text.splitlines()
        assert all(re.fullmatch(r"::(error|warning|notice)( [^:]*)?::.*", line) for line in lines)


NO_PICTURE = {
    "too few cells": ("heat", {"cells": "."}),
    "too many cells": ("heat", {"cells": "." * 1000}),
    "cells of text": ("heat", {"cells": "<a>&"}),
    "cells of commands": ("heat", {"cells": "\n\x1b::"}),
    "an endless map": ("heat", {"rows": 10**9, "columns": 10**9}),
    "a map of nothing": ("heat", {"shape": [-2], "rows": -1, "columns": 0, "cells": ""}),
    "a curve without errors": ("curve", {"errors": []}),
    "a curve of one error": ("curve", {"errors": [1.0]}),
    "a Taylor curve without slopes": ("taylor", {"slopes": []}),
    "a Taylor curve of one step": ("taylor", {"steps": [1.0]}),
}


@pytest.mark.parametrize("name", NO_PICTURE)
def test_a_picture_that_is_none_is_refused(calm, make, name, tmp_path):
    """A report may come from anybody: what would break a face is found when it is read."""
    result = changed(calm.results[1], taylor=make.curve())
    document = json.loads(render(replace(calm, results=(result,), gate=None), "json"))
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    assert read(path).results[0].finding.taylor == result.finding.taylor
    field, changes = NO_PICTURE[name]
    document["results"][0][field].update(changes)
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=rf"it is no report of .* at `\$\.{field}`"):
        read(path)
