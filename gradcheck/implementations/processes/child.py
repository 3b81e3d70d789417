"""A child process: messages with deadlines, its end, and the end of all that it started.

What becomes of a crash or hang is told in `crash_or_hang`.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NoReturn

from gradcheck.implementations.processes.crash_or_hang import Ending, WorkerError, in_words
from gradcheck.implementations.processes.frames import Block
from gradcheck.results.printed import Heard
from gradcheck.results.verdict import Verdict
from gradcheck.system.posix import fcntl, resource, select

RLIMIT_LOCKS: Final = 10
"""Linux's limit on locks of files: kept for each process, and without effect since 2.4."""
VARIABLE: Final = "GRADCHECK_CHILD"
"""The environment variable that stands in for it elsewhere."""
LOOKS: Final = hasattr(os, "waitid")
"""Whether the end of a child can be seen without reaping it: not on macOS before Python 3.13."""
_ONE_AT_A_TIME: Final = threading.Lock()


class Mark:
    """A mark on a child and all that it starts, even in another process group.

    It is a number that no other child has, set as a limit that limits nothing. A fork and an exec
    hand it on; a new session and an empty environment leave it. Where that limit cannot be set,
    it is an environment variable.
    """

    def __init__(self) -> None:
        """Draw a number."""
        self.environment: dict[str, str] = {}
        self._number = secrets.randbits(62)

    @contextmanager
    def put(self) -> Iterator[None]:
        """Put the mark on processes that start in the block, with `environment` added to theirs.

        This process has the mark meanwhile, and so have processes that another thread starts: those
        are in our session, which a stray of a child never is.
        """
        with _ONE_AT_A_TIME, ExitStack() as after:
            try:
                if sys.platform != "linux":
                    raise OSError
                before = resource.getrlimit(RLIMIT_LOCKS)
                resource.setrlimit(RLIMIT_LOCKS, (self._number, before[1]))
                after.callback(resource.setrlimit, RLIMIT_LOCKS, before)
            except (OSError, ValueError):  # elsewhere; or it may not be set so high
                self.environment = {VARIABLE: str(self._number)}
            yield

    def strays(self) -> Iterator[int]:
        """Live processes with the mark; none where the system does not list them."""
        entry = "".join(f"{name}={value}\0" for name, value in self.environment.items())
        sought = (entry or f" {self._number} ").encode()
        ours = str(os.getsid(0))
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is another user's
                if sought not in (folder / ("environ" if entry else "limits")).read_bytes():
                    continue
                said = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                state, _, _, session, *_ = said.rpartition(")")[2].split()
                if state not in "ZX" and session != ours:
                    yield int(folder.name)


