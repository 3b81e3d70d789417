"""The demo shows a pass, a failure with its diagnosis and a crash, and would notice if not."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck.cli.demo import KERNELS
from gradcheck.results.verdict import Verdict
from gradcheck.run import execute as running
from tests.case_results import changed


@pytest.fixture
def demo(environment, tmp_path):
    """`gradcheck demo` in a process of its own, in an empty folder."""
    empty = tmp_path / "empty"
    empty.mkdir()

    def call(*words, **env):
        return subprocess.run(
            [sys.executable, "-m", "gradcheck", *words],
            cwd=empty, env={**environment, **env}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    call.folder = empty
    return call


def test_it_shows_one_pass_one_failure_and_one_crash(demo):
    found = demo("demo")
    assert (found.returncode, found.stderr) == (0, "")
    for line in (
        "\nsilu      default  dx        PASS ",
        "\nrms_norm  weight   dx        FAIL ",
        "\nrelu      default  vjp       CRASH ",
        "\nCRASH relu · vjp",
        "\n  SIGSEGV in vjp\n",
        "\nFAIL rms_norm/weight · dx",
        "\n  dx: the term ",
        "\nRESULT fail checked=4 pass=2 fail=1 inconclusive=0 crash=1 ",
        "exits with 0. `gradcheck run` would exit with 1",
    ):
        assert line in found.stdout
    assert not list(demo.folder.iterdir())


@pytest.mark.slow(rest=0)
def test_its_repro_lines_work_when_they_are_pasted(demo):
    lines = [x.removeprefix("  run: ") for x in demo("demo").stdout.splitlines() if "  run: " in x]
    assert len(lines) == 2
    for line in lines:
        _, *words = line.split()
        assert demo(*words, "--no-shrink").returncode == 1


@pytest.mark.slow(rest=0)
def test_no_line_is_wider_than_the_terminal(run, monkeypatch):
    for width in (60, 160):
        monkeypatch.setattr("gradcheck.cli.console.width", lambda _, width=width: width)
        found = run(command="demo")
        wide = [line for line in found.out.splitlines() if len(line) > width]
        assert all(line.startswith(("  run: ", "RESULT ")) for line in wide), wide


@pytest.mark.slow
def test_it_notices_when_it_does_not_show_what_it_says(run, monkeypatch):
    def mended(plan):
        found = execute(plan)
        return replace(
            found, results=tuple(changed(r, verdict=Verdict.PASS) for r in found.results)
        )

    execute = running.execute
    monkeypatch.setattr("gradcheck.run.execute.execute", mended)
    found = run(command="demo")
    assert found.code == 5
    assert found.err == "gradcheck: this is not what the demo should show; please report it\n"
    assert "What you have seen" not in found.out


@pytest.mark.slow
def test_the_copy_is_what_was_judged_and_can_be_repaired(run):
    found = run("--copy", "new/folder", command="demo")
    path = Path("new/folder/kernels.py")
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[1:] == [
        "    cd new/folder",
        "    gradcheck run --impl kernels.py",
    ]
    text = path.read_text()
    assert text == Path(sys.modules["gradcheck"].__file__).with_name("demo").joinpath(
        "kernels.py").read_text()  # fmt: skip
    wrong, right = "dx = r * (g - x * mean(g * x) * r)  # right: x * mean(g * x) * r**2", "r**2)"
    assert text.count(wrong) == 1
    Path("mended.py").write_text(text.replace(wrong, f"dx = r * (g - x * mean(g * x) * {right}"))
    rms = ("--op", "rms_norm", "--dialect", "weight")
    assert run(*rms, "--impl", KERNELS).code == 1
    assert run(*rms, "--impl", "mended:IMPL").code == 0
