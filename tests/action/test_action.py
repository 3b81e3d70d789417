"""The action and the example workflows: what they run, run as a runner would."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action"
pytestmark = pytest.mark.skipif(not ACTION.exists(), reason="not in a source tree")
WORKFLOWS = [*sorted((ACTION / "examples").glob("*.yml")), ACTION / "action.yml"]
PINNED = re.compile(r"(actions/[\w-]+|OWNER/gradcheck/action)@v\d+")
EVIL = "$(touch pwned); \"`touch pwned`' && touch pwned #"
FEW = "--sample=typical\n--dtype=float64\n--no-contract"


def steps(found):
    """Every mapping in a workflow that runs or uses something."""
    if isinstance(found, list):
        for part in found:
            yield from steps(part)
    elif isinstance(found, dict):
        if "run" in found or "uses" in found:
            yield found
        for part in found.values():
            yield from steps(part)


def scripts(found):
    yield from (step["run"] for step in steps(found) if "run" in step)
    for job in found.values():
        if isinstance(job, dict):  # GitLab: a list of scripts
            yield from job.get("script", ())


@pytest.fixture(scope="module")
def action():
    return yaml.safe_load((ACTION / "action.yml").read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_it_is_yaml_its_scripts_are_bash_and_its_actions_pinned(path):
    found = yaml.safe_load(path.read_text())
    texts = list(scripts(found))
    for text in texts:
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        assert "${{" not in text, "what stands there would be part of the script"
    uses = [step["uses"] for step in steps(found) if "uses" in step]
    assert texts or uses
    assert [name for name in uses if not PINNED.fullmatch(name)] == []


def test_the_examples_give_inputs_that_there_are(action):
    given = [
        name
        for path in WORKFLOWS
        for step in steps(yaml.safe_load(path.read_text()))
        if step.get("uses", "").startswith("OWNER/")
        for name in step["with"]
    ]
    assert {"implementations", "shard", "merge", "baseline", "gate"} <= set(given)
    assert set(given) <= set(action["inputs"])


def test_the_readme_names_every_input_and_output(action):
    told = (ACTION / "README.md").read_text()
    for name in (*action["inputs"], *action["outputs"]):
        assert f"`{name}`" in told, name


def test_every_input_reaches_a_script_as_a_variable(action):
    variables = {
        value
        for step in action["runs"]["steps"]
        for value in (*step.get("env", {}).values(), *step.get("with", {}).values())
    }
    for name in action["inputs"]:
        assert f"${{{{ inputs.{name} }}}}" in variables, name


@pytest.fixture
def step(action, runner, folder):
    """Runs one step of the action, by its name, with these inputs."""

    def call(name, **inputs):
        (found,) = (s for s in action["runs"]["steps"] if s.get("name") == name)
        values = {key: told["default"] for key, told in action["inputs"].items()}
        values |= {key.replace("_", "-"): value for key, value in inputs.items()}
        env = {
            key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], value)
            for key, value in found["env"].items()
        }
        assert "${{" not in "".join(env.values()).replace(EVIL, "")
        return runner(found["run"], env, cwd=folder / values["working-directory"])

    return call


@pytest.fixture
def check(step):
    def call(**inputs):
        inputs.setdefault("operators", "relu")
        inputs.setdefault("args", FEW)
        return step("Check gradients", **inputs)

    return call


@pytest.mark.slow
def test_a_right_implementation_passes(check, folder):
    done = check(implementations="kernels:RIGHT")
    assert done.code == 0, done.log
    assert done.outputs["exit-code"] == "0"
    assert done.outputs["result"].startswith("RESULT pass checked=1 pass=1")
    assert done.summary.startswith("**gradcheck: 1 check passed**")
    assert done.commands == []
    reports = Path(done.outputs["reports"])
    assert {p.name for p in reports.iterdir()} == {
        "annotations.txt", "badge.json", "junit.xml", "report.html", "run.jsonl", "summary.md",
    }  # fmt: skip
    assert json.loads((reports / "badge.json").read_text())["message"] == "1/1"
    assert [p.name for p in folder.iterdir()] == ["kernels.py"]


@pytest.mark.slow
def test_a_wrong_one_fails_and_is_annotated_where_it_stands(check):
    done = check(implementations="  kernels:WRONG \n\n kernels:RIGHT\r\n")
    assert done.code == 1, done.log
    assert done.outputs["exit-code"] == "1"
    assert done.outputs["result"].startswith("RESULT fail checked=2 pass=1 fail=1")
    assert done.summary.startswith("**gradcheck: 1 of 2 checks failed**")
    ((name, properties, message),) = done.commands
    assert name == "error"
    assert properties.startswith("file=kernels.py,line=6,title=kernels%3AWRONG · relu/default · dx")
    assert message.startswith("dx has the wrong sign")


@pytest.mark.slow
def test_below_another_folder_the_annotation_names_the_file_from_the_checkout(check, folder):
    below = folder / "a, b%" / "c"
    below.mkdir(parents=True)
    (folder / "kernels.py").rename(below / "kernels.py")
    done = check(implementations="kernels:WRONG", working_directory="./a, b%/c/")
    ((_, properties, _),) = done.commands
    assert properties.startswith("file=a%2C b%25/c/kernels.py,line=6,")


@pytest.mark.slow
def test_known_failures_open_the_gate(check, folder):
    entry = '[[known]]\nmatch = "relu/*/*/*"\noutput = "dx"\nverdict = "fail"\nreason = "old"\n'
    (folder / "known.toml").write_text(f'suite = "2026.11"\ndtypes = ["float64"]\n{entry}')
    done = check(implementations="kernels:WRONG", baseline="known.toml")
    assert done.code == 0, done.log
    assert "1 known" in (Path(done.outputs["reports"]) / "badge.json").read_text()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"implementations": "nosuch:IMPL"}, 3),
        ({"operators": "nosuch"}, 2),
        ({"args": "--no-such-flag"}, 2),
        ({"baseline": "nosuch.toml"}, 2),
        ({"merge": "nosuch/*.jsonl"}, 2),
    ],
)
def test_whatever_else_is_wrong_fails_even_without_a_gate(check, inputs, code):
    done = check(gate="false", **inputs)
    assert done.code == code, done.log
    assert done.outputs["exit-code"] == str(code)
    assert "gradcheck: " in done.summary


@pytest.mark.slow
def test_without_a_gate_a_failure_is_left_to_a_later_job(check):
    done = check(implementations="kernels:WRONG", gate="false")
    assert (done.code, done.outputs["exit-code"]) == (0, "1")


@pytest.mark.slow(keep=2, rest=4)
@pytest.mark.parametrize(
    "name", ["implementations", "operators", "dtypes", "baseline", "shard", "merge", "args", "gate"]
)
def test_an_input_is_never_read_by_a_shell(check, folder, name):
    done = check(**{"implementations": "kernels:RIGHT", name: EVIL})
    assert (done.code == 0) == (name == "gate"), done.log
    assert [p.name for p in folder.iterdir()] == ["kernels.py"]
    assert [name for name, _, _ in done.commands] in ([], ["error"])


@pytest.mark.slow
def test_the_folder_is_never_read_by_a_shell(check, folder):
    (folder / EVIL.replace("/", "")).mkdir()
    (folder / "kernels.py").rename(folder / EVIL / "kernels.py")
    done = check(implementations="kernels:WRONG", working_directory=EVIL)
    assert done.code == 1, done.log
    assert [p.name for p in folder.iterdir()] == [EVIL]


def test_what_is_to_be_installed_is_never_read_by_a_shell(step, folder, tmp_path):
    shim = tmp_path / "bin" / "python"
    shim.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/told\n')
    step("Install gradcheck", install=EVIL)
    assert (tmp_path / "told").read_text().splitlines()[-2:] == ["--", EVIL]
    step("Install gradcheck")
    assert Path((tmp_path / "told").read_text().splitlines()[-1]).resolve() == ROOT
    assert not (folder / "pwned").exists()


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("whose", ["TALKS", "RAISES"])
def test_what_the_code_prints_is_no_command(check, whose):
    done = check(implementations=f"kernels:{whose}")
    assert done.code == 1
    assert "pwned" in done.log
    ((name, properties, _),) = done.commands
    assert name == "error"
    assert "title=relu/default" in properties
    assert "title=mine" not in properties


@pytest.mark.slow(rest=0)
def test_shards_are_joined(check, folder):
    shards = folder / "shards of"
    for i in (1, 2):
        done = check(
            implementations="kernels:WRONG", operators="relu", shard=f"{i}/2", gate="false",
            args="--sample=typical\n--sample=cube\n--dtype=float64\n--no-contract",
        )  # fmt: skip
        assert done.code == 0, done.log
        place = shards / f"shard-{i}"
        place.mkdir(parents=True)
        (place / "run.jsonl").write_bytes(
            (Path(done.outputs["reports"]) / "run.jsonl").read_bytes()
        )
    whole = check(merge=f"{shards.name}/*/run.jsonl", args="", operators="")
    assert whole.code == 1, whole.log
    assert whole.outputs["result"].startswith("RESULT fail checked=2 pass=0 fail=2")
    half = check(merge=f"{shards.name}/shard-1/run.jsonl", args="", operators="")
    assert half.code not in (0, 1), half.log
