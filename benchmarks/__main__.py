"""`python -m benchmarks`: gradcheck and its peers side by side, and what is missed of the targets.

Prints Markdown; takes about ten minutes on two quiet cores. `--quick` takes less than three, leaves
out what no target needs, and exits 1 if a target is missed by more than 30%.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.comparison import text
from benchmarks.measure import FULL, QUICK, Effort, Meeting
from benchmarks.peers import PEERS
from benchmarks.table import Row
from benchmarks.targets import Outcome, figures, outcomes
from benchmarks.workloads import WORKLOADS

BESIDE = ("benchmarks.startup", "benchmarks.parallel")
"""Modules that offer `rows(quick)`: what is measured of whole commands."""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 1 where `--quick` finds a target missed by more than its margin."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything; exit 1 on a miss")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it there too")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="only these")
    parser.add_argument("--peer", action="append", choices=list(PEERS), help="only these")
    given = parser.parse_args(words)
    if given.output and not given.output.parent.is_dir():
        parser.error(f"-o {given.output}: there is no folder {given.output.parent}")
    effort = narrowed(QUICK if given.quick else FULL, given.workload, given.peer)
    begin = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - begin:5.0f} s  {what}", file=sys.stderr, flush=True)

    measured = Meeting(effort, tell).measure()
    rows = [] if given.workload or given.peer else [*beside(given.quick, tell)]
    found = outcomes(figures(measured, rows))
    said = text(measured, found)
    print(said, end="")
    if given.output:
        given.output.write_text(said, encoding="utf-8")
    tell("done")
    return verdict(found) if given.quick else 0


def narrowed(
    effort: Effort, workloads: Sequence[str] | None, peers: Sequence[str] | None
) -> Effort:
    """Only what is named, in the order of the tables."""
    if workloads:
        kept = tuple(w for w in effort.workloads if w in workloads)
        effort = replace(effort, workloads=kept)
    if peers:
        effort = replace(effort, peers=tuple(k for k in PEERS if k in peers))
    return effort


def beside(quick: bool, tell: Callable[[str], None]) -> list[Row]:
    """Rows of the modules that measure whole commands; one that is not there is not measured."""
    found: list[Row] = []
    for name in BESIDE:
        rows = getattr(import_module(name), "rows", None) if find_spec(name) else None
        if rows is not None:
            tell(name)
            found += rows(quick)
    return found


def verdict(found: Sequence[Outcome]) -> int:
    """1 if a target is missed by more than the margin; each such row is named."""
    missed = [o for o in found if not o.tolerable]
    for outcome in missed:
        assert outcome.figure is not None
        value = f"{outcome.figure.value:.3g}"
        goal = outcome.target.goal
        print(f"missed: {outcome.target.name}: {value}, target {goal}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
