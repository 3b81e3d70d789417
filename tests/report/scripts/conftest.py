"""Exports of a user's code, and an environment in which nothing of ours is."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.cli.main import main


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """`alone(*words)`: Python with NumPy and nothing else; its exit code, stdout and stderr."""
    place = tmp_path_factory.mktemp("alone") / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    home = Path(np.__file__).parents[1]
    for part in home.glob("numpy*"):
        (packages / part.name).symlink_to(part)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env["OPENBLAS_NUM_THREADS"] = "1"

    def call(*words):
        python = [str(place / "bin" / "python"), "-I", "-B", *map(str, words)]
        return subprocess.run(
            python, cwd=place, env=env, capture_output=True, text=True, check=False, timeout=300
        )

    assert call("-c", "import numpy").returncode == 0
    for name in ("gradcheck", "gradcheck_cases", "torch"):
        assert "ModuleNotFoundError" in call("-c", f"import {name}").stderr
    return call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to stand in, first on the path; modules imported from it are forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # code is changed within a second
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def export(folder, capsys):
    """`export(case, impl, *words, name=)`: code, what was said, and the script's path and text."""

    def call(case, impl, *words, name="repro.py", suite="gradcheck_cases:SUITE"):
        path = folder / name
        path.unlink(missing_ok=True)
        flags = ["--impl", impl, "--suite", suite, "--no-isolate", "--no-build"]
        code = main(["repro", case, *flags, "--export", str(path), *words])
        said = capsys.readouterr()
        text = path.read_text() if path.exists() else None
        return SimpleNamespace(code=code, out=said.out, err=said.err, path=path, text=text)

    return call


@pytest.fixture(scope="session")
def examples(tmp_path_factory):
    """A copy of examples/c, built."""
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.skip("needs make and a C compiler")
    place = tmp_path_factory.mktemp("c") / "c"
    source = Path(__file__).parents[3] / "examples" / "c"
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("build"))
    subprocess.run(["make", "-s"], cwd=place, check=True)
    return place
