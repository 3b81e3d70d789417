"""What was measured, in Markdown: the targets, the times, the hard inputs, what to know of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from benchmarks.machine import busy, described
from benchmarks.measure import Cell, Count, Measured, each, pooled
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
    day = datetime.now(UTC).date().isoformat()
    how = "python -m benchmarks" + ("" if measured.effort.fresh else " --quick")
    parts = [
        "# gradcheck beside other checkers",
        f"Made by `{how}`, {day}; what is compared, and what the columns mean, is in the "
        "[README](README.md#against-other-checkers).",
        f"{described(versions)}; {busy():.1f} processes wanted a core at the end.",
    ]
    if measured.absent:
        lacking = (f"{name} (no {', '.join(p)})" for name, p in measured.absent.items())
        parts.append(f"Absent: {'; '.join(lacking)}.")
    if measured.effort.fresh:
        parts += ["## In short", short(measured)]
    parts += ["## Targets", against(outcomes), "## Times and verdicts", times(measured)]
    if measured.effort.fresh:
        parts += ["## Hard inputs: right gradients that are rejected", hard(measured)]
    parts += ["## How each tool accepts", accepted(measured), elements()]
    return "\n\n".join(parts) + "\n"


def short(measured: Measured) -> str:
    """A row per tool: typical ratios, and its verdicts on everything that it was asked."""
    rows = []
    for key in measured.effort.peers:
        cells = [*each(measured, key)]
        if cells:
            ratios = [
                [cell.cpu / other.cpu for cell in cells if cell.cpu
                 and (other := measured.cell(cell.workload, peer)) and other.cpu]
                for peer in ("torch-fast", "torch-slow")
            ]  # fmt: skip
            colds = [_sum(cell.imported, cell.first) for cell in cells]
            rows.append(
                (PEERS[key].name, *(_middle(some) for some in ratios),
                 _ms(_median([cold for cold in colds if cold is not None])),
                 *(_share([c.detected[size] for c in cells if size in c.detected])
                   for size in measured.effort.sizes),
                 _share([n for c in cells for name, n in c.alarms.items() if name not in HARD]),
                 _share([n for c in cells for name, n in c.alarms.items() if name in HARD]))
            )  # fmt: skip
    found = [f"{size:.0%} off: found" for size in measured.effort.sizes]
    heads = ("<tool", "/ torch fast", "/ torch slow", "import and first, ms", *found,
             "false alarms", "at hard inputs")  # fmt: skip
    return "Medians over the workloads; shares of all trials.\n\n" + table(heads, rows)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _middle(values: Sequence[float]) -> str:
    return number(_median(values))


def _share(counts: Sequence[Count]) -> str:
    """In per cent with the number of trials."""
    whole = pooled(counts)
    return f"{100 * whole.rejected / whole.made:.3g}% of {whole.made:,}" if whole.made else ""


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
    lone = cell.first is not None and not cell.checks and not cell.note
    only = "the first call is all there is" if lone else ""
    return "; ".join(part for part in (cell.note, wrong, only) if part)


def hard(measured: Measured) -> str:
    """Rows are inputs, columns are tools."""
    there = {cell.peer.key for cell in measured.cells.values()}
    counted = [key for key in measured.effort.counted if key in there]
    keys = [key for key in counted if not PEERS[key].only]
    rows = []
    for name in HARD:
        cells = [c for c in measured.cells.values() if name in c.alarms]
        found = {cell.peer.key: cell.alarms[name] for cell in cells}
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
