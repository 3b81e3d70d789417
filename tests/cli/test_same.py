"""Same seed, same machine: the same bytes of every report. Another BLAS: the same verdicts."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from gradcheck.report import FORMATS

CASES = ("--op", "relu", "--op", "rms_norm", "--op", "softmax", "--sample", "t*", "--taylor",
         "--rule", "sgd*", "--suite", "gradcheck_cases:SUITE",
         "--impl", "kernels:WRONG", "--impl", "reference")  # fmt: skip


@pytest.fixture
def elsewhere(environment, tmp_path):
    """A run in another process, in a folder of its own; `changes` to its environment."""

    def call(folder, *words, **changes):
        place = tmp_path / folder
        place.mkdir()
        path = os.pathsep.join([environment["PYTHONPATH"], str(tmp_path)])
        env = {**environment, "PYTHONPATH": path, **changes}
        command = [sys.executable, "-m", "gradcheck", "run", *words]
        return subprocess.run(command, cwd=place, env=env, capture_output=True, check=False)

    return call


@pytest.mark.slow(rest=0)
def test_the_same_run_has_the_same_bytes_in_every_format(elsewhere, tmp_path):
    targets = [word for form in FORMATS for word in ("-o", f"out.{form}:{form}")]
    one = elsewhere("one", *CASES, *targets, PYTHONHASHSEED="1", TZ="UTC", LANG="C.UTF-8")
    two = elsewhere(
        "two", *CASES, *targets, "-j", "2", PYTHONHASHSEED="2", TZ="Asia/Tokyo", LANG="C",
        LC_ALL="POSIX", COLUMNS="60", PYTHONUTF8="1", SOURCE_DATE_EPOCH="1",
    )  # fmt: skip
    assert (one.returncode, two.returncode) == (1, 1)
    assert one.stdout == two.stdout
    for form in FORMATS:
        first, second = (tmp_path / place / f"out.{form}" for place in ("one", "two"))
        assert first.read_bytes() == second.read_bytes(), form
    assert b"\nRESULT fail " in (tmp_path / "one" / "out.terminal").read_bytes()
    evidence = (tmp_path / "two" / "out.json").read_text()  # it came back from other processes
    assert all(words in evidence for words in ('"intercept"', '"cells": "', '"bars": ['))


def verdicts(found):
    results = json.loads(found.stdout)["results"]
    kept = ("verdict", "compared", "failed", "unresolved")
    key = ("implementation", "name", "part", "output")
    return {tuple(r[k] for k in key): tuple(r[k] for k in kept) for r in results}, results


@pytest.mark.slow
def test_another_blas_gives_the_same_verdicts(elsewhere):
    """The oldest kernels there are against those of this machine, on one thread and on two."""
    words = ("--op", "attention", "--op", "matmul", "--sample", "typical", "--no-contract",
             "--suite", "gradcheck_cases:SUITE", "--format", "json")  # fmt: skip
    usual = elsewhere("usual", *words, OPENBLAS_NUM_THREADS="1")
    older = elsewhere("older", *words, OPENBLAS_NUM_THREADS="2", OPENBLAS_CORETYPE="Prescott")
    assert usual.returncode == older.returncode == 0
    (ours, results), (theirs, others) = verdicts(usual), verdicts(older)
    assert ours == theirs
    assert len(ours) > 10
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    if "openblas" in blas and os.uname().machine == "x86_64":  # they did round otherwise
        assert [r["error"] for r in results] != [r["error"] for r in others]
