"""The `pytest` command in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import gradcheck_cases
import pytest

import gradcheck

BASICS = ("-q", "-p", "gradcheck.pytest_plugin", "-p", "no:cacheprovider")
QUIET = ("-p", "no:faulthandler", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Of a session within another one: its handler is in use, and modules are imported already."""


@pytest.fixture
def folder(tmp_path, request):
    """Where it is run; `KERNELS` of the test's module is what is to be judged there."""
    (tmp_path / "kernels.py").write_text(request.module.KERNELS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.fixture
def environment():
    """No plugin but those that are named; no folder but ours."""
    roots = (str(Path(m.__file__).parents[1]) for m in (gradcheck, gradcheck_cases))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "PYTHONSAFEPATH": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "",
            "COLUMNS": "200"}  # fmt: skip


@pytest.fixture(name="pytest_")  # a function of that name would be a hook
def command(folder, environment, monkeypatch):
    """The `pytest` command, not `python -m pytest`: it does not look into the folder by itself.

    It runs in this process. Those that start others, by xdist, or are `alone`, have their own; one
    that is `begun` is not waited for.
    """

    def call(*words, basics=BASICS, begun=False, alone=False, cwd=folder):
        if not (begun or alone or "xdist" in words):
            return in_this_process([*basics, *QUIET, *words], cwd, environment, monkeypatch)
        words = [sys.executable, "-P", "-m", "pytest", *basics, *words]
        process = subprocess.Popen(
            words, cwd=cwd, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if begun:
            return process
        try:
            out, err = process.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return call


def in_this_process(words, cwd, environment, monkeypatch):
    """A session within this one: modules of its folder are gone when it ends."""
    out, err, before = StringIO(), StringIO(), {*sys.modules}
    with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "path", [*sys.path])
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        code = pytest.main(list(map(str, words)))
    for name in {*sys.modules} - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(cwd)):
            del sys.modules[name]
    return subprocess.CompletedProcess(words, int(code), out.getvalue(), err.getvalue())
