import os
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


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--op rms_nrom", "unknown operator 'rms_nrom': did you mean 'rms_norm'?"),
        ("--op relu --op xq", "unknown operator 'xq': known: "),
        ("--op relu*x", "unknown operator 'relu*x': did you mean 'relu'?"),
        ("--op rms_norm --dialect wieght", "unknown dialect 'wieght': did you mean 'weight'?"),
        ("--op relu --dialect weight", "unknown dialect 'weight': known: default"),
        ("--op relu --sample typicl", "unknown sample 'typicl': did you mean 'typical'?"),
        ("--dtype flaot64", "unknown dtype 'flaot64': did you mean 'float64'?"),
        ("--dtype bfloat", "unknown dtype 'bfloat': did you mean 'bfloat16'?"),
        ("--dtype bfloat16 --dtype float8", "unknown dtype 'float8': did you mean 'float"),
        ("--format markdwon", "unknown format 'markdwon': did you mean 'markdown'?"),
        ("--impl refrence", "'refrence': did you mean 'reference'?"),
        ("--impl reference --impl trch", "write your own as pkg.module:NAME"),
        ("-o report.pdf", "-o report.pdf: the ending does not say which format"),
        ("-o report.md:pdf", "unknown format 'pdf'"),
        ("-o missing/report.md", "there is no folder missing; create it first"),
        ("-o .:html", "it is a folder; name a file in it"),
        ("-o kernels.py/report.md", "there is no folder kernels.py"),
        ("-o -", "-o -: what stdout carries is named by --format FORMAT"),
        (f"-o {'a' * 300}.md", "File name too long"),
        ("-o a.md -o ./a.md:html", "-o a.md: named twice; give each report its own file"),
    ],
)
def test_a_mistaken_word_ends_in_one_line_before_anything_runs(run, never, words, said):
    found = run(*words.split())
    assert (found.code, found.out) == (2, "")
    (line,) = found.err.splitlines()
    assert line.startswith("gradcheck: ")
    assert said in line


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rnu", "unknown command 'rnu': did you mean 'run'?; see `gradcheck --help`"),
        ("xyz", "unknown command 'xyz': known: baseline, "),
        ("baseline wirte", "baseline: unknown command 'wirte': did you mean 'write'?"),
        ("--hepl", "unknown flag '--hepl': did you mean '--help'?"),
        ("judge", "judge: the following arguments are required: DIR; see `gradcheck judge --help`"),
        ("run -j many", "run: -j/--jobs: 'many' is no number of processes; write 1 or more"),
        ("run --sed 3", "run: unknown flag '--sed': did you mean '--seed'?; see `gradcheck run"),
        ("run --sed=3", "run: unknown flag '--sed': did you mean '--seed'?"),
        ("run --zzzz", "run: unknown flag '--zzzz'; see `gradcheck run --help`"),
        ("run --seed x", "run: --seed: invalid int value: 'x'"),
        ("run --color red", "run: --color: invalid choice: 'red'"),
        ("run rms_norm", "run: unexpected 'rms_norm'; an operator is named with --op"),
        ("explain", "explain: the following arguments are required: OP|MODEL|RULE"),
        ("explain relu tanh", "explain: unexpected 'tanh'; see `gradcheck explain --help`"),
        ("list -o x", "list: unknown flag '-o'"),
        ("baseline", "baseline: the following arguments are required: ACTION"),
    ],
)
def test_what_the_parser_does_not_know_is_a_usage_error_too(capsys, words, said):
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    found = capsys.readouterr()
    assert found.out == ""
    (line,) = found.err.splitlines()
    assert line.startswith(f"gradcheck: {said}")


def test_no_command_at_all_is_a_usage_error(capsys):
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: gradcheck ")


def test_hostile_words_stay_on_one_line(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--\x1b[31m\nx"])
    assert "\x1b" not in capsys.readouterr().err


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


@pytest.mark.parametrize("command", ["list", "explain"])
def test_the_other_commands_suggest_the_nearest_operator_too(run, command):
    found = run(*(["--op"] if command == "list" else []), "layernorm", command=command)
    assert (found.code, found.out) == (2, "")
    kind = "operator" if command == "list" else "operator, model or rule"
    assert found.err == f"gradcheck: unknown {kind} 'layernorm': did you mean 'layer_norm'?\n"


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


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("word", UNLOADABLE)
def test_an_implementation_that_does_not_load_ends_in_one_line(run, modules, word):
    found = run("--impl", word, *RELU)
    assert (found.code, found.out) == (3, "")
    (line,) = found.err.splitlines()
    assert UNLOADABLE[word] in line


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
    assert "FAIL relu/default/typical/float64 · dx" in found.out


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


@pytest.mark.parametrize(
    ("reference", "said"),
    [("absent:SUITE", "importing absent raised"), ("raising:SUITE", "raised ValueError: one two"),
     ("kernels:RIGHT", "kernels:RIGHT is a dict, not a"), ("kernels", "not of the form")],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run", "list"])
def test_a_suite_that_does_not_load_ends_in_one_line(run, command, reference, said):
    found = run("--suite", reference, command=command)
    assert (found.code, found.out) == (3, "")
    (line,) = found.err.splitlines()
    assert said in line


def test_a_link_into_a_folder_that_is_not_there_says_so(run, never, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").symlink_to("gone/run.json")
    found = run("-o", "run.json")
    assert (found.code, found.out) == (2, "")
    assert "gone, which is no folder; create it" in found.err
