import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest

KERNELS = r"""
import ctypes, os, sys, time
from gradcheck import Sample

class Crashes:
    def vjp(ct, x):
        print("about to \x1b[31mcrash\x00")
        ctypes.string_at(0)
class Hangs:
    def vjp(ct, x):
        open(f"pid.{os.getpid()}", "w").close()
        time.sleep(600)
class Exits:
    def vjp(ct, x): os._exit(3)
class Relu:
    def vjp(ct, x): return ct * (x > 0)
class Boom:
    def vjp(ct, x): raise RuntimeError("\x1b[31m\x00\ud800<b>]]>\nRESULT pass")

DEADLY = {"tanh": Crashes, "silu": Hangs, "neg": Exits, "relu": Relu, "sigmoid": Boom}
HANGS = {"silu": Hangs, "relu": Hangs}
def asks(): return {"relu": {"vjp": lambda ct, x: ct * (x > 0) * (1 + (os.getpid() == PARENT))}}
PARENT = int(os.environ.get("PARENT", "0"))
"""
WORDS = ("--gradcheck-suite", "gradcheck_cases:SUITE", "--gradcheck-sample", "typical",
         "--gradcheck-dtype", "float32", "--gradcheck-no-contract")  # fmt: skip
DEADLY = (*WORDS, "--gradcheck-impl", "kernels:DEADLY", "--gradcheck-timeout", "4")


def only(*ops):
    return [word for op in ops for word in ("--gradcheck-op", op)]


@pytest.mark.slow(rest=0)
def test_code_that_kills_its_process_is_a_failure_and_the_rest_goes_on(pytest_, folder):
    ops = only("tanh", "silu", "neg", "relu", "sigmoid")
    found = pytest_(*DEADLY, *ops, "--junitxml", "out.xml", "--tb=short")
    assert found.returncode == 1
    assert "4 failed, 1 passed" in found.stdout
    node = "FAILED gradcheck::kernels:DEADLY::"
    lines = [line for line in found.stdout.splitlines() if line.startswith(node)]
    said = dict(line.removeprefix(node).split(" - ", 1) for line in lines)
    assert said["tanh/default/typical/float32"].startswith("CRASH vjp: SIGSEGV in vjp")
    assert said["silu/default/typical/float32"].startswith("TIMEOUT vjp did not return within 4 s")
    assert said["neg/default/typical/float32"].startswith("CRASH vjp ended the process with exit")
    assert said["sigmoid/default/typical/float32"].startswith("ERROR vjp raised RuntimeError: ")
    assert "failed (CRASH 2, ERROR 1, TIMEOUT 1)" in found.stdout
    assert r"| about to \x1b[31mcrash\x00" in found.stdout
    assert "\x1b" not in found.stdout
    assert "\nRESULT pass" not in found.stdout
    assert "Traceback" not in found.stdout
    assert "Captured" not in found.stdout  # the failure has it already
    failures = [*ET.parse(folder / "out.xml").iter("failure")]
    assert len(failures) == 4
    assert any("SIGSEGV in vjp" in failure.get("message") for failure in failures)


@pytest.mark.slow
def test_in_pytests_own_process_for_a_debugger(pytest_):
    words = (*DEADLY, *only("tanh"), "--gradcheck-no-isolate")
    assert pytest_(*words, alone=True).returncode == -signal.SIGSEGV


@pytest.mark.slow
def test_a_timeout_that_is_none_is_a_usage_error(pytest_):
    for word in ("0", "nan"):
        found = pytest_(*DEADLY, *only("relu"), f"--gradcheck-timeout={word}")
        assert found.returncode == pytest.ExitCode.USAGE_ERROR
        assert f"--gradcheck-timeout {word}: write a positive number" in found.stderr


def _there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123  it may be gone
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait(until, seconds=300):
    deadline = time.monotonic() + seconds
    while not until() and time.monotonic() < deadline:
        time.sleep(0.05)
    return until()


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("several", [(), ("-p", "xdist", "-n", "2")], ids=["one", "two"])
def test_no_process_outlives_ctrl_c(pytest_, folder, several):
    if several:
        pytest.importorskip("xdist")
    words = (*WORDS, *only("silu", "relu"), "--gradcheck-impl", "kernels:HANGS")
    process = pytest_(*words, *several, begun=True)
    pids = lambda: [int(p.suffix[1:]) for p in folder.glob("pid.*")]  # noqa: E731
    assert _wait(lambda: len(pids()) == (2 if several else 1)), process.communicate()
    assert all(map(_there, pids()))
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert _wait(lambda: not any(map(_there, pids())))


@pytest.mark.slow
def test_the_report_is_that_of_gradcheck_run_byte_for_byte(pytest_, folder, environment):
    pytest.importorskip("xdist")
    words = [*WORDS, *only("relu", "sigmoid"), "--gradcheck-impl", "kernels:DEADLY"]
    reports = [w for form in ("md", "json") for w in ("--gradcheck-report", f"pytest.{form}")]
    found = pytest_(*words, *reports, "-p", "xdist", "-n", "2", "--dist", "worksteal")
    assert found.returncode == 1
    flags = [word.replace("--gradcheck-", "--") for word in words]
    command = [sys.executable, "-m", "gradcheck", "run", *flags, "-o", "run.md", "-o", "run.json"]
    environment.pop("PYTHONSAFEPATH")
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    for form in ("md", "json"):
        ours, theirs = (folder / f"{who}.{form}" for who in ("pytest", "run"))
        assert ours.read_bytes() == theirs.read_bytes()
        assert b"RuntimeError" in ours.read_bytes()


@pytest.mark.slow
def test_convention_contract_and_build_are_those_of_run(pytest_):
    words = (*WORDS, *only("relu"), "--gradcheck-impl", "reference")
    asked = pytest_(*words, "--gradcheck-contract", "--gradcheck-convention", "pytorch")
    assert re.search(r"\n1\d checks passed\n", asked.stdout)
    wrong = pytest_(*words, "--gradcheck-convention", "PyTroch")
    assert wrong.returncode == pytest.ExitCode.USAGE_ERROR
    assert "did you mean 'PyTorch'?" in wrong.stderr
