"""Runs on two processes against one: wall-clock time, processor time, and the same bytes.

`python -m benchmarks.parallel` runs them in turn (A, B, A, B, …), so that a drift of the machine
touches both, and prints Markdown. The ratio of wall-clock times needs two cores with nothing else
to do; that of processor times needs less, and bounds it: a run on two is at best 2 / it as fast.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.table import PAIRED, Row, line, paired, table
from benchmarks.targets import PARALLEL

WORKLOADS = (
    (PARALLEL, "`gradcheck run`", ()),
    ("all models, parallel", "`gradcheck run --model '*'`", ("--model", "*")),
    ("one operator, parallel", "`gradcheck run --op rms_norm`", ("--op", "rms_norm")),
)
"""What a target calls it, the command, and its words."""
TARGET = 1.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """One run: seconds of the clock and of all its processes, and what it printed."""

    wall: float
    busy: float
    said: bytes


def took(*words: str) -> Took:
    """Run `gradcheck run`; bytecode is written, as on any ordinary machine.

    Raises:
        CalledProcessError: it did not pass.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "gradcheck", "run", *words]
    before, start = _spent(), time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return Took(wall=time.perf_counter() - start, busy=_spent() - before, said=done.stdout)


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(words: tuple[str, ...], count: int) -> tuple[list[tuple[Took, Took]], bool]:
    """So many pairs of runs on one process and on two; and whether both printed the same."""
    took(*words), took(*words, "-j", "2")  # warm the disk cache, write the bytecode
    pairs = [(took(*words), took(*words, "-j", "2")) for _ in range(count)]
    return pairs, len({run.said for pair in pairs for run in pair}) == 1


def rows(quick: bool) -> list[Row]:
    """Rows for the table of targets: wall-clock time on one process, on two, and their ratio."""
    found = []
    for what, name, words in WORKLOADS[: 1 if quick else None]:
        pairs, same = measured(words, 1 if quick else 3)
        if not same:
            raise RuntimeError(f"{name}: -j 1 and -j 2 print different reports")
        times = [(one.wall, two.wall) for one, two in pairs]
        found.append(paired(what, (f"{name} -j 1", f"{name} -j 2"), times))
    return found


def main() -> None:
    """Measure every workload, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parallel", description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="pairs of runs; default 5")
    count = parser.parse_args().n
    names = [*PAIRED[:-1], "<target", "processor time, B / A", "<same report"]
    print(table(names, ()))
    for at, (what, name, words) in enumerate(WORKLOADS):
        pairs, same = measured(words, count)
        times = [(one.wall, two.wall) for one, two in pairs]
        row = paired(what, (f"{name} -j 1", f"{name} -j 2"), times)
        extra = statistics.median(two.busy / one.busy for one, two in pairs)
        goal = "" if at else f"≥ {TARGET}"
        print(line([*row.cells(goal), f"{extra:.2f}", "yes" if same else "NO"]), flush=True)


if __name__ == "__main__":
    main()
