"""Where the cases of a plan are judged that are not judged here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from gradcheck.results.case_result import CaseResult
from gradcheck.run.plan import AnyCase, Plan
from gradcheck.run.workers import remote
from gradcheck.run.workers.pool import Pool
from gradcheck.run.workers.run_queue import Arrived, RunQueue


class Working(Protocol):
    """Cases that are being judged elsewhere, until the block ends; then none is waited for.

    An `run_queue.RunQueue` has these, whoever feeds it; `slots` is the number of workers.
    """

    slots: int

    def until(self, place: int) -> Iterator[Arrived]:
        """Wait until the case at a place is whole; meanwhile, every case as it becomes so.

        Raises:
            feed.Died: it will not; or whatever a worker raised instead of an answer.
        """

    def result(self, place: int) -> list[CaseResult]:
        """What came of the case at a place, which is whole."""

    def finished(self) -> dict[int, list[CaseResult]]:
        """What is known of all cases so far, in their order; of some, not all; waits for none."""


@contextmanager
def working(plan: Plan, cases: Sequence[AnyCase]) -> Iterator[Working]:
    """Begin with all of them, on processes of this machine or on a cluster.

    Raises:
        UsageError: there is no such cluster, or it cannot judge this.
    """
    if plan.executor == "dask":
        from gradcheck.run.cluster import work  # deferred: an extra

        with work.working(plan, cases) as found:
            yield found
        return
    assembly = RunQueue(plan, cases, plan.jobs)
    begin, own = (remote.sent(plan),), {*plan.implementations} == {"reference"}
    with Pool(assembly, remote.judge, plan.jobs, remote.begin, begin, ahead=own):
        yield assembly
