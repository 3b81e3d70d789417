"""Observers of a run: progress on stderr, and logs that grow with it."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TextIO

from gradcheck.cli import console
from gradcheck.results.run import AT_FIRST, AT_MOST
from gradcheck.results.words import plural

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Header, Run
    from gradcheck.results.stored.log import Log
    from gradcheck.run.execute import Observer

SHOW_AFTER: Final = 1.0
"""Seconds before anything is shown: most runs are shorter."""
TERMINAL_INTERVAL: Final = 0.1
"""Seconds between two updates of a terminal's line."""
LOG_INTERVAL: Final = 30.0
"""Seconds between two lines of a log."""
SMOOTHING: Final = 2.0
"""Seconds in which the shown end of a run approaches the estimate."""


class Progress:
    """Shows how far a run is: a line that a terminal rewrites, or one every 30 s in a log.

    It is called before and after each case, and observes the run to count failures. The time left
    is the sum over the remaining cases of the mean of their operator, or, before its first case,
    of all cases.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        names: Iterable[str] = (),
        stream: TextIO | None = None,
    ) -> None:
        """Start the clock; `names` are those of the planned cases, "operator/…"."""
        self._stream = sys.stderr if stream is None else stream
        self._rewrites = self._stream.isatty() and not console.dumb()
        self._shown = not arguments.quiet and (self._rewrites or arguments.progress)
        self._left = Counter(_of(name) for name in names)
        self._took: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._start = self._last = self._begun = self._first = time.monotonic()
        self._now = ""
        self._end: float | None = None
        self._failed = self._length = 0
        self._observer: Observer | None = None

    def forwarding(self, observer: Observer | None) -> Progress:
        """This progress, which forwards all that it observes."""
        self._observer = observer
        return self

    def __call__(self, done: int, total: int, name: str, took: float | None = None, /) -> None:
        """Show how far a run is: a case begins, or is over after `took` seconds."""
        now = time.monotonic()
        if took is None:
            self._account(now, name)
        else:
            self._over(name, took)
            self._now = ""
        if not done:
            self._first = now  # loading does not count
        pause = TERMINAL_INTERVAL if self._rewrites else LOG_INTERVAL
        first = self._last == self._start
        due = now - self._start >= (SHOW_AFTER if self._rewrites else pause)
        if self._shown and due and (first or now - self._last >= pause):
            early = now - self._first < SHOW_AFTER
            self._say(done, total, name, None if early else self._left_at(now, done, total))
            self._last = now

    def begins(self, header: Header) -> None:
        """Forward the header."""
        if self._observer is not None:
            self._observer.begins(header)

    def sees(self, results: Sequence[CaseResult]) -> str:
        """Count failures, and forward the results; returns why the run stops, if it does."""
        self._failed += sum(not result.finding.verdict.expected for result in results)
        return "" if self._observer is None else self._observer.sees(results)

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._length:
            self._write("")

    def _account(self, now: float, name: str) -> None:
        if self._now:
            self._over(self._now, now - self._begun)
        self._now, self._begun = name, now

    def _over(self, name: str, seconds: float) -> None:
        took = self._took[_of(name)]
        took[0] += seconds
        took[1] += 1
        self._left[_of(name)] -= 1

    def _left_at(self, now: float, done: int, total: int) -> float:
        """Seconds for this case and the rest; smoothed, so that one slow case does not jump."""
        usual = (now - self._first) / max(done, 1)
        known = {key: seconds / count for key, (seconds, count) in self._took.items()}
        rest = sum(count * known.get(key, usual) for key, count in self._left.items() if count > 0)
        unnamed = total - done - sum(count for count in self._left.values() if count > 0)
        end = now + rest + unnamed * usual
        if self._end is not None:
            share = min((now - self._last) / SMOOTHING, 1.0)
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
        """Write; a closed terminal stops progress, not the run."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            console.drop(self._stream)
            self._shown = False


@dataclass(slots=True)
class LogWriter:
    """Writes the logs of a run as it goes, and stops it after `most` cases that fail.

    `fails` says whether the results of a case do; with `most` None the run is not stopped.
    """

    logs: Sequence[Log] = ()
    fails: Callable[[Header, Sequence[CaseResult]], bool] | None = None
    most: int | None = None
    _failed: int = field(default=0, init=False)
    _header: Header | None = field(default=None, init=False)

    def begins(self, header: Header) -> None:
        """Open the logs."""
        self._header = header
        for log in self.logs:
            log.begins(header)

    def sees(self, results: Sequence[CaseResult]) -> str:
        """Write the results of one case; returns why the run stops, if it does."""
        for log in self.logs:
            log.sees(results)
        assert self._header is not None
        if self.most is None or self.fails is None or not self.fails(self._header, results):
            return ""
        self._failed += 1
        if self._failed < self.most:
            return ""
        return AT_FIRST if self.most == 1 else AT_MOST

    def close(self) -> None:
        """Close the logs; one without its footer then counts as cut short."""
        for log in self.logs:
            log.close()

    def ends(self, run: Run) -> bool:
        """Write the footers; False, and a line on stderr for each log that failed, if one did."""
        for log in self.logs:
            log.ends(run)
            if log.trouble:
                kept = f"it ends after {log.written:,} of {plural(len(run.results), 'result')}"
                console.say(f"-o {log.path}: {log.trouble}: {kept}; all of them are on stdout")
        return not any(log.trouble for log in self.logs)


def duration(seconds: float) -> str:
    """A duration in words, in two units at most.

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
    return name.partition("/")[0]


def _clipped(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: max(room - 1, 0)]}…"[: max(room, 0)]
