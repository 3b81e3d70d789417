"""What was measured, in Markdown: the targets, the times, the hard inputs, what to know of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.machine import busy, described
from benchmarks.measure import Cell, Measured
from benchmarks.peers import PEERS, Peer
from benchmarks.planted import visible
from benchmarks.table import number, table
from benchmarks.targets import Outcome
from benchmarks.workloads import HARD, WORKLOADS

TIMES = ("<workload", "<tool", "check, ms", "slowest", "by the clock", "checks", "first, ms",
         "import and first, ms", "/ torch fast", "/ torch slow", "10% off: found",
         "1% off: found", "false alarms", "<remark")  # fmt: skip


def text(measured: Measured, outcomes: Sequence[Outcome]) -> str:
    """All tables."""
    versions = dict(sorted(measured.versions.items()))
    parts = [f"{described(versions)}; load {busy():.1f} at the end."]
    if measured.absent:
        lacking = (f"{name} (no {', '.join(p)})" for name, p in measured.absent.items())
        parts.append(f"Absent: {'; '.join(lacking)}.")
    parts += ["### Targets", against(outcomes), "### Times and verdicts", times(measured)]
    if measured.effort.fresh:
        parts += ["### Hard inputs: right gradients that are rejected", hard(measured)]
    parts += ["### How each tool accepts", accepted(measured), elements()]
    return "\n\n".join(parts) + "\n"


def against(outcomes: Sequence[Outcome]) -> str:
    """Every target, what was measured, by how much it is missed."""
    rows = [
        (o.target.what, o.target.where, o.target.goal, number(o.figure.value) if o.figure else "",
         o.figure.of if o.figure else "", o.said)
        for o in outcomes
    ]  # fmt: skip
    return table(("<what", "<where", "target", "measured", "<made of", "<"), rows)


def times(measured: Measured) -> str:
    """A row per workload and tool."""
    rows = []
    for (workload, _), cell in measured.cells.items():
        fast, slow = (measured.cell(workload, key) for key in ("torch-fast", "torch-slow"))
        spent = map(_ms, (cell.cpu, cell.slowest, cell.wall))
        cold = map(_ms, (cell.first, _sum(cell.imported, cell.first)))
        rows.append(
            (workload, cell.peer.name, *spent, cell.checks or "", *cold, _over(cell, fast),
             _over(cell, slow), cell.detected.get(0.1, ""), cell.detected.get(0.01, ""),
             cell.alarms.get(workload, ""), _remark(cell))
        )  # fmt: skip
    return table(TIMES, rows)


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else 1000 * seconds)


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _over(cell: Cell, other: Cell | None) -> str:
    if cell.cpu is None or other is None or not other.cpu:
        return ""
    return number(cell.cpu / other.cpu)


def _remark(cell: Cell) -> str:
    """What became of it, and what it said of right gradients while it was timed."""
    wrong = f"rejects {cell.rejected} of {cell.checks + 1} while timed" if cell.rejected else ""
    only = (
        "the first call is all there is" if not cell.checks and cell.first and not cell.note else ""
    )
    return "; ".join(part for part in (cell.note, wrong, only) if part)


def hard(measured: Measured) -> str:
    """Rows are inputs, columns are tools."""
    there = {cell.peer.key for cell in measured.cells.values()}
    counted = [key for key in measured.effort.counted if key in there]
    keys = [key for key in counted if not PEERS[key].only]
    rows = []
    for name in HARD:
        found = {
            key: cell.alarms[name]
            for (_, key), cell in measured.cells.items()
            if name in cell.alarms
        }
        rows.append((name, *(found.get(key, "") for key in keys)))
    return table(("<input", *(PEERS[key].name for key in keys)), rows)


def accepted(measured: Measured) -> str:
    """The defaults that are used."""
    peers: list[Peer] = [PEERS[key] for key in measured.effort.peers]
    return table(("<tool", "<the gradient is accepted by"), [(p.name, p.says) for p in peers])


def elements() -> str:
    """Among how many elements an error is planted."""
    said = []
    for name, workload in WORKLOADS.items():
        primals = workload.primals(0)
        seen = sum(len(indices) for indices in visible(workload, 0, primals))
        size = int(np.sum([p.size for p in primals]))
        if seen < size:
            said.append(f"{name} {seen:,} of {size:,}")
    return (
        "An error is planted in a random element of a random gradient output, among those whose "
        f"true gradient is not zero: all of them, but {', '.join(said)}."
    )
