"""Worker processes that stay, each with one task at a time; a worker that ends is replaced."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from gradcheck.implementations.processes.crash_or_hang import in_words
from gradcheck.run.workers import WorkersLostError
from gradcheck.run.workers.fork_server import (
    ForkServer,
    ForkServerLostError,
    importing,
    server_for,
)
from gradcheck.system.posix import libc

Task = TypeVar("Task")
Result = TypeVar("Result")
Answer = TypeVar("Answer", contravariant=True)
PR_SET_PDEATHSIG: Final = 1
LISTEN: Final = "gradcheck.run.workers.pool:listen"
"""The entry of a worker."""
MAX_STARTS: Final = 2
"""How often a worker may end before it is ready, until its slot is given up."""
MAX_LOSSES: Final = 60
"""Workers that may end one after the other without an answer from any."""
MAX_SERVER_LOSSES: Final = 4
"""How often the fork server may end in a run."""
STOP_SECONDS: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class TaskQueue(Protocol[Task, Answer]):
    """Tasks for workers; its methods are called from one thread."""

    @property
    def left(self) -> int:
        """The number of results to come; at 0 there is nothing more to do."""

    def next(self, slot: int, *, ahead: bool = False) -> Task | None:
        """The next task of the worker in a slot, or, with `ahead`, the task after its current one.

        None where nothing waits; after a loss, something may wait again.
        """

    def came(self, task: Task, result: Answer) -> None:
        """Take the result of a task."""

    def lost(self, task: Task, how: str) -> None:
        """Note that a worker ended, `how` in words, during a task."""

    def back(self, task: Task) -> None:
        """Take back a task that was sent, but not begun."""

    def broken(self, error: BaseException) -> None:
        """Report to the run that no more results will come."""


@dataclass(slots=True)
class _Slot(Generic[Task]):
    """A worker: its channel, its process id, and the tasks that it has not answered."""

    number: int
    channel: Connection
    pid: int = 0
    sent: deque[Task] = field(default_factory=deque)
    ready: bool = False
    silent: bool = False
    starts: int = 1


class Pool(Generic[Task, Result]):
    """Workers that do the tasks of a queue until the block ends, which waits for none of them.

    `setup(*arguments)` runs once in every worker; it and `function` stand at the top of a module.
    """

    def __init__(
        self,
        queue: TaskQueue[Task, Result],
        function: Callable[[Task], Result],
        jobs: int,
        setup: Callable[..., None],
        arguments: tuple[Any, ...] = (),
        *,
        ahead: bool = True,
    ) -> None:
        """Take the queue and the number of workers; `ahead`: tasks may queue behind another."""
        self._queue, self._jobs = queue, min(jobs, max(queue.left, 1))
        self._begin = (function, setup, arguments)
        self._first = [importing(function.__module__)]
        self._server, self._server_losses = server_for(LISTEN, self._first), 0
        self._slots: list[_Slot[Task]] = []
        self._starting: deque[_Slot[Task]] = deque()
        self._over, self._losses, self._trouble = False, 0, ""
        self._depths = (False, True) if ahead else (False,)
        self._wake, self._alarm = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="workers")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers; the end of this process waits for them, for a moment."""
        self._over = True
        self._alarm.close()

    # ── in a thread of its own ───────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            while self._queue.left and not self._over:
                try:
                    for number in range(0 if self._slots else self._jobs):
                        self._start(number)
                    self._send()
                    self._receive()
                except ForkServerLostError:
                    self._restart_server()
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            self._queue.broken(error)
        finally:
            self._stop()

    def _start(self, number: int, starts: int = 1) -> None:
        slot: _Slot[Task] = _Slot(number, self._server.spawn(), starts=starts)
        with suppress(OSError):
            slot.channel.send(self._begin)
        self._slots.append(slot)
        self._starting.append(slot)

    def _send(self) -> None:
        """Send every worker a task, and, behind a short one, another."""
        for ahead in self._depths:
            for slot in self._slots:
                if len(slot.sent) != ahead:
                    continue
                task = self._queue.next(slot.number, ahead=ahead)
                if task is not None:
                    slot.sent.append(task)
                    with suppress(OSError):  # it has ended, as its event will tell
                        slot.channel.send(task)

    def _receive(self, timeout: float | None = None) -> None:
        """Wait for answers and events, and process them."""
        channels = {slot.channel: slot for slot in self._slots if not slot.silent}
        bell = [] if self._over else [self._wake]
        for source in wait([*channels, self._server.control, *bell], timeout):
            if isinstance(source, Connection):
                self._take(channels[source])
            elif source is self._server.control:
                self._take_events()

    def _take(self, slot: _Slot[Task]) -> None:
        """Process a message of a worker."""
        try:
            kind, said = slot.channel.recv()
        except (EOFError, OSError):
            slot.silent = True  # the server reports how it ended
            return
        if kind == "ready":
            slot.ready = True
        elif kind == "unfit":
            self._trouble, slot.starts = said, MAX_STARTS
        elif kind == "came":
            self._losses = 0
            self._queue.came(slot.sent.popleft(), said)
        else:
            raise said

    def _take_rest(self, slot: _Slot[Task]) -> None:
        """Process the messages that a worker sent before it ended."""
        while not slot.silent and slot.channel.poll():
            self._take(slot)

    def _take_events(self) -> None:
        for pid, code in self._server.events():
            if code is None:
                self._starting.popleft().pid = pid
            else:
                self._ended(next(s for s in self._slots if s.pid == pid), code)

    def _restart_server(self) -> None:
        """Replace the fork server, which has ended with its workers, and requeue their tasks.

        No task is blamed: any process can be killed.
        """
        self._server.close()
        for slot in self._slots:
            self._take_rest(slot)
            slot.channel.close()
            for task in reversed(slot.sent):
                self._queue.back(task)
        self._slots.clear()
        self._starting.clear()
        self._server_losses += 1
        if self._server_losses > MAX_SERVER_LOSSES:
            raise WorkersLostError(
                f"the process that worker processes come from ended {self._server_losses} times"
            )
        self._server = ForkServer(LISTEN, self._first)

    def _ended(self, slot: _Slot[Task], code: int) -> None:
        """Replace a worker that has ended, unless too many have."""
        self._take_rest(slot)
        slot.channel.close()
        self._slots.remove(slot)
        if self._over:
            return
        how = in_words(code)
        self._losses += 1
        at_work = slot.ready and bool(slot.sent)
        for task in [*slot.sent][: 0 if at_work else None : -1]:
            self._queue.back(task)
        if at_work:
            self._queue.lost(slot.sent[0], how)
        if slot.ready or slot.starts < MAX_STARTS:
            self._start(slot.number, 1 if slot.ready else slot.starts + 1)
        self._trouble = self._trouble or f"one ended while it began ({how})" * (not slot.ready)
        if not self._slots or self._losses > MAX_LOSSES:
            raise WorkersLostError(f"no worker process can go on: {self._trouble or how}")

    def _stop(self) -> None:
        """End all workers: by SIGTERM, then by SIGKILL."""
        early, self._over = bool(self._queue.left), True
        deadline, asked = time.monotonic() + STOP_SECONDS, set[int]()
        with suppress(Exception):
            for slot in self._slots:
                if not early:  # they have nothing to do, and end by themselves
                    slot.silent = True
                    slot.channel.close()
            while self._slots and (left := deadline - time.monotonic()) > 0:
                for pid in {slot.pid for slot in self._slots if early and slot.pid} - asked:
                    os.kill(pid, signal.SIGTERM)
                    asked.add(pid)
                self._receive(left)
        for slot in self._slots:
            slot.channel.close()
            if slot.pid:
                with suppress(ProcessLookupError):
                    os.kill(slot.pid, signal.SIGKILL)
        self._server.close()
        self._wake.close()


