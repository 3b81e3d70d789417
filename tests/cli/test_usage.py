import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradcheck.cli.main import main

RELU = ("--op", "relu", "--sample", "typical", "--dtype", "float64")


@pytest.fixture
def never(monkeypatch):
    """Fail if anything is judged."""
    monkeypatch.setattr(
        "gradcheck.run.judge_case.CaseTruth", lambda *_: pytest.fail("the run began")
    )


def test_no_command_at_all_is_a_usage_error(capsys):
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: gradcheck ")


@pytest.mark.parametrize(("name", "locked"), [("new.md", "."), ("old.md", "old.md")])
def test_a_place_where_nothing_may_be_written_is_refused_before_the_run(
    run, never, monkeypatch, name, locked
):
    Path("old.md").touch()
    locks = (locked, os.W_OK)
    monkeypatch.setattr(
        "gradcheck.cli.reports.os.access", lambda path, mode: (str(path), mode) != locks
    )
    found = run("-o", name)
    assert (found.code, found.out) == (2, "")
    assert found.err == f"gradcheck: -o {name}: no permission to write there\n"


def test_without_a_suite_the_message_says_how_to_get_one(run, monkeypatch):
    monkeypatch.setattr("gradcheck.system.entry_points.entry_points", lambda group: {})
    found = run()
    assert (found.code, found.out) == (2, "")
    assert "pip install -e ." in found.err
    assert "--suite MODULE:NAME" in found.err


# ── --impl without a table ───────────────────────────────────────────────────────────────────


def test_the_only_table_of_a_module_is_judged_and_named(run):
    Path("mine.py").write_text("from kernels import relu, tanh\nIMPL = {'relu': relu}")
    found = run("--impl", "mine.py", "--impl", "mine:IMPL", *RELU, "--no-contract")
    assert found.code == 0
    assert found.err == "gradcheck: --impl mine.py: judging mine:IMPL\n"
    assert "mine:IMPL" in found.out.splitlines()[0]
    assert run("--impl", "mine", "-q", *RELU, "--no-contract").err == ""


def test_a_wrong_function_alone_is_found_in_a_file_elsewhere(run):
    Path("below").mkdir()
    Path("below/mine.py").write_text("def relu(ct, x): return ct\nIMPL = {'relu': relu}")
    found = run("--impl", "below/mine.py", *RELU, "--no-contract", isolate=True)
    assert found.code == 1
    assert "FAIL relu" in found.out
    assert "--impl below/mine.py:IMPL" in found.out  # in the line that repeats it


def test_a_file_is_not_taken_for_another_module_of_its_name(run, monkeypatch):
    for folder in ("one", "two"):
        Path(folder).mkdir()
        Path(folder, "same.py").write_text("IMPL = {'relu': lambda ct, x: ct}")
    found = run("--impl", "one/same.py", "--impl", "two/same.py", *RELU, "--no-contract")
    assert found.code == 3
    assert "a module of that name, too" in " ".join(found.out.split())
    monkeypatch.setattr(sys, "path", [str(Path("two").absolute()), *sys.path])  # the user's own
    monkeypatch.delitem(sys.modules, "same")
    found = run("--impl", "one/same.py", *RELU)
    assert found.code == 3
    assert "one/same.py:IMPL: a module of that name comes from" in found.err


# ── what does not load ───────────────────────────────────────────────────────────────────────

UNLOADABLE = {
    "absent:IMPL": "importing absent raised ModuleNotFoundError",
    "raising:IMPL": "importing raising raised ValueError: one two",
    "unparsable:IMPL": "importing unparsable raised SyntaxError",
    "exiting:IMPL": "importing exiting raised SystemExit: 0",
    "kernels:ABSENT": "kernels has no 'ABSENT'",
    "kernels:RIGHT.relu": "kernels has no 'RIGHT.relu'",
    "kernels:": "is not of the form package.module:NAME",
    ":IMPL": "is not of the form package.module:NAME",
    "kernels:NUMBER": "kernels:NUMBER is a int; make it a dict",
    "kernels:BARE": "kernels:BARE['relu'] is a object without a callable `vjp`",
}


@pytest.fixture
def modules():
    Path("unparsable.py").write_text("def (")
    Path("exiting.py").write_text("import sys; sys.exit(0)")


def test_the_others_are_judged_and_the_exit_code_says_that_some_were_not(judged, modules):
    words = [part for word in UNLOADABLE for part in ("--impl", word)]
    found = judged("--impl", "kernels:RIGHT", *words, "--impl", "reference", *RELU, "--no-contract")
    assert found.code == 3
    assert {r["implementation"] for r in found.results} == {"kernels:RIGHT", "reference"}
    assert {r["verdict"] for r in found.results} == {"pass"}
    assert found.footer["passed"] is False
    lines = found.err.splitlines()
    assert len(found.footer["troubles"]) == len(lines) == len(UNLOADABLE)
    for line, said in zip(lines, UNLOADABLE.values(), strict=True):
        assert said in line


def test_the_terminal_names_what_did_not_load_among_the_results(run):
    found = run("--impl", "kernels:WRONG", "--impl", "raising:IMPL", *RELU)
    assert found.code == 3
    assert "problem: raising:IMPL: importing raising raised ValueError: one two" in found.out
    assert re.search(r"^FAIL .*relu · dx", found.out, re.MULTILINE)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("torch", "suite", "said"),
    [(None, "gradcheck_cases:SUITE", "PyTorch is not installed; run `pip install torch`"),
     (SimpleNamespace(set_num_threads=int), "kernels:SUITE", "the suite has no PyTorch")],
)  # fmt: skip
def test_a_peer_that_is_absent_is_said_to_be(run, monkeypatch, torch, suite, said):
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = run("--impl", "torch", "--suite", suite)
    assert (found.code, found.out) == (3, "")
    assert said in found.err
