import json
import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradcheck.report import FORMATS
from gradcheck.run.execute import execute

RELU = ("--op", "relu", "--sample", "typical", "--dtype", "float64")
PRINTS = ("--op", "relu", "--impl", "noisy:PRINTS", "--impl", "raising:X")
BEGINS = {"terminal": "gradcheck ", "json": "{", "markdown": "**gradcheck: ", "html": "<!doctype",
          "junit": "<?xml ", "jsonl": '{"header": ', "summary": "**gradcheck: ", "badge": "{",
          "concise": "problem: ",
          "github": "::error title=gradcheck%3A problem::", "gitlab": "[\n  {\n"}  # fmt: skip
ENDINGS = {"terminal": "txt", "json": "json", "markdown": "md", "html": "html", "junit": "xml"}


@pytest.fixture(autouse=True)
def noisy():
    Path("noisy.py").write_text("print('printed on import')\nfrom kernels import PRINTS, SUITE\n")


@pytest.mark.slow(keep=3, rest=5)
@pytest.mark.parametrize("form", FORMATS)
def test_stdout_carries_the_chosen_format_and_nothing_else(run, form):
    found = run(*PRINTS, "--format", form)
    assert found.code == 3
    assert found.out.startswith(BEGINS[form])
    assert not re.search("printed (on|by)", found.out)
    assert {"printed on import", "printed by vjp"} <= set(found.err.splitlines())
    told = [line for line in found.err.splitlines() if "printed" not in line]
    assert len(told) == (form != "terminal")  # the terminal report says it itself
    assert "importing raising raised" in found.out + found.err


def test_a_suite_that_prints_spoils_no_listing(run):
    found = run("--json", "--suite", "noisy:SUITE", command="list")
    assert json.loads(found.out)["suite"] == "mine"
    assert found.err == "printed on import\n"


def test_the_seed_reaches_the_inputs_and_the_results(judged):
    zero, same, one = (judged(*RELU, *words) for words in ([], ["--seed", "0"], ["--seed", "1"]))
    assert zero.results == same.results
    assert zero.header["cases"] != one.header["cases"]
    for before, after in zip(zero.results, one.results, strict=True):
        assert before["hash"] != after["hash"]
        assert (before["seed"], after["seed"]) == (0, 1)


def test_an_implementation_named_twice_is_judged_once(judged):
    once = judged(*RELU, "--impl", "kernels:WRONG")
    twice = judged(*RELU, "--impl", "kernels:WRONG", "--impl", "kernels:WRONG")
    assert twice.results == once.results
    assert twice.header == once.header


def test_a_passing_run_says_nothing_on_stderr(run):
    assert run(*RELU).err == ""


@pytest.mark.slow
def test_json_has_the_fields_that_the_interface_promises(judged):
    found = judged("--op", "relu", "--op", "tanh", "--impl", "kernels:WRONG")
    promised = (
        "name hash implementation op dialect sample dtype output verdict expectation error bound "
        "error_bar ulp worst_index got want compared unresolved smallest_visible_error oracle "
        "seed reason diagnosis repro certificate"
    )
    header = "version suite suite_version cases implementations dtypes seed python numpy platform"
    footer = "complete checked elements unresolved counts passed"
    assert set(header.split()) <= set(found.header)
    assert set(footer.split()) <= set(found.footer)
    for result in found.results:
        assert set(promised.split()) <= set(result)
        assert len(result["hash"]) == 4
        assert len(result["worst"]) <= 20
    failed = [r for r in found.results if r["verdict"] == "fail"]
    assert failed
    for result in failed:
        assert result["expectation"] == "unexpected"
        assert result["error"] == abs(result["got"] - result["want"]) > result["bound"]
        assert result["reason"]


@pytest.mark.slow
def test_the_last_line_counts_what_the_results_hold(run):
    words = ("--op", "relu", "--op", "tanh", "--op", "silu", "--impl", "kernels:WRONG")
    results = json.loads(run(*words, "--format", "json").out)["results"]
    last = run(*words).out.splitlines()[-1].split(" ")
    assert last[:2] == ["RESULT", "fail"]
    counts = {key: int(value) for key, value in (word.split("=") for word in last[2:])}
    verdicts = [r["verdict"] for r in results]
    unchecked = verdicts.count("unbound") + verdicts.count("skip")
    for name in ("pass", "fail", "inconclusive", "unsupported", "unbound", "skip"):
        assert counts.pop(name) == verdicts.count(name)
    assert counts.pop("checked") == len(results) - unchecked
    assert counts.pop("elements") == sum(r["compared"] for r in results)
    assert counts.pop("unresolved") == sum(r["unresolved"] for r in results)
    assert counts == {}
    assert verdicts.count("pass") > 0 < verdicts.count("fail")


# ── files ────────────────────────────────────────────────────────────────────────────────────


def test_several_reports_come_from_one_run(run, monkeypatch):
    runs = []
    monkeypatch.setattr("gradcheck.run.execute.execute", lambda *x: runs.append(x) or execute(*x))
    outputs = [f"out.{ending}" for ending in ENDINGS.values()] + ["odd:html"]
    found = run(*RELU, *(word for name in outputs for word in ("-o", name)))
    assert (found.code, len(runs)) == (0, 1)
    for form, ending in ENDINGS.items():
        assert Path(f"out.{ending}").read_text().startswith(BEGINS[form])
    assert Path("odd").read_text() == Path("out.html").read_text()
    assert json.loads(Path("out.json").read_text())["footer"]["passed"] is True
    assert ET.parse("out.xml").getroot().tag == "testsuites"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_loses_one_report_but_not_the_results(run):
    found = run(*RELU, "-o", "/dev/full:html", "-o", "good.json")
    assert found.code == 2
    assert found.err == (
        "gradcheck: -o /dev/full: No space left on device; the results are on stdout\n"
    )
    assert "RESULT pass " in found.out
    assert json.loads(Path("good.json").read_text())["footer"]["passed"] is True


