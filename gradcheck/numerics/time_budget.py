"""The time budget of a check, and its progress; consulted whenever forward is called."""

from __future__ import annotations

import math
import time
from typing import Final, TextIO

SHOWN_AFTER: Final = 1.0
"""Seconds before progress is shown: most checks are shorter."""
UPDATED_EVERY: Final = 0.2
"""Seconds between two updates of the line."""


class Ended(BaseException):
    """The time budget is spent; the text is one sentence."""


class Watch:
    """The clock of one check; `budget` in seconds (None: unlimited).

    Progress is shown on `stream`, if given, in one line that is overwritten, and finally cleared.
    """

    def __init__(self, budget: float | None = None, stream: TextIO | None = None) -> None:
        """Start the clock."""
        self.budget = budget
        self._start = self._last = time.monotonic()
        self._end = math.inf if budget is None else self._start + budget
        self._stream = stream
        self._length = 0
        self._subject = ""

    def about(self, subject: str) -> None:
        """Name the primal whose progress is shown from now on."""
        self._subject = subject

    def look(self) -> None:
        """Raise `Ended` if the budget is spent; a running call is not interrupted."""
        if time.monotonic() > self._end:
            raise Ended(f"the budget of {self.budget:g} s ended before it was compared")

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` copies in this pass are evaluated."""
        now = time.monotonic()
        if (
            self._stream is None
            or now - self._start < SHOWN_AFTER
            or now - self._last < UPDATED_EVERY
        ):
            return
        self._last = now
        took = f"{now - self._start:.0f} s"
        self._write(f"{self._subject}: {done:,} of {total:,} copies evaluated, {took}")

    def clear(self) -> None:
        """Clear the line."""
        if self._length:
            self._write("")
            self._length = 0

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(f"\r{text.ljust(self._length)}\r{text}")
            self._stream.flush()
        except (OSError, ValueError):  # the terminal was closed
            self._stream = None
        self._length = len(text)


UNWATCHED: Final = Watch()
"""No budget, no progress."""
