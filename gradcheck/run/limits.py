"""Limits of a run: crashes of one dialect's code, and the time of the whole run.

Crashes are counted in the order of a run's cases, not in that of processes as they die: the
count is the same for one job, for several, and for shards that are joined again.
"""

from __future__ import annotations

import shlex
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Final, Self, TypeVar

from gradcheck.implementations.processes.crash_or_hang import LIMITS, too_often, variant_of
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Finding, Part
from gradcheck.results.run import AT_TIME
from gradcheck.results.verdict import Verdict

T = TypeVar("T")
CALL: Final = "vjp"
"""The output of a result on the whole call."""
ALARM_INTERVAL: Final = 1.0
"""Seconds between alarms once the time is up: a callback may have swallowed the first."""
MAX_TIMER: Final = 1e8
"""Seconds that a timer of the system can be set to, at least."""


class CrashLimit:
    """Counts crashes and hangs of each dialect; after too many its other cases are left out.

    Cases may become known out of order: what counts for a case are those before its place.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self._places: defaultdict[tuple[str, str, Verdict], list[int]] = defaultdict(list)

    def count(self, place: int, results: Iterable[CaseResult]) -> None:
        """Count the results of the case at a place."""
        for r in results:
            if r.finding.verdict in LIMITS:
                variant = variant_of(r.case.op, r.case.dialect)
                self._places[r.case.implementation, variant, r.finding.verdict].append(place)

    def why(self, place: int, implementation: str, op: str, dialect: str) -> str:
        """Why the case at a place is left out; empty if it is judged."""
        variant = variant_of(op, dialect)

        def before(verdict: Verdict) -> int:
            return sum(p < place for p in self._places[implementation, variant, verdict])

        return too_often(variant, before) or ""

    def applied(self, place: int, results: Iterable[CaseResult]) -> Iterator[CaseResult]:
        """The results of the case at a place, with one NOTRUN per dtype that is left out."""
        seen = set()
        for result in results:
            of = result.case
            why = self.why(place, of.implementation, of.op, of.dialect)
            if not why:
                yield result
            elif (
                result.finding.part is Part.GRADIENT
                and (result.case.implementation, result.case.name) not in seen
            ):
                seen.add((result.case.implementation, result.case.name))
                yield _left_out(result, why)

    def counted(self, place: int, results: Iterable[CaseResult]) -> Sequence[CaseResult]:
        """Apply the limit to the results of a case, and count those that are left."""
        kept = [*self.applied(place, results)]
        self.count(place, kept)
        return kept


def _left_out(result: CaseResult, why: str) -> CaseResult:
    """The NOTRUN that replaces all results of a case and dtype, of which this is one."""
    words = shlex.split(result.repro)
    if words[1:2] == ["repro"]:
        words[2] = result.case.name
    return CaseResult(
        case=result.case,
        finding=Finding(name=CALL, verdict=Verdict.NOTRUN, reason=why),
        repro=shlex.join(words),
    )


def _interrupts() -> bool:
    """Whether a signal of a timer can interrupt this thread."""
    main = threading.current_thread() is threading.main_thread()
    return main and hasattr(signal, "setitimer")


class TimeUp(KeyboardInterrupt):
    """The time of a run is up; code that cleans up after Ctrl-C cleans up after this."""


class TimeLimit:
    """The time of a run, which starts with the object; with `seconds` None it has no end.

    In the main thread a `breaking` block is interrupted when the time is up. In other threads,
    which get no signals, and on Windows, a block that starts too late is refused. A `budget` in
    seconds, which starts with `judging`, interrupts nothing: once it is spent, no further case is
    begun.
    """

    def __init__(self, seconds: float | None, budget: float | None = None) -> None:
        """Start the clock."""
        self.seconds, self.budget = seconds, budget
        self._end = float("inf") if seconds is None else time.monotonic() + seconds
        self._spent: float | None = None
        self._breaks = False
        self._stack = ExitStack()

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._end

    def judging(self) -> None:
        """Start the clock of the budget: everything is loaded."""
        self._spent = None if self.budget is None else time.monotonic() + self.budget

    @property
    def spent(self) -> bool:
        """Whether the budget is spent."""
        return self._spent is not None and time.monotonic() >= self._spent

    @property
    def why(self) -> str:
        """The reason of cases that are not reached."""
        return f"{AT_TIME} {self.seconds:g} s, was up"

    def __enter__(self) -> Self:
        if self.seconds is not None and _interrupts():
            handler = signal.signal(signal.SIGALRM, self._rings)
            left = min(max(self._end - time.monotonic(), 1e-3), MAX_TIMER)
            timer = signal.setitimer(signal.ITIMER_REAL, left, ALARM_INTERVAL)
            self._stack.callback(signal.signal, signal.SIGALRM, handler)
            self._stack.callback(signal.setitimer, signal.ITIMER_REAL, *timer)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Interrupt the block when the time is up.

        Raises:
            TimeUp: the time is up, or was before.
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
        """Enter a context, interrupting its entry when the time is up.

        Raises:
            TimeUp: the time is up.
        """
        with ExitStack() as stack:
            with self.breaking():
                found = stack.enter_context(context)
            yield found

    def _rings(self, _: int, __: FrameType | None) -> None:
        if self._breaks and self.over:
            raise TimeUp
