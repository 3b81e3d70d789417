"""This process: the descriptors that it was given, and the signals that ask it to end."""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

STANDARD: Final = ("stdin", "stdout", "stderr")
"""The standard streams by their descriptors."""
DESCRIPTOR_PATH: Final = re.compile(
    r"/dev/(stdin|stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,9})"
)
"""Paths that name a descriptor of this process."""
END_SIGNALS: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)  # Windows has the first two
)
"""Ctrl-C, a job that is cancelled, a terminal that is closed, Ctrl-\\."""
_CLOSED: Final[set[int]] = set()


def open_standard() -> None:
    """Open /dev/null where the caller has closed 0, 1 or 2 (`<&-`), so that no pipe takes it.

    Call it before anything else is opened.
    """
    for number in range(len(STANDARD)):
        try:
            os.fstat(number)
        except OSError:
            _CLOSED.add(number)
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest number


def number_of(path: str) -> int | None:
    """The descriptor that a path names, if any.

    >>> number_of("/dev/stdout"), number_of("/dev/fd/3"), number_of("/dev/null")
    (1, 3, None)
    """
    found = DESCRIPTOR_PATH.fullmatch(path)
    if found is None:
        return None
    return STANDARD.index(found[1]) if found[1] else int(found[2])


def is_open(number: int) -> bool:
    """Whether the caller gave this process a descriptor; ask before opening others."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return number not in _CLOSED


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Let each of `END_SIGNALS` raise KeyboardInterrupt in the block.

    Ignored signals (`nohup`, a background job) and those with a handler stay as they are. Outside
    the main thread nothing changes.
    """
    changed = [kind for kind in END_SIGNALS if signal.getsignal(kind) is signal.SIG_DFL]
    try:
        for kind in changed:
            signal.signal(kind, signal.default_int_handler)
    except ValueError:  # not the main thread
        changed = []
    try:
        yield
    finally:
        for kind in changed:
            signal.signal(kind, signal.SIG_DFL)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Block `END_SIGNALS` for processes that start in the block, until they set handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Ignore `END_SIGNALS`: another process gets them, and ends this one."""
    for kind in END_SIGNALS:
        signal.signal(kind, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
