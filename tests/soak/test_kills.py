"""SIGKILL at random moments: whoever dies, no report is shorter and green.

The soak writes what it saw to reports/kills.md.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tabulate import tabulate

from gradcheck.cli.exit_codes import LOAD
from gradcheck.results.stored.read import read

REPORT = Path(__file__).parents[2] / "reports" / "kills.md"
HEAD = """# SIGKILL at random moments

{total} runs of right code, of which one process was killed at a random moment: the command itself
(parent), the process that workers come from (nursery), a worker, or the process that the code
judged runs in (host). No report was shorter and green. Made by `tox -e soak`."""
WAYS = [("parent", 1), ("host", 1), ("parent", 2), ("nursery", 2), ("worker", 2), ("host", 2)]
"""Kinds of processes and numbers of jobs; one job has neither nursery nor worker."""
KILLS = 17
"""Of each."""
LIMIT = 300.0
"""Seconds that a run may take."""
OPS = ("relu", "tanh", "silu", "neg", "abs", "sqr")
CODE = """
from gradcheck_cases import SUITE
from gradcheck.numerics.arithmetic import F32, F64

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
    path = ":".join([str(Path.cwd()), *sys.path])
    words += ["-j", str(jobs), "-o", f"{number}.jsonl", "-o", f"{number}.json"]
    return subprocess.Popen(
        [sys.executable, "-m", "gradcheck", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": path},
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


def judged(run, path, every, where):
    """How a run ended of which a process was killed; nothing of it is shorter and green."""
    said, _ = run.communicate(timeout=LIMIT)
    where = f"{where}: exit {run.returncode}\n{said}"
    assert "Traceback" not in said, where
    if run.returncode == -signal.SIGKILL:
        log = path.with_suffix(".jsonl")
        if log.exists() and b"\n" in log.read_bytes():
            kept = read(log)
            assert not kept.complete or len(kept.results) == len(every), where
        assert not path.exists() or results(path)[0] == every
        return "killed: the log is a part, and says so"
    if not path.exists():
        assert run.returncode == LOAD, where
        assert "--impl right:IMPL: " in said, where
        return f"exit {run.returncode}: what is judged could not be loaded"
    found, footer = results(path)
    whole = {name for name, _ in found} == {name for name, _ in every}
    if run.returncode == 0:
        assert found == every, where
        assert footer["complete"], where
        assert footer["passed"], where
        return "exit 0: every result, as of a run in peace"
    assert not footer["passed"], where
    if not footer["complete"]:
        return f"exit {run.returncode}: marked partial"
    assert whole, where
    assert set(found.values()) - {"pass", "skip"}, where
    return f"exit {run.returncode}: every case, with what became of it"


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "jobs"), WAYS)
def test_whoever_is_killed_no_report_is_shorter_and_green(
    kind, jobs, tmp_path, monkeypatch, gather
):
    monkeypatch.chdir(tmp_path)
    Path("right.py").write_text(CODE % (OPS,))
    before = time.monotonic()
    whole = started(jobs, 0)
    said, _ = whole.communicate(timeout=LIMIT)
    length = time.monotonic() - before
    assert whole.returncode == 0, said
    every, footer = results(Path("0.json"))
    assert footer["complete"]
    rng = random.Random(f"{kind}/{jobs}")
    ends, tally = Counter(), 0
    while ends.total() < KILLS:
        tally += 1
        assert tally < 20 * KILLS
        run = started(jobs, tally)
        time.sleep(rng.uniform(0.05, 1.0) * length)  # the moment is what is random
        victims = family(run.pid)[kind] if run.poll() is None else []
        if not victims:
            run.communicate(timeout=LIMIT)
            continue
        with suppress(ProcessLookupError):
            os.kill(rng.choice(victims), signal.SIGKILL)
        ends[judged(run, Path(f"{tally}.json"), every, f"{kind}, -j{jobs}")] += 1
    parts = [f"{kind}-{jobs}" for kind, jobs in WAYS]
    chunks = gather("kills", f"{kind}-{jobs}", parts, {"way": [kind, jobs], "ends": ends})
    if chunks is not None:
        report(chunks)


def report(chunks):
    """Write what was seen."""
    rows = [(kind, jobs, said, count) for chunk in chunks for kind, jobs in [chunk["way"]]
            for said, count in sorted(chunk["ends"].items())]  # fmt: skip
    table = tabulate(rows, ("killed", "jobs", "how the run ended", "kills"), "github")
    total = sum(row[-1] for row in rows)
    REPORT.write_text(f"{HEAD.format(total=total)}\n\n{table}\n")
