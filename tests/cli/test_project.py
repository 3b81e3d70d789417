"""Defaults from pyproject.toml: which commands hear them, and what a flag makes of them."""

import json
import shlex
from pathlib import Path

import pytest

ONE = ("--sample", "typical", "--dtype", "float64")


@pytest.fixture
def table(folder):
    """Write `[tool.gradcheck]` into this folder's pyproject.toml."""

    def write(**entries):
        lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in entries.items()]
        (folder / "pyproject.toml").write_text("\n".join(["[tool.gradcheck]", *lines, ""]))

    return write


def names(found):
    return {result["op"] for result in found.results}


def test_what_no_flag_says_the_project_says(judged, table):
    table(op=["relu", "tanh"], sample="typical", dtype="float32", impl="kernels:WRONG", seed=3)
    found = judged()
    assert names(found) == {"relu", "tanh"}
    assert found.header["implementations"] == ["kernels:WRONG"]
    assert (found.header["dtypes"], found.header["seed"]) == (["float32"], 3)


def test_a_flag_that_is_given_replaces_a_list_and_never_extends_it(judged, table):
    table(op=["relu", "tanh"], sample=["typical", "square"], dtype="float32", seed=3)
    found = judged("--op", "silu", "--sample", "cube", "--seed", "0")
    assert names(found) == {"silu"}
    assert {result["sample"] for result in found.results} == {"cube"}
    assert (found.header["dtypes"], found.header["seed"]) == (["float32"], 0)


@pytest.mark.slow
def test_naming_one_kind_replaces_the_default_of_the_others(judged, table):
    table(op="relu", model="baby_llama", dtype="float64", sample=["typical", "tiny", "unclipped"])
    assert names(judged("--op", "silu", *ONE)) == {"silu"}
    (rule,) = names(judged("--rule", "sgd*", "--sample", "*"))
    assert rule.startswith("sgd")


def test_no_config_leaves_the_defaults_out(judged, table):
    table(op="tanh", seed=3, sample="nonsense")
    found = judged("--no-config", "--op", "relu", *ONE)
    assert (names(found), found.header["seed"]) == ({"relu"}, 0)


def test_switches_are_switched(run, table, monkeypatch):
    seen = []
    monkeypatch.setattr("gradcheck.cli.run.executed", lambda plan, *_: seen.append(plan) or 1 / 0)
    table(no_build=True, no_isolate=True, contract=False, train=True, timeout=2, jobs="auto")
    run("--op", "relu")
    (plan,) = seen
    assert (plan.build, plan.isolate, plan.contract, plan.train) == (False, False, False, True)
    assert plan.timeout == 2
    assert plan.jobs >= 1
    assert plan.config


@pytest.mark.parametrize(
    ("words", "project"),
    [((), True), (("--full",), False), (("--project",), True), (("--no-config",), False)],
)
def test_full_goes_before_a_project_s_projection(run, table, monkeypatch, words, project):
    seen = []
    monkeypatch.setattr(
        "gradcheck.cli.run.executed", lambda plan, *_: seen.append(plan.project) or 1 / 0
    )
    table(project=True)
    run("--model", "gpt2", *words)
    assert seen == [project]


def test_a_project_says_when_to_stop_what_to_show_and_where_tensors_go(
    run, table, folder, monkeypatch
):
    table(op="relu", impl="kernels:WRONG", dtype="float64", contract=False, max_fail=2,
          verbose=True, keep_artifacts="tensors", suite="gradcheck_cases:SUITE")  # fmt: skip
    (folder / "inner").mkdir()
    monkeypatch.chdir("inner")
    found = run()
    assert found.code == 1
    assert "stopped at too many failures (--max-fail)" in found.out
    assert [line.split()[0] for line in found.out.splitlines() if " sample " in line] == [
        "operator"
    ]
    assert len([*Path("../tensors").iterdir()]) == 2
    assert "stopped at the first failure" in run("-x").out


def test_a_table_that_cannot_be_right_ends_in_one_line(run, table):
    table(implementation="kernels:RIGHT")
    found = run("--op", "relu")
    assert (found.code, found.out) == (2, "")
    where = "gradcheck: pyproject.toml: [tool.gradcheck]: "
    assert found.err == f"{where}unknown key 'implementation': did you mean 'impl'?\n"
    assert run("--op", "relu", *ONE, "--no-config").code == 0


@pytest.mark.slow
def test_reports_and_baselines_lie_beside_the_file(run, table, folder, monkeypatch):
    table(op="relu", sample="typical", impl="kernels:WRONG", dtype="float64", output="report.md")
    assert run("write", "known.toml", command="baseline").code == 0
    table(op="relu", sample="typical", impl="kernels:WRONG", dtype="float64", output="report.md",
          baseline="known.toml", suite="gradcheck_cases:SUITE")  # fmt: skip
    (folder / "inner").mkdir()
    monkeypatch.chdir("inner")
    found = run()
    assert (found.code, found.err) == (0, "")
    assert Path("../report.md").exists()


