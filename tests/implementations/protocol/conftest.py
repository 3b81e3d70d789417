"""Programs that speak the protocol, well or not."""

import sys
from pathlib import Path

import pytest

from gradcheck.implementations.manifest.operation import Program

HERE = Path(__file__).parent
PYTHON = (sys.executable, "-I", "-S")
"""Starts in a tenth of the time, and sees none of our packages."""


@pytest.fixture(scope="session")
def program():
    """A program of a level that tells a lie; deadlines are wide where none is meant to pass."""

    def make(level="frames", lie="", timeout=60.0, startup=60.0):
        script = "oneshot.py" if level == "oneshot" else "speaker.py"
        words = [lie] if level == "oneshot" else [level, lie]
        return Program(
            name="speaker",
            path=HERE / "gradcheck.toml",
            command=(*PYTHON, script, *filter(None, words)),
            level=level,
            timeout=timeout,
            startup=startup,
        )

    return make


@pytest.fixture(params=["frames", "jsonl"])
def level(request):
    return request.param
