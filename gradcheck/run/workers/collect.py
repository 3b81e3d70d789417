"""A function applied to names on several processes; results keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from gradcheck.run.workers import MAX_TRIES, WorkersLostError
from gradcheck.run.workers.pool import Pool, TaskQueue

Result = TypeVar("Result")
Progress = Callable[[int, int, str], None]
Workers = Callable[
    [TaskQueue[str, Any], Callable[[str], Any], Callable[..., None], tuple[Any, ...]],
    AbstractContextManager[object],
]
"""Workers elsewhere: called with a queue, the function, its setup and the setup's arguments."""


@dataclass(slots=True)
class Collected(Generic[Result]):
    """Results in the order of the names; `troubles` say what is missing."""

    results: list[Result]
    complete: bool = True
    troubles: tuple[str, ...] = ()


class NameQueue(Generic[Result]):
    """Names as tasks of workers, in their order; a `pool.TaskQueue`."""

    def __init__(self, names: Sequence[str]) -> None:
        """Take distinct names."""
        self._waiting = [*names]
        self.left = len(names)
        self.results: dict[str, Result] = {}
        self.crashed: dict[str, str] = {}
        self._losses: list[str] = []
        self._arrived: SimpleQueue[str | BaseException] = SimpleQueue()

    def next(self, slot: int, *, ahead: bool = False) -> str | None:
        """The next name; none queues behind another, since each takes long."""
        del slot
        return self._waiting.pop(0) if self._waiting and not ahead else None

    def came(self, task: str, result: Result) -> None:
        """Take the result of a name."""
        self.results[task] = result
        self._settled(task)

    def lost(self, task: str, how: str) -> None:
        """Note that a worker ended at a name, which is tried once more."""
        self._losses.append(task)
        if self._losses.count(task) < MAX_TRIES:
            self.back(task)
        else:
            self.crashed[task] = how
            self._settled(task)

    def back(self, task: str) -> None:
        """Put a name first again."""
        self._waiting.insert(0, task)

    def broken(self, error: BaseException) -> None:
        """Report that no more results will come."""
        self._arrived.put(error)

    def _settled(self, task: str) -> None:
        self.left -= 1
        self._arrived.put(task)

    def arrivals(self, total: int) -> Iterator[str]:
        """Yield each name when it is done or given up.

        Raises:
            WorkersLostError: no more results will come; or any exception that a worker raised.
        """
        for _ in range(total):
            what = self._arrived.get()
            if isinstance(what, BaseException):
                raise what
            yield what


def collect(
    function: Callable[[str], Result],
    names: Sequence[str],
    jobs: int,
    setup: Callable[..., None],
    arguments: tuple[Any, ...],
    *,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Collected[Result]:
    """Call `function(name)` for each name; after Ctrl-C or a loss, return the results so far.

    Args:
        function: stands at the top of a module, as `setup` does.
        names: distinct names.
        jobs: the number of processes; 1: this one.
        setup: called once in every process.
        arguments: the arguments of `setup`.
        progress: shows how many names are done.
        workers: workers elsewhere; None: processes of this machine.
    """
    queue: NameQueue[Result] = NameQueue(names)
    troubles: list[str] = []
    complete = True
    show = progress or (lambda done, total, name: None)
    try:
        if jobs == 1 and workers is None:
            setup(*arguments)
            for done, name in enumerate(names):
                show(done, len(names), name)
                queue.came(name, function(name))
        else:
            these = workers or partial(_pool, jobs)
            with these(queue, function, setup, arguments):
                for done, name in enumerate(chain(names[:1], queue.arrivals(len(names)))):
                    show(done, len(names), name)
    except KeyboardInterrupt:
        complete = False
    except WorkersLostError as error:
        troubles.append(f"{error}; {error.advice}")
    troubles += [
        f"{name}: a worker process died of it, twice ({how}); {WorkersLostError.advice}"
        for name, how in queue.crashed.items()
    ]
    return Collected(
        [queue.results[name] for name in names if name in queue.results],
        complete and not troubles,
        tuple(troubles),
    )


def _pool(jobs: int, *words: Any) -> AbstractContextManager[object]:
    queue, function, setup, arguments = words
    return Pool(queue, function, jobs, setup, arguments)
