"""Worker processes that are born of one which has loaded what all of them need.

That one can be started while this process still loads for itself. It loads our own code and
suites, and forks; what does not survive a fork (Go's runtime, thread pools) is loaded by each
worker. Where forking is unsafe altogether, every worker starts from nothing.
"""

from __future__ import annotations

import gc
import json
import os
import select
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
from gradcheck.system import interrupts
from gradcheck.system.user_modules import path_without

FORKS: Final = sys.platform == "linux"
"""Elsewhere system libraries that NumPy uses forbid it."""
BEGIN: Final = (
    "import json, sys; said = json.loads(sys.argv.pop(1)); sys.path[:] = said['path']; "
    "from gradcheck.run.workers.fork_server import main; main(said)"
)
ENOUGH: Final = 1 << 16
"""Bytes read at once."""


class Gone(RuntimeError):  # noqa: N818  a process is
    """The process that others are born of has ended, and they with it."""


Loading = tuple[str, str, Sequence[object]]
"""A module, a function in it, and what it is called with, which JSON holds."""


def importing(module: str) -> Loading:
    """The loading of a module, no more."""
    return "importlib", "import_module", (module,)


class ForkServer:
    """The process that others are born of; `first` is what it loads, if that leaves it one thread.

    `entry`, "module:function", is what a worker does with its end of a channel.
    """

    def __init__(self, entry: str, first: Sequence[Loading] = (), *, forks: bool = FORKS) -> None:
        """Start it; it goes on loading by itself."""
        self.control, theirs = socket.socketpair()
        self._unread = b""
        said: dict[str, Any] = {"path": path_without(), "argv": sys.argv}
        said |= {"entry": entry, "first": first, "forks": forks}
        flags = ["-P", *(f"-W{option}" for option in sys.warnoptions)]
        words = [sys.executable, *flags, "-c", BEGIN, json.dumps(said, default=str)]
        with theirs, interrupts.blocked():  # a terminal's Ctrl-C is for this process alone
            self._process = subprocess.Popen(
                [*words, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )

    def bear(self) -> Connection:
        """Ask for a worker; returns our end of its channel.

        Raises:
            Gone: the process has ended.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                socket.send_fds(self.control, [b"+"], [theirs.fileno()])
            except ConnectionError:
                raise Gone from None
            return Connection(ours.detach())

    def heard(self) -> Iterator[tuple[int, int | None]]:
        """What has happened: a worker was born, in the order of asking, or has ended.

        Yields its process id with None, or with its return code as `subprocess` gives it. It
        waits for something.

        Raises:
            Gone: the process has ended.
        """
        try:
            read = self.control.recv(ENOUGH)
        except ConnectionError:
            read = b""
        if not read:
            raise Gone
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            pid, *code = map(int, line.split())
            yield pid, code[0] if code else None

    def close(self) -> None:
        """End it; workers that are left end with it, where the system can do that."""
        self.control.close()
        self._process.kill()
        self._process.wait()


_FORESEEN: list[ForkServer] = []


@contextmanager
def foreseen(entry: str, first: Sequence[Loading]) -> Iterator[None]:
    """Workers will be needed in the block: they load while this process does."""
    nursery = ForkServer(entry, first)
    _FORESEEN.append(nursery)
    try:
        yield
    finally:
        if nursery in _FORESEEN:
            _FORESEEN.remove(nursery)
            nursery.close()


def taken(entry: str, first: Sequence[Loading]) -> ForkServer:
    """One that was foreseen, to be closed by who takes it; else a new one."""
    return _FORESEEN.pop() if _FORESEEN else ForkServer(entry, first)


# ── in that process ──────────────────────────────────────────────────────────────────────────────


def main(said: Mapping[str, Any]) -> None:
    """Load, and bear workers, until nobody asks any more; a worker does its work."""
    interrupts.ignore()  # it ends when its channel does
    if sys.stderr is None:  # closed: what is printed is for nobody
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w")
    os.dup2(2, 1)  # what a suite or the code judged prints is no part of a report
    sys.stdout = sys.stderr = Inert(sys.stderr)
    sys.argv[:-1] = said["argv"]
    number = int(sys.argv.pop())
    gc.set_threshold(50_000, 20, 20)  # as the command line does
    channel: int | None = number
    if not said.get("born"):
        if said["forks"]:
            _prepare(said, number)
        channel = _serve(socket.socket(fileno=number), said)
    if channel is not None:
        entry: Callable[[Connection], None] = _named(*said["entry"].split(":"))
        entry(Connection(channel))


def _prepare(said: Mapping[str, Any], number: int) -> None:
    """Load what comes first; where threads come with it, begin again without."""
    before = _threads()
    for module, name, arguments in said["first"]:
        with suppress(Exception, SystemExit):  # a worker will say so, and whose fault it is
            _named(module, name)(*arguments)
    if _threads() > before:  # a fork would leave them behind
        os.set_inheritable(number, True)
        _become({**said, "first": ()}, number)
    gc.freeze()


def _serve(control: socket.socket, said: Mapping[str, Any]) -> int | None:
    """Bear workers until the channel ends; the channel of one, in the process that it is."""
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
                os.read(wake, ENOUGH)
                _tell_ends(control)
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


def _tell_ends(control: socket.socket) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            control.sendall(f"{pid} {os.waitstatus_to_exitcode(status)}\n".encode())


def _spawned(said: Mapping[str, Any], number: int) -> int:
    os.set_inheritable(number, True)
    return os.posix_spawn(sys.executable, _words({**said, "born": True}, number), os.environ)


def _become(said: Mapping[str, Any], number: int) -> NoReturn:
    os.execv(sys.executable, _words(said, number))


def _words(said: Mapping[str, Any], number: int) -> list[str]:
    """What starts this program again, with something else said to it."""
    begin = sys.orig_argv.index(BEGIN)
    return [*sys.orig_argv[: begin + 1], json.dumps(said), str(number)]


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _threads() -> int:
    return len([*Path("/proc/self/task").iterdir()])
