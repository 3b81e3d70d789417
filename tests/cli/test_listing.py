import json
import subprocess
import sys

import gradcheck_cases
import pytest

import gradcheck
from gradcheck.cli import main

SUITE = gradcheck_cases.SUITE


def test_the_list_names_every_operator_and_counts_the_cases(run):
    found = run(command="list")
    assert (found.code, found.err) == (0, "")
    named = [line.split(" ")[0] for line in found.out.splitlines()]
    assert [name for name in named if name in SUITE.operators] == list(SUITE.operators)
    total = f"{len(SUITE)} operators, {len(SUITE.cases())} cases (operator × dialect × sample)"
    assert f"\nsuite builtin {SUITE.version}: {total}\n" in found.out


def test_a_selection_narrows_the_list_as_it_narrows_a_run(run, judged):
    words = ("--op", "rms_norm", "--op", "soft*", "--dialect", "[pd]*", "--sample", "t*")
    listed = json.loads(run("--json", *words, command="list").out)
    names = [case["name"] for op in listed["operators"] for case in op["cases"]]
    assert names
    ran = [r["name"].rpartition("/")[0] for r in judged(*words, "--dtype", "float32").results]
    assert names == list(dict.fromkeys(ran))


def test_a_selection_of_nothing_is_no_success(run):
    words = ("--op", "rms_norm", "--dialect", "weight", "--sample", "unsolved")
    found = run(*words, command="list")
    assert (found.code, found.err) == (4, "")
    assert "0 operators, 0 cases" in found.out
    found = run("--json", *words, command="list")
    assert found.code == 4
    assert json.loads(found.out)["operators"] == []


@pytest.mark.parametrize("name", SUITE.operators)
def test_every_operator_explains_itself(run, name):
    found = run(name, command="explain")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith(f"{name}: {SUITE.operators[name].signature}\n")


def test_a_suite_of_the_users_own_is_explained_too(run):
    found = run("square", "--suite", "kernels:SUITE", command="explain")
    assert found.code == 0
    assert "defined in kernels" in found.out


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gradcheck {gradcheck.__version__}\n"


def test_without_a_command_the_help_says_what_there_is(capsys):
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    for word in ("run", "list", "explain", "exit codes:", "130  interrupted"):
        assert word in said.err


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_answers_without_numpy(environment, words):
    program = (
        "import sys, gradcheck.cli\n"
        "try: gradcheck.cli.main(sys.argv[1:])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout
    loaded = {name.partition(".")[0] for name in found.stderr.split()}
    assert "gradcheck" in loaded
    assert not loaded & {"numpy", "mpmath", "jinja2", "tabulate", "torch", "gradcheck_cases"}


def test_the_package_runs_as_a_module(process):
    found = process("run", "--op", "relu", "--sample", "typical")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines()[-1].startswith("RESULT pass checked=4 pass=4 ")
    found = process("run", "--op", "relu", "--impl", "kernels:WRONG")
    assert found.returncode == 1


def test_what_a_suite_of_somebodys_says_is_text(run, folder):
    """A formula, a source and what a sample hunts may hold anything."""
    (folder / "evil.py").write_text(
        "import kernels as k\n"
        r"EVIL = 'x\n::error::pwned\n ##[group]y\x1b[31m\x00\u202e\tz'"
        "\n"
        "spec = k.OpSpec(name='square', signature='()->()', forward=k.square, vjp=k.double, "
        "formula=EVIL, source=EVIL, samples=(k.Sample(name='s', primals=k.good, hunts=EVIL),))\n"
        "SUITE = k.Suite('mine', '1', [spec])\n"
    )
    found = run("square", "--suite", "evil:SUITE", command="explain")
    assert found.code == 0
    assert found.out.count("pwned") == 3
    assert all(c.isprintable() or c == "\n" for c in found.out)
    assert "##[" not in found.out
    assert not [line for line in found.out.splitlines() if line.lstrip().startswith("::")]
