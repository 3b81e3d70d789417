"""The schedule: who is asked what, when, and how often; what came of it, cell by cell."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.conversation import Conversation, LostPeer, with_peer
from benchmarks.machine import cores
from benchmarks.peers import PEERS, Peer
from benchmarks.workloads import HARD, WORKLOADS

SEED = 20_000
"""Of the first trial; the timed checks have small seeds."""
BURST, QUICKLY = 5, 0.05
"""So many checks in a row of a tool that takes less than this, in seconds: as in a test suite."""
HOPELESS = 5
"""A peer is not asked to count anything where one check takes this many budgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured. Times are seconds of processor time per peer and workload.

    `rounds` of one check each, or of a burst of quick ones, until `timing` is spent; `trials` per
    count, until `count` (at `hard` inputs, `hard`) is spent, `generous` times that for gradcheck,
    which has targets to reach; `patience` is how long one answer may take by the clock, and
    `patience_slow` that of those who are known to take long. `fresh`: a new process per workload,
    so that each has a first call.
    """

    peers: tuple[str, ...]
    counted: tuple[str, ...]
    workloads: tuple[str, ...] = tuple(WORKLOADS)
    sizes: tuple[float, ...] = (0.1, 0.01)
    rounds: int = 15
    timing: float = 2.0
    trials: int = 200
    count: float = 1.5
    hard: float = 0.5
    generous: float = 4.0
    patience: float = 60.0
    patience_slow: float = 300.0
    slow: tuple[str, ...] = ("projection", "full", "model", "torch-fast", "torch-slow")
    fresh: bool = True

    def budget(self, peer: Peer, workload: str) -> float:
        """What one count may take."""
        spent = self.count if workload in WORKLOADS else self.hard
        return spent * (self.generous if peer.module == "ours" else 1.0)

    def limit(self, peer: str) -> float:
        """How long an answer of a peer may take."""
        return self.patience_slow if peer in self.slow else self.patience


FULL = Effort(peers=tuple(PEERS), counted=tuple(k for k, p in PEERS.items() if not p.own))
QUICK = Effort(
    peers=("projection", "full", "model", "torch-fast", "torch-slow", "autograd", "autograd-own"),
    counted=("projection", "model"), sizes=(0.1,), rounds=9, timing=1.0, trials=25, count=0.8,
    hard=0.2, fresh=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Count:
    """Rejections among trials."""

    rejected: int
    made: int

    def __str__(self) -> str:
        return f"{self.rejected} of {self.made}"


def pooled(counts: Sequence[Count]) -> Count:
    """All of them together."""
    return Count(sum(c.rejected for c in counts), sum(c.made for c in counts))


@dataclass(slots=True, kw_only=True)
class Cell:
    """What is known of one peer on one workload; times in seconds, `cpu` beside `wall`."""

    peer: Peer
    workload: str
    imported: float | None = None
    first: float | None = None
    warm_cpu: list[float] = field(default_factory=list)
    warm_wall: list[float] = field(default_factory=list)
    rejected: int = 0
    """Timed checks, all of right gradients, that were not accepted."""
    detected: dict[float, Count] = field(default_factory=dict)
    alarms: dict[str, Count] = field(default_factory=dict)
    floor: float | None = None
    unstructured: float | None = None
    note: str = ""

    @property
    def cpu(self) -> float | None:
        """Median processor time of a warm check; of the first, where no other was made."""
        return statistics.median(self.warm_cpu) if self.warm_cpu else self.first

    @property
    def wall(self) -> float | None:
        """Median time by the clock."""
        return statistics.median(self.warm_wall) if self.warm_wall else None

    @property
    def slowest(self) -> float | None:
        """The largest processor time of a warm check."""
        return max(self.warm_cpu, default=None)

    @property
    def checks(self) -> int:
        """How many times were taken, the first apart."""
        return len(self.warm_cpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that was measured; `absent` names peers and the packages they lack."""

    cells: Mapping[tuple[str, str], Cell]
    absent: Mapping[str, tuple[str, ...]]
    versions: Mapping[str, str]
    effort: Effort

    def cell(self, workload: str, peer: str) -> Cell | None:
        """None where the peer is not there or is not asked."""
        return self.cells.get((workload, peer))


def hard_at(workload: str) -> list[str]:
    """Hard inputs that are tried with a workload: those of its operator."""
    operators = {w.operator for w in WORKLOADS.values()}
    return [
        name for name, given in HARD.items()
        if workload == (given.operator if given.operator in operators else "gelu")
    ]  # fmt: skip


