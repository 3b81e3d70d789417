"""Where worker processes get their tasks from, and where results go, in any order."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result", contravariant=True)
TRIES: Final = 2
"""How often a task is begun whose worker ends without an answer."""


class Died(RuntimeError):  # noqa: N818  a process did
    """There is no worker any more that could go on."""

    advice = "run again with -j 1 to see where"
    """What to do about it."""


class TaskQueue(Protocol[Task, Result]):
    """Tasks for workers; all of it is called from one thread."""

    @property
    def left(self) -> int:
        """How many results are still to come; at 0 there is nothing more to do."""

    def next(self, slot: int, *, ahead: bool = False) -> Task | None:
        """What the worker in a slot is to do now, or, `ahead`, after what it is at.

        None where nothing waits; after a loss something may wait again.
        """

    def came(self, task: Task, result: Result) -> None:
        """A task is done."""

    def lost(self, task: Task, how: str) -> None:
        """A worker ended while it was at a task; `how`, in words."""

    def back(self, task: Task) -> None:
        """A task was sent, but not begun: its worker has ended before it came to that."""

    def broken(self, error: BaseException) -> None:
        """Nothing more will come; the run is told so."""
