"""Start-up: `gradcheck run --op rms_norm` against importing what it depends on.

`python -m benchmarks.startup` runs the commands in turn (A, B, A, B, …), so that a drift of the
machine touches both, and prints medians and the median of the pairwise ratios as Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

RUN = [sys.executable, "-m", "gradcheck", "run", "--op", "rms_norm"]
HELP = [sys.executable, "-m", "gradcheck", "--help"]
IMPORTS = [sys.executable, "-c", "import numpy, mpmath, tabulate"]
BARE = [sys.executable, "-c", "pass"]
PAIRS = (
    ("`gradcheck run --op rms_norm`", RUN, "`import numpy, mpmath, tabulate`", IMPORTS, 2.0),
    ("`gradcheck --help`", HELP, "`python -c pass`", BARE, None),
)


def seconds(command: list[str]) -> float:
    """Wall-clock time of one process; bytecode is written, as on any ordinary machine."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - start


def main() -> None:
    """Measure every pair and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=15, help="pairs of runs; default 15")
    count = parser.parse_args().n
    print("| A | B | A, median ms | B, median ms | A / B | target |")
    print("|---|---|---:|---:|---:|---:|")
    for a_name, a, b_name, b, target in PAIRS:
        seconds(a), seconds(b)  # warm the disk cache, write the bytecode
        times = [(seconds(a), seconds(b)) for _ in range(count)]
        a_ms, b_ms = (1000 * statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(x / y for x, y in times)
        goal = "" if target is None else f"≤ {target:g}"
        print(f"| {a_name} | {b_name} | {a_ms:.0f} | {b_ms:.0f} | {ratio:.2f} | {goal} |")


if __name__ == "__main__":
    main()