def dead(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended; it is not reaped, if `LOOKS`: its group keeps its number."""
    if process.returncode is not None:
        return True
    if not LOOKS:
        return process.poll() is not None
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, look) is not None
    except ChildProcessError:  # reaped by somebody else
        return True


def bury(process: subprocess.Popen[bytes], descriptors: dict[str, int], mark: Mark) -> None:
    """End the group and what has left it, reap the leader, close what is open."""
    if process.returncode is None or not LOOKS:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for _ in range(100):  # one that forks meanwhile has the mark, too
        if not sum(_killed(pid) for pid in mark.strays()):
            break
        time.sleep(0.001)
    for descriptor in descriptors.values():
        os.close(descriptor)
    descriptors.clear()


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


CHUNK: Final = 1 << 16
"""Bytes that are read at once."""
AHEAD: Final = 1 << 26
"""Bytes taken from a child that answers before it has read its request."""
PIPE: Final = 1 << 20
"""Bytes that a pipe is asked to hold: fewer switches between the processes."""
STEP: Final = 1 << 24
"""Bytes set aside at first for a long message: its length may be a lie."""
POLITE: Final = 2.0
"""Seconds for a child to end by itself, and again after SIGTERM."""
AT_ONCE: Final = 512
"""Pieces written in one call; systems allow 1024."""
BLINK: Final = 0.05
"""Polling interval in seconds where the system does not signal a child's end."""
SINGLE: Final = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
"""Set to 1 in every child: the order of sums changes their bits."""

Channel = Literal["stdio", "pipes"]


class Child:
    """A process of its own session; of what it prints the first and the last 32 KiB are kept.

    `channel` "stdio": messages go to its standard input and come from its standard output; what it
    prints is its standard error. "pipes": messages travel through two descriptors of their own,
    whose numbers (to read from, to write to) are added to `argv`; its standard input is empty, and
    both of its other streams are what it prints.

    Raises:
        OSError: it cannot be started; the message names the program.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        channel: Channel = "stdio",
    ) -> None:
        """Start it; `env` is added to this process's environment."""
        requests, out = _pipe()
        into, answers = _pipe()
        capture, prints = _pipe()
        theirs = (requests, answers, prints)
        mark, pipes = Mark(), channel == "pipes"
        try:
            with mark.put():
                self.process = subprocess.Popen(
                    [*argv, str(requests), str(answers)] if pipes else [*argv],
                    stdin=subprocess.DEVNULL if pipes else requests,
                    stdout=prints if pipes else answers,
                    stderr=prints,
                    pass_fds=(requests, answers) if pipes else (),
                    env={**environment(env or {}), **mark.environment},
                    cwd=cwd,
                    start_new_session=True,
                )
        except BaseException:
            for descriptor in (out, into, capture):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._descriptors = {"out": out, "into": into, "capture": capture}
        with suppress(AttributeError, OSError):  # else the child is looked at every 50 ms
            self._descriptors["death"] = os.pidfd_open(self.process.pid)
        for descriptor in (out, into, capture):
            os.set_blocking(descriptor, False)
        self._poll = select.poll()
        for name in ("into", "capture", "death"):
            if name in self._descriptors:
                self._poll.register(self._descriptors[name], select.POLLIN)
        self._unread, self._heard = bytearray(), Heard()
        self._silent = False
        self._deadline, self._seconds = float("inf"), float("inf")
        self._ending: Ending | None = None
        self._bury = weakref.finalize(self, bury, self.process, self._descriptors, mark)

    # ── talk ─────────────────────────────────────────────────────────────────────────────────

    def deadline(self, seconds: float) -> None:
        """From now on, what is read must come within so many seconds."""
        self._deadline, self._seconds = time.monotonic() + seconds, seconds

    def left(self) -> float:
        """Seconds until then.

        Raises:
            WorkerError: there are none.
        """
        self._refuse_if_over()
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            self._late(f"no answer within {self._seconds:g} s")
        return seconds

    def send(self, pieces: Iterable[Block], timeout: float) -> None:
        """Write all of `pieces`; what the child says meanwhile is kept for later.

        A child that no longer reads raises nothing here: it may have answered before it ended, and
        reading tells how it ended.

        Raises:
            WorkerError: it did not take them within `timeout` seconds; or it had ended before.
        """
        self._refuse_if_over()
        deadline = time.monotonic() + timeout
        out = self._descriptors.get("out")
        if out is None:
            return None
        rest = [memoryview(piece).cast("B") for piece in pieces]
        rest.reverse()
        while rest:
            try:
                _advance(rest, os.writev(out, rest[: -AT_ONCE - 1 : -1]))
            except BlockingIOError:
                if dead(self.process):  # and something that it started keeps the pipe open
                    return self._close("out")
                if not self._wait(deadline, writing=out):
                    self._late(f"did not read its input within {timeout:g} s")
            except BrokenPipeError:
                return self._close("out")
        return None

    def close_input(self) -> None:
        """Close the child's input."""
        self._close("out")

    def exactly(self, n: int) -> bytearray:
        """The next `n` bytes.

        Raises:
            WorkerError: the child ended before it had sent them, or the deadline passed.
        """
        found = bytearray(min(n, max(STEP, len(self._unread))))
        filled = min(n, len(self._unread))
        found[:filled] = self._unread[:filled]
        del self._unread[:filled]
        while filled < n:
            if filled == len(found):
                found.extend(bytes(min(n - filled, len(found))))
            with memoryview(found) as whole, whole[filled:] as room:
                filled += self._receive(room)
        return found

    def line(self, limit: int) -> bytes:
        """The next line, its newline included; of a longer one than `limit` bytes, so many.

        Raises:
            WorkerError: the child ended before its line did, or the deadline passed; what it had
                sent is still in `unread`.
        """
        looked, room = 0, bytearray(CHUNK)
        while (end := self._unread.find(b"\n", looked, limit)) < 0 and len(self._unread) < limit:
            looked = len(self._unread)
            got = self._receive(memoryview(room))
            self._unread += room[:got]
        found = bytes(self._unread[: end + 1 if end >= 0 else limit])
        del self._unread[: len(found)]
        return found

    @property
    def unread(self) -> bytes:
        """Bytes of the child's output that were not read."""
        return bytes(self._unread)

    def printed(self) -> str:
        """The first and the last of what the child printed since this was last asked."""
        self._drain()
        return self._heard.take()

    # ── end ──────────────────────────────────────────────────────────────────────────────────

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._ending is None and not dead(self.process)

    def wait(self, seconds: float) -> int:
        """Its return code, as `subprocess` gives it; what it says meanwhile is in `unread`.

        Raises:
            WorkerError: it is still there after so many seconds.
        """
        self._refuse_if_over()
        deadline = time.monotonic() + seconds
        while not dead(self.process):
            if not self._wait(deadline):
                self._late(f"did not end within {seconds:g} s")
        self._look()
        self._drain()
        self.kill()
        return self.process.returncode

    def end(self) -> None:
        """Close its input, and wait; then SIGTERM, and wait; then SIGKILL for all that is left."""
        if self._bury.alive:
            self._close("out")
            if not self._gone_within(POLITE):
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGTERM)
                self._gone_within(POLITE)
        self.kill()

    def kill(self) -> None:
        """SIGKILL for it and what it started; nothing is waited for. A second time does nothing."""
        if self._ending is None:
            self._ending = Ending(verdict=Verdict.CRASH, reason="ended by us")
        self._bury()

    def crashed(self, reason: str) -> NoReturn:
        """End a child whose messages make no sense.

        Raises:
            WorkerError: always, with that reason and what the child printed.
        """
        self._over(Verdict.CRASH, reason)

    # ── within ───────────────────────────────────────────────────────────────────────────────

    def _receive(self, room: memoryview) -> int:
        """Wait for bytes, and put as many into `room` as there are; 1 or more."""
        self._refuse_if_over()
        while True:
            gone = dead(self.process)  # before the look: what it wrote before is there by now
            try:
                got = os.readv(self._descriptors["into"], [room])
            except BlockingIOError:
                if gone:
                    self._fell()
                if not self._wait(self._deadline, reading=False):
                    self._late(f"no answer within {self._seconds:g} s")
                continue
            if not got:
                self._fell()
            return got

    def _wait(self, deadline: float, *, writing: int | None = None, reading: bool = True) -> bool:
        """Wait for an event, and read what was printed (and sent, if `reading`).

        False: the deadline has passed.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if "death" not in self._descriptors:
            left = min(left, BLINK)
        full = reading and len(self._unread) >= AHEAD
        if not self._silent:
            self._poll.modify(self._descriptors["into"], 0 if full else select.POLLIN)
        if writing is not None:
            self._poll.register(writing, select.POLLOUT)
        try:
            events = self._poll.poll(min(1000 * left + 1, 1e9))
        finally:
            if writing is not None:
                self._poll.unregister(writing)
        ready = {descriptor for descriptor, _ in events}
        if self._descriptors.get("capture") in ready:
            self._drain()
        if reading and not full and self._descriptors["into"] in ready:
            self._look()
        return True

    def _look(self) -> None:
        """Read the child's output into `_unread`, up to a limit."""
        while len(self._unread) < AHEAD and not self._silent:
            try:
                got = os.read(self._descriptors["into"], PIPE)
            except BlockingIOError:
                return
            if not got:  # it will say no more: nothing to wait for there
                self._poll.unregister(self._descriptors["into"])
                self._silent = True
            self._unread += got

    def _drain(self) -> None:
        """Read what was printed, at most as much as a pipe holds: a flood must not stall this."""
        for _ in range(PIPE // CHUNK):
            descriptor = self._descriptors.get("capture")
            if descriptor is None:
                return
            try:
                got = os.read(descriptor, CHUNK)
            except BlockingIOError:
                return
            if not got:
                self._poll.unregister(descriptor)
                self._close("capture")
            self._heard.add(got)

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not dead(self.process):
            if not self._wait(deadline):
                return False
            del self._unread[:]
        return True

    def _fell(self) -> NoReturn:
        """Raise how the child ended, after the end of its output."""
        if not self._gone_quietly(POLITE):
            self._over(Verdict.CRASH, "closed its output before it answered")
        self._drain()
        self._bury()
        code = self.process.returncode
        if code < 0:
            foreign = code == -signal.SIGKILL
            reason = in_words(code) + (" (not from here: out of memory?)" if foreign else "")
        else:
            reason = f"exited with status {code} before it answered"
        self._over(Verdict.CRASH, reason, code)

    def _gone_quietly(self, seconds: float) -> bool:
        """Whether a child whose channel is closed ends by itself."""
        deadline = time.monotonic() + seconds
        while not dead(self.process) and time.monotonic() < deadline:
            self._drain()
            time.sleep(0.001)
        return dead(self.process)

    def _late(self, reason: str) -> NoReturn:
        self._over(Verdict.TIMEOUT, reason)

    def _over(self, verdict: Verdict, reason: str, code: int | None = None) -> NoReturn:
        printed = self.printed()
        self._bury()
        self._ending = Ending(verdict=verdict, reason=reason, printed=printed, returncode=code)
        raise WorkerError(self._ending)

    def _refuse_if_over(self) -> None:
        if self._ending is not None:
            raise WorkerError(self._ending)

    def _close(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)


def _advance(rest: list[memoryview], written: int) -> None:
    """Take `written` bytes from pieces that stand last to first."""
    while rest and written >= rest[-1].nbytes:
        written -= rest.pop().nbytes
    if written:
        rest[-1] = rest[-1][written:]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: this process's, one thread per library, and what is `extra`."""
    return {**os.environ, **dict.fromkeys(SINGLE, "1"), **extra}


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    with suppress(AttributeError, OSError):  # another system, or a user's pipes are all large
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PIPE)
    return ends
