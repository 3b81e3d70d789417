"""A worker: holds its shard, moves it as it is told, takes part in forwards, answers in scalars.

`python -m benchmarks.sharded.worker` reads one line of JSON from its standard input: the
coordinator's port, a token, and its number. It knows nothing of verdicts.
"""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.sharded import planted
from benchmarks.sharded.layout import Layout
from benchmarks.sharded.model import Shard
from benchmarks.sharded.wire import Ask, Channel, Closed, Reply, Request
from gradcheck.judge.loss import checksum, not_finite
from gradcheck.numerics.line_function import Given, Heading, Segment

Array = NDArray[Any]

HOST = "127.0.0.1"
GONE = 3
"""The exit status of a worker that another one left alone."""
FORWARDS = (Ask.HERE, Ask.AHEAD, Ask.BACK)


@dataclass(slots=True)
class Neighbours:
    """The other workers of a stage and of the stages beside it, over sockets.

    Sums go through the stage's first rank, in the order of ranks: all have the same bits.
    """

    layout: Layout
    worker: int
    channels: dict[int, Channel] = field(default_factory=dict)

    def connect(self, listener: socket.socket, ports: list[int]) -> None:
        """Connect to whoever is to be connected to; the others connect here."""
        ranks, me = self.layout.ranks, self.worker
        first = me - me % ranks
        calls = [first] * (me != first) + [me + ranks] * (me + ranks < self.layout.workers)
        waits = (ranks - 1) * (me == first) + (me >= ranks)
        for other in calls:
            channel = Channel(socket.create_connection((HOST, ports[other])))
            channel.write(me.to_bytes(2, "little"))
            self.channels[other] = channel
        for _ in range(waits):
            channel = Channel(listener.accept()[0])
            self.channels[int.from_bytes(channel.read(2), "little")] = channel

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received."""
        channels = self.channels.values()
        return sum(c.sent for c in channels), sum(c.received for c in channels)

    def sum(self, x: Array) -> Array:
        """The sum over the ranks of this stage, the same bits on all."""
        first = self.worker - self.worker % self.layout.ranks
        if self.worker != first:
            self.channels[first].give(np.ascontiguousarray(x))
            return self.channels[first].take(np.empty_like(x, order="C"))
        others = [self.channels[first + r] for r in range(1, self.layout.ranks)]
        total, part = np.array(x, order="C"), np.empty_like(x, order="C")
        for channel in others:
            total += channel.take(part)
        for channel in others:
            channel.give(total)
        return total

    def before(self, like: Array) -> Array:
        """What comes from the stage before."""
        return self.channels[self.worker - self.layout.ranks].take(np.empty_like(like))

    def after(self, like: Array) -> Array:
        """What comes from the stage behind."""
        return self.channels[self.worker + self.layout.ranks].take(np.empty_like(like))

    def to_before(self, x: Array) -> None:
        """Give it to the stage before."""
        self.channels[self.worker - self.layout.ranks].give(x)

    def to_after(self, x: Array) -> None:
        """Give it to the stage behind."""
        self.channels[self.worker + self.layout.ranks].give(x)


@dataclass(slots=True)
class Worker:
    """Answers requests about one shard."""

    shard: Shard
    neighbours: Neighbours
    plant: planted.Plant
    largest: int = 0
    """Bytes of the largest copy that was kept."""
    _open: Segment | None = None

    def reply(self, request: Request) -> Reply:
        """What is asked for."""
        count, numbers = self._found(request)
        a, b, c = (*numbers, 0.0, 0.0, 0.0)[:3]
        return Reply(request.number, count, (a, b, c))

    def _found(self, request: Request) -> tuple[int, tuple[float, ...]]:
        match request.ask:
            case Ask.SURVEY:
                return self._survey(self._name(request))
            case Ask.SUMS:
                segment = self._segment(request)
                return 0, segment.sums() if segment else ()
            case Ask.GOT:
                segment = self._segment(request)
                return 0, (float(segment.given.part(segment.start, segment.stop)[0]),)
            case Ask.RESTORE:
                self._put_back()
            case Ask.BACKWARD:
                self.shard.backward()
                self.plant.into(self.shard)
            case Ask.COUNTS:
                return self.shard.forwards, (*self.neighbours.traffic, self.largest)
            case _:
                moved = self._moved(request)
                return 0, (self.shard.loss(), moved)
        return 0, ()

    def _moved(self, request: Request) -> float:
        """Move what of the range lies here; ⟨g, x₊ − x₋⟩ if it went back."""
        if request.ask is Ask.HERE:
            return 0.0
        if self._open is None:
            self._open = self._segment(request)
            if self._open is None:
                return 0.0
            self._open.__enter__()
            size = self._open.stop - self._open.start
            self.largest = max(self.largest, size * self._open.tensor.itemsize)
        if request.ask is Ask.AHEAD:
            self._open.move(request.t)
            return 0.0
        return self._open.move_back(request.t)

    def _put_back(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None

    def _name(self, request: Request) -> str:
        return [*self.shard.layout.shapes][request.tensor]

    def _segment(self, request: Request) -> Any:
        """The part of the range that lies here; None if none does."""
        name = self._name(request)
        parts = self.shard.layout.parts(name)
        own = next((p for p in parts if p.worker == self.shard.worker), None)
        if own is None:
            return None
        start, stop = max(request.start, own.start), min(request.stop, own.stop)
        if start >= stop:
            return None
        return Segment(
            self.shard.params[name],
            Given.of(self.shard.gradients[name]),
            Heading(request.key, request.uphill),
            request.unit,
            start - own.start,
            stop - own.start,
            own.start,
        )

    def _survey(self, name: str) -> tuple[int, tuple[float, ...]]:
        """Checksum, largest, Σ(x/largest)², and how many numbers in x and g are none."""
        x, g = self.shard.params[name], self.shard.gradients[name]
        strange = [found[0] if (found := not_finite(a)) else 0 for a in (x, g)]
        largest = float(np.max(np.abs(x), initial=0.0))
        usable = 0 < largest < np.inf
        square = float(np.sum((x.astype(np.float64) / largest) ** 2)) if usable else 0.0
        return checksum([x])[0], (largest, square, float(sum(strange)))


def main() -> None:
    """Join the others, answer until told to end, or until somebody is gone."""
    try:
        serve(*joined(json.loads(sys.stdin.readline())))
    except Closed:
        sys.exit(GONE)


def joined(told: dict[str, Any]) -> tuple[Worker, Channel]:
    """The worker that it is told to be, and its line to the coordinator."""
    with socket.create_server((HOST, 0)) as listener:
        line = Channel(socket.create_connection((HOST, told["port"])))
        line.write(bytes.fromhex(told["token"]))
        line.write(told["worker"].to_bytes(2, "little"))
        line.write(listener.getsockname()[1].to_bytes(2, "little"))
        given = json.loads(line.read(int.from_bytes(line.read(4), "little")))
        neighbours = Neighbours(Layout(**given["layout"]), told["worker"])
        neighbours.connect(listener, given["ports"])
    plant = planted.Plant(**given["plant"])
    shard = Shard(
        neighbours.layout,
        told["worker"],
        neighbours,
        given["dtype"],
        given["seed"],
        plant.in_the_model,
    )
    return Worker(shard, neighbours, plant), line


def serve(worker: Worker, line: Channel) -> None:
    """Answer until told to end."""
    while True:
        request = line.asked()
        if request.ask is Ask.END:
            return
        try:
            with np.errstate(all="ignore"):
                reply = worker.reply(request)
        except Closed:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the coordinator is to know
            reply = Reply(request.number, text=f"{type(error).__name__}: {error}")
        line.answer(reply)


if __name__ == "__main__":
    main()
