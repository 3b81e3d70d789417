"""What is required has to pass: neither what is lacking nor what is left out opens the gate."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

LACKING = r"""
from gradcheck import Unsupported
from kernels import negated, relu, tanh
def lacks(ct, x): raise Unsupported("no <b>such</b> kernel")
IMPL = {"relu": {"vjp": relu}, "tanh": {"vjp": lacks}, "neg": {"vjp": negated}}
LATE = {"relu": {"vjp": relu}, "tanh": {"vjp": tanh}}
"""
KNOWN = """
[[known]]
match = "neg/*/*/*"
output = "dx"
verdict = "fail"
reason = "of relu"
"""
FEW = ("--sample", "typical", "--dtype", "float64", "--no-contract")


@pytest.fixture(autouse=True)
def lacking():
    Path("lacking.py").write_text(LACKING)


def ops(*names, impl="lacking:IMPL"):
    return [*FEW, "--impl", impl, *(word for name in names for word in ("--op", name))]


def required(*globs):
    return [word for glob in globs for word in ("--require", glob)]


@pytest.mark.slow(keep=4, rest=32)
@pytest.mark.parametrize(
    ("names", "globs", "lines"),
    [
        (["relu"], ["relu"], []),
        (["relu", "tanh"], ["relu"], []),
        (["relu", "tanh"], ["*e*"], []),
        (["tanh"], ["tanh"], ["tanh: required, but UNSUPPORTED in typical/float64: no <b>such</b> "
                              "kernel"]),
        (["relu", "tanh", "exp"], ["*"], ["tanh: required, but UNSUPPORTED in ",
                                          "exp: required, but UNBOUND in typical/float64: "]),
        (["relu", "exp"], ["exp/def*"], ["exp: required, but UNBOUND in "]),
        (["relu", "neg"], ["relu"], ["neg"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["terminal", "concise", "markdown", "summary", "html", "github"])
def test_a_gap_that_is_required_closes_the_gate_and_is_named(run, names, globs, lines, form):
    found = run(*ops(*names), *required(*globs), "--format", form)
    assert found.code == bool(lines)
    text = " ".join(found.out.replace("&lt;", "<").replace("&gt;", ">").replace("\\", "").split())
    assert all(line in text for line in lines)
    assert ("required, but" in text) == any("required" in line for line in lines)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("globs", [[], ["relu"], ["tanh"], ["relu", "exp"]])
def test_every_report_and_a_report_made_again_agree_with_the_exit_code(run, globs):
    reports = [word for name in ("a.json", "a.jsonl", "a.xml", "a.badge:badge", "a.gitlab:gitlab")
               for word in ("-o", name)]  # fmt: skip
    code = run(*ops("relu", "tanh", "exp"), *required(*globs), *reports).code
    gaps = len([glob for glob in globs if glob != "relu"])
    assert code == bool(gaps)
    suite = ET.parse("a.xml").getroot()
    assert int(suite.get("errors")) == gaps
    for name in ("a.json", "a.jsonl"):
        again = run(name, "--format", "json", command="report")
        assert again.code == code
        assert json.loads(again.out) == json.loads(Path("a.json").read_text())
    found = json.loads(Path("a.json").read_text())
    assert found["header"].get("require", []) == globs
    assert found["footer"]["passed"] == (not gaps)
    unexpected = {r["op"] for r in found["results"] if r["expectation"] != "ok"}
    assert unexpected == {*globs} - {"relu"}
    badge = json.loads(Path("a.badge").read_text())
    assert ("requirements not met" in badge["message"]) == bool(gaps)
    assert (badge["color"] == "red") == bool(gaps)
    assert len(json.loads(Path("a.gitlab").read_text())) == gaps


def test_what_is_stored_can_be_held_against_other_requirements(run):
    run(*ops("relu", "tanh"), *required("relu"), "-o", "a.json")
    assert run("a.json", command="report").code == 0
    assert run("a.json", *required("tanh"), command="report").code == 1
    missing = run("a.json", *required("silu"), command="report")
    assert missing.code == 1
    assert "silu: required, but nothing of it was run" in missing.out
    misspelt = run("a.json", *required("sulu"), command="report")
    assert (misspelt.code, "did you mean 'silu'?" in misspelt.err) == (2, True)


@pytest.mark.slow
def test_an_entry_of_the_baseline_meets_a_requirement(run):
    Path("known.toml").write_text(KNOWN)
    words = [*ops("relu", "neg"), *required("neg")]
    assert run(*words).code == 1
    assert run(*words, "--baseline", "known.toml").code == 0


def test_shards_require_what_the_whole_run_does(run):
    for number in (1, 2):
        words = [*ops("relu", "tanh"), *required("tanh", "relu"), "--shard", f"{number}/2"]
        assert run(*words, "-o", f"{number}.jsonl").code == (number == 2)
    whole = run("1.jsonl", "2.jsonl", command="merge")
    assert whole.code == 1
    assert whole.out.count("required, but") == 1


@pytest.mark.slow
def test_what_another_operator_has_silenced_does_not_pass(run):
    """Also where nothing is required: it is an ERROR."""
    silences = "def bad(ct, x):\n    LATE['tanh']['vjp'] = lacks\n    return relu(ct, x)\n"
    Path("lacking.py").write_text(f"{LACKING}{silences}LATE['relu']['vjp'] = bad\n")
    found = run(*ops("relu", "tanh", impl="lacking:LATE"), isolate=True)
    assert found.code == 1
    assert "another operator's code has changed this process" in " ".join(found.out.split())


def test_a_project_requires_what_is_run_of_it(run):
    Path("pyproject.toml").write_text('[tool.gradcheck]\nrequire = ["tanh", "relu"]\n')
    assert run(*ops("tanh", "relu")).code == 1
    narrow = run(*ops("relu"))
    assert narrow.code == 0
    assert "require tanh: it is not selected here, and not required of this run" in narrow.err
    assert run(*ops("tanh", "relu"), "--no-config").code == 0
    assert run(*ops("tanh", "relu"), *required("relu")).code == 0  # the flag goes before
    Path("pyproject.toml").write_text('[tool.gradcheck]\nrequire = ["tanh"]\nop = ["relu"]\n')
    contradicts = run(*FEW[2:], "--impl", "lacking:IMPL")
    assert (contradicts.code, "nothing that is selected" in contradicts.err) == (2, True)
    Path("pyproject.toml").write_text('[tool.gradcheck]\nrequire = ["tnah"]\n')
    assert "did you mean 'tanh'?" in run(*ops("relu")).err
