"""How far a run is, on stderr: one line that a terminal rewrites, or now and then one for a log."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TextIO

from gradcheck.cli import console

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Header
    from gradcheck.run.execute import Witness

PATIENCE: Final = 1.0
"""Seconds before anything is shown: most runs are shorter."""
OFTEN: Final = 0.1
"""Seconds between two looks of a terminal's line."""
SELDOM: Final = 30.0
"""Seconds between two lines of a log."""
CALM: Final = 2.0
"""Seconds in which the shown end of a run follows what is known of it."""


def add_progress(parser: argparse._ActionsContainer, quiet: str = "no progress on stderr") -> None:
    """Whether it is shown; `quiet` says what else -q means."""
    parser.add_argument("-q", "--quiet", action="store_true", help=quiet)
    parser.add_argument(
        "--progress", action="store_true",
        help=f"progress also where stderr is no terminal: a line every {SELDOM:g} s",
    )  # fmt: skip


class Progress:
    """Is told of each case before it begins, and, as a witness of the run, what came of it.

    What is left is the sum over the cases still to come of what others of the same operator took,
    or, of an operator that is yet to come, of what all others took on average.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        names: Iterable[str] = (),
        stream: TextIO | None = None,
    ) -> None:
        """Start the clock; `names` are those of the cases to come, "operator/…"."""
        self._stream = sys.stderr if stream is None else stream
        able = self._stream.isatty() and not console.dumb()
        asked = getattr(arguments, "progress", False)
        self._rewrites = able
        self._shown = not arguments.quiet and (able or asked)
        self._left = Counter(_of(name) for name in names)
        self._took: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._start = self._last = self._begun = self._first = time.monotonic()
        self._now = ""
        self._end: float | None = None
        self._failed = self._length = 0
        self._witness: Witness | None = None

    def watching(self, witness: Witness | None) -> Progress:
        """The same, which tells another witness all that it is told."""
        self._witness = witness
        return self

    def __call__(self, done: int, total: int, name: str, took: float | None = None, /) -> None:
        """A case begins, or is over and `took` so many seconds: say how far the run is.

        What was said a moment ago is not said again.
        """
        now = time.monotonic()
        if took is None:
            self._account(now, name)
        else:
            self._over(name, took)
            self._now = ""
        if not done:
            self._first = now  # what loading took says nothing of what is left
        pause = OFTEN if self._rewrites else SELDOM
        first = self._last == self._start
        due = now - self._start >= (PATIENCE if self._rewrites else pause)
        if self._shown and due and (first or now - self._last >= pause):
            early = now - self._first < PATIENCE
            self._say(done, total, name, None if early else self._left_at(now, done, total))
            self._last = now

    def begins(self, header: Header) -> None:
        """Tell the other witness."""
        if self._witness is not None:
            self._witness.begins(header)

    def sees(self, results: Sequence[CaseResult]) -> str:
        """Count what failed, and ask the other witness whether the run is to end."""
        self._failed += sum(not result.finding.verdict.expected for result in results)
        return "" if self._witness is None else self._witness.sees(results)

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._length:
            self._write("")

    def _account(self, now: float, name: str) -> None:
        """The case before this one is over."""
        if self._now:
            self._over(self._now, now - self._begun)
        self._now, self._begun = name, now

    def _over(self, name: str, seconds: float) -> None:
        took = self._took[_of(name)]
        took[0] += seconds
        took[1] += 1
        self._left[_of(name)] -= 1

    def _left_at(self, now: float, done: int, total: int) -> float:
        """Seconds, this case included; calmly: a surprise shows within seconds, not at once."""
        usual = (now - self._first) / max(done, 1)
        known = {key: seconds / count for key, (seconds, count) in self._took.items()}
        rest = sum(count * known.get(key, usual) for key, count in self._left.items() if count > 0)
        unnamed = total - done - sum(count for count in self._left.values() if count > 0)
        end = now + rest + unnamed * usual
        if self._end is not None:
            share = min((now - self._last) / CALM, 1.0)
            end = self._end + share * (end - self._end)
        self._end = end
        return max(end - now, 0.0)

    def _say(self, done: int, total: int, name: str, left: float | None) -> None:
        failed = f"  {self._failed} failed" if self._failed else ""
        rest = "" if left is None else f"  {duration(left)} left"
        text = f"{done}/{total}{failed}{rest}  "
        if not self._rewrites:
            self._put(f"{text}{name}\n")
            return
        room = console.columns(self._stream) - 1 - len(text)  # the last column would wrap
        self._write(text + _clipped(name, room))

    def _write(self, text: str) -> None:
        text = text[: max(console.columns(self._stream) - 1, 1)]
        self._put(f"\r{text.ljust(self._length)}\r{text}")
        self._length = len(text)

    def _put(self, text: str) -> None:
        """Write it; a terminal that was closed is no reason to end."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            console.drop(self._stream)
            self._shown = False


def duration(seconds: float) -> str:
    """Time as one says it, in two units at most.

    >>> duration(0.4), duration(59.6), duration(200), duration(3700)
    ('1 s', '60 s', '3 min 20 s', '1 h 02 min')
    """
    whole = max(round(seconds), 1)
    if whole <= 90:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60 // 10 * 10:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _of(name: str) -> str:
    """The operator, model or rule of a case."""
    return name.partition("/")[0]


def _clipped(name: str, room: int) -> str:
    """A name without its end where there is no room for it."""
    return name if len(name) <= room else f"{name[: max(room - 1, 0)]}…"[: max(room, 0)]
