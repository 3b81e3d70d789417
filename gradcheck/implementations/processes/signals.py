"""Signals of the worker process: none that a fault raises is handled, and none is left changed.

A library's own handler could make a page accessible that stops it, or step over the access. The
kernel runs no handler for a fault whose signal is blocked: it ends the process.
"""

from __future__ import annotations

import ctypes
import signal
from typing import Any, Final

FAULTS: Final = (signal.SIGSEGV, signal.SIGBUS)
"""What an access to a page raises that forbids it."""
WATCHED: Final = (
    *FAULTS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS,
    signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF,
)  # fmt: skip
"""Whose handlers are what they were, after a call."""
TIMERS: Final = {
    signal.ITIMER_REAL: "SIGALRM", signal.ITIMER_VIRTUAL: "SIGVTALRM", signal.ITIMER_PROF: "SIGPROF"
}  # fmt: skip
SIZE: Final = 256
"""Bytes: more than a system's `sigset_t` or `struct sigaction`."""

_libc: Any = ctypes.CDLL(None)


class Signals:
    """What signals do here: as it is when this is made, and after each `settled`.

    With `handled`, faults go to handlers, and handlers stay: a runtime may need both.
    """

    def __init__(self, *, handled: bool = False) -> None:
        """Look; a handler that is there before anything is loaded is a preloaded runtime's."""
        self._handled = handled
        self._mask = ctypes.create_string_buffer(SIZE)
        self._held = ctypes.create_string_buffer(SIZE)
        _libc.pthread_sigmask(signal.SIG_BLOCK, None, self._mask)
        _libc.pthread_sigmask(signal.SIG_BLOCK, None, self._held)
        for fault in () if handled else FAULTS:
            if signal.getsignal(fault) is not None:
                _libc.sigaddset(self._held, fault)
        self._handlers: dict[int, bytes] = {}
        self._timers: dict[int, bool] = {}
        self.settled()

    def settled(self) -> None:
        """What is so now, stays so: the handlers that a library brings when it is loaded."""
        self._handlers = {number: _handler(number) for number in WATCHED}
        self._timers = {timer: _runs(timer) for timer in TIMERS}

    def hold(self) -> None:
        """From now on a fault ends the process, whatever handler there is or will be."""
        _libc.pthread_sigmask(signal.SIG_SETMASK, self._held, None)

    def restore(self) -> list[str]:
        """Make everything what it was; what would still have disturbed later calls, in words.

        A signal that the code sent to itself meanwhile arrives here.
        """
        _libc.pthread_sigmask(signal.SIG_SETMASK, self._mask, None)
        if not self._handled:
            for number, was in self._handlers.items():
                if _handler(number) != was:
                    _libc.sigaction(number, was, None)
        said = []
        for timer, name in TIMERS.items():
            if _runs(timer) and not self._timers[timer]:
                signal.setitimer(timer, 0)
                said.append(f"leaves an interval timer running, whose {name} comes later; stop it")
        return said


def _handler(number: int) -> bytes:
    """What is done on a signal, as the system has it."""
    found = ctypes.create_string_buffer(SIZE)
    _libc.sigaction(number, None, found)
    return found.raw


def _runs(timer: int) -> bool:
    return signal.getitimer(timer)[0] > 0
