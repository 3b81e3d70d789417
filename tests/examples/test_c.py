"""Every function of examples/c is what its README says: verdicts, and what is said of it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "c"
ROW = re.compile(r"\| `(?P<entry>[^`]+)` \|.*\| (?P<verdict>[A-Z]+)(?: `(?P<says>[^`]+)`)? \|")
DTYPES = ("float64", "float32", "bfloat16")
LACKING = {"unsupported", "unbound", "skip"}
UNREACHED = {"notrun"}
"""After too many crashes; a gate failure, and no verdict on the function."""
CONTRACT = "contract"
"""Properties beyond the numbers: a right function has them all; what else a wrong one lacks is its
own affair."""
FEWEST = 3
"""Samples in which a right function is checked, at least."""


@dataclass(frozen=True)
class Row:
    entry: str
    verdict: str
    says: str


def table(text):
    return [
        Row(found["entry"], found["verdict"].lower(), found["says"] or "")
        for found in map(ROW.fullmatch, text.splitlines())
        if found
    ]


def disagreement(row, results):
    """In what the results differ from what the table says; empty if in nothing."""
    op, _, dialect = row.entry.partition("/")
    every = [
        r for r in results
        if r["op"] == op and dialect in ("", r["dialect"]) and r["verdict"] not in LACKING
    ]  # fmt: skip
    broken = [r["output"] for r in every if r["part"] == CONTRACT and r["verdict"] != "pass"]
    if row.verdict == "pass" and broken:
        return f"{row.entry}: owes {broken}"
    mine = [r for r in every if r["part"] != CONTRACT]
    verdicts = {r["verdict"] for r in mine} - UNREACHED
    allowed = {"pass", "fail"} if row.verdict in ("fail", "error") else {"pass"}
    if row.verdict not in verdicts or verdicts - {row.verdict} - allowed:
        return f"{row.entry}: {sorted(verdicts)} where the table says {row.verdict}"
    judged = [r for r in mine if r["verdict"] not in UNREACHED]
    if row.verdict == "pass" and any(r["verdict"] in UNREACHED for r in mine):
        return f"{row.entry}: not run to the end"
    if row.verdict == "pass" and len({r["sample"] for r in judged}) < FEWEST:
        return f"{row.entry}: only {len({r['sample'] for r in judged})} samples checked"
    said = [f"{r['reason']} {r['printed']}" for r in judged if r["verdict"] == row.verdict]
    if not any(row.says in text for text in said):
        return f"{row.entry}: nothing says {row.says!r}, but: {sorted(set(said))[:5]}"
    return ""


README = table((EXAMPLE / "README.md").read_text(encoding="utf-8"))


@pytest.mark.slow(first=True)
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make and a C compiler")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs make and a C compiler")
def test_every_function_is_classified_as_the_readme_says(tmp_path):
    """One run for all: it builds the library, survives every crash, and judges the rest."""
    folder = tmp_path / "c"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("build", "*.so"))
    report = tmp_path / "report.json"
    dtypes = [word for dtype in DTYPES for word in ("--dtype", dtype)]
    words = ("--impl", folder / "gradcheck.toml", *dtypes, "-j", "2", "-q", "-o", report)
    done = gradcheck("run", *words)
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(report.read_text(encoding="utf-8"))
    assert document["footer"]["complete"]
    assert document["footer"]["troubles"] == []
    wrong = [text for row in README if (text := disagreement(row, document["results"]))]
    assert not wrong, "\n".join(wrong)
    checked = {(r["op"], r["dtype"]) for r in document["results"] if r["verdict"] == "pass"}
    assert {("rms_norm", "float64"), ("rms_norm", "float32"), ("transpose", "bfloat16")} <= checked
    assert done.stdout.splitlines()[-1].startswith("RESULT fail ")


def gradcheck(*words):
    path = os.pathsep.join(str(ROOT / part) for part in ("", "cases"))
    return subprocess.run(
        [sys.executable, "-m", "gradcheck", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_the_table_names_every_entry_once():
    manifest = tomllib.loads((EXAMPLE / "gradcheck.toml").read_text(encoding="utf-8"))
    named = [row.entry for row in README]
    assert sorted(named) == sorted(op["name"] for op in manifest["op"])
    assert f"{len(named)} entries" in (EXAMPLE / "README.md").read_text(encoding="utf-8")


def test_at_least_fifteen_are_right_and_every_kind_of_death_is_there():
    verdicts = [row.verdict for row in README]
    assert verdicts.count("pass") >= 15
    assert set(verdicts) == {"pass", "missing", "fail", "error", "crash", "timeout"}
    assert all(row.says for row in README if row.verdict != "pass")


def test_sources_name_their_functions():
    """`source` points at the line on which the backward begins."""
    manifest = tomllib.loads((EXAMPLE / "gradcheck.toml").read_text(encoding="utf-8"))
    for op in manifest["op"]:
        if "source" not in op:
            assert "alias_of" in op
            continue
        name, _, line = op["source"].partition(":")
        prototype = op["vjp"] if isinstance(op["vjp"], str) else next(iter(op["vjp"].values()))
        symbol = re.search(r"(\w+)\(", prototype)[1]
        text = (EXAMPLE / name).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        assert symbol in text, (op["name"], text)


def result(verdict, sample="typical", **changes):
    return {"op": "exp", "dialect": "default", "sample": sample, "verdict": verdict, "output": "x",
            "part": "gradient", "reason": None, "printed": ""} | changes  # fmt: skip


GOOD = [result("pass", sample) for sample in ("a", "b", "c")]


@pytest.mark.parametrize(
    ("row", "results", "ok"),
    [
        (Row("exp", "pass", ""), GOOD, True),
        (Row("exp", "pass", ""), GOOD[:2], False),
        (Row("exp", "pass", ""), [*GOOD, result("pass", part="contract")], True),
        (Row("exp", "pass", ""), [*GOOD, result("skip", part="contract")], True),
        (Row("exp", "pass", ""), [*GOOD, result("error", part="contract")], False),
        (Row("exp", "fail", ""), [result("fail", part="contract")], False),
        (Row("exp", "pass", ""), [], False),
        (Row("exp", "pass", ""), [*GOOD, result("fail")], False),
        (Row("exp", "pass", ""), [*GOOD, result("notrun")], False),
        (Row("exp", "pass", ""), [*GOOD, result("unsupported")], True),
        (Row("exp", "pass", ""), [result("unsupported", s) for s in "abc"], False),
        (Row("exp/other", "pass", ""), GOOD, False),
        (Row("exp", "pass", "DEBUG"), GOOD, False),
        (Row("exp", "pass", "DEBUG"), [*GOOD, result("pass", printed="DEBUG 1")], True),
        (Row("exp", "fail", "outside"), [result("fail", reason="9 are outside")], True),
        (Row("exp", "fail", "outside"), [result("fail", reason="NaN")], False),
        (Row("exp", "fail", "outside"), GOOD, False),
        (Row("exp", "crash", "SIGSEGV"), [result("crash", reason="SIGSEGV in f")], True),
        (Row("exp", "crash", "SIGSEGV"), [result("crash", reason="SIGABRT in f")], False),
        (Row("exp", "crash", "S"), [result("crash", reason="S"), result("fail")], False),
        (Row("exp", "crash", "S"), [result("crash", reason="S"), result("notrun")], True),
        (Row("exp", "crash", "S"), [result("notrun", reason="S")], False),
    ],
)
def test_a_table_that_is_wrong_is_found_out(row, results, ok):
    assert (disagreement(row, results) == "") == ok
