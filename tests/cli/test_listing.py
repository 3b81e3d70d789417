import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import gradcheck_cases
import pytest

import gradcheck
from gradcheck.cli.main import main

SUITE = gradcheck_cases.SUITE


def test_the_list_names_every_operator_and_counts_the_cases(run):
    found = run(command="list")
    assert (found.code, found.err) == (0, "")
    named = [line.split(" ")[0] for line in found.out.splitlines()]
    assert [name for name in named if name in SUITE.operators] == list(SUITE.operators)
    total = f"{len(SUITE)} operators, {len(SUITE.cases()):,} cases (operator × variant × sample)"
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


@pytest.mark.suite
def test_every_operator_explains_itself(run):
    for name, spec in SUITE.operators.items():
        found = run(name, command="explain")
        assert (found.code, found.err) == (0, "")
        assert found.out.startswith(f"{name}: {spec.signature}\n")


def test_a_suite_of_the_users_own_is_explained_too(run):
    found = run("square", "--suite", "kernels:SUITE", command="explain")
    assert found.code == 0
    assert "defined in kernels" in found.out


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_the_packages(capsys, flag):
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"gradcheck {gradcheck.__version__}\n"


def test_without_a_command_the_help_says_what_there_is(capsys):
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    for word in ("run", "list", "explain", "exit codes:", "130  interrupted"):
        assert word in said.err


IMPORTED = """\
import sys
before = {*sys.modules}  # what an installation, or who measures coverage, imports at every start
import gradcheck.cli.main
try: code = gradcheck.cli.main.main(sys.argv[1:])
except SystemExit as stop: code = stop.code
assert code == 0
print(*sorted({*sys.modules} - before), file=sys.stderr)
"""


@pytest.fixture(scope="session")
def imported(environment):
    """`imported("run", …)`: the modules that a command imports, which ends well."""
    env = {k: v for k, v in environment.items() if not k.startswith("COV")}

    @cache
    def call(*words):
        found = subprocess.run(
            [sys.executable, "-c", IMPORTED, *words],
            env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert found.stdout
        return frozenset(found.stderr.split())

    return call


HEAVY = {"numpy", "mpmath", "jinja2", "tabulate", "torch", "gradcheck_cases", "msgspec", "shtab"}


def tops(modules):
    return {name.partition(".")[0] for name in modules}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_answers_without_numpy(imported, words):
    loaded = tops(imported(*words))
    assert "gradcheck" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_without_a_command_none_is_imported_nor_what_only_a_command_needs(imported, words):
    loaded = imported(*words)
    commands = {name for name in loaded if name.startswith("gradcheck.cli.")}
    assert commands == {f"gradcheck.cli.{n}" for n in ("console", "exit_codes", "main", "parser")}
    # Each takes more of a start than all of ours: see docs/adr/0033.
    assert not loaded & {"typing", "dataclasses", "inspect", "pathlib", "importlib.metadata"}


def test_a_command_imports_no_other(imported):
    loaded = imported("run", "--help")
    others = ("demo", "diff", "power", "init", "baseline", "listing", "completion", "export")
    assert not loaded & {f"gradcheck.cli.{name}" for name in others}


ASKED = ("run", "--op", "rms_norm", "--suite", "gradcheck_cases:SUITE")


@pytest.fixture
def passing(imported):
    """What a run of one operator imports, all of which passes."""
    return imported(*ASKED)


def test_a_passing_run_imports_what_judges_operators(passing):
    assert {"numpy", "gradcheck.judge.operator", "gradcheck_cases.norm"} <= passing


def test_a_passing_run_does_not_import_what_it_does_not_need(passing):
    unneeded = (
        "explain", "judge.model", "judge.rule", "judge.contract_check",
        "judge.evidence_curves", "judge.evidence_curves", "power", "implementations.isolated",
        "implementations.native", "implementations.manifest", "implementations.protocol",
        "run.workers.pool", "run.workers.fork_server", "run.workers.remote", "run.cluster",
        "results.stored.log", "results.baseline", "results.diff", "system.atomic_io",
        "report.model_tables", "report.failure_text", "report.scripts", "api", "testing",
    )  # fmt: skip
    for part in unneeded:
        name = f"gradcheck.{part}"
        assert find_spec(name), f"{name} is no module"
        found = {m for m in passing if m == name or m.startswith(f"{name}.")}
        assert found <= {"gradcheck.explain", "gradcheck.explain.case_diagnosis"}


def test_a_passing_run_imports_no_library_that_it_does_not_need(passing):
    others = {"mpmath", "jinja2", "tabulate", "msgspec", "pycparser", "elftools", "torch", "jax",
              "shtab", "email", "tempfile", "subprocess", "json",
              "multiprocessing", "tomllib"}  # fmt: skip
    assert tops(passing) & others == set()


def test_a_run_imports_the_families_that_it_asks_for(passing):
    ours = {name for name in passing if name.startswith("gradcheck_cases")}
    assert ours == {"gradcheck_cases", "gradcheck_cases.norm"}


@pytest.mark.slow
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
