"""Code that ends at its k-th call, for every k: no result is lost, and none turns green."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.isolated import Isolated, Isolation
from gradcheck.implementations.manifest.read import read
from gradcheck.implementations.native.library import Native
from gradcheck.implementations.protocol.program import Process
from gradcheck.results.verdict import Verdict
from gradcheck.run.judge_case import judge_next, why_of
from gradcheck.run.limits import CALL
from gradcheck.run.plan import Plan

EXAMPLE = Path(__file__).parents[1] / "examples" / "protocol" / "python" / "grads.py"
(CASE,) = SUITE.cases(["tanh"], samples=["typical"])
TOLD = {
    "raise": ("ended here",),
    "exit": ("status 3",),
    "kill": ("SIGKILL",),
    "hang": ("did not return", "no answer"),
    "fault": ("SIGSEGV",),
}
"""What a report says of each way to end."""
FEW = {"raise": 5, "exit": 3, "kill": 2, "fault": 3, "hang": 1}
"""Calls at which code ends in the ordinary run; the soak takes all, but for hangs."""
SECONDS = 3.0

TICK = """
import os, signal
COUNT = os.open("{place}/count", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def tick():
    os.write(COUNT, b".")
    with open("{place}/at") as file:
        at, how = file.read().split()
    if os.fstat(COUNT).st_size == int(at):
        if how == "raise":
            raise ValueError("ended here")
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL) if how == "kill" else signal.pause()
"""
PYTHON = (
    TICK
    + """
import numpy as np

class Tanh:
    @staticmethod
    def forward(x):
        tick()
        return np.tanh(x)

    @staticmethod
    def vjp(ct, x):
        tick()
        return ct * (1 - np.tanh(x) ** 2) * x.dtype.type({factor})

IMPL = {{"tanh": Tanh}}
"""
)
PROGRAM = (
    TICK
    + """
import math, sys
import grads

def forward(arrays, attrs):
    tick()
    x = arrays["input", "x"]
    return {{"0": x.like(map(math.tanh, x.values))}}

def vjp(arrays, attrs):
    tick()
    x, ct = arrays["input", "x"], arrays["cotangent", "0"]
    pairs = zip(ct.values, x.values)
    return {{"x": x.like([c * (1 - math.tanh(v) ** 2) * {factor} for c, v in pairs])}}

asks = {{"vjp": vjp, "forward": forward}}
grads.OPERATORS = {{"tanh": {{"asks": asks, "dtypes": ["float64"], "attrs": []}}}}
sys.exit(grads.serve())
"""
)
LIBRARY = r"""
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void tick(void) {
    int count = open("{place}/count", O_WRONLY | O_CREAT | O_APPEND, 0600);
    struct stat now;
    long at = 0;
    char how[16] = "";
    if (write(count, ".", 1) != 1) _exit(9);
    fstat(count, &now);
    close(count);
    FILE *said = fopen("{place}/at", "r");
    if (fscanf(said, "%ld %15s", &at, how) != 2) _exit(9);
    fclose(said);
    if (now.st_size != at) return;
    if (!strcmp(how, "fault")) *(volatile int *)16 = 1;
    if (!strcmp(how, "exit")) _exit(3);
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    pause();
}

void forward(double *y, const double *x, long n) {
    tick();
    for (long i = 0; i < n; i++) y[i] = tanh(x[i]);
}

