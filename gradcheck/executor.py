"""Where the cases of a plan are judged that are not judged here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from gradcheck import pool, remote
from gradcheck.plan import AnyCase, Plan
from gradcheck.record import Record


class Working(Protocol):
    """Cases that are being judged elsewhere, until the block ends; then none is waited for."""

    def result(self, place: int) -> list[Record]:
        """What came of the case at `place`, once it is there.

        Raises:
            pool.Died: it will not come.
        """

    def finished(self) -> dict[int, list[Record]]:
        """What came of all cases that are done, in their order; waits for none."""


def working(plan: Plan, cases: Sequence[AnyCase]) -> AbstractContextManager[Working]:
    """Begin with all of them, on processes of this machine."""
    names = [remote.names_of(case) for case in cases]
    return pool.Work(remote.judge, names, plan.jobs, remote.begin, (remote.sent(plan),))