@pytest.mark.slow(rest=0)
def test_a_baseline_is_kept_of_the_project_s_run_and_of_a_stored_one(run, table):
    table(op="relu", sample="typical", impl="kernels:WRONG", dtype="float64", contract=False)
    assert run("-o", "run.json").code == 1
    assert run("write", "stored.toml", "run.json", command="baseline").code == 0
    assert run("write", "judged.toml", command="baseline").code == 0
    stored, judged = Path("stored.toml").read_text(), Path("judged.toml").read_text()
    assert stored.replace("stored.toml", "judged.toml") == judged
    found = run("check", "stored.toml", "run.json", "--op", "relu", command="baseline")
    assert (found.code, "--op: the run is read from run.json" in found.err) == (2, True)


def test_a_repro_line_means_the_same_inside_the_project(run, table, folder, monkeypatch):
    table(op="relu", impl="kernels:WRONG", dtype="float64", seed=5, no_isolate=True)
    found = run("--sample", "typical", "--format", "json")
    lines = {r["part"]: r["repro"] for r in json.loads(found.out)["results"]}
    assert "--no-config" not in lines["gradient"]
    assert "--no-config" in lines["contract"]
    table(op="tanh", impl="kernels:RIGHT", dtype="float32", seed=7, sample="square",
          convention="JAX", no_isolate=True)  # fmt: skip
    (folder / "inner").mkdir()
    monkeypatch.chdir("inner")  # kernels.py lies beside the project's file, not here
    for part, line in lines.items():
        _, command, *words = shlex.split(line)
        again = run(*words, "--format", "json", command=command)
        header = json.loads(again.out)["header"]
        assert again.code == 1, part
        assert (header["seed"], header["dtypes"]) == (5, ["float64"])
        assert header["implementations"] == ["kernels:WRONG"]


def test_without_a_project_a_repro_line_does_not_mention_it(run):
    found = run("--op", "relu", *ONE, "--impl", "kernels:WRONG", "--format", "json")
    assert "--no-config" not in found.out


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("command", ["list", "explain", "power"])
def test_the_other_commands_do_not_hear_of_it(run, table, command):
    table(nonsense=1)
    words = {"list": ["--op", "relu"], "explain": ["relu"], "power": ["--op", "relu", "-q"]}
    assert run(*words[command], command=command).code == 0


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dtype": "flaot64"}, "dtype: unknown dtype 'flaot64': did you mean 'float64'?"),
        ({"op": ["relu", "sliu"]}, "op: unknown operator 'sliu': did you mean 'silu'?"),
        ({"impl": "absent:IMPL"}, "impl: absent:IMPL: importing absent raised"),
        ({"impl": "kernels.py"}, "impl: --impl kernels.py: kernels.py has 6 tables; name one: "),
        ({"format": "jsn"}, "format: unknown format 'jsn': did you mean 'json'?"),
        ({"output": "x.pdf"}, "output: -o x.pdf: the ending does not say which format"),
        ({"baseline": "no.toml"}, "baseline: no.toml: there is no such file"),
        ({"convention": "Torch"}, "convention: unknown system with conventions on kinks 'Torch'"),
    ],
)
def test_a_value_that_proves_wrong_later_is_named_with_its_file_and_key(run, table, entry, said):
    table(**entry)
    found = run("--no-contract")
    assert found.code in (2, 3)
    assert found.err.startswith(f"gradcheck: pyproject.toml: [tool.gradcheck]: {said}")


def test_a_mistake_of_the_command_line_is_not_the_project_s(run, table):
    table(op="relu", dtype="flaot64", impl="kernels:RIGHT")
    for words in (["--dtype", "flaot64"], ["--dtype", "float64", "--op", "rleu"]):
        found = run(*words)
        assert found.code == 2
        assert found.err.startswith("gradcheck: unknown ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gradchek", True),
        ("grad-check", True),
        ("gradcheck-suite", False),
        ("graph", False),
        ("ruff", False),
    ],
)
def test_a_table_whose_name_is_misspelt_is_pointed_out(run, folder, name, said):
    (folder / "pyproject.toml").write_text(f"[tool.{name}]\nseed = 3\n")
    found = run("--op", "relu", "--sample", "typical", "--dtype", "float64")
    message = f"gradcheck: pyproject.toml: [tool.{name}] is ignored: did you mean [tool.gradcheck]?"
    assert (found.code, found.err) == (0, f"{message}\n" if said else "")
