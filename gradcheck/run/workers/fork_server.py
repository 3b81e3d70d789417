"""A fork server: a process that loads what all workers need, and forks them.

It may start while this process still loads its own modules. It loads gradcheck and suites; what
does not survive a fork (Go's runtime, thread pools) is loaded by each worker. Where forking is
unsafe, each worker is a new interpreter. Why not `multiprocessing`'s: docs/adr/0054.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NoReturn

from gradcheck.results.ci_safe import Inert
from gradcheck.system.posix import select
from gradcheck.system.process import blocked_signals, ignore_signals
from gradcheck.system.user_modules import path_without

FORKS: Final = sys.platform == "linux"
"""On other systems, libraries that NumPy uses forbid it."""
BEGIN: Final = (
    "import json, sys; said = json.loads(sys.argv.pop(1)); sys.path[:] = said['path']; "
    "from gradcheck.run.workers.fork_server import main; main(said)"
)
READ_SIZE: Final = 1 << 16
"""Bytes read at once."""


class ForkServerLostError(RuntimeError):
    """The fork server has ended, and its workers with it."""


Loading = tuple[str, str, Sequence[object]]
"""A module, a function in it, and arguments that JSON can hold."""


def importing(module: str) -> Loading:
    """Import a module, and call nothing in it."""
    return "importlib", "import_module", (module,)


class ForkServer:
    """The process that forks workers.

    Args:
        entry: "module:function", called in a worker with its end of a channel.
        first: what the server loads, unless that starts threads.
        forks: whether it forks; False: each worker is a new interpreter.
    """

    def __init__(self, entry: str, first: Sequence[Loading] = (), *, forks: bool = FORKS) -> None:
        """Start it; it loads in the background."""
        self.control, theirs = socket.socketpair()
        self._unread = b""
        said: dict[str, Any] = {"path": path_without(), "argv": sys.argv}
        said |= {"entry": entry, "first": first, "forks": forks}
        flags = ["-P", *(f"-W{option}" for option in sys.warnoptions)]
        words = [sys.executable, *flags, "-c", BEGIN, json.dumps(said, default=str)]
        with theirs, blocked_signals():  # a terminal's Ctrl-C is for this process alone
            self._process = subprocess.Popen(
                [*words, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )

    def spawn(self) -> Connection:
        """Request a worker; returns this process's end of its channel.

        Raises:
            ForkServerLostError: the server has ended.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                socket.send_fds(self.control, [b"+"], [theirs.fileno()])
            except ConnectionError:
                raise ForkServerLostError from None
            return Connection(ours.detach())

    def events(self) -> Iterator[tuple[int, int | None]]:
        """Wait for workers to start, in the order of requests, or to end.

        Yields:
            The process id of a worker, with None at its start, or its return code as `subprocess`
            gives it at its end.

        Raises:
            ForkServerLostError: the server has ended.
        """
        try:
            read = self.control.recv(READ_SIZE)
        except ConnectionError:
            read = b""
        if not read:
            raise ForkServerLostError
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            pid, *code = map(int, line.split())
            yield pid, code[0] if code else None

    def close(self) -> None:
        """End the server; on Linux its workers end with it."""
        self.control.close()
        self._process.kill()
        self._process.wait()


_PRESTARTED: list[ForkServer] = []


@contextmanager
def prestarted(entry: str, first: Sequence[Loading]) -> Iterator[None]:
    """Start a server ahead, for workers that the block will need."""
    server = ForkServer(entry, first)
    _PRESTARTED.append(server)
    try:
        yield
    finally:
        if server in _PRESTARTED:
            _PRESTARTED.remove(server)
            server.close()


def server_for(entry: str, first: Sequence[Loading]) -> ForkServer:
    """A server that was started ahead, else a new one; the caller closes it."""
    return _PRESTARTED.pop() if _PRESTARTED else ForkServer(entry, first)


# ── in the server ────────────────────────────────────────────────────────────────────────────────


def main(said: Mapping[str, Any]) -> None:
    """Load, and fork workers until the channel closes; in a worker, run its entry."""
    ignore_signals()  # it ends when its channel does
    if sys.stderr is None:  # closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w")
    os.dup2(2, 1)  # prints of suites and of the code judged stay out of reports
    sys.stdout = sys.stderr = Inert(sys.stderr)
    sys.argv[:-1] = said["argv"]
    number = int(sys.argv.pop())
    gc.set_threshold(50_000, 20, 20)  # as the command line does
    channel: int | None = number
    if not said.get("spawned"):
        if said["forks"]:
            _prepare(said, number)
        channel = _serve(socket.socket(fileno=number), said)
    if channel is not None:
        entry: Callable[[Connection], None] = _named(*said["entry"].split(":"))
        entry(Connection(channel))


def _prepare(said: Mapping[str, Any], number: int) -> None:
    """Load `first`; if that starts threads, start again without it."""
    before = _threads()
    for module, name, arguments in said["first"]:
        with suppress(Exception, SystemExit):  # a worker reports it
            _named(module, name)(*arguments)
    if _threads() > before:  # which a fork would lose
        os.set_inheritable(number, True)
        _become({**said, "first": ()}, number)
    gc.freeze()


def _serve(control: socket.socket, said: Mapping[str, Any]) -> int | None:
    """Fork workers until the channel closes; in a worker, return its channel."""
    wake, alarm = os.pipe()
    for end in (wake, alarm):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(alarm)
    poll = select.poll()
    for source in (control.fileno(), wake):
        poll.register(source, select.POLLIN)
    with suppress(ConnectionError):
        while True:
            ready = {source for source, _ in poll.poll()}
            if wake in ready:
                os.read(wake, READ_SIZE)
                _send_ends(control)
            if control.fileno() in ready:
                asked, numbers, *_ = socket.recv_fds(control, 1, 1)
                if not asked:
                    break
                (number,) = numbers
                pid = os.fork() if said["forks"] else _spawned(said, number)
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for source in (wake, alarm):
                        os.close(source)
                    control.close()
                    return number
                os.close(number)
                control.sendall(f"{pid}\n".encode())
    return None


def _send_ends(control: socket.socket) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            control.sendall(f"{pid} {os.waitstatus_to_exitcode(status)}\n".encode())


def _spawned(said: Mapping[str, Any], number: int) -> int:
    os.set_inheritable(number, True)
    return os.posix_spawn(sys.executable, _words({**said, "spawned": True}, number), os.environ)


def _become(said: Mapping[str, Any], number: int) -> NoReturn:
    os.execv(sys.executable, _words(said, number))


def _words(said: Mapping[str, Any], number: int) -> list[str]:
    """The command that starts this program again with other instructions."""
    begin = sys.orig_argv.index(BEGIN)
    return [*sys.orig_argv[: begin + 1], json.dumps(said), str(number)]


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _threads() -> int:
    return len([*Path("/proc/self/task").iterdir()])
