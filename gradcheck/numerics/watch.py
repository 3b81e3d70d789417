"""How long a check may take, and how far it is: both are looked at whenever forward is called."""

from __future__ import annotations

import math
import time
from typing import Final, TextIO

PATIENCE: Final = 1.0
"""Seconds before anything is shown: most checks are shorter."""
OFTEN: Final = 0.2
"""Seconds between two looks of the line."""


class Ended(BaseException):
    """The budget ended; the text is one sentence."""


class Watch:
    """The clock of one check; `budget` in seconds (None: no end).

    What is done is shown on `stream`, where there is one, in one line that is written again and
    again, and is gone in the end.
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
        """What is judged from now on."""
        self._subject = subject

    def look(self) -> None:
        """Raise Ended where the budget is spent; a call that is running is not interrupted."""
        if time.monotonic() > self._end:
            raise Ended(f"the budget of {self.budget:g} s ended before it was compared")

    def show(self, done: int, total: int) -> None:
        """So many copies of a primal of all in this pass were evaluated."""
        now = time.monotonic()
        if self._stream is None or now - self._start < PATIENCE or now - self._last < OFTEN:
            return
        self._last = now
        took = f"{now - self._start:.0f} s"
        self._write(f"{self._subject}: {done:,} of {total:,} copies evaluated, {took}")

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._length:
            self._write("")
            self._length = 0

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(f"\r{text.ljust(self._length)}\r{text}")
            self._stream.flush()
        except (OSError, ValueError):  # a terminal that was closed is no reason to end
            self._stream = None
        self._length = len(text)


UNWATCHED: Final = Watch()
"""For whoever has all the time there is, and shows nothing."""