# ── in a worker ──────────────────────────────────────────────────────────────────────────────────


class _Stop:
    """In a worker: whether it was asked to stop."""

    asked = False


def listen(channel: Connection) -> None:
    """Do one task after the other until the channel closes."""
    signal.signal(signal.SIGTERM, _stop)  # ends a task and the processes that it started
    with suppress(AttributeError):  # Linux: end with the server
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            function, setup, arguments = channel.recv()
            setup(*arguments)
        except Exception as error:  # noqa: BLE001  other workers may go on
            channel.send(("unfit", f"{type(error).__name__}: {error}"))
            return
        channel.send(("ready", None))
        while not _Stop.asked:
            channel.send_bytes(_done(function, channel.recv()))


def _done(function: Callable[[Any], Any], task: Any) -> bytes:
    """The pickled result of a task; an exception is raised again where the result is awaited."""
    try:
        return _packed("came", function(task))
    except Exception as error:  # noqa: BLE001  whatever it is
        try:
            return _packed("raised", error)
        except Exception:  # noqa: BLE001  nor can that travel
            return _packed("raised", RuntimeError(f"{type(error).__name__}: {error}"))


def _packed(kind: str, said: Any) -> bytes:
    return pickle.dumps((kind, said), pickle.HIGHEST_PROTOCOL)


def _stop(*_: object) -> None:
    _Stop.asked = True
    raise KeyboardInterrupt
