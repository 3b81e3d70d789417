"""Slots: worker processes that stay, each with one task at a time, and what becomes of a task."""

from __future__ import annotations

import ctypes
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
from typing import Any, Final, Generic, Self, TypeVar

from gradcheck.implementations.processes.crash_or_hang import in_words
from gradcheck.run.workers.fork_server import ForkServer, Gone, importing, taken
from gradcheck.run.workers.task_queue import Died, TaskQueue

Task = TypeVar("Task")
Result = TypeVar("Result")
PR_SET_PDEATHSIG: Final = 1
LISTEN: Final = "gradcheck.run.workers.pool:listen"
"""What a worker does."""
TRIES: Final = 2
"""How often a worker may end before it is ready, until its slot is given up."""
HOPE: Final = 60
"""Workers that may end one after the other without an answer from any."""
AGAIN: Final = 4
"""Times in a run that the process which workers come from may end."""
POLITE: Final = 5.0
"""Seconds that workers get to leave off."""


@dataclass(slots=True)
class _Slot(Generic[Task]):
    """A worker: its channel, its process id, and what it was sent and has not answered."""

    number: int
    channel: Connection
    pid: int = 0
    sent: deque[Task] = field(default_factory=deque)
    ready: bool = False
    silent: bool = False
    starts: int = 1


