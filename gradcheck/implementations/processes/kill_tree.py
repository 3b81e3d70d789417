"""A process and all that it has started: whether it has ended, and the end of them all."""

from __future__ import annotations

import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

RLIMIT_LOCKS: Final = 10
"""Linux's limit on locks of files: kept for each process, and without effect since 2.4."""
VARIABLE: Final = "GRADCHECK_CHILD"
"""The environment variable that stands in for it elsewhere."""
_ONE_AT_A_TIME: Final = threading.Lock()


class Mark:
    """By it are known a child and all that it started, even if they have left its group.

    It is a number that no other child has, set as a limit that limits nothing. A fork and an exec
    hand it on; a new session and an empty environment leave it. Where that limit cannot be set,
    it is an environment variable.
    """

    def __init__(self) -> None:
        """Nothing has it yet."""
        self.environment: dict[str, str] = {}
        self._number = secrets.randbits(62)

    @contextmanager
    def put(self) -> Iterator[None]:
        """What is started meanwhile, with `environment` added to its own, has the mark.

        This process has it meanwhile, too, and so what another thread of it starts: that is in our
        session, and no stray of a child ever is.
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
        """The processes with the mark that have not ended; none where the system does not tell."""
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
    """Whether it has ended; it is not reaped, so that its group keeps its number."""
    if process.returncode is not None:
        return True
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, look) is not None
    except ChildProcessError:  # reaped by somebody else
        return True


def bury(process: subprocess.Popen[bytes], descriptors: dict[str, int], mark: Mark) -> None:
    """End the group and what has left it, reap the leader, close what is open."""
    if process.returncode is None:
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
