"""A process and all that it has started: whether it has ended, and the end of them all."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

MARK: Final = "GRADCHECK_CHILD"
"""An environment variable that differs from child to child: by it those that it started are known,
even if they have left its group."""


def dead(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; it is not reaped, so that its group keeps its number."""
    if process.returncode is not None:
        return True
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, look) is not None
    except ChildProcessError:  # reaped by somebody else
        return True


def bury(process: subprocess.Popen[bytes], descriptors: dict[str, int], mark: str) -> None:
    """End the group and what has left it, reap the leader, close what is open."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for _ in range(100):  # one that forks meanwhile has the mark, too
        if not sum(_killed(pid) for pid in _marked(mark)):
            break
        time.sleep(0.001)
    for descriptor in descriptors.values():
        os.close(descriptor)
    descriptors.clear()


def _marked(mark: str) -> Iterator[int]:
    """The processes with that mark in their environment; none where the system does not tell."""
    entry = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
