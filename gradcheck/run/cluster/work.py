"""Work that a cluster does: what its workers must have, and when they may forget it."""

from __future__ import annotations

import os
import pickle
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import UsageError
from gradcheck.implementations.processes.child import SINGLE
from gradcheck.run.cluster import dask_worker
from gradcheck.run.cluster.connect import connected
from gradcheck.run.cluster.identity import identity
from gradcheck.run.cluster.scheduler import PATIENCE, Feeding, Gone, connection_lost
from gradcheck.run.plan import AnyCase, Plan
from gradcheck.run.workers import remote
from gradcheck.run.workers.collect import Workers
from gradcheck.run.workers.run_queue import RunQueue
from gradcheck.run.workers.task_queue import TaskQueue
from gradcheck.spec.loading import installed_suites
from gradcheck.system.user_modules import here, path_without

LOSSES: Final = 3
"""Workers that may be lost while they load, as many as Dask itself allows a task."""
PAUSE: Final = 0.2
"""Seconds between looks for a worker, where the last one was lost."""


@contextmanager
def working(plan: Plan, cases: Sequence[AnyCase]) -> Iterator[RunQueue]:
    """Judge cases on a cluster; with the block ends what was begun there.

    Raises:
        UsageError: there is no cluster, or its workers cannot judge this.
        Gone: it, or every worker, was lost before one was ready.
    """
    load = (remote.judge, remote.begin, (remote.sent(plan),))
    order, where = _order(plan.suites, load, plan.implementations), _named(plan.scheduler)
    with connected(plan.scheduler, plan.jobs) as client, _engaged(client, order, where):
        assembly = RunQueue(plan, cases, max(sum(client.nthreads().values()), 1))
        with Feeding(client, order, assembly, where):
            yield assembly


def workers(scheduler: str, jobs: int, suites: Sequence[str]) -> Workers:
    """What does on a cluster what a function has to do with names; see `collect.collect`.

    With the block ends what was begun there. As it begins, it raises as `working` does.
    """

    @contextmanager
    def fed(feed: TaskQueue[str, Any], *load: Any) -> Iterator[None]:
        order, where = _order(suites, load), _named(scheduler)
        with (
            connected(scheduler, jobs) as client,
            _engaged(client, order, where),
            Feeding(client, order, feed, where),
        ):
            yield

    return fed


def _named(scheduler: str) -> str:
    return f"the cluster at {scheduler}" if scheduler else "the cluster"


@contextmanager
def _engaged(client: Any, order: dask_worker.Order, where: str) -> Iterator[None]:
    """Have every worker load what is needed; with the block they are as they were.

    Raises:
        UsageError, Gone: as `_prepare` does.
    """
    try:
        _prepare(client, order, where)
        yield
    finally:
        if client.status == "running":
            with suppress(OSError, TimeoutError):  # the cluster is going
                client.run(dask_worker.end, order["run"], on_error="ignore")


def _order(
    suites: Sequence[str], load: tuple[Any, ...], words: Sequence[str] = ()
) -> dask_worker.Order:
    """What the workers are told: of suites by reference, and what a process there is to load.

    `words` are those of `--impl`, by which frameworks are known.
    """
    suites = suites or installed_suites()
    installed = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    own = [
        str(Path(p).absolute())
        for p in path_without()
        if not any(Path(p).is_relative_to(root) for root in installed)
    ]
    return {
        "run": uuid.uuid4().hex,
        "begin": {
            "identity": identity(suites, words),
            "suites": [*suites],
            "words": [*words],
            "folder": str(here()),
            "argv": sys.argv,
            "path": own,
        },
        "load": pickle.dumps(load),
        "env": {name: os.environ[name] for name in SINGLE if name in os.environ},
    }


def _prepare(client: Any, order: dask_worker.Order, where: str) -> None:
    """Have every worker load what is judged, or say what one lacks; go on with those that live.

    A worker that is lost meanwhile is a loss like any other: the next may do it. Until there is
    one, this waits.

    Raises:
        UsageError: a worker lacks something, or nothing of it lives on any of them.
        Gone: the scheduler was lost, or one worker after the other.
    """
    lost: set[str] = set()
    seen = time.monotonic()
    while True:
        said = _told(client, order, where)
        wrong = {worker: error for worker, error in said.items() if isinstance(error, Exception)}
        fallen = {worker for worker, error in wrong.items() if isinstance(error, OSError)}
        poor = [worker for worker, error in wrong.items() if isinstance(error, dask_worker.Lost)]
        unfit = [worker for worker in wrong if worker not in {*fallen, *poor}]
        if unfit or (poor and len(poor) == len(said)):
            raise UsageError(_refused([*unfit, *poor][0], wrong))
        if len(fallen) + len(poor) < len(said):
            return
        if said.keys() - lost:
            seen = time.monotonic()
        lost |= fallen
        if len(lost) > LOSSES:
            raise Gone(f"{where} lost one worker after the other while they loaded this")
        if time.monotonic() > seen + PATIENCE:
            raise Gone(f"{where} has had no workers for {PATIENCE:g} s")
        time.sleep(PAUSE)


def _told(client: Any, order: dask_worker.Order, where: str) -> Mapping[str, Any]:
    """What each worker says that is there now: nothing, or what went wrong.

    Raises:
        Gone: the scheduler was lost.
    """
    try:
        said: Mapping[str, Any] = client.run(dask_worker.prepare, order, on_error="return")
    except OSError:
        raise connection_lost(where) from None
    return said


def _refused(worker: str, wrong: Mapping[str, Exception]) -> str:
    """Why a worker is of no use, in one line; how many are not."""
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"the worker at {worker}{more} cannot judge this: {_why(wrong[worker])}"


def _why(error: Exception) -> str:
    if isinstance(error, dask_worker.Lost):
        return f"{error}; what it printed is in the log of that worker"
    if isinstance(error, dask_worker.Unfit):
        return f"{error}; it needs the same there as here, at the same path"
    return (
        f"{type(error).__name__}: {error}; install the same gradcheck there as here, and start "
        "the worker again"
    )
