import json
from dataclasses import replace

import jsonschema
import pytest

from gradcheck.report.gitlab import COMMAND, MOST, render
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Breach, Known, Verdict

FAIL = Verdict.FAIL
SEVERITIES = ["info", "minor", "major", "critical", "blocker"]
FORMAT = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "pattern": "^gradcheck/[ -~]+$"},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "severity": {"enum": SEVERITIES},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "additionalProperties": False,
                "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "additionalProperties": False,
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}
"""What GitLab's documentation says of the format, as far as we write it."""


def findings(run):
    text = render(run)
    assert text.isascii()
    found = json.loads(text)
    jsonschema.validate(found, FORMAT)
    prints = [finding["fingerprint"] for finding in found]
    assert len(set(prints)) == len(prints)
    return found


def one(make, **changes):
    (found,) = findings(make.run(make.result(**{"verdict": FAIL, **changes})))
    return found


@pytest.mark.slow(keep=2)
def test_every_run_is_a_list_of_findings_that_gitlab_reads(any_run):
    found = findings(any_run)
    assert any(f["severity"] not in ("info", "minor") for f in found) == (not any_run.passed)


def test_a_run_that_passes_finds_nothing(passing):
    assert render(passing) == "[]\n"


def test_a_gradient_is_found_with_its_class_where_its_code_stands(make):
    found = one(make, output="w", diagnosis=make.why(), source="src/rms.c:120")
    assert found.pop("fingerprint")
    assert found == {
        "description": "rms_norm/weight · dw: scale: dw is 1/3 of the right value "
        "(FAIL rms_norm/weight/typical/float64); "
        "run: gradcheck run --op rms_norm --dialect weight --sample typical --dtype float64",
        "check_name": "gradcheck/scale",
        "severity": "critical",
        "location": {"path": "src/rms.c", "lines": {"begin": 120}},
    }


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("source", "implementation", "path", "line"),
    [
        ("src/rms.c:120", "x", "src/rms.c", 120),
        ("src/rms.c", "x", "src/rms.c", 1),
        ("a.c:0", "x", "a.c", 1),
        ("a.c:99999999999999999999", "x", "a.c", 999999999),
        ("", "pkg.kernels:IMPL", "pkg/kernels.py", 1),
        ("", "native/gradcheck.toml", "native/gradcheck.toml", 1),
        ("", "C:/x/gradcheck.toml", "C:/x/gradcheck.toml", 1),
        ("", "torch", "torch", 1),
        ("", "", "gradcheck", 1),
    ],
)
def test_there_is_always_a_place(make, source, implementation, path, line):
    found = one(make, source=source, implementation=implementation)
    assert found["location"] == {"path": path, "lines": {"begin": line}}


def test_a_fingerprint_is_of_names_and_not_of_what_was_measured(make):
    first = one(make, source="a.py:7", reason="3 of 24 elements", diagnosis=make.why())
    others = [
        one(make, source="b.py:9", reason="5 of 24 elements", worst=(make.miss(got=7.0),)),
        one(make, dtype="float32", diagnosis=make.why("T")),
        one(make, sample="one-huge", seed=3),
    ]
    assert {found["fingerprint"] for found in others} == {first["fingerprint"]}
    renamed = [
        one(make, op="layer_norm"), one(make, output="w"), one(make, dialect="plain"),
        one(make, implementation="mine:X"), one(make, verdict=Verdict.CRASH),
        one(make, part=Part.CONTRACT), one(make, op="rms_norm/weight", dialect=""),
    ]  # fmt: skip
    prints = {found["fingerprint"] for found in (first, *renamed)}
    assert len(prints) == len(renamed) + 1


def test_a_gradient_has_one_finding_however_many_samples_and_dtypes_fail(make):
    results = [
        make.result(verdict=FAIL, sample=sample, dtype=dtype)
        for dtype in ("float64", "float32")
        for sample in "abc"
    ]
    (found,) = findings(make.run(*results))
    assert " and 5 more); run: " in found["description"]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("verdict", "severity"),
    [
        (Verdict.CRASH, "blocker"), (Verdict.TIMEOUT, "blocker"), (Verdict.ERROR, "blocker"),
        (Verdict.FAIL, "critical"), (Verdict.MISSING, "critical"),
        (Verdict.INCONCLUSIVE, "major"), (Verdict.INVALID, "major"), (Verdict.NOTRUN, "major"),
    ],
)  # fmt: skip
def test_what_gave_no_answer_is_worse_than_a_wrong_one(make, verdict, severity):
    found = one(make, verdict=verdict, reason="why")
    assert (found["severity"], found["check_name"]) == (severity, f"gradcheck/{verdict.value}")
    assert "· dx: why (" in found["description"]


def test_what_nobody_asks_for_is_not_found(make):
    left = (Verdict.UNSUPPORTED, Verdict.UNBOUND, Verdict.SKIP)
    run = make.run(make.result(), *(make.result(str(v), verdict=v) for v in left))
    assert findings(run) == []


def test_a_baseline_s_lines_are_found_where_they_are_to_be_corrected(make):
    says = "relu/default/typical/float64 · dx has a relative error of 0.5, above max_error = 0.3"
    problems = [
        make.problem(Breach.XPASS, file="known.toml", line=7, says="remove the entry"),
        make.problem(Breach.WORSE, file="known.toml", line=9, says=says),
        make.problem(Breach.WORSE, file="known.toml", line=9, says=says),
        make.problem(Breach.UNLISTED, file="known.toml", line=None, says="said as a failure"),
    ]
    known = make.result(verdict=FAIL)
    run = make.gated(make.run(known, make.result("relu")), [Known.XFAIL, None], problems, ("w",))
    found = findings(run)
    assert [(f["check_name"].partition("/")[2], f["severity"]) for f in found] == [
        ("baseline-xpass", "major"), ("baseline-worse", "major"), ("baseline-worse", "major"),
        ("baseline-warning", "minor"),
    ]  # fmt: skip
    assert found[0]["location"] == {"path": "known.toml", "lines": {"begin": 7}}
    moved = [replace(p, line=p.line and p.line + 1, says=p.says.replace("0.5", "1.7e-03"))
             for p in problems]  # fmt: skip
    again = findings(replace(run, gate=replace(run.gate, problems=tuple(moved))))
    assert [f["fingerprint"] for f in again] == [f["fingerprint"] for f in found]


def test_what_could_not_be_judged_is_found_too(make):
    run = make.run(troubles=("mine:X: no module named mine",), implementations=("mine:X",))
    trouble, nothing = findings(run)
    assert trouble["description"] == "mine:X: no module named mine"
    assert (trouble["severity"], trouble["location"]["path"]) == ("blocker", "mine.py")
    assert nothing["check_name"] == "gradcheck/nothing-checked"
    partial = replace(make.run(make.result()), complete=False)
    (found,) = findings(partial)
    assert (found["check_name"], found["severity"]) == ("gradcheck/incomplete", "major")


def test_it_is_bounded_and_counts_what_it_leaves_out(make):
    results = [make.result(f"op{i}", verdict=FAIL) for i in range(MOST + 2)]
    found = findings(make.run(*results))
    assert len(found) == MOST + 1
    assert (found[-1]["severity"], found[-1]["description"]) == ("info", "and 2 more findings")
    long = one(make, reason="x" * 100_000, repro="y" * (COMMAND + 1))
    assert len(long["description"]) <= 1000
    assert "run: " not in long["description"]