class Meeting:
    """Peers with their processes, one workload after the other."""

    def __init__(
        self, effort: Effort, tell: Callable[[str], None],
        start: Callable[[str], Conversation] = with_peer, peers: Mapping[str, Peer] = PEERS,
    ) -> None:  # fmt: skip
        """`start` gives a peer's process, `tell` says where we are."""
        self.effort, self.tell, self.start = effort, tell, start
        asked = [peers[key] for key in effort.peers]
        self.absent = {p.name: p.absent for p in asked if p.absent}
        self.present = [p for p in asked if not p.absent]
        self.cells: dict[tuple[str, str], Cell] = {}
        self.versions: dict[str, str] = {}

    def measure(self) -> Measured:
        """Every workload."""
        with ExitStack() as kept:
            talks: dict[str, Conversation] = {}
            for workload in self.effort.workloads:
                with ExitStack() as room:
                    if self.effort.fresh:
                        talks = {}
                    self._one(workload, talks, room if self.effort.fresh else kept)
        return Measured(
            cells=self.cells, absent=self.absent, versions=self.versions, effort=self.effort
        )

    def _one(self, workload: str, talks: dict[str, Conversation], room: ExitStack) -> None:
        self.tell(f"{workload}: first calls")
        cells = [Cell(peer=p, workload=workload) for p in self.present if p.takes(workload)]
        for cell in cells:
            self.cells[workload, cell.peer.key] = cell
            with _noted(cell):
                self._first(cell, talks, room)
        self.tell(f"{workload}: by turns")
        self._by_turns(cells, talks)
        self.tell(f"{workload}: planted errors, false alarms")
        with ThreadPoolExecutor(cores()) as pool:  # nothing is timed here
            [*pool.map(lambda cell: self._counts(cell, talks[cell.peer.key]), cells)]

    def _first(self, cell: Cell, talks: dict[str, Conversation], room: ExitStack) -> None:
        key, limit = cell.peer.key, self.effort.limit(cell.peer.key)
        if key not in talks or talks[key].lost:
            talks[key] = room.enter_context(self.start(key))
            answer = _sound(talks[key].ask(limit, do="import"))
            cell.imported = answer["cpu"]
            self.versions.update(answer["versions"])
        answer = _sound(talks[key].ask(limit, do="check", workload=cell.workload, seed=0))
        (cell.first,) = answer["cpu"]
        cell.rejected += answer["rejected"]

    def _by_turns(self, cells: list[Cell], talks: Mapping[str, Conversation]) -> None:
        for turn in range(self.effort.rounds):
            shift = turn % max(1, len(cells))
            for cell in cells[shift:] + cells[:shift]:
                if not cell.note and self._wants_more(cell):
                    with _noted(cell):
                        self._again(cell, talks[cell.peer.key], turn)
        for cell in cells:
            if cell.peer.key == "full" and not cell.note:
                with _noted(cell):
                    self._without_structure(cell, talks["full"])

    def _wants_more(self, cell: Cell) -> bool:
        """Until the time is spent; one warm check in any case, but for one that takes minutes."""
        assert cell.first is not None
        if not cell.warm_cpu:
            return self.effort.fresh or cell.first < 10 * self.effort.timing
        return sum(cell.warm_cpu) < self.effort.timing

    def _again(self, cell: Cell, talk: Conversation, turn: int) -> None:
        """One check, or a few in a row of those that are quick: the first finds cold caches."""
        limit = self.effort.limit(cell.peer.key)
        times = BURST if cell.cpu is not None and cell.cpu < QUICKLY else 1
        answer = _sound(talk.ask(limit, do="check", workload=cell.workload,
                                 seed=1 + BURST * turn, times=times))  # fmt: skip
        cell.warm_cpu += answer["cpu"]
        cell.warm_wall += answer["wall"]
        cell.rejected += answer["rejected"]

    def _without_structure(self, cell: Cell, talk: Conversation) -> None:
        """What the check of ⟨v, f⟩ takes, and what no check of every element can go below."""
        limit = self.effort.limit(cell.peer.key)
        words = {"workload": cell.workload, "seed": 1}
        if WORKLOADS[cell.workload].operator in ("gpt", "cross_entropy"):
            cell.unstructured = cell.cpu  # it is a number already
        else:
            cell.unstructured = _sound(talk.ask(limit, do="scalar", **words))["cpu"]
        cell.floor = _sound(talk.ask(limit, do="floor", **words))["cpu"]

    def _counts(self, cell: Cell, talk: Conversation) -> None:
        if cell.peer.key not in self.effort.counted or cell.note:
            return
        with _noted(cell):
            for size in self.effort.sizes:
                if count := self._count(cell, talk, cell.workload, size):
                    cell.detected[size] = count
            for name in (cell.workload, *hard_at(cell.workload)):
                if count := self._count(cell, talk, name, 0.0):
                    cell.alarms[name] = count

    def _count(self, cell: Cell, talk: Conversation, name: str, size: float) -> Count | None:
        budget = self.effort.budget(cell.peer, name)
        if cell.cpu is None or cell.cpu > HOPELESS * budget:
            return None
        limit = self.effort.limit(cell.peer.key)
        answer = _sound(talk.ask(limit, do="count", workload=name, seed=SEED, size=size,
                                 trials=self.effort.trials, budget=budget))  # fmt: skip
        return Count(answer["rejected"], answer["made"])


@contextmanager
def _noted(cell: Cell) -> Iterator[None]:
    """What becomes of a peer stands in its row, and the others go on."""
    try:
        yield
    except LostPeer as error:
        cell.note = str(error)


def _sound(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that is none of its errors."""
    if "error" in answer:
        raise LostPeer(str(answer["error"]))
    return answer


def each(measured: Measured, peer: str) -> Iterator[Cell]:
    """The cells of a peer."""
    return (cell for (_, key), cell in measured.cells.items() if key == peer)
