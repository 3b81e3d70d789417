"""Reports of earlier versions are read, say what they said, and render in every format."""

import json
from pathlib import Path

import pytest

from gradcheck.report import FORMATS, render
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.stored.read import read
from gradcheck.results.verdict import Verdict

OLD = sorted((Path(__file__).parent / "data" / "old").glob("*.json*"))


def footer(path):
    text = path.read_text()
    if path.suffix == ".jsonl":
        return json.loads(text.splitlines()[-1])["footer"]
    return json.loads(text)["footer"]


@pytest.fixture(params=OLD, ids=lambda path: path.stem)
def path(request):
    return request.param


def test_it_says_what_it_said(path):
    run, said = read(path), footer(path)
    assert {name: run.footer.counts[name] for name in said["counts"]} == said["counts"]
    assert run.footer.elements == said["elements"]
    assert run.passed is said["passed"]
    assert run.complete is said["complete"]
    assert list(run.troubles) == said["troubles"]


@pytest.mark.slow(keep=14)
@pytest.mark.parametrize("form", FORMATS)
def test_it_renders(path, form):
    run = read(path)
    text = render(run, form)
    assert text.endswith("\n")
    if form not in ("badge", "github", "gitlab"):
        for op in {result.case.op for result in run.results if not result.finding.verdict.expected}:
            assert op in text
    if form in ("terminal", "github"):
        assert text.splitlines()[-1] == run.summary


def test_it_is_written_again_as_it_is_read(path, tmp_path):
    run = read(path)
    again = tmp_path / "again.json"
    again.write_text(render(run, "json"))
    assert render(read(again), "json") == again.read_text()


def old(name):
    (found,) = (path for path in OLD if path.stem == name)
    return read(found)


def test_what_was_called_a_diagnosis_is_the_reason():
    (wrong,) = (r for r in old("a4862d0-ops").results if not r.finding.verdict.expected)
    assert wrong.finding.diagnosis is None
    assert wrong.finding.reason == "39 of 63 elements are outside their bound"
    assert f": {wrong.finding.reason}" in render(old("a4862d0-ops"), "terminal")


def test_models_and_rules_are_still_there():
    parts = {r.finding.part for r in old("79cc2ff-models").results}
    assert parts == {Part.VALUE, Part.GRADIENT, Part.STAGE, Part.TRAINING}
    rule = old("1436dad-rule")
    assert {(r.case.kind, r.finding.part) for r in rule.results} == {(Kind.RULE, Part.UPDATE)}
    spoilt = old("1436dad-blame")
    (blame,) = (b for r in spoilt.results for b in r.finding.blames)
    assert blame.stages == ("sqr",)
    assert [r.finding.name for r in spoilt.results if r.finding.taylor] == ["a", "b"]


def test_a_crash_and_its_last_words_are_still_there():
    (crash,) = (r for r in old("1436dad-crash").results if r.finding.verdict is Verdict.CRASH)
    assert "about to die" in crash.finding.printed
    assert "SIGABRT" in crash.finding.reason


def test_a_baseline_is_still_what_it_made_of_the_run():
    for name in ("2ba4ff6-known", "505e1c5-known"):
        gate = old(name).gate
        assert [found.known.value for found in gate.results.values()].count("xfail") == 2
        assert [problem.line for problem in gate.problems] == [20, 27]
