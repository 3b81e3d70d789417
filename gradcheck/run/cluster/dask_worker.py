"""The functions that run on a Dask worker: they have cases judged in child processes.

Nothing here needs NumPy or Dask, and messages are of built-in types: a worker with another version
of gradcheck must be able to report it. Why there are children: docs/adr/0035.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypedDict

from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.child import Child
from gradcheck.implementations.processes.crash_or_hang import WorkerError
from gradcheck.results.ci_safe import inert
from gradcheck.system.user_modules import path_without

LOAD_SECONDS: Final = 300.0
"""Seconds that loading a plan may take."""
MAX_STARTS: Final = 2
"""How often a process is started that ends while it loads."""
MAX_BATCH_SECONDS: Final = 0.5
"""Seconds after which a partial batch is returned."""
STOP_SECONDS: Final = 2.0
"""Seconds between SIGTERM and SIGKILL."""
MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "268435456"}
"""Undoes the settings of a Dask nanny, which return memory at once and slow down temporaries."""
PROGRAM: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from gradcheck.run.cluster.process import main; main(sys.argv)"
)
Answer = bytes | str
"""The pickled answer of a unit, or how the process ended that judged it."""


class Order(TypedDict):
    """What a worker needs to know of a run.

    `begin` is the first message to a process, `load` the pickled function, setup and arguments,
    and `env` an addition to its environment.
    """

    run: str
    begin: Mapping[str, Any]
    load: bytes
    env: Mapping[str, str]


class UnfitError(RuntimeError):
    """This worker cannot judge the run; the message says why."""


class ProcessLostError(RuntimeError):
    """No process of this worker stays alive; another worker may have more luck.

    The first argument says why, the second is Dask's address of the worker.
    """

    def __str__(self) -> str:
        """The reason."""
        return str(self.args[0])


class RunEndedError(RuntimeError):
    """The run has ended, and waits for nothing."""


def judge(order: Order, batch: Sequence[bytes]) -> list[Answer]:
    """The answers of a batch of units; after `MAX_BATCH_SECONDS`, of the first ones only.

    Raises:
        UnfitError: this worker cannot load the plan.
        ProcessLostError: the process died while it loaded; no unit was begun.
        RunEndedError: the run has ended.
    """
    pool, start = _pool_of(order["run"]), time.monotonic()
    found: list[Answer] = []
    for unit in batch:
        try:
            found.append(_judged(pool, order, unit))
        except ProcessLostError:
            if not found:
                raise
            break
        if time.monotonic() > start + MAX_BATCH_SECONDS:
            break
    return found


async def prepare(order: Order) -> None:
    """Have one process ready.

    Raises:
        UnfitError: this worker cannot load the plan.
        ProcessLostError: the process died while it loaded.
    """
    pool = _pool_of(order["run"])
    await asyncio.to_thread(lambda: pool.give_back(pool.take(order)))


async def end(run: str) -> None:
    """End the processes of a run, and start no more for it."""
    await asyncio.to_thread(_pool_of(run).end)


def _judged(pool: ProcessPool, order: Order, unit: bytes) -> Answer:
    child = pool.take(order)
    try:
        frame = _asked(child, {"kind": "judge"}, unit, float("inf"))
    except WorkerError as end:
        pool.discard(child)
        return end.ending.reason
    pool.give_back(child)
    if frame.header["kind"] != "judged":
        raise RuntimeError(frame.header["text"])
    return bytes(frame.blocks[0])


class ProcessPool:
    """The processes of one run in this worker: one per running task, kept for the next."""

    def __init__(self) -> None:
        """Start without processes."""
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: list[Child] = []
        self._over = False

    def take(self, order: Order) -> Child:
        """Take an idle process that has loaded the plan.

        Raises:
            UnfitError: it cannot load the plan.
            ProcessLostError: it died while it loaded.
            RunEndedError: the run has ended.
        """
        while True:
            with self._lock:
                if self._over:
                    raise RunEndedError
                child = self._idle.pop() if self._idle else None
                if child is None:
                    break
                if child.alive:
                    self._busy.append(child)
                    return child
            child.kill()  # it has ended, being idle
        return self._started(order)

    def give_back(self, child: Child) -> None:
        """Keep a process for the next task, or end it after the run."""
        _log(child.printed())
        with self._lock:
            self._busy.remove(child)
            over = self._over
            if not over:
                self._idle.append(child)
        if over:
            child.end()

    def discard(self, child: Child) -> None:
        """Forget a process that has ended.

        Raises:
            RunEndedError: it ended with the run.
        """
        child.kill()
        with self._lock:
            self._busy.remove(child)
            if self._over:
                raise RunEndedError

    def end(self) -> None:
        """End all processes, busy ones too."""
        with self._lock:
            self._over = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self._lock:
                busy = [*self._busy]
            for child in busy:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.process.pid, how)
            deadline = time.monotonic() + STOP_SECONDS
            while self._busy and time.monotonic() < deadline:
                time.sleep(0.01)

    def _started(self, order: Order) -> Child:
        """Start a process that loads the plan; try again if it dies.

        Raises:
            UnfitError, ProcessLostError, RunEndedError: as `take` does.
        """
        how = ""
        for _ in range(MAX_STARTS):
            try:
                child = self._begun(order)
            except OSError as error:  # no more processes, or no memory for one
                how = f"{error.strerror or error}"
                continue
            try:
                frame = _asked(
                    child, {"kind": "begin", **order["begin"]}, order["load"], LOAD_SECONDS
                )
            except WorkerError as end:
                self.discard(child)
                how = f"{end.ending.reason} while it loaded the run"
                continue
            if frame.header["kind"] != "ready":
                self.discard(child)
                raise UnfitError(f"on {socket.gethostname()}: {frame.header['text']}")
            return child
        raise ProcessLostError(
            f"on {socket.gethostname()}: {how}, in {MAX_STARTS} tries", _address()
        )

    def _begun(self, order: Order) -> Child:
        path = json.dumps(path_without())
        words = [sys.executable, "-P", "-c", PROGRAM, path]
        with self._lock:
            if self._over:
                raise RunEndedError
            child = Child(words, env={**MEMORY, **order["env"]}, channel="pipes")
            self._busy.append(child)
        return child


_POOLS: Final[dict[str, ProcessPool]] = {}
_LOCK: Final = threading.Lock()


def _pool_of(run: str) -> ProcessPool:
    with _LOCK:
        return _POOLS.setdefault(run, ProcessPool())


def _address() -> str:
    """Dask's address of this worker; empty outside of one."""
    distributed: Any = sys.modules.get("distributed")  # a worker has imported it
    try:
        return str(distributed.get_worker().address)
    except (AttributeError, ValueError):
        return ""


def _asked(child: Child, header: Mapping[str, Any], block: bytes, seconds: float) -> frames.Frame:
    """The answer of a process.

    Raises:
        WorkerError: it ended instead.
    """
    try:
        child.send(frames.pieces(header, [block]), LOAD_SECONDS)
        child.deadline(seconds)
        return frames.read(child.exactly)
    except frames.FrameError:
        child.crashed("the code wrote into the channel of its own process")
    except WorkerError as end:
        _log(end.ending.printed)
        raise


def _log(text: str) -> None:
    """Write the prints of a process to this worker's log."""
    if text and sys.stderr is not None:
        shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
        sys.stderr.write(inert(shown))
