"""The command line in this process or in its own, in a folder that holds a user's modules."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gradcheck_cases
import pytest

import gradcheck
from gradcheck.cli.main import main

KERNELS = r"""
import numpy as np
from gradcheck import OpSpec, Sample, Suite

def relu(ct, x): return ct * (x > 0)
def tanh(ct, x): return ct * (1 - np.tanh(x) ** 2)
def negated(ct, x): return -relu(ct, x)
def prints(ct, x): print("printed by vjp"); return relu(ct, x)
def raises(ct, x): raise ValueError("\x1b[31mred\nline")
def stops(ct, x): raise KeyboardInterrupt

RIGHT = {"relu": {"vjp": relu}, "tanh": {"vjp": tanh}}
WRONG = {"relu": {"vjp": negated}, "tanh": {"vjp": tanh}}
STOPS = {"relu": {"vjp": negated}, "tanh": {"vjp": stops}}
PRINTS, RAISES, EMPTY = {"relu": {"vjp": prints}}, {"relu": {"vjp": raises}}, {}
NUMBER, BARE = 3, {"relu": object()}

def square(xp, x): return x * x
def double(xp, ct, x): return 2 * ct * x
def triple(xp, ct, x): return 3 * ct * x
def good(draw): return (draw.normal(3),)
def many(draw): return (draw.normal(3), draw.normal(3))

def op(name, vjp, primals):
    return OpSpec(name=name, signature="()->()", forward=square, vjp=vjp, formula="x^2",
                  source="none", samples=(Sample(name="only", primals=primals, hunts="2"),))

SUITE = Suite("mine", "1", [op("square", double, good)])
FAILING = Suite("mine", "1", [op("square", triple, good)])
INVALID = Suite("mine", "1", [op("square", double, good), op("many", double, many)])
SQUARE = {"square": {"vjp": lambda ct, x: 3 * ct * x}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder to stand in, with `kernels.py`; the built-in suite, even if not installed."""
    points = {"builtin": "gradcheck_cases:SUITE"}
    monkeypatch.setattr("gradcheck.system.entry_points.entry_points", lambda group: points)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # A module written twice within a second would be read from its old bytecode.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    Path("kernels.py").write_text(KERNELS)
    Path("raising.py").write_text("raise ValueError('one\\ntwo')")
    importlib.invalidate_caches()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def run(capsys):
    """A command in this process: exit code, stdout and stderr.

    Implementations run here, too, unless `isolate`: what this process has patched, they see.
    """

    def call(*words, command="run", isolate=False):
        own = ["--no-isolate"] if command in ("run", "repro") and not isolate else []
        code = main([command, *own, *words])
        return SimpleNamespace(code=code, **capsys.readouterr()._asdict())

    return call


@pytest.fixture
def judged(run):
    """`gradcheck run --format json`: exit code, stderr, header, results and footer."""

    def call(*words):
        found = run(*words, "--format", "json")
        return SimpleNamespace(**vars(found), **json.loads(found.out))

    return call


@pytest.fixture(scope="session")
def environment():
    """An environment in which the packages are found, installed or not."""
    roots = (str(Path(m.__file__).parents[1]) for m in (gradcheck, gradcheck_cases))
    usual = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    return {**usual, "PYTHONPATH": os.pathsep.join(roots)}


@pytest.fixture
def process(environment):
    """A command in a process of its own."""

    def call(*words, env=(), **options):
        command = [sys.executable, "-m", "gradcheck", *words, "--suite", "gradcheck_cases:SUITE"]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        env = {**environment, **dict(env)}
        return subprocess.run(command, check=False, text=True, env=env, **streams)

    return call
