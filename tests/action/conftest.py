"""A runner of CI jobs, as far as scripts see it: variables, files to append to, and its log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import gradcheck_cases
import pytest

import gradcheck

ROOT = Path(__file__).parents[2]
KERNELS = """\
import sys

def relu(ct, x):
    return ct * (x > 0)

def negated(ct, x):
    return -ct * (x > 0)

def talks(ct, x):
    print("::error title=mine::pwned", flush=True)
    print("a ##[error]pwned", file=sys.stderr, flush=True)
    return -ct * (x > 0)

def raises(ct, x):
    raise ValueError("one\\\\n::error title=mine::pwned\\\\n::add-mask::relu ##[group]pwned")

RIGHT, WRONG = {"relu": {"vjp": relu}}, {"relu": {"vjp": negated}}
TALKS, RAISES = {"relu": {"vjp": talks}}, {"relu": {"vjp": raises}}
"""
SHIM = '#!/bin/sh\nexec "{python}" {flags} "$@"\n'
COMMAND = re.compile(r"\s*::(?P<name>[\w-]+)(?: (?P<properties>[^:]*))?::(?P<message>.*)")
NAMES = {"error", "warning", "notice", "debug", "group", "endgroup", "add-mask", "set-output",
         "stop-commands"}  # fmt: skip


@dataclass(frozen=True)
class Done:
    """What a script left behind."""

    code: int
    log: str
    summary: str
    outputs: dict[str, str]

    @property
    def commands(self):
        """The commands in the log, as (name, properties, message): as a runner would take them."""
        found, resume = [], None
        for line in self.log.splitlines():
            match = COMMAND.fullmatch(line)
            if resume is not None:
                resume = None if line.strip() == f"::{resume}::" else resume
            elif match and match["name"] == "stop-commands":
                resume = match["message"]
                assert len(resume) >= 32
                assert resume not in found
            elif match and match["name"] in NAMES:
                found.append((match["name"], match["properties"] or "", match["message"]))
            elif "##[" in line:  # the older form, anywhere in a line
                found.append(("##[", "", line))
        assert resume is None, "commands stay stopped"
        return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkout with kernels in it."""
    place = tmp_path / "checkout"
    place.mkdir()
    (place / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def runner(tmp_path, folder):
    """Runs a script as a runner does: with its variables, and `python` and `gradcheck` to call."""
    tools, temp = tmp_path / "bin", tmp_path / "temp"
    tools.mkdir()
    temp.mkdir()
    for name, flags in (("python", "-P"), ("gradcheck", "-P -m gradcheck")):
        shim = tools / name
        shim.write_text(SHIM.format(python=sys.executable, flags=flags))
        shim.chmod(0o755)
    roots = [str(Path(module.__file__).parents[1]) for module in (gradcheck, gradcheck_cases)]

    def call(script, env=(), cwd=folder):
        files = {name: temp / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={
                "PATH": f"{tools}:{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join(roots),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OPENBLAS_NUM_THREADS": "1",
                "RUNNER_TEMP": str(temp),
                "GITHUB_ACTION_PATH": str(ROOT / "action"),
                **{name: str(file) for name, file in files.items()},
                **dict(env),
            },
        )  # fmt: skip
        pairs = (line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        summary = files["GITHUB_STEP_SUMMARY"].read_text()
        return Done(done.returncode, done.stdout, summary, dict(pairs))

    return call