# ── what stdout can do ───────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("form", FORMATS)
def test_the_forms_for_files_have_no_colour(run, form):
    coloured = "\x1b[" in run(*RELU, "--format", form, "--color", "always").out
    assert coloured is (form == "terminal")


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("words", "tty", "environ", "coloured"),
    [
        ("--color never", True, {}, False),
        ("--color never", True, {"FORCE_COLOR": "1"}, False),
        ("--color auto", True, {}, True),
        ("", True, {}, True),
        ("", False, {}, False),
        ("", True, {"NO_COLOR": "1"}, False),
        ("", True, {"NO_COLOR": ""}, True),  # no-color.org: an empty value counts as none
        ("", False, {"FORCE_COLOR": "1"}, True),
        ("", False, {"FORCE_COLOR": "0"}, False),
        ("", False, {"CLICOLOR_FORCE": "1"}, True),
        ("", True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("", True, {"TERM": "dumb"}, False),
        ("--color always", False, {"NO_COLOR": "1", "TERM": "dumb"}, True),
    ],
)
def test_colour_follows_the_flag_then_the_environment_then_the_terminal(
    run, monkeypatch, words, tty, environ, coloured
):
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty)
    assert ("\x1b[32mPASS\x1b[0m" in run(*RELU, *words.split()).out) is coloured


@pytest.mark.slow
def test_an_encoding_without_the_signs_gets_escapes(process):
    found = process("run", *RELU, env={"PYTHONIOENCODING": "ascii"})
    assert (found.returncode, found.stderr) == (0, "")
    assert "\\u2264" in found.stdout
    assert found.stdout.isascii()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("words", [["run", *RELU], ["list"], ["explain", "relu"]])
def test_a_reader_that_has_seen_enough_causes_no_traceback(process, words):
    reader, writer = os.pipe()
    os.close(reader)
    found = process(*words, stdout=writer)
    os.close(writer)
    assert (found.returncode, found.stderr) == (130, "")


@pytest.mark.slow(keep=1)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [["run", *RELU, "-o", "out.md"], ["list"], ["explain", "relu"]]
)  # fmt: skip
def test_a_full_stdout_is_an_output_error(process, words):
    with Path("/dev/full").open("w") as full:
        found = process(*words, stdout=full)
    assert found.returncode == 2
    assert found.stderr == "gradcheck: stdout: No space left on device\n"
    assert "-o" not in words or Path("out.md").read_text().startswith("**gradcheck: ")


def test_progress_goes_to_a_terminal_only_and_leaves_a_clean_line(run, monkeypatch):
    clock = iter(range(0, 1000, 2))
    fake = SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr("gradcheck.cli.progress.time", fake)
    assert run("--op", "relu").err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("--op", "relu", "-q").err == ""
    shown = run("--op", "relu").err
    assert re.search(r"\r1/\d+  \d+ s left  relu/default/\S+", shown)
    assert "\n" not in shown
    assert shown.endswith("\r")


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("isolate", [False, True])
def test_every_result_says_where_the_code_stands_and_annotations_point_there(run, isolate):
    words = ("--op", "relu", "--sample", "typical", "--dtype", "float64", "--impl")
    found = run(*words, "kernels:WRONG", "--format", "json", isolate=isolate)
    lines = Path("kernels.py").read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.startswith("def negated"))
    results = json.loads(found.out)["results"]
    told = [r for r in results if r["verdict"] != "skip"]
    assert {r["part"] for r in told} == {"gradient", "contract"}
    assert {r["source"] for r in told} == {f"kernels.py:{line}"}
    shown = run(*words, "kernels:WRONG", "--format", "github", isolate=isolate).out
    where = f"::error file=kernels.py,line={line},title=relu/default · dx%3A sign::dx "
    assert shown.startswith(where)
    assert run(*words, "reference", "--format", "github").out.startswith("RESULT pass ")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("form", ["github", "terminal"])
def test_what_the_code_judged_prints_is_no_command_to_github(run, form, isolate):
    Path("loud.py").write_text(
        "print('::stop-commands::x')\nimport sys\n"
        "def vjp(ct, x):\n"
        "    print('::error file=a.py::fake\\n  ##[group]fake', flush=True)\n"
        "    print('::warning::fake', file=sys.stderr, flush=True)\n"
        "    return -ct * (x > 0)\n"
        "IMPL = {'relu': {'vjp': vjp}}\n"
    )
    found = run(*RELU, "--impl", "loud:IMPL", "--format", form, "--no-contract", isolate=isolate)
    assert found.code == 1
    assert not re.search(r"##\w*\[", found.out)
    lines = found.err.splitlines()
    assert {"| ::stop-commands::x", "| ::error file=a.py::fake", "| ::warning::fake"} <= {*lines}
    assert not any(line.strip().startswith("::") or "##[" in line for line in lines)
    ours = [line for line in found.out.splitlines() if line.startswith("::")]
    assert len(ours) == (form == "github")
