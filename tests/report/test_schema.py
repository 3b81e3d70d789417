"""The published schema: it describes every field that is stored, and every stored run obeys it."""

import copy
import json
from dataclasses import fields
from pathlib import Path

import jsonschema
import pytest

import gradcheck.results.stored
from gradcheck.cli import listing
from gradcheck.cli.main import main
from gradcheck.report import render
from gradcheck.results import finding
from gradcheck.results.case_result import CaseId, CaseResult, Kind
from gradcheck.results.run import Footer, Header
from gradcheck.results.stored.plain import RESULT_FIELDS
from gradcheck.results.verdict import Breach, Known, Verdict

FILES = Path(gradcheck.results.stored.__file__).parent / "schemas"
OLD = Path(__file__).parent / "data" / "old"


def published(word):
    return json.loads((FILES / listing.SCHEMAS[word]).read_text("utf-8"))


def validator(word, *, strict=False):
    """Strict: only fields that the schema knows are allowed."""
    schema = published(word)
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(_closed(schema) if strict else schema)


def _closed(part):
    if isinstance(part, list):
        return [*map(_closed, part)]
    if not isinstance(part, dict):
        return part
    closed = {key: _closed(value) for key, value in part.items()}
    return {**closed, "additionalProperties": False} if "properties" in part else closed


def strict_json(text):
    return json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize("word", listing.SCHEMAS)
def test_every_field_and_word_that_is_stored_is_described(word):
    parts = published(word)["$defs"]
    for part in parts.values():
        said = [field["description"] for field in part.get("properties", {}).values()]
        assert all(text.endswith(".") for text in [part.get("description", "."), *said])
    flat = {f.name for kind in (CaseId, finding.Finding, CaseResult) for f in fields(kind)}
    assert {*parts["Result"]["properties"]} == {*RESULT_FIELDS}
    assert flat - {*RESULT_FIELDS} == {"case", "finding"}
    for kind in (Header, Footer, finding.Miss, finding.Taylor, finding.VCurve, finding.Heat,
                 finding.Blame, finding.Diagnosis):  # fmt: skip
        assert {f.name for f in fields(kind)} <= {*parts[kind.__name__]["properties"]}, kind
    for kind in (Verdict, Kind, finding.Part):
        assert parts[kind.__name__]["enum"] == sorted(kind)
    assert parts["Known"]["properties"]["as"]["enum"] == [*Known, None]
    assert parts["Problem"]["properties"]["kind"]["enum"] == [*Breach]


@pytest.mark.slow(keep=3, rest=8)
def test_every_stored_run_obeys_the_schema_and_has_no_field_beside(any_run):
    validator("report", strict=True).validate(strict_json(render(any_run, "json")))
    lines = validator("log", strict=True)
    for line in render(any_run, "jsonl").splitlines():
        lines.validate(strict_json(line))


KERNELS = """
IMPL = {"relu": {"vjp": lambda ct, x: -ct * (x > 0)}, "tanh": {"vjp": lambda ct, x: ct * x}}
"""


@pytest.mark.suite(rest=0)
def test_a_real_run_obeys_it_too(tmp_path, monkeypatch, capsys):
    (tmp_path / "kernels_of_schema.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--sample", "typical", "--sample", "tiny", "--dtype", "float64", "--taylor", "-q"]
    flags += ["--impl", "kernels_of_schema:IMPL", "--impl", "reference"]
    flags += ["--op", "relu", "--op", "tanh", "--model", "test_opt"]
    assert main(["run", *flags, "-o", "run.json", "-o", "run.jsonl"]) == 1
    document = strict_json(Path("run.json").read_text())
    assert {r["kind"] for r in document["results"]} == {"operator", "model"}
    assert any(r["taylor"] for r in document["results"])
    assert any(r["diagnosis"] for r in document["results"])
    validator("report", strict=True).validate(document)
    for line in Path("run.jsonl").read_text().splitlines():
        validator("log", strict=True).validate(strict_json(line))
    capsys.readouterr()


@pytest.mark.parametrize("word", listing.SCHEMAS)
def test_the_command_prints_it(word, capsys):
    assert main(["schema", word]) == 0
    assert capsys.readouterr().out == (FILES / listing.SCHEMAS[word]).read_text("utf-8")


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("path", sorted(OLD.glob("*.json")), ids=lambda path: path.stem)
def test_reports_of_earlier_versions_obey_it(path):
    validator("report").validate(strict_json(path.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(OLD.glob("*.jsonl")), ids=lambda path: path.stem)
def test_logs_of_earlier_versions_obey_it(path):
    for line in path.read_text().splitlines():
        validator("log").validate(strict_json(line))


@pytest.fixture
def document(outdated):
    return json.loads(render(outdated, "json"))


WRONG = {
    "no header": lambda d: d.pop("header"),
    "no footer": lambda d: d.pop("footer"),
    "results are no list": lambda d: d.update(results={}),
    "another schema": lambda d: d["header"].update(schema=2),
    "no schema": lambda d: d["header"].pop("schema"),
    "a seed of text": lambda d: d["header"].update(seed="0"),
    "an unknown verdict": lambda d: d["results"][0].update(verdict="ok"),
    "a verdict in capitals": lambda d: d["results"][0].update(verdict="PASS"),
    "no verdict": lambda d: d["results"][0].pop("verdict"),
    "a number of text": lambda d: d["results"][0].update(error="small"),
    "NaN in capitals": lambda d: d["results"][0].update(got="NaN"),
    "an index of text": lambda d: d["results"][0].update(worst_index="1, 3"),
    "an element without a bound": lambda d: d["results"][0]["worst"][0].pop("bound"),
    "an unknown expectation": lambda d: d["results"][0].update(expectation="maybe"),
    "an unknown mark": lambda d: d["results"][0]["known"].update({"as": "xfailed"}),
    "a half certificate": lambda d: d["results"][0].update(certificate={"rejected": 3}),
    "a diagnosis without a sentence": lambda d: d["results"][0].update(diagnosis={"label": "F"}),
    "a problem without a line": lambda d: d["footer"]["baseline"]["problems"][0].pop("line"),
    "an unknown problem": lambda d: d["footer"]["baseline"]["problems"][0].update(kind="bad"),
    "passed as a word": lambda d: d["footer"].update(passed="yes"),
    "counts of text": lambda d: d["footer"]["counts"].update({"pass": "3"}),
}


@pytest.mark.slow(keep=4, rest=16)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_document_is_rejected(document, wrong):
    check = validator("report")
    check.validate(document)
    spoilt = copy.deepcopy(document)
    WRONG[wrong](spoilt)
    assert not check.is_valid(spoilt)


def test_a_wrong_line_is_rejected(outdated):
    check = validator("log")
    head, result, *_, foot = map(json.loads, render(outdated, "jsonl").splitlines())
    for line in (
        {},
        {**head, **foot},
        {"results": result["result"]},
        {"header": foot["footer"]},
        {"footer": {**foot["footer"], "sha256": "0" * 63}},
        {"footer": {k: v for k, v in foot["footer"].items() if k != "sha256"}},
    ):
        assert not check.is_valid(line), line


def test_a_field_of_a_later_version_is_allowed(document):
    document["results"][0]["temperature"] = 3
    document["header"]["later"] = {}
    validator("report").validate(document)
