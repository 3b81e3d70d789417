"""The workers, as the coordinator sees them: started, asked, counted, and missed if they die."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.sharded.layout import Layout
from benchmarks.sharded.planted import Plant
from benchmarks.sharded.wire import Ask, Channel, Closed, Reply, Request
from benchmarks.sharded.worker import GONE, HOST

PATIENCE = 60.0
"""Seconds after which a worker that does not answer is taken for lost."""
ROOT = Path(__file__).parents[2]


class Lost(RuntimeError):  # noqa: N818  that is what it is
    """A worker is gone, or does not answer; the text says which, and how it ended."""


@dataclass(slots=True)
class Mesh:
    """So many processes with a shard each. Use it as a context: it ends them all.

    `draws` counts directions whose sums were asked for, `set_up` the bytes that were sent and
    received before the check began.
    """

    layout: Layout
    dtype: str = "float64"
    seed: int = 0
    plant: Plant = field(default_factory=Plant)
    patience: float = PATIENCE
    draws: int = 0
    set_up: int = 0
    lost: Lost | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _channels: list[Channel] = field(default_factory=list)
    _number: int = 0

    def __enter__(self) -> Self:
        """Start them, and let them find each other."""
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def bytes(self) -> int:
        """What the check has sent and received, without the set-up."""
        return sum(c.sent + c.received for c in self._channels) - self.set_up

    @property
    def everyone(self) -> Sequence[int]:
        """All workers."""
        return range(self.layout.workers)

    def wait(self, seconds: float) -> None:
        """Wait no longer than that for anybody from now on."""
        self.patience = seconds
        for channel in self._channels:
            channel.socket.settimeout(seconds)

    def ask(self, request: Request, workers: Iterable[int]) -> dict[int, Reply]:
        """Ask several workers the same; they work at the same time.

        Raises:
            Lost: one of them does not answer.
        """
        if self.lost:
            raise self.lost
        asked = [*workers]
        self._number += 1
        self.draws += request.ask is Ask.SUMS
        request = replace(request, number=self._number)
        replies: dict[int, Reply] = {}
        worker = asked[0]
        try:
            for worker in asked:
                self._channels[worker].ask(request)
            for worker in asked:
                replies[worker] = self._channels[worker].answered()
        except (Closed, TimeoutError):
            self.lost = self._missed(worker)
            raise self.lost from None
        for worker, reply in replies.items():
            if reply.text or reply.number != self._number:
                said = reply.text or f"it answered request {reply.number}, not {self._number}"
                self.lost = Lost(f"{self.layout.title(worker)}: {said}")
                raise self.lost
        return replies

    def _missed(self, silent: int) -> Lost:
        """Who is at fault where one does not answer: those who left last may not be."""
        until = time.monotonic() + min(self.patience, 5.0)
        while time.monotonic() < until:
            ends = {k: p.poll() for k, p in enumerate(self.processes)}
            for worker, status in ends.items():
                if status not in (None, GONE):
                    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                    return Lost(f"{self.layout.title(worker)} is gone ({how})")
            time.sleep(0.01)
        running = f"did not answer within {self.patience:g} s"
        return Lost(f"{self.layout.title(silent)} {running}")

    def _start(self) -> None:
        token = secrets.token_bytes(16)
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": _path()}
        with socket.create_server((HOST, 0)) as listener:
            listener.settimeout(self.patience)
            for worker in self.everyone:
                process = subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.sharded.worker"],
                    stdin=subprocess.PIPE,
                    env=environment,
                )
                self.processes.append(process)
                told = {"port": listener.getsockname()[1], "token": token.hex(), "worker": worker}
                assert process.stdin is not None
                process.stdin.write(f"{json.dumps(told)}\n".encode())
                process.stdin.close()
            found: dict[int, tuple[Channel, int]] = {}
            while len(found) < self.layout.workers:
                try:
                    connection = listener.accept()[0]
                except TimeoutError:
                    missing = min(set(self.everyone) - set(found))
                    raise self._missed(missing) from None
                connection.settimeout(self.patience)
                channel = Channel(connection)
                if channel.read(len(token)) != token:  # somebody else of this machine
                    connection.close()
                    continue
                worker, port = (int.from_bytes(channel.read(2), "little") for _ in range(2))
                found[worker] = channel, port
        self._channels = [found[worker][0] for worker in self.everyone]
        self._introduce([found[worker][1] for worker in self.everyone])

    def _introduce(self, ports: list[int]) -> None:
        """Tell all who the others are, and have the gradient formed."""
        given: dict[str, Any] = {
            "layout": asdict(self.layout),
            "ports": ports,
            "dtype": self.dtype,
            "seed": self.seed,
            "plant": asdict(self.plant),
        }
        text = json.dumps(given).encode()
        for channel in self._channels:
            channel.write(len(text).to_bytes(4, "little"))
            channel.write(text)
        self.ask(Request(ask=Ask.BACKWARD), self.everyone)
        self.set_up = sum(c.sent + c.received for c in self._channels)

    def _end(self) -> None:
        """End all that still run, whatever state they are in."""
        for channel in self._channels:
            try:
                if not self.lost:
                    channel.ask(Request(ask=Ask.END))
            except (Closed, OSError):
                pass
            channel.socket.close()
        for process in self.processes:
            try:
                process.wait(0 if self.lost else 5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _path() -> str:
    """Where the workers find this package, and gradcheck."""
    return os.pathsep.join([str(ROOT), *filter(None, sys.path)])
