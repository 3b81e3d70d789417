import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gradcheck.cli.main import main

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


@pytest.mark.slow(keep=1, rest=1)
@pytest.mark.parametrize(
    "words",
    [
        "--suite kernels:FAILING",
        "--op relu --op tanh --sample t* --impl kernels:WRONG",
        "--op relu --op tanh --sample typical --impl kernels:RAISES --impl reference "
        "--impl kernels:WRONG",
        "--op relu --sample t* --impl kernels:WRONG --seed 7 --dtype float32",
        "--op relu --impl kernels:WRONG --seed -7 --dtype float64 --sample *i*",
        "--op re*u --impl kernels:WRONG --sample *e*",
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


@pytest.mark.slow(keep=1)
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


@pytest.mark.slow
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


# ── the command ──────────────────────────────────────────────────────────────────────────────

CASE = "relu/default/typical/float64"


@pytest.fixture
def repro(run):
    """`gradcheck repro CASE …`."""
    return lambda *words, **how: run(*words, command="repro", **how)


def test_a_case_that_passes_exits_with_0_and_has_nothing_to_explain(repro):
    found = repro(CASE, "--impl", "kernels:RIGHT")
    assert (found.code, found.err) == (0, "")
    assert "\nPASS dx: " in found.out
    assert "smallest input" not in found.out
    assert found.out.splitlines()[-1].startswith("RESULT pass checked=1 pass=1 ")


def test_a_case_that_fails_is_shown_whole(repro, judged):
    found = repro(f"{CASE}:dx", "--impl", "kernels:WRONG")
    assert found.code == 1
    (result,) = judged("--op", "relu", *TYPICAL, "--impl", "kernels:WRONG", "--no-contract").results
    lines = found.out.splitlines()
    assert f"{CASE}#{result['hash']}" in lines
    assert any(line.startswith("FAIL dx: sign: ") for line in lines)
    assert any(line.startswith("  evidence: ") for line in lines)
    assert sum(line.startswith("  dx[") for line in lines) == min(20, result["failed"])
    assert f"  … and {result['failed'] - 20} more" in lines
    for miss in result["worst"]:
        assert any(line.startswith(f"  dx{miss['index']}") for line in lines)
    at = lines.index("  smallest input that shows it: 1 element")
    assert [line.split(" = ")[0].split("[")[0].strip() for line in lines[at + 1 : at + 5]] == [
        "x", "cotangent", "got", "want",
    ]  # fmt: skip
    assert "\nRESULT fail checked=1 " in found.out


def test_the_smallest_input_can_be_left_out(repro):
    found = repro(CASE, "--impl", "kernels:WRONG", "--no-shrink")
    assert found.code == 1
    assert "smallest" not in found.out


def test_only_the_gradient_that_is_meant_is_shown(repro):
    words = ("mul/same-shape/typical/float32", "--format", "json")
    every = told(repro(*words).out)
    (one,) = told(repro(words[0] + ":y", *words[1:]).out)
    assert len(every) == 3
    assert one == "gradcheck repro mul/same-shape/typical/float32:y"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (f"{CASE} --impl kernels:EMPTY", 4),
        ("many/default/only/float64 --suite kernels:INVALID", 5),
        ("square/default/only/float64 --suite kernels:FAILING", 1),
    ],
)
def test_exit_codes_are_those_of_run(repro, words, code):
    assert repro(*words.split()).code == code


def test_a_report_goes_to_a_file_as_well(repro, folder):
    found = repro(CASE, "--impl", "kernels:WRONG", "-o", "report.md", "--format", "markdown")
    assert found.code == 1
    assert (folder / "report.md").read_text() == found.out
    assert "gradcheck repro relu/default/typical/float64:x" in found.out


def test_what_code_prints_and_raises_is_quoted(repro):
    found = repro(CASE, "--impl", "kernels:RAISES", "--impl", "kernels:PRINTS")
    assert found.code == 1
    assert "\x1b" not in found.out + found.err
    assert "kernels:RAISES · vjp: vjp raised ValueError: \\x1b[31mred line" in found.out
    assert "printed by vjp" in found.err
    assert "PASS kernels:PRINTS · dx" in found.out


def test_a_case_at_fault_is_not_exported(repro):
    words = ("many/default/only/float64", "--suite", "kernels:INVALID", "--impl", "kernels:SQUARE")
    found = repro(*words, "--export", "repro.py")
    assert found.code == 5
    assert not Path("repro.py").exists()
    assert "INVALID vjp: " in found.out
    assert "the case is at fault, not the code: many/default/only: the sample draws" in found.err


DEADLY = "import os\ndef dies(ct, x): os.abort()\nCRASHES = {'relu': {'vjp': dies}}\n"


@pytest.mark.slow
def test_code_that_kills_its_process_is_a_verdict_and_a_script(repro, folder):
    Path("deadly.py").write_text(DEADLY)
    words = (CASE, "--suite", "gradcheck_cases:SUITE", "--impl", "deadly:CRASHES")
    found = repro(*words, "--export", "repro.py", isolate=True)
    assert found.code == 1
    assert "CRASH vjp: " in found.out
    script = [sys.executable, "-B", "repro.py"]
    assert subprocess.run(script, capture_output=True, check=False).returncode == -6


def test_an_export_that_fails_late_loses_no_result(repro, folder, monkeypatch):
    def full(self, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gradcheck.system.atomic_io.os.fsync", full)
    found = repro(CASE, "--impl", "kernels:WRONG", "--export", "repro.py")
    assert found.code == 2
    assert "--export repro.py: No space left on device; the results are on stdout" in found.err
    assert "FAIL dx: " in found.out
