"""What runs on a Dask worker: it has cases judged in processes of its own, and ends those.

Nothing here needs NumPy or Dask, and what travels is of built-in types: a worker whose gradcheck
is another one must still be able to say so.
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

LOADING: Final = 300.0
"""Seconds that loading a plan may take."""
TRIES: Final = 2
"""How often a process is begun that ends while it loads."""
ENOUGH: Final = 0.5
"""Seconds after which a batch goes home as it is: what is done is not to wait for what is not."""
GRACE: Final = 2.0
"""Seconds that a process gets to end itself, with all that it has started."""
MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "268435456"}
"""A nanny asks for memory to be handed back at once, which makes every temporary dear."""
PROGRAM: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from gradcheck.run.cluster.process import main; main(sys.argv)"
)
Answer = bytes | str
"""What came of a unit, pickled; or how the process ended that judged it."""


class Order(TypedDict):
    """What a worker has to know of a run.

    `begin` is what a process is told first, and `load` what it loads then; `env` is added to its
    environment.
    """

    run: str
    begin: Mapping[str, Any]
    load: bytes
    env: Mapping[str, str]


class Unfit(RuntimeError):  # noqa: N818  a worker is
    """This worker cannot judge the run; the message says why."""


class Lost(RuntimeError):  # noqa: N818  a process was
    """No process of this worker lived to judge: another worker, or another time, may do.

    The first argument says why, the second which worker it is, by the name that Dask has for it.
    """

    def __str__(self) -> str:
        """Say why."""
        return str(self.args[0])


class Left(RuntimeError):  # noqa: N818  a run is
    """The run is over: nobody waits for this."""


def judge(order: Order, batch: Sequence[bytes]) -> list[Answer]:
    """What came of a batch, unit by unit; a process that dies takes none but its own with it.

    Of units that are left when it has taken long, nothing: they are not begun.

    Raises:
        Unfit: this worker cannot load what is judged.
        Lost: what was to judge died while it loaded; nothing of the batch was begun.
        Left: the run has ended meanwhile.
    """
    crew, start = _crew(order["run"]), time.monotonic()
    found: list[Answer] = []
    for unit in batch:
        try:
            found.append(_judged(crew, order, unit))
        except Lost:
            if not found:
                raise
            break
        if time.monotonic() > start + ENOUGH:
            break
    return found


async def prepare(order: Order) -> None:
    """Have one process ready, or say why there will be none.

    Raises:
        Unfit: this worker cannot load what is judged.
        Lost: what was to judge died while it loaded.
    """
    crew = _crew(order["run"])
    await asyncio.to_thread(lambda: crew.back(crew.taken(order)))


async def end(run: str) -> None:
    """End the processes of a run, and start no more for it."""
    await asyncio.to_thread(_crew(run).end)


def _judged(crew: _Crew, order: Order, unit: bytes) -> Answer:
    child = crew.taken(order)
    try:
        frame = _asked(child, {"kind": "judge"}, unit, float("inf"))
    except WorkerError as end:
        crew.lost(child)
        return end.ending.reason
    crew.back(child)
    if frame.header["kind"] != "judged":
        raise RuntimeError(frame.header["text"])
    return bytes(frame.blocks[0])


class _Crew:
    """The processes of one run in this worker: one per task under way, kept for the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: list[Child] = []
        self._over = False

    def taken(self, order: Order) -> Child:
        """A process that has loaded the plan and is not at work.

        Raises:
            Unfit: it cannot load what is judged.
            Lost: it died while it loaded.
            Left: the run is over.
        """
        while True:
            with self._lock:
                if self._over:
                    raise Left
                child = self._idle.pop() if self._idle else None
                if child is None:
                    break
                if child.alive:
                    self._busy.append(child)
                    return child
            child.kill()  # it went by itself, having had nothing to do
        return self._started(order)

    def back(self, child: Child) -> None:
        """Keep a process for the next task; where there is none, end it."""
        _hear(child.printed())
        with self._lock:
            self._busy.remove(child)
            over = self._over
            if not over:
                self._idle.append(child)
        if over:
            child.end()

    def lost(self, child: Child) -> None:
        """Forget a process that has ended.

        Raises:
            Left: it was ended with the run.
        """
        child.kill()
        with self._lock:
            self._busy.remove(child)
            if self._over:
                raise Left

    def end(self) -> None:
        """End all of them; who waits for one that is at work hears that it has ended."""
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
            deadline = time.monotonic() + GRACE
            while self._busy and time.monotonic() < deadline:
                time.sleep(0.01)

    def _started(self, order: Order) -> Child:
        """A new process that has loaded the plan; one that dies of it is begun again.

        Raises:
            Unfit, Lost, Left: as `taken` does.
        """
        how = ""
        for _ in range(TRIES):
            try:
                child = self._begun(order)
            except OSError as error:  # no more processes, or no memory for one
                how = f"{error.strerror or error}"
                continue
            try:
                frame = _asked(child, {"kind": "begin", **order["begin"]}, order["load"], LOADING)
            except WorkerError as end:
                self.lost(child)
                how = f"{end.ending.reason} while it loaded the run"
                continue
            if frame.header["kind"] != "ready":
                self.lost(child)
                raise Unfit(f"on {socket.gethostname()}: {frame.header['text']}")
            return child
        raise Lost(f"on {socket.gethostname()}: {how}, in {TRIES} tries", _address())

    def _begun(self, order: Order) -> Child:
        path = json.dumps(path_without())
        words = [sys.executable, "-P", "-c", PROGRAM, path]
        with self._lock:
            if self._over:
                raise Left
            child = Child(words, env={**MEMORY, **order["env"]}, channel="pipes")
            self._busy.append(child)
        return child


_CREWS: Final[dict[str, _Crew]] = {}
_LOCK: Final = threading.Lock()


def _crew(run: str) -> _Crew:
    with _LOCK:
        return _CREWS.setdefault(run, _Crew())


def _address() -> str:
    """What Dask calls the worker that this is; empty: it is none."""
    distributed: Any = sys.modules.get("distributed")  # a worker has it; nobody else needs it
    try:
        return str(distributed.get_worker().address)
    except (AttributeError, ValueError):
        return ""


def _asked(child: Child, header: Mapping[str, Any], block: bytes, seconds: float) -> frames.Frame:
    """What a process answers.

    Raises:
        WorkerError: it does not.
    """
    try:
        child.send(frames.pieces(header, [block]), LOADING)
        child.deadline(seconds)
        return frames.read(child.exactly)
    except frames.FrameError:
        child.crashed("the code wrote into the channel of its own process")
    except WorkerError as end:
        _hear(end.ending.printed)
        raise


def _hear(text: str) -> None:
    """What is printed there goes to this worker's log."""
    if text and sys.stderr is not None:
        shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
        sys.stderr.write(inert(shown))
