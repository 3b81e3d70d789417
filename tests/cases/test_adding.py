"""The examples of cases/README.md, followed as a newcomer would."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gradcheck_cases
import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "cases" / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def mycases(tmp_path):
    """The README's blocks in one module; the suite's line last, for it names the mutants."""
    spec, suite, mutants = BLOCKS[:3]
    (tmp_path / "mycases.py").write_text("\n".join((spec, mutants, suite)), encoding="utf-8")
    return tmp_path


def gradcheck(*words, cwd):
    command = [sys.executable, "-m", "gradcheck", *words, "--suite", "mycases:SUITE"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_operator_takes_about_twenty_lines():
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 20


@pytest.mark.slow
def test_it_runs_and_passes_in_every_dtype(mycases):
    run = gradcheck("run", "--dtype", "all", cwd=mycases)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"RESULT pass checked=16 pass=16 ", run.stdout)
    assert "deliberately wrong gradients were caught" in run.stdout


@pytest.mark.slow
def test_its_mutant_and_every_impostor_are_rejected(mycases):
    power = gradcheck("power", "-q", cwd=mycases)
    assert power.returncode == 0, power.stdout + power.stderr
    assert re.search(r"default-b +P +default/b-1 ", power.stdout)
    assert re.search(r"POWER pass mutants=1/1 equivalent=0 impostors=(\d+)/\1 ", power.stdout)


@pytest.mark.slow
def test_a_mutant_that_nothing_kills_is_refused_with_what_to_do(mycases):
    path = mycases / "mycases.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('attrs={"b": 1.0}, ', ""), encoding="utf-8")
    power = gradcheck("power", "-q", cwd=mycases)
    assert power.returncode == 1
    said = " ".join(power.stdout.split())
    assert "squareplus/default-b survives: The slope is always that of b = 4." in said
    assert "add one that does, or prove in `equivalent`" in said


@pytest.mark.slow
def test_a_wrong_vjp_is_seen_in_both(mycases):
    path = mycases / "mycases.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("(1 + x / xp", "(1 - x / xp"), encoding="utf-8")
    assert gradcheck("run", "-q", cwd=mycases).returncode == 1
    power = gradcheck("power", "-q", cwd=mycases)
    assert power.returncode == 1
    assert "the right VJP does not pass" in power.stdout


# ── in a family of the built-in suite ────────────────────────────────────────────────────────

PAGE = "reference/operators/gated/squareplus.md"
PRINT_PAGE = (
    f"import sys; sys.path.insert(0, {str(ROOT / 'docs')!r}); from _pages import operators; "
    f"print(dict(operators.pages())[{PAGE!r}])"
)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A copy of the suite with the README's operator at the end of one family; runs Python in it.

    Nothing else is changed: no table, no index, no list.
    """
    folder = tmp_path_factory.mktemp("family")
    shutil.copytree(
        Path(gradcheck_cases.__file__).parent,
        folder / "gradcheck_cases",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    _, _, definition = BLOCKS[0].partition("\n\n\n")
    with (folder / "gradcheck_cases" / "gated.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{definition}")
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}

    def python(*words):
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return python


def test_an_operator_of_a_family_is_one_definition_and_seen_by_every_command(family):
    command = ("-m", "gradcheck")
    suite = ("--suite", "gradcheck_cases:SUITE")
    listed = json.loads(family(*command, "list", "--json", "--op", "squareplus", *suite))
    (found,) = listed["operators"]
    assert (found["name"], found["family"]) == ("squareplus", "gated")
    run = family(*command, "run", "-q", "--op", "squareplus", *suite)
    assert "RESULT pass checked=8 pass=8 " in run
    power = family(*command, "power", "-q", "--op", "squareplus", *suite)
    assert re.search(r"POWER pass mutants=0/0 equivalent=0 impostors=(\d+)/\1 ", power)


@pytest.mark.slow
def test_it_has_its_page_and_its_place_in_the_suite(family):
    page = family("-c", PRINT_PAGE)
    assert "# `squareplus`" in page
    assert "`b-1`" in page
    order = "from gradcheck_cases import SUITE; print(*SUITE.operators)"
    names = family("-c", order).split()
    assert [name for name in names if name != "squareplus"] == list(gradcheck_cases.SUITE.operators)
    assert names[names.index("packed_swiglu") + 1] == "squareplus"


# ── a model ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def mymodel(tmp_path):
    (tmp_path / "mycases.py").write_text(BLOCKS[3], encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_model_runs_and_passes_at_fifty_digits_and_in_both_dtypes(mymodel):
    run = gradcheck("run", "--model", "autoencoder", cwd=mymodel)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "RESULT pass" in run.stdout
    for name in ("dw", "db", "dc", "encode", "squash", "loss"):
        assert re.search(rf"^ *{name} ", run.stdout, re.MULTILINE), name


@pytest.mark.slow
def test_a_stage_that_is_wrong_is_refused_with_its_name(mymodel):
    path = mymodel / "mycases.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('reads=("h",), writes="z"', 'reads=("z",), writes="z"'), "utf-8")
    run = gradcheck("run", "-q", "--model", "autoencoder", cwd=mymodel)
    assert run.returncode in (2, 5)
    assert "stage 'squash' reads 'z' before it is written" in run.stdout + run.stderr
    assert "Traceback" not in run.stderr
