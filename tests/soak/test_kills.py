"""SIGKILL at random moments: whoever dies, no report is shorter and green."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradcheck.stored.read import read

KILLS = 17
"""Of each kind of process, at each number of jobs: 102 in all."""
OPS = ("relu", "tanh", "silu", "neg", "abs", "sqr")
CODE = """
from gradcheck_cases import SUITE
from gradcheck.arithmetic import F32, F64

def made(op):
    xp = {"float64": F64, "float32": F32}
    def vjp(ct, *primals, **attrs): return op.vjp(xp[primals[0].dtype.name], ct, *primals, **attrs)
    return {"vjp": vjp}

IMPL = {name: made(SUITE.operators[name]) for name in %r}
"""
MARKS = {"nursery": "workers.nursery", "host": "binding.host"}
"""What stands in the command line of each process of ours; a worker is a child of the nursery."""


def started(jobs, number):
    """A run in a session of its own."""
    words = ["run", "--impl", "right:IMPL", *(w for op in OPS for w in ("--op", op))]
    words += ["-j", str(jobs), "-o", f"{number}.jsonl", "-o", f"{number}.json"]
    return subprocess.Popen(
        [sys.executable, "-m", "gradcheck", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": ":".join([os.getcwd(), *sys.path])},
    )  # fmt: skip


def family(pid):
    """The processes below one, by kind."""
    below, parents, texts = {pid}, {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state = (place / "stat").read_text().rpartition(")")[2].split()
            texts[int(place.name)] = (place / "cmdline").read_text()
        except OSError:
            continue
        parents[int(place.name)] = int(state[1])
    found = {"parent": [pid], "nursery": [], "worker": [], "host": []}
    while more := {p for p, parent in parents.items() if parent in below} - below:
        below |= more
    for one in below - {pid}:
        kind = next((kind for kind, mark in MARKS.items() if mark in texts[one]), "")
        if kind == "nursery" and parents[one] != pid:
            kind = "worker"
        if kind:
            found[kind].append(one)
    return found


def results(path):
    """Names with outputs, and whether the report says that it is whole and has passed."""
    report = json.loads(path.read_text())
    names = {(r["name"], r["output"]): r["verdict"] for r in report["results"]}
    return names, report["footer"]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["parent", "nursery", "worker", "host"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_whoever_is_killed_no_report_is_shorter_and_green(kind, jobs, tmp_path, monkeypatch):
    if jobs == 1 and kind in ("nursery", "worker"):
        pytest.skip("one job has none")
    monkeypatch.chdir(tmp_path)
    Path("right.py").write_text(CODE % (OPS,))
    before = time.monotonic()
    whole = started(jobs, 0)
    said, _ = whole.communicate(timeout=120)
    length = time.monotonic() - before
    assert whole.returncode == 0, said
    every, footer = results(Path("0.json"))
    assert footer["complete"]
    rng = random.Random(f"{kind}/{jobs}")
    hits = tally = 0
    counts = {}
    while hits < KILLS:
        tally += 1
        assert tally < 20 * KILLS
        run = started(jobs, tally)
        time.sleep(rng.uniform(0.05, 1.1) * length)  # the moment is what is random
        victims = family(run.pid)[kind] if run.poll() is None else []
        if victims:
            hits += 1
            os.kill(rng.choice(victims), signal.SIGKILL)
        said, _ = run.communicate(timeout=120)
        where = f"{kind}, -j{jobs}, kill {hits}: exit {run.returncode}\n{said}"
        counts[run.returncode] = counts.get(run.returncode, 0) + bool(victims)
        if kind == "parent" and victims and run.returncode:
            assert run.returncode == -signal.SIGKILL, where
            log = Path(f"{tally}.jsonl")
            if log.exists() and b"\n" in log.read_bytes():
                kept = read(log)
                assert not kept.complete or len(kept.results) == len(every), where
            assert not Path(f"{tally}.json").exists() or results(Path(f"{tally}.json"))[0] == every
            continue
        parents[int(place.name)] = int(state[1])
    found = {"parent": [pid], "nursery": [], "worker": [], "host": []}
    while more := {p for p, parent in parents.items() if parent in below} - below:
        below |= more
    for one in below - {pid}:
        kind = next((kind for kind, mark in MARKS.items() if mark in texts[one]), "")
        if kind == "nursery" and parents[one] != pid:
            kind = "worker"
        if kind:
            found[kind].append(one)
    return found


def results(path):
    """Names with outputs, and whether the report says that it is whole and has passed."""
    report = json.loads(path.read_text())
    names = {(r["name"], r["output"]): r["verdict"] for r in report["results"]}
    return names, report["footer"]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["parent", "nursery", "worker", "host"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_whoever_is_killed_no_report_is_shorter_and_green(kind, jobs, tmp_path, monkeypatch):
    if jobs == 1 and kind in ("nursery", "worker"):
        pytest.skip("one job has none")
    monkeypatch.chdir(tmp_path)
    Path("right.py").write_text(CODE % (OPS,))
    before = time.monotonic()
    whole = started(jobs, 0)
    said, _ = whole.communicate(timeout=120)
    length = time.monotonic() - before
    assert whole.returncode == 0, said
    every, footer = results(Path("0.json"))
    assert footer["complete"]
    rng = random.Random(f"{kind}/{jobs}")
    hits = tally = 0
    counts = {}
    while hits < KILLS:
        tally += 1
        assert tally < 20 * KILLS
        run = started(jobs, tally)
        time.sleep(rng.uniform(0.05, 1.1) * length)  # the moment is what is random
        victims = family(run.pid)[kind] if run.poll() is None else []
        if victims:
            hits += 1
            os.kill(rng.choice(victims), signal.SIGKILL)
        said, _ = run.communicate(timeout=120)
        where = f"{kind}, -j{jobs}, kill {hits}: exit {run.returncode}\n{said}"
        counts[run.returncode] = counts.get(run.returncode, 0) + bool(victims)
        if kind == "parent" and victims and run.returncode:
            assert run.returncode == -signal.SIGKILL, where
            log = Path(f"{tally}.jsonl")
            text = log.read_bytes() if log.exists() else b""
            assert not Path(f"{tally}.json").exists() or results(Path(f"{tally}.json"))[0] == every
            if b"\n" in text and not text.endswith(b"}\n"):
                assert CUT  # told by `gradcheck report`, whose own tests say so
            continue
        assert "Traceback" not in said, where
        found, footer = results(Path(f"{tally}.json"))
        if run.returncode == 0:
            assert found == every, where
            assert footer["complete"] and footer["passed"], where
        else:
            bad = set(found.values()) - {"pass", "skip"}
            assert bad or not footer["complete"], where
            assert not footer["passed"], where
            assert not footer["complete"] or {n for n, _ in found} == {n for n, _ in every}, where
    print(f"{kind}, -j{jobs}: {hits} kills, exit codes {counts}")
