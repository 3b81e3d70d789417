"""One result per name, on several processes, begun in their order; nothing known is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from gradcheck.run.workers.pool import Pool
from gradcheck.run.workers.task_queue import TRIES, Died, TaskQueue

Result = TypeVar("Result")
Progress = Callable[[int, int, str], None]
Workers = Callable[
    [TaskQueue[str, Any], Callable[[str], Any], Callable[..., None], tuple[Any, ...]],
    AbstractContextManager[object],
]
"""Other workers than processes of this machine: what feeds them, what they do, their setup."""


@dataclass(slots=True)
class Collected(Generic[Result]):
    """What came of some work: results in the order of names, and what is missing, in words."""

    results: list[Result]
    complete: bool = True
    troubles: tuple[str, ...] = ()


class Line(Generic[Result]):
    """Names as tasks of workers, in their order; a `task_queue.TaskQueue`."""

    def __init__(self, names: Sequence[str]) -> None:
        """Line them up; names are different."""
        self._waiting = [*names]
        self.left = len(names)
        self.results: dict[str, Result] = {}
        self.lost_ones: dict[str, str] = {}
        self._losses: list[str] = []
        self._arrived: SimpleQueue[str | BaseException] = SimpleQueue()

    def next(self, slot: int, *, ahead: bool = False) -> str | None:
        """The next of those that wait; each is long enough for a worker to come and ask."""
        del slot
        return self._waiting.pop(0) if self._waiting and not ahead else None

    def came(self, task: str, result: Result) -> None:
        """A name is done."""
        self.results[task] = result
        self._settled(task)

    def lost(self, task: str, how: str) -> None:
        """A worker ended at a name, which is tried once more."""
        self._losses.append(task)
        if self._losses.count(task) < TRIES:
            self.back(task)
        else:
            self.lost_ones[task] = how
            self._settled(task)

    def back(self, task: str) -> None:
        """A name is the next again."""
        self._waiting.insert(0, task)

    def broken(self, error: BaseException) -> None:
        """Nothing more will come."""
        self._arrived.put(error)

    def _settled(self, task: str) -> None:
        self.left -= 1
        self._arrived.put(task)

    def arrivals(self, total: int) -> Iterator[str]:
        """Wait for all names; each when it is done, or given up.

        Raises:
            Died: nothing more will come; or whatever a worker raised instead of an answer.
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
    """`function(name)` for each name; in this process, if `jobs` is 1 and there are no `workers`.

    `setup(*arguments)` runs once in every process; both functions stand at the top of a module.
    Ctrl-C, and processes that die, leave what is known.
    """
    line: Line[Result] = Line(names)
    troubles: list[str] = []
    complete = True
    tell = progress or _silent
    try:
        if jobs == 1 and workers is None:
            setup(*arguments)
            for done, name in enumerate(names):
                tell(done, len(names), name)
                line.came(name, function(name))
        else:
            these = workers or partial(_pool, jobs)
            with these(line, function, setup, arguments):
                for done, name in enumerate(chain(names[:1], line.arrivals(len(names)))):
                    tell(done, len(names), name)
    except KeyboardInterrupt:
        complete = False
    except Died as error:
        troubles.append(f"{error}; {error.advice}")
    troubles += [
        f"{name}: a worker process died of it, twice ({how}); {Died.advice}"
        for name, how in line.lost_ones.items()
    ]
    return Collected(
        [line.results[name] for name in names if name in line.results],
        complete and not troubles,
        tuple(troubles),
    )


def _pool(jobs: int, *words: Any) -> AbstractContextManager[object]:
    feed, function, setup, arguments = words
    return Pool(feed, function, jobs, setup, arguments)


def _silent(*_: object) -> None:
    """Nobody wants to know how far it is."""
