"""The examples of README.md and examples/README.md are real: commands print what they show.

`python tests/test_readme.py`, from the root, writes down what they print now.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, too

from tests.shown import skeleton  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md"]
SHOWN = [
    block
    for page in PAGES
    for block in re.findall(r"```console\n(\$ .*?)```", page.read_text("utf-8"), flags=re.DOTALL)
]


def run(command: str) -> str:
    words = shlex.split(command)
    program = {"gradcheck": [sys.executable, "-m", "gradcheck"], "python": [sys.executable]}
    path = os.pathsep.join(str(ROOT / folder) for folder in ("", "cases"))
    done = subprocess.run(
        [*program[words[0]], *words[1:]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.splitlines()[0][2:50])
def test_a_command_of_the_readme_prints_what_the_readme_shows(block: str) -> None:
    command, _, expected = block.partition("\n")
    if "frameworks" in command:
        pytest.importorskip("torch")
        pytest.importorskip("jax")
    assert {"PASS", "FAIL", "POWER"} & {
        *expected.split()
    }  # an example without output shows nothing
    assert skeleton(run(command[2:])) == skeleton(expected)


def test_the_first_example_is_the_file_that_runs() -> None:
    (first,) = re.findall(r"```python\n(import numpy.*?)```", README, flags=re.DOTALL)
    assert first == (ROOT / "examples" / "tanh.py").read_text(encoding="utf-8")


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.splitlines()) <= 200


def test_the_comparison_notices_a_changed_verdict_and_a_missing_line() -> None:
    shown = "dx  FAIL  1.0e-3 > 1.0e-08\ndw  PASS  1.0e-13"
    assert skeleton(shown) == skeleton(shown.replace("1.0e-3", "7.25e-2"))
    assert skeleton(shown) != skeleton(shown.replace("FAIL", "PASS"))
    assert skeleton(shown) != skeleton(shown.splitlines()[0])


def test_ci_runs_the_lines_that_a_newcomer_pastes() -> None:
    pasted = [block.strip() for block in BLOCKS if block.startswith("python3 -m venv")]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert len(pasted) == 2
    assert all(line in ci for line in pasted)


def test_the_readme_counts_what_there_is() -> None:
    from gradcheck_cases import SUITE

    dialects = sum(len(spec.dialects) for spec in SUITE)
    assert f"{len(SUITE)} operators, {dialects} dialects, {len(SUITE.cases())} cases" in README


def test_every_link_of_the_readme_leads_somewhere() -> None:
    broken = [
        target
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_readme_counts_the_models_and_their_planted_faults() -> None:
    from gradcheck_cases import SUITE
    from gradcheck_cases.faults import FAULTS
    from gradcheck_cases.mutants.optimizer import RULE_MUTANTS

    assert f"{len(RULE_MUTANTS)} of {len(RULE_MUTANTS)} wrong updates" in README
    assert len(SUITE.models) == 11
    assert "all eleven" in README
    assert f"{len(FAULTS)} planted faults" in README


def rewrite(page: Path) -> None:
    """Write into a page what its commands print now."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"```console\n(\$ .*?)```", text, flags=re.DOTALL):
        command = block.partition("\n")[0]
        text = text.replace(
            f"```console\n{block}```", f"```console\n{command}\n{run(command[2:])}```"
        )
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for page in PAGES:
        rewrite(page)
