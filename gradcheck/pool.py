"""Work on several processes: spawned, never forked, and results in the order of the work."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from gradcheck.inert import Inert

Task = TypeVar("Task")
Result = TypeVar("Result")


CHUNK: Final = 4
"""Tasks sent at once by `each`: fewer cost messages, more leave processes idle at the end."""


PR_SET_PDEATHSIG: Final = 1


class Died(RuntimeError):  # noqa: N818  a process did
    """A worker process ended without an answer."""


class Work(Generic[Result]):
    """Tasks under way in processes of their own, until the block ends; then none is waited for.

    `setup(*arguments)` runs once in every process; both functions must stand at the top of a
    module. Processes are spawned: libraries loaded here (Go's runtime, OpenMP) do not survive a
    fork.
    """

    def __init__(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        jobs: int,
        setup: Callable[..., None],
        arguments: tuple[Any, ...],
        *,
        chunk: int = 1,
    ) -> None:
        """Begin; tasks are sent `chunk` at once, and come back so."""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        self._total, self._chunk, self._taken = len(tasks), chunk, 0
        self._others = {*multiprocessing.active_children()}
        self._pool = ProcessPoolExecutor(
            min(jobs, max(len(tasks), 1)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(setup, arguments),
        )
        try:
            self._sent = [
                self._pool.submit(_unless_stopped, function, tasks[first : first + chunk])
                for first in range(0, len(tasks), chunk)
            ]
        except BaseException:  # Ctrl-C: there is no block yet to be left
            self.__exit__()
            raise

    def result(self, place: int) -> Result:
        """What came of the task at `place`, once it is there.

        Raises:
            Died: a worker process ended without an answer.
        """
        from concurrent.futures.process import BrokenProcessPool

        try:
            found = self._sent[place // self._chunk].result()[place % self._chunk]
        except BrokenProcessPool as error:
            raise Died("a worker process died") from error
        self._taken += 1
        return found

    def finished(self) -> dict[int, Result]:
        """What came of all tasks that are done, in their order; waits for none."""
        return {
            number * self._chunk + at: result
            for number, sent in enumerate(self._sent)
            if sent.done() and not sent.cancelled() and sent.exception() is None
            for at, result in enumerate(sent.result())
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        import multiprocessing

        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._taken < self._total:  # else the end of this process waits until they are done
            for process in {*multiprocessing.active_children()} - self._others:
                process.terminate()


def each(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    jobs: int,
    setup: Callable[..., None],
    arguments: tuple[Any, ...],
) -> Generator[Result]:
    """Yield `function(task)` for each task, in order; in this process, if `jobs` is 1.

    Raises:
        Died: a worker process ended without an answer; the results before it have been yielded.
    """
    if jobs == 1:
        setup(*arguments)
        yield from map(function, tasks)
        return
    with Work(function, tasks, jobs, setup, arguments, chunk=CHUNK) as work:
        yield from map(work.result, range(len(tasks)))


@dataclass(slots=True)
class Collected(Generic[Result]):
    """What came of some work: results so far, whether they are all, and what went wrong."""

    results: list[Result]
    complete: bool = True
    troubles: tuple[str, ...] = ()


def collect(
    found: Generator[Result], names: Sequence[str], progress: Callable[[int, int, str], None] | None
) -> Collected[Result]:
    """One result per name; cut short by Ctrl-C or by a process that died, those that are known."""
    out: Collected[Result] = Collected([])
    try:
        with closing(found):
            for done, name in enumerate(names):
                if progress is not None:
                    progress(done, len(names), name)
                out.results.append(next(found))
    except KeyboardInterrupt:
        out.complete = False
    except Died as error:
        out.complete = False
        out.troubles = (f"{error}; run again with -j 1 to see where",)
    return out


class _Stop:
    """In a process of the pool: whether it is at work, and has been told to leave off."""

    working = asked = False


def _unless_stopped(function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    if _Stop.asked:
        raise KeyboardInterrupt
    _Stop.working = True
    try:
        return [*map(function, tasks)]
    finally:
        _Stop.working = False


def _stop(*_: object) -> None:
    _Stop.asked = True
    if _Stop.working:
        raise KeyboardInterrupt


def _begin(setup: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and ends the pool
    signal.signal(signal.SIGTERM, _stop)  # ends a task, and with it what the task has started
    with suppress(AttributeError):  # Linux alone: no parent that is killed leaves this behind
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.stdout.flush()
    os.dup2(2, 1)  # what the code judged prints is no part of a report
    sys.stdout = sys.stderr = Inert(sys.stderr)
    setup(*arguments)
