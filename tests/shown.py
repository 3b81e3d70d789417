"""Examples that pages show are real: commands print what the page says that they print.

A page of the README's kind holds `$ ` blocks that stand alone. A page with the mark

    <!-- session: from=examples/c needs=gcc,make,torch -->

is one session: an empty folder, or a copy of the one named, in which its blocks are carried out
from top to bottom. A block with a title is written to that file; in a console block each line that
starts with `$ ` is run by a shell, and what it prints on either stream stands below it. A program
or a module that the session needs and that is not there leaves the page out.

`python tests/shown.py PAGE…`, from the root, writes down what the commands print now.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
NUMBER: Final = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")
PICTURE: Final = frozenset("█░│")
MARK: Final = re.compile(r"^<!-- session(?:: (.*?))? -->$", flags=re.MULTILINE)
BLOCK: Final = re.compile(
    r'^(?P<indent> *)```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?[^\n]*\n'
    r"(?P<body>.*?)^(?P=indent)```$",
    flags=re.MULTILINE | re.DOTALL,
)
SECONDS: Final = 600
TOLD: Final = ("CI", "BUILD_NUMBER", "COLUMNS", "GITHUB_ACTIONS")
"""Variables by which a machine says how programs are to print; pages show what a person sees."""


def skeleton(text: str) -> list[str]:
    """Lines without what differs between machines: measured numbers, versions, padding.

    Lines of a picture that is made of measured numbers are left out.
    """
    lines = [
        line
        for line in text.splitlines()
        if not line.startswith(("on ", "gradcheck ")) and not set(line) & PICTURE
    ]
    plain = [" ".join(NUMBER.sub("#", line).replace("─", "").split()) for line in lines]
    return [line for line in plain if line and not set(line) <= {"-", " "}]


@dataclass(frozen=True)
class Step:
    """One thing that a page does: write `file`, or run `command`, which shows `shown`."""

    file: str
    command: str
    shown: str


@dataclass(frozen=True)
class Session:
    """A page as a session: the folder it starts from, what it needs, and its steps."""

    start: str
    needs: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def lacks(self) -> str:
        """What it needs and is not there; empty: nothing."""
        for name in self.needs:
            if shutil.which(name) is None and importlib.util.find_spec(name) is None:
                return name
        return ""


def session(markdown: str) -> Session | None:
    """The session of a page; None: it has none."""
    mark = MARK.search(markdown)
    if mark is None:
        return None
    words = dict(word.split("=", 1) for word in (mark[1] or "").split())
    assert set(words) <= {"from", "needs"}, f"{mark[0]}: unknown words"
    steps = [step for block in BLOCK.finditer(markdown) for step in _steps(block)]
    needs = tuple(filter(None, words.get("needs", "").split(",")))
    return Session(words.get("from", ""), needs, tuple(steps))


def _steps(block: re.Match[str]) -> Iterator[Step]:
    indent = block["indent"]
    body = "".join(line.removeprefix(indent) for line in block["body"].splitlines(keepends=True))
    if block["title"]:
        yield Step(block["title"], "", body)
    elif block["language"] == "console" and body.startswith("$ "):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield Step("", command, shown)


class Shell:
    """A folder with the checkout's gradcheck on its path."""

    def __init__(self, folder: Path, start: str = "") -> None:
        """Copy what is there to start from."""
        self.folder = folder / "session"
        if start:
            ignored = shutil.ignore_patterns("build", "__pycache__", "*.so", ".gradcheck")
            shutil.copytree(ROOT / start, self.folder, ignore=ignored)
        else:
            self.folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        for name, how in (("gradcheck", "-m gradcheck"), ("python", ""), ("pytest", "-m pytest")):
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {how} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        modules = os.pathsep.join(str(ROOT / folder) for folder in ("", "cases"))
        self.env = {
            **{k: v for k, v in os.environ.items() if not (k in TOLD or k.startswith("PYTEST_"))},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": modules,
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def write(self, file: str, body: str) -> None:
        """One file below the folder."""
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")

    def run(self, command: str) -> str:
        """What a command prints on both streams."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stdout, f"$ {command}\n{done.stdout}"
        return done.stdout


def carried_out(found: Session, folder: Path) -> Iterator[tuple[Step, str]]:
    """Each command of a session, and what it prints now."""
    shell = Shell(folder, found.start)
    for step in found.steps:
        if step.file:
            shell.write(step.file, step.shown)
        else:
            yield step, shell.run(step.command)


def rewritten(markdown: str) -> str:
    """A page with what its commands print now; without a session, as it is."""
    found = session(markdown)
    if found is None or found.lacks:
        return markdown
    with tempfile.TemporaryDirectory() as folder:
        printed = iter([text for _, text in carried_out(found, Path(folder))])

    def again(block: re.Match[str]) -> str:
        steps = list(_steps(block))
        if not steps or steps[0].file:
            return block[0]
        lines = [f"$ {step.command}\n{next(printed).rstrip()}".rstrip() for step in steps]
        indent = block["indent"]
        body = "\n".join(indent + line if line else "" for line in "\n".join(lines).splitlines())
        return f"{indent}```console\n{body}\n{indent}```"

    return BLOCK.sub(again, markdown)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
