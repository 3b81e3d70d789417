"""Work on several processes: spawned, never forked, and results in the order of the work."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


CHUNK: Final = 4
"""Tasks sent at once: fewer cost messages, more leave processes idle at the end."""


PR_SET_PDEATHSIG: Final = 1


class Died(RuntimeError):  # noqa: N818  a process did
    """A worker process ended without an answer."""


def each(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    jobs: int,
    setup: Callable[..., None],
    arguments: tuple[Any, ...],
) -> Generator[Result]:
    """Yield `function(task)` for each task, in order.

    `setup(*arguments)` runs once in every process (in this one, if `jobs` is 1); both functions
    must stand at the top of a module. Processes are spawned: libraries loaded here (Go's runtime,
    OpenMP) do not survive a fork.

    Raises:
        Died: a worker process ended without an answer; the results before it have been yielded.
    """
    if jobs == 1:
        setup(*arguments)
        yield from map(function, tasks)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(jobs, max(len(tasks), 1)),
        mp_context=context,
        initializer=_begin,
        initargs=(setup, arguments),
    )
    others = {*multiprocessing.active_children()}
    done = False
    try:
        yield from pool.map(partial(_unless_stopped, function), tasks, chunksize=CHUNK)
        done = True
    except BrokenProcessPool as error:
        raise Died("a worker process died") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if not done:  # else the end of this process waits until their tasks are done
            for process in {*multiprocessing.active_children()} - others:
                process.terminate()


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


def _unless_stopped(function: Callable[[Task], Result], task: Task) -> Result:
    if _Stop.asked:
        raise KeyboardInterrupt
    _Stop.working = True
    try:
        return function(task)
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
    setup(*arguments)
