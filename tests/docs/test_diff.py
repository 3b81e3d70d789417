"""The page on differences: its output is real, its tables are the code's.

`python tests/docs/test_diff.py`, from the root, writes down what its commands print now.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gradcheck.diff.change import Mark, slug

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "diff.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODE = re.compile(r'```python title="([^"]+)"\n(.*?)```', re.DOTALL)
SHOWN = re.compile(r"```console\n\$ (gradcheck diff [^\n]+)\n([^$]*?)```", re.DOTALL)
OPS = "--impl kernels:IMPL --op silu --op softmax --op sigmoid -q"
BEFORE = (
    ("main", f"gradcheck run {OPS} -o ../main.json"),
    ("pr", f"gradcheck run {OPS} -o ../pr.json"),
    ("main", "gradcheck run --impl reference --impl kernels:IMPL --op sigmoid -q -o ../both.json"),
)
NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")


def run(command: str, folder: Path) -> str:
    path = os.pathsep.join(str(ROOT / part) for part in ("", "cases"))
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def outputs(folder: Path) -> dict[str, str]:
    """What each command of the page prints, where its code stands."""
    for name, code in CODE.findall(TEXT):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code, encoding="utf-8")
    for where, command in BEFORE:
        run(command, folder / where)
    return {command: run(command, folder) for command, _ in SHOWN.findall(TEXT)}


def skeleton(text: str) -> list[str]:
    """Lines without measured numbers; counts of results are kept."""
    kept = re.sub(r"(\d+) (result|check|newly|error grew|fixed|as before)", r"<\1> \2", text)
    lines = [re.sub(NUMBER if "→" in x else r"(?!)", "#", x) for x in kept.splitlines()]
    return [" ".join(line.split()) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    return outputs(tmp_path_factory.mktemp("page"))


def test_the_output_that_is_shown_is_real(printed):
    shown = SHOWN.findall(TEXT)
    assert len(shown) == 2
    for command, text in shown:
        assert len(skeleton(text)) > 4
        assert skeleton(text) == skeleton(printed[command])


def test_another_verdict_count_or_mark_would_be_noticed():
    text = SHOWN.findall(TEXT)[0][1]
    assert skeleton(text) == skeleton(text.replace("1.7e+00", "1.8e+00"))
    for before, after in (("FAIL", "PASS"), ("20 results", "19 results"), ("GREW", "SHRANK")):
        assert before in text
        assert skeleton(text) != skeleton(text.replace(before, after, 1))


def test_the_table_of_marks_is_the_codes():
    rows = re.findall(r"^\| `([a-z ]+)` \|", TEXT, flags=re.MULTILINE)
    assert rows == [mark.value for mark in Mark]


def test_the_flags_that_it_names_are_marks():
    named = {w for words in re.findall(r"--fail-on ([a-z,-]+)", TEXT) for w in words.split(",")}
    assert named <= {slug(mark) for mark in Mark} | {"change", "worse"}
    assert named


def write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        printed = outputs(Path(folder))
    text = SHOWN.sub(lambda m: f"```console\n$ {m[1]}\n{printed[m[1]]}```", TEXT)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
