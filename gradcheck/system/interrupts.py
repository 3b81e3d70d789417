"""The signals by which a run is asked to end: to us each of them is Ctrl-C."""

from __future__ import annotations

import signal
from contextlib import contextmanager

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

KINDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ctrl-C, a job that is cancelled, a terminal that is closed, Ctrl-\\."""


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Each of them raises KeyboardInterrupt in the block.

    One that is ignored stays so (`nohup`, a script's background job), and one that somebody else
    in this process handles is his. Nothing is changed in a thread beside the main one.
    """
    ours = [kind for kind in KINDS if signal.getsignal(kind) is signal.SIG_DFL]
    try:
        for kind in ours:
            signal.signal(kind, signal.default_int_handler)
    except ValueError:  # not the main thread
        ours = []
    try:
        yield
    finally:
        for kind in ours:
            signal.signal(kind, signal.SIG_DFL)


@contextmanager
def blocked() -> Iterator[None]:
    """What is started in the block does not hear them until it has handlers of its own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, KINDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Never hear them: another process does, and ends this one."""
    for kind in KINDS:
        signal.signal(kind, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, KINDS)
