"""`gradcheck probe`: a line per check, and an exit code."""

import sys
from pathlib import Path

import pytest

SPEAKER = Path(__file__).parents[1] / "implementations" / "protocol" / "speaker.py"
COMMAND = ["--op", "tanh", "--", sys.executable, "-I", "-S", str(SPEAKER)]


@pytest.mark.slow
def test_a_program_that_speaks_well_exits_with_0(run):
    found = run("--level", "jsonl", *COMMAND, "jsonl", command="probe")
    assert found.code == 0
    lines = found.out.splitlines()
    assert lines[0].startswith("ok    `hello`: speaker 1 Python; tanh, ")
    assert lines[-1].endswith(" checks, 0 FAIL")


@pytest.mark.slow
def test_a_program_of_level_oneshot_does_too(run):
    oneshot = SPEAKER.with_name("oneshot.py")
    words = ["--level", "oneshot", *COMMAND[:-1], str(oneshot)]
    found = run(*words, command="probe")
    assert found.code == 0
    assert found.out.startswith("ok    tanh in float64\n")


@pytest.mark.slow
def test_a_program_that_does_not_exits_with_1_and_cannot_paint_the_terminal(run):
    found = run(*COMMAND, "frames", "hostile_dtype", command="probe")
    assert found.code == 1
    assert "FAIL  tanh in float64\n" in found.out
    assert "\x1b" not in found.out
    assert max(map(len, found.out.splitlines())) <= 100


@pytest.mark.slow
def test_a_program_of_another_version_does_not_load(run):
    found = run(*COMMAND, "frames", "version_2", command="probe")
    assert found.code == 3
    assert "speaks GRADCHECK/2" in found.err
