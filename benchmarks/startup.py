"""Start-up: commands as they are installed, beside what any of them has to start.

`python -m benchmarks.startup` runs both commands of a row by turns (A, B, A, B, …), so that a drift
of the machine touches both, and prints medians, and the median of the pairwise ratios, as Markdown:
by the clock, and of the processors' time, which others on the machine touch less.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.machine import described
from benchmarks.table import PAIRED, Row, paired, table
from benchmarks.targets import COLD, HELP, TARGETS

SCRIPT = Path(sys.executable).with_name("gradcheck")
GRADCHECK = (str(SCRIPT),) if SCRIPT.exists() else (sys.executable, "-m", "gradcheck")
"""The console script of this environment, as users start it; without one, the module."""
PYTHON = (sys.executable, "-c")
FULL, QUICK = 30, 7
"""Pairs of runs."""
DROPPED = ("PYTHONDONTWRITEBYTECODE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""What a benchmark's environment may say and an ordinary one does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two commands; `what` is how the table of targets calls their ratio (empty: it has none)."""

    names: tuple[str, str]
    a: Sequence[str]
    b: Sequence[str]
    what: str = ""


IMPORTS = "import numpy, mpmath, tabulate"
PAIRS = (
    Pair(
        what=HELP,
        names=("`gradcheck --help`", "`python -c pass`"),
        a=(*GRADCHECK, "--help"),
        b=(*PYTHON, "pass"),
    ),
    Pair(
        what=COLD,
        names=("`gradcheck run --op rms_norm`", f"`{IMPORTS}`"),
        a=(*GRADCHECK, "run", "--op", "rms_norm"),
        b=(*PYTHON, IMPORTS),
    ),
    Pair(
        names=("`gradcheck list`", "`import numpy`"),
        a=(*GRADCHECK, "list"),
        b=(*PYTHON, "import numpy"),
    ),
)


def seconds(command: Sequence[str]) -> tuple[float, float]:
    """Of one process: by the clock, and on processors; bytecode is written, as on any machine."""
    environment = {k: v for k, v in os.environ.items() if k not in DROPPED}
    before, start = _spent(), perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return perf_counter() - start, _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(
    pair: Pair, count: int, ask: Callable[[Sequence[str]], tuple[float, float]] = seconds
) -> tuple[Row, Row]:
    """A row by the clock and one of processor time, of `count` pairs of runs."""
    ask(pair.a), ask(pair.b)  # warm the disk cache, write the bytecode
    runs = [(ask(pair.a), ask(pair.b)) for _ in range(count)]
    clock, spent = ([(a[k], b[k]) for a, b in runs] for k in (0, 1))
    a, b = pair.names
    return paired(pair.what, (a, b), clock), paired("", (a, f"{b}, processor time"), spent)


def rows(quick: bool) -> list[Row]:
    """What the table of targets asks about whole commands."""
    asked = [pair for pair in PAIRS if pair.what]
    return [measured(pair, QUICK if quick else FULL)[0] for pair in asked]


def main() -> None:
    """Measure every pair and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=FULL, help=f"pairs of runs; default {FULL}")
    count = parser.parse_args().n
    goals = {target.what: target.goal for target in TARGETS}
    found = [row for pair in PAIRS for row in measured(pair, count)]
    print(f"{described()}:\n")
    print(table(PAIRED, [row.cells(goals.get(row.what, "")) for row in found]))


if __name__ == "__main__":
    main()