class Pool(Generic[Task, Result]):
    """Work that goes on until the block ends; then none of it is waited for.

    `setup(*arguments)` runs once in every worker; it and `function` stand at the top of a module.
    A worker that ends is replaced.
    """

    def __init__(
        self,
        feed: TaskQueue[Task, Result],
        function: Callable[[Task], Result],
        jobs: int,
        setup: Callable[..., None],
        arguments: tuple[Any, ...] = (),
        *,
        ahead: bool = True,
    ) -> None:
        """Say what is to be done, by how many; `ahead`: no task hangs, others may wait behind."""
        self._feed, self._jobs = feed, min(jobs, max(feed.left, 1))
        self._begin = (function, setup, arguments)
        self._first = [importing(function.__module__)]
        self._nursery, self._again = taken(LISTEN, self._first), 0
        self._slots: list[_Slot[Task]] = []
        self._unborn: deque[_Slot[Task]] = deque()
        self._over, self._losses, self._trouble = False, 0, ""
        self._depths = (False, True) if ahead else (False,)
        self._wake, self._alarm = socket.socketpair()
        self._thread = threading.Thread(target=self._carry_on, name="slots")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Tell the workers to leave off; the end of this process waits for them, for a moment."""
        self._over = True
        self._alarm.close()

    # ── in a thread of its own ───────────────────────────────────────────────────────────────

    def _carry_on(self) -> None:
        try:
            while self._feed.left and not self._over:
                try:
                    for number in range(0 if self._slots else self._jobs):
                        self._bear(number)
                    self._send()
                    self._hear()
                except Gone:
                    self._begin_again()
        except BaseException as error:  # noqa: BLE001  whoever waits must hear of it
            self._feed.broken(error)
        finally:
            self._leave_off()

    def _bear(self, number: int, starts: int = 1) -> None:
        slot: _Slot[Task] = _Slot(number, self._nursery.bear(), starts=starts)
        with suppress(OSError):
            slot.channel.send(self._begin)
        self._slots.append(slot)
        self._unborn.append(slot)

    def _send(self) -> None:
        """Give every slot something to do, and, where that is short, something to do next."""
        for ahead in self._depths:
            for slot in self._slots:
                if len(slot.sent) != ahead:
                    continue
                task = self._feed.next(slot.number, ahead=ahead)
                if task is not None:
                    slot.sent.append(task)
                    with suppress(OSError):  # it is gone, as will be heard
                        slot.channel.send(task)

    def _hear(self, timeout: float | None = None) -> None:
        """Wait for something, and take it in."""
        channels = {slot.channel: slot for slot in self._slots if not slot.silent}
        bell = [] if self._over else [self._wake]
        for source in wait([*channels, self._nursery.control, *bell], timeout):
            if isinstance(source, Connection):
                self._take(channels[source])
            elif source is self._nursery.control:
                self._hear_nursery()

    def _take(self, slot: _Slot[Task]) -> None:
        """Take in what a worker says."""
        try:
            kind, said = slot.channel.recv()
        except (EOFError, OSError):
            slot.silent = True  # how it ended comes from the nursery
            return
        if kind == "ready":
            slot.ready = True
        elif kind == "unfit":
            self._trouble, slot.starts = said, TRIES
        elif kind == "came":
            self._losses = 0
            self._feed.came(slot.sent.popleft(), said)
        else:
            raise said

    def _take_rest(self, slot: _Slot[Task]) -> None:
        """Take in what a worker had said before it ended."""
        while not slot.silent and slot.channel.poll():
            self._take(slot)

    def _hear_nursery(self) -> None:
        for pid, code in self._nursery.heard():
            if code is None:
                self._unborn.popleft().pid = pid
            else:
                self._ended(next(s for s in self._slots if s.pid == pid), code)

    def _begin_again(self) -> None:
        """The process that workers come from is gone, and they with it: another takes its place.

        What they were at is begun once more. It is no task's fault: any process can be killed.
        """
        self._nursery.close()
        for slot in self._slots:
            self._take_rest(slot)
            slot.channel.close()
            for task in reversed(slot.sent):
                self._feed.back(task)
        self._slots.clear()
        self._unborn.clear()
        self._again += 1
        if self._again > AGAIN:
            raise Died(f"the process that worker processes come from ended {self._again} times")
        self._nursery = ForkServer(LISTEN, self._first)

    def _ended(self, slot: _Slot[Task], code: int) -> None:
        """A worker is gone: another one takes its place, unless there is no hope in that."""
        self._take_rest(slot)
        slot.channel.close()
        self._slots.remove(slot)
        if self._over:
            return
        how = in_words(code)
        self._losses += 1
        at_work = slot.ready and bool(slot.sent)
        for task in [*slot.sent][: 0 if at_work else None : -1]:
            self._feed.back(task)
        if at_work:
            self._feed.lost(slot.sent[0], how)
        if slot.ready or slot.starts < TRIES:
            self._bear(slot.number, 1 if slot.ready else slot.starts + 1)
        self._trouble = self._trouble or f"one ended while it began ({how})" * (not slot.ready)
        if not self._slots or self._losses > HOPE:
            raise Died(f"no worker process can go on: {self._trouble or how}")

    def _leave_off(self) -> None:
        """End all workers, at first politely."""
        early, self._over = bool(self._feed.left), True
        deadline, asked = time.monotonic() + POLITE, set[int]()
        with suppress(Exception):
            for slot in self._slots:
                if not early:  # they have nothing to do, and end by themselves
                    slot.silent = True
                    slot.channel.close()
            while self._slots and (left := deadline - time.monotonic()) > 0:
                for pid in {slot.pid for slot in self._slots if early and slot.pid} - asked:
                    os.kill(pid, signal.SIGTERM)
                    asked.add(pid)
                self._hear(left)
        for slot in self._slots:
            slot.channel.close()
            if slot.pid:
                with suppress(ProcessLookupError):
                    os.kill(slot.pid, signal.SIGKILL)
        self._nursery.close()
        self._wake.close()


# ── in a worker ──────────────────────────────────────────────────────────────────────────────────


class _Stop:
    """In a worker: whether it has been told to leave off."""

    asked = False


def listen(channel: Connection) -> None:
    """Do what comes, one task after the other, until the channel ends."""
    signal.signal(signal.SIGTERM, _stop)  # ends a task, and with it what the task has started
    with suppress(AttributeError):  # Linux alone: nobody who is killed leaves this behind
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            function, setup, arguments = channel.recv()
            setup(*arguments)
        except Exception as error:  # noqa: BLE001  whatever it is, the others may go on
            channel.send(("unfit", f"{type(error).__name__}: {error}"))
            return
        channel.send(("ready", None))
        while not _Stop.asked:
            channel.send_bytes(_done(function, channel.recv()))


def _done(function: Callable[[Any], Any], task: Any) -> bytes:
    """What a task gives, as it travels; what it raises is raised where the result is awaited."""
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
