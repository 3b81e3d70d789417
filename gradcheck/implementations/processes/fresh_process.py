"""A second process of an implementation, in which no other operator's code has run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gradcheck.implementations.bound import Closing

P = TypeVar("P", bound=Closing)


class FreshProcess(Generic[P]):
    """Which operators' code has run in a process, and another one to ask instead.

    That process starts when it is first needed, and serves until another operator's code has run in
    it.
    """

    def __init__(self, start: Callable[[], P]) -> None:
        """Nothing has run yet; `start` starts a process like the first."""
        self._start = start
        self._ran: dict[str, None] = {}
        self._other: P | None = None
        self._asked: set[str] = set()

    def runs(self, op: str) -> None:
        """The code of an operator is about to run in the first process."""
        self._ran[op] = None

    def renewed(self) -> None:
        """The first process is a new one: nothing has run in it."""
        self._ran.clear()

    def others(self, op: str) -> list[str]:
        """The operators other than `op` whose code has run in the first process, in order."""
        return [name for name in self._ran if name != op]

    def binds(self) -> P:
        """A process in which no operator's code has run, to be asked for bindings alone.

        Raises:
            What starting it raises.
        """
        return self._without(set())

    def calls(self, op: str) -> P:
        """A process in which at most the code of `op` has run; it may be called.

        Raises:
            What starting it raises.
        """
        found = self._without({op})
        self._asked.add(op)
        return found

    def close(self) -> None:
        """End the second process, if it was started."""
        other, self._other = self._other, None
        self._asked.clear()
        if other is not None:
            other.close()

    def _without(self, allowed: set[str]) -> P:
        if self._asked - allowed:
            self.close()
        if self._other is None:
            self._other = self._start()
        return self._other


def changed(op: str, others: list[str]) -> str:
    """The reason for an operator that only a new process supports."""
    few = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    return (
        f"another operator's code has changed this process: it says that {op} is not supported, "
        f"and a new process says that it is; before, it ran the code of {few}"
    )