void backward(double *dx, const double *ct, const double *x, long n) {
    tick();
    for (long i = 0; i < n; i++) dx[i] = ct[i] * (1 - tanh(x[i]) * tanh(x[i])) * {factor};
}
"""
C_MANIFEST = """
schema = 1
[impl]
name = "ends"
[c]
library = "libends.so"
timeout = {seconds}
[[op]]
name = "tanh"
vjp = "void backward(double *dx, const double *ct, const double *x, long n)"
forward = "void forward(double *y, const double *x, long n)"
bind = {{ dx = "grad:x", ct = "cotangent", x = "in:x", n = "size(x)" }}
forward_bind = {{ y = "out", x = "in:x", n = "size(x)" }}
"""
PROGRAM_MANIFEST = """
schema = 1
[impl]
name = "ends"
[subprocess]
cmd = ["{python}", "ends.py"]
level = "frames"
timeout = {seconds}
"""


class Ending:
    """An implementation that can be told to end at its k-th call, and what is made of it."""

    def __init__(self, place, implementation):
        self.place, self.implementation = place, implementation
        self.plan = Plan(
            suite=SUITE,
            cases=[CASE],
            implementations=[implementation.name],
            dtypes=["float64"],
            seed=0,
            contract_at=frozenset([CASE.name]),
        )

    def judged(self, at=0, how="raise"):
        """The records by output, and how often the code was called."""
        (self.place / "at").write_text(f"{at} {how}")
        (self.place / "count").write_bytes(b"")
        why = why_of(self.plan)
        found = judge_next(self.plan, CASE, [self.implementation], why, lambda *_: "")
        records = {record.finding.name: record for record in found}
        return records, (self.place / "count").stat().st_size


def python(place, factor, monkeypatch):
    (place / "ends_at_call.py").write_text(PYTHON.format(place=place, factor=factor))
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "ends_at_call", raising=False)
    isolation = Isolation(suites=["gradcheck_cases:SUITE"], timeout=SECONDS)
    return Isolated("ends_at_call:IMPL", isolation)


def program(place, factor, monkeypatch):
    shutil.copy(EXAMPLE, place)
    (place / "ends.py").write_text(PROGRAM.format(place=place, factor=factor))
    text = PROGRAM_MANIFEST.format(python=sys.executable, seconds=SECONDS)
    return Process("ends", loaded(place, text))


def c(place, factor, monkeypatch):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source = LIBRARY.replace("{place}", str(place)).replace("{factor}", str(factor))
    (place / "ends.c").write_text(source)
    words = ["gcc", "-O1", "-fPIC", "-shared", "-o", "libends.so", "ends.c", "-lm"]
    subprocess.run(words, check=True, cwd=place, timeout=60)
    return Native(loaded(place, C_MANIFEST.format(seconds=SECONDS)), "ends")


def loaded(place, text):
    (place / "gradcheck.toml").write_text(text)
    return read(place / "gradcheck.toml", SUITE)


def check(ending, how, few):
    """What is told of an end at `few` calls (0: at each), against a run that does not end."""
    whole, calls = ending.judged()
    wrong = whole["x"].finding.verdict is Verdict.FAIL
    assert calls > 60
    for k in range(1, calls + 1) if not few else np.linspace(1, calls, few, dtype=int):
        found, _ = ending.judged(k, how)
        where = f"call {k} of {calls}: {found}"
        bad = [record for record in found.values() if not record.finding.verdict.expected]
        lost = whole.keys() - found.keys()
        assert not lost or (
            lost <= {"x", "forward"} and {CALL, "forward"} & {r.finding.name for r in bad}
        )
        reasons = [f"{record.finding.reason} {record.finding.diagnosis}" for record in bad]
        assert any(word in reason for reason in reasons for word in TOLD[how]), where
        assert Verdict.INVALID not in {record.finding.verdict for record in bad}, where
        assert not wrong or "x" in lost or found["x"].finding.verdict is Verdict.FAIL, where


WAYS = [
    (python, ("raise", "exit", "kill", "hang")),
    (program, ("raise", "exit", "kill", "hang")),
    (c, ("fault", "exit", "kill", "hang")),
]


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("factor", [1, 1.01])
@pytest.mark.parametrize(("made", "hows"), WAYS)
def test_an_end_at_any_call_is_told_and_no_result_is_lost(
    made, hows, factor, every, tmp_path, monkeypatch
):
    implementation = made(tmp_path, factor, monkeypatch)
    ending = Ending(tmp_path, implementation)
    try:
        for how in hows:
            few = 0 if every and how != "hang" else FEW[how]
            if every or factor == 1 or how in ("raise", "fault", "kill"):
                check(ending, how, few)
    finally:
        implementation.close()
