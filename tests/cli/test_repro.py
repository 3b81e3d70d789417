import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gradcheck.cli import main

TYPICAL = ("--sample", "typical", "--dtype", "float64")
HOSTILE = ["it's $(touch pwned) `touch pwned`", 'say "hi" & touch pwned; #', "-dash", "*", "two  b"]


def pasted(capsys, line):
    """What a repro line gives when it is pasted: exit code and results."""
    program, *words = shlex.split(line)
    assert program == "gradcheck"
    code = main([*words, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)["results"]


def shown(terminal):
    """The repro lines of a terminal report."""
    return [x.removeprefix("  run: ") for x in terminal.splitlines() if x.startswith("  run: ")]


def told(text):
    """The repro lines of a JSON report."""
    return [result["repro"] for result in json.loads(text)["results"]]


@pytest.mark.parametrize(
    "words",
    [
        "--op relu --op tanh --impl kernels:WRONG",
        "--op relu --op tanh --impl kernels:RAISES --impl reference --impl kernels:WRONG",
        "--op relu --impl kernels:WRONG --seed 7 --dtype float32",
        "--op relu --impl kernels:WRONG --seed -7",
        "--op re*u --impl kernels:WRONG --sample *e*",
        "--suite kernels:FAILING",
        "--suite kernels:SUITE --suite gradcheck_cases:SUITE --op square --op tanh "
        "--impl kernels:SQUARE --seed 3",
        "--suite kernels:INVALID",
    ],
)
def test_every_repro_line_gives_its_own_result_again_and_no_other(judged, capsys, words):
    failed = [r for r in judged(*words.split()).results if r["expectation"] != "ok"]
    assert failed
    for result in failed:
        code, again = pasted(capsys, result["repro"])
        assert code == (5 if result["verdict"] == "invalid" else 1)
        assert result in again
        keys = {(r["name"], r["hash"], r["implementation"], r["seed"]) for r in again}
        assert keys == {(result["name"], result["hash"], result["implementation"], result["seed"])}


def test_the_terminal_shows_the_lines_whole(run, judged):
    words = ("--op", "relu", *TYPICAL, "--impl", "kernels:WRONG", "--seed", "12345678901")
    words += ("--no-contract", "--timeout", "123.25", "--convention", "PyTorch")
    (line,) = shown(run(*words).out)
    assert [line] == [r["repro"] for r in judged(*words).results]
    assert len(line) > 100  # wider than the terminal, and yet not wrapped


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_survives_its_repro_line(run, name):
    Path(f"{name}.py").write_text("from kernels import *\n")
    words = ("--op", "relu", *TYPICAL, f"--impl={name}:WRONG", f"--impl={name}:RAISES")
    found = run(*words)
    lines = shown(found.out)
    assert (found.code, len(lines)) == (1, 2)
    for line in lines:
        again = run(*shlex.split(line)[2:], "--format", "json", command="repro")
        assert again.code == 1
        assert told(again.out) == [line]


def test_a_shell_runs_a_repro_line_and_nothing_else(run, environment):
    name = HOSTILE[0]
    Path(f"{name}.py").write_text("from kernels import *\n")
    suite = ("--suite", "gradcheck_cases:SUITE", "--op", "relu", *TYPICAL)
    (line,) = shown(run(*suite, f"--impl={name}:WRONG").out)
    python = shlex.quote(sys.executable)
    script = f'gradcheck() {{ {python} -m gradcheck "$@"; }}\n{line} --format json\n'
    again = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (again.returncode, again.stderr) == (1, "")
    assert told(again.stdout) == [line]
    assert not Path("pwned").exists()
