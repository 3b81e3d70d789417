"""The `pytest` command in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import gradcheck_cases
import pytest

import gradcheck

BASICS = ("-q", "-p", "gradcheck.pytest_plugin", "-p", "no:cacheprovider")


@pytest.fixture
def folder(tmp_path, kernels):
    """Where it is run; `kernels` is what is to be judged there."""
    (tmp_path / "kernels.py").write_text(kernels)
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
def command(folder, environment):
    """The `pytest` command, not `python -m pytest`: it does not look into the folder by itself.

    Its process is `begun`, and waited for unless that is all that is asked for.
    """

    def call(*words, basics=BASICS, begun=False, cwd=folder):
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
