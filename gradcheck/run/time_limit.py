"""How long a whole run may take: when its time is up, what goes on is ended as Ctrl-C would."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Final, Self, TypeVar

from gradcheck.results.run import AT_TIME

T = TypeVar("T")
AGAIN: Final = 1.0
"""Seconds after which what goes on is ended once more: a callback may have swallowed the first."""
LONGEST: Final = 1e8
"""Seconds that a timer of the system can be set to, at least."""


class TimeUp(KeyboardInterrupt):
    """The time of a run is up. Whatever stands Ctrl-C, and cleans up after it, stands this."""


class TimeLimit:
    """The time of a run, from the moment that it is made; `seconds` None: it has no end.

    While it is open, blocks that are `breaking` are ended in the middle, in the main thread; in
    another one, which no signal reaches, those that begin too late are not begun.
    """

    def __init__(self, seconds: float | None) -> None:
        """Start the clock."""
        self.seconds = seconds
        self._end = float("inf") if seconds is None else time.monotonic() + seconds
        self._breaks = False
        self._stack = ExitStack()

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._end

    @property
    def why(self) -> str:
        """What is told of all that is not run."""
        return f"{AT_TIME} {self.seconds:g} s, was up"

    def __enter__(self) -> Self:
        if self.seconds is not None and threading.current_thread() is threading.main_thread():
            handler = signal.signal(signal.SIGALRM, self._rings)
            left = min(max(self._end - time.monotonic(), 1e-3), LONGEST)
            timer = signal.setitimer(signal.ITIMER_REAL, left, AGAIN)
            self._stack.callback(signal.signal, signal.SIGALRM, handler)
            self._stack.callback(signal.setitimer, signal.ITIMER_REAL, *timer)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """A block that ends when the time is up.

        Raises:
            TimeUp: it is, or was before.
        """
        self._breaks = True
        try:
            if self.over:
                raise TimeUp
            yield
        finally:
            self._breaks = False

    @contextmanager
    def entered(self, context: AbstractContextManager[T]) -> Iterator[T]:
        """A context whose beginning ends when the time is up.

        Raises:
            TimeUp: it does.
        """
        with ExitStack() as stack:
            with self.breaking():
                found = stack.enter_context(context)
            yield found

    def _rings(self, _: int, __: FrameType | None) -> None:
        if self._breaks and self.over:
            raise TimeUp
