"""What has to be reached: one table, what is measured for it, and what is missed by how much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import Cell, Count, Measured, each, pooled
from benchmarks.table import Row, number

MARGIN = 1.3
"""`--quick` fails where a target is missed by more than this: it measures less, on any machine."""

NOTHING = float("nan")
"""The figure of what ours did not come to the end of: it reaches no limit."""

FAST, TAPE = "projection / torch, fast_mode", "projection / autograd check_grads, own graph"
SLOW, FLOOR = "full / torch, slow", "full without structure / 2n values in the best stacks"
MISSED, ALARMS = "errors of 10% that are missed", "false alarms"
HELP, COLD, PARALLEL = "help", "one operator, cold", "parallel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`what` (at workload or with peer `where`) is to be at most, or at least, `limit`."""

    what: str
    limit: float
    where: str = ""
    at_least: bool = False

    @property
    def name(self) -> str:
        """How a row of the table is called."""
        return f"{self.what}, {self.where}" if self.where else self.what

    @property
    def goal(self) -> str:
        """The limit with its sign."""
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)}"

    def excess(self, value: float) -> float:
        """By which factor it is missed: at most 1 where it is reached, NaN where nothing is."""
        if self.at_least:
            return self.limit / value if value else float("inf")
        return value / self.limit


def _all(what: str, **limits: float) -> tuple[Target, ...]:
    return tuple(Target(what=what, where=where, limit=limit) for where, limit in limits.items())


TARGETS: tuple[Target, ...] = (
    *_all(FAST, rms_norm=0.25, softmax=0.5, gelu=0.5, matmul=0.5, layer_norm=0.25, attention=0.5,
          cross_entropy=0.5, gpt=0.25),
    *_all(TAPE, rms_norm=1, softmax=1, gelu=1, matmul=1, layer_norm=1, attention=1,
          cross_entropy=1, gpt=1),
    *_all(SLOW, rms_norm=1 / 100, softmax=1 / 100, gelu=1 / 100, matmul=1 / 100,
          layer_norm=1 / 100, attention=1 / 100, cross_entropy=1 / 3.5, gpt=1 / 9),
    *_all(FLOOR, rms_norm=1.2, softmax=1.2, gelu=1.2, matmul=1.6, layer_norm=1.2, attention=1.2,
          cross_entropy=1.2, gpt=1.2),
    *_all(MISSED, projection=1e-3, full=1e-3, model=1e-3),
    *_all(ALARMS, projection=1e-3, full=1e-3, model=1e-3),
    Target(what=HELP, limit=3),
    Target(what=COLD, limit=1.6),
    Target(what=PARALLEL, limit=1.7, at_least=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured for a target; `of` says what the number is made of."""

    what: str
    where: str
    value: float
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A target and what was measured, if anything was."""

    target: Target
    figure: Figure | None

    @property
    def reached(self) -> bool:
        """Measured, and within the limit."""
        return self.figure is not None and self.target.excess(self.figure.value) <= 1

    @property
    def tolerable(self) -> bool:
        """Not measured (a peer is not there), or missed by no more than the margin."""
        return self.figure is None or self.target.excess(self.figure.value) <= MARGIN

    @property
    def said(self) -> str:
        """For the table."""
        if self.figure is None:
            return "not measured"
        if self.reached:
            return "reached"
        excess = self.target.excess(self.figure.value)
        if not excess < float("inf"):
            return "**missed**"
        share = f"{excess:.1f} times" if excess >= 2 else f"{excess - 1:.0%}"
        return f"**missed**, by {share}"


def outcomes(figures: Iterable[Figure], targets: Sequence[Target] = TARGETS) -> list[Outcome]:
    """Every target with its figure."""
    known: Mapping[tuple[str, str], Figure] = {(f.what, f.where): f for f in figures}
    return [Outcome(target=t, figure=known.get((t.what, t.where))) for t in targets]


def figures(measured: Measured, rows: Iterable[Row]) -> list[Figure]:
    """All that the targets ask for, as far as it was measured."""
    found = [
        figure
        for workload in measured.effort.workloads
        for what, ours, theirs in (
            (FAST, "projection", "torch-fast"),
            (TAPE, "projection", "autograd-own"),
            (SLOW, "full", "torch-slow"),
        )
        if (figure := _ratio(what, measured.cell(workload, ours), measured.cell(workload, theirs)))
    ]
    found += [f for cell in each(measured, "full") if (f := _floor(cell))]
    for peer in ("projection", "full", "model"):
        found += _counted(peer, [*each(measured, peer)])
    found += [
        Figure(what=row.what, where="", value=row.ratio,
               of=f"{row.a} {number(row.a_ms)} ms, {row.b} {number(row.b_ms)} ms")
        for row in rows
    ]  # fmt: skip
    return found


def _ratio(what: str, ours: Cell | None, theirs: Cell | None) -> Figure | None:
    """Processor times, ours over theirs."""
    if ours is None or theirs is None or theirs.cpu is None:
        return None
    if ours.cpu is None:
        return Figure(what=what, where=ours.workload, value=NOTHING, of=ours.note)
    of = f"{number(1000 * ours.cpu)} ms, {number(1000 * theirs.cpu)} ms"
    return Figure(what=what, where=ours.workload, value=ours.cpu / theirs.cpu, of=of)


def _floor(cell: Cell) -> Figure | None:
    if cell.floor is None or cell.unstructured is None:
        return None
    of = f"{number(1000 * cell.unstructured)} ms, {number(1000 * cell.floor)} ms"
    value = cell.unstructured / cell.floor
    return Figure(what=FLOOR, where=cell.workload, value=value, of=of)


def _counted(peer: str, cells: Sequence[Cell]) -> list[Figure]:
    """Shares over all workloads: what was missed at 10%, and what was rejected though right."""
    lost = "; ".join(f"{c.workload}: {c.note}" for c in cells if c.note)
    if lost:
        return [Figure(what=w, where=peer, value=NOTHING, of=lost) for w in (MISSED, ALARMS)]
    seen = pooled([c.detected[0.1] for c in cells if 0.1 in c.detected])
    timed = [Count(c.rejected, c.checks + (c.first is not None)) for c in cells]
    alarms = pooled([*timed, *(count for c in cells for count in c.alarms.values())])
    out = []
    if seen.made:
        missed = seen.made - seen.rejected
        of = f"{missed} of {seen.made}"
        out.append(Figure(what=MISSED, where=peer, value=missed / seen.made, of=of))
    if alarms.made:
        value = alarms.rejected / alarms.made
        out.append(Figure(what=ALARMS, where=peer, value=value, of=str(alarms)))
    return out
