"""Implementations in a process of their own: the same report, and a run that goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

DEADLY = r"""
import os, time
from kernels import relu, tanh
def dies(ct, x): os.abort()
def loops(ct, x):
    with open("pid.part", "w") as file: file.write(str(os.getpid()))
    os.rename("pid.part", "pid")
    time.sleep(1000)
CRASHES = {"relu": {"vjp": dies}, "tanh": {"vjp": tanh}}
LOOPS = {"relu": {"vjp": loops}, "tanh": {"vjp": tanh}}
"""


@pytest.fixture
def isolated(run):
    """`isolated(*words)`: what `gradcheck run` says without `--no-isolate`, as JSON."""

    def call(*words):
        found = run(*words, "--format", "json", isolate=True)
        return SimpleNamespace(**vars(found), **json.loads(found.out))

    return call


@pytest.fixture(autouse=True)
def deadly():
    Path("deadly.py").write_text(DEADLY)


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(
    "words",
    [
        "--op relu --op tanh --impl kernels:RIGHT",
        "--op relu --op tanh --impl kernels:WRONG --impl reference",
        "--op relu --sample typical --impl kernels:PRINTS",
        "--op relu --sample typical --impl kernels:RAISES --dtype all",
        "--op relu --impl kernels:EMPTY",
        "--suite kernels:FAILING --impl kernels:SQUARE",
        "--op relu --impl reference --impl raising:X",
    ],
)
def test_the_results_are_those_of_one_process(judged, isolated, words):
    def told(found):
        results = [{k: v for k, v in r.items() if k != "printed"} for r in found.results]
        return found.code, results, found.footer

    assert told(isolated(*words.split())) == told(judged(*words.split()))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("words", ["--impl raising:X", "--impl kernels:NUMBER", "--impl torhc"])
def test_what_cannot_be_loaded_is_said_in_the_same_words(run, words):
    here, there = (run("--op", "relu", *words.split(), isolate=i) for i in (False, True))
    assert (there.code, there.out, there.err) == (here.code, here.out, here.err)
    assert there.code in (2, 3)


def test_a_crash_is_a_verdict_and_the_rest_is_judged(isolated):
    words = ("--op", "relu", "--op", "tanh", "--sample", "typical", "--dtype", "float64")
    found = isolated(*words, "--impl", "deadly:CRASHES")
    assert found.code == 1
    relu, *others = found.results
    assert (relu["op"], relu["verdict"]) == ("relu", "crash")
    assert relu["reason"] == "SIGABRT in vjp"
    assert ("tanh", "x", "pass") in {(r["op"], r["output"], r["verdict"]) for r in others}
    assert {r["op"] for r in others} == {"tanh"}
    assert found.footer["complete"] is True


@pytest.mark.slow
def test_a_loop_is_cut_off_and_the_repro_says_when(isolated):
    words = ("--op", "relu", "--sample", "typical", "--dtype", "float64", "--timeout", "0.3")
    found = isolated(*words, "--impl", "deadly:LOOPS")
    (result,) = found.results
    assert (found.code, result["verdict"]) == (1, "timeout")
    assert result["reason"] == "vjp did not return within 0.3 s"
    assert "--timeout 0.3" in result["repro"]


@pytest.mark.slow(rest=0)
def test_several_jobs_have_a_process_each(process):
    words = ("--op", "relu", "--sample", "typical", "-j", "2", "--format", "json")
    found = process("run", *words, "--impl", "deadly:CRASHES")
    assert found.returncode == 1
    assert {r["verdict"] for r in json.loads(found.stdout)["results"]} == {"crash"}


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(
    ("sent", "code", "jobs"),
    [(signal.SIGINT, 130, "1"), (signal.SIGTERM, 130, "2"), (signal.SIGKILL, -9, "1"),
     (signal.SIGKILL, -9, "2")],
)  # fmt: skip
def test_the_process_does_not_outlive_the_run(environment, sent, code, jobs):
    command = [sys.executable, "-m", "gradcheck", "run", "--suite", "gradcheck_cases:SUITE"]
    command += ["--op", "relu", "--sample", "typical", "--impl", "deadly:LOOPS", "-j", jobs]
    command += ["--timeout", "1000"]
    here = {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}{os.pathsep}{Path.cwd()}"}
    with subprocess.Popen(command, env=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        while not Path("pid").exists():
            assert one.poll() is None
            time.sleep(0.02)
        one.send_signal(sent)
        out, _ = one.communicate()
    assert one.returncode == code
    assert (b"incomplete: interrupted" in out) == (code == 130)
    pid = Path("pid").read_text()
    for _ in range(30_000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    pytest.fail("it lives on")
