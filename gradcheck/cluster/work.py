"""Work that a cluster does: what its workers must have, and when they may forget it."""

from __future__ import annotations

import os
import pickle
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gradcheck.cluster import slot
from gradcheck.cluster.connect import connected
from gradcheck.cluster.feeding import Feeding
from gradcheck.cluster.identity import identity
from gradcheck.errors import UsageError
from gradcheck.foreign.child import SINGLE
from gradcheck.plan import AnyCase, Plan
from gradcheck.suite import installed_suites
from gradcheck.workers import remote
from gradcheck.workers.assembly import Assembly
from gradcheck.workers.collect import Workers
from gradcheck.workers.feed import Feed


@contextmanager
def working(plan: Plan, cases: Sequence[AnyCase]) -> Iterator[Assembly]:
    """Judge cases on a cluster; with the block ends what was begun there.

    Raises:
        UsageError: there is no cluster, or its workers cannot judge this.
    """
    order = _order(plan.suites, (remote.judge, remote.begin, (remote.sent(plan),)))
    with connected(plan.scheduler, plan.jobs) as client, _engaged(client, order):
        assembly = Assembly(plan, cases, max(sum(client.nthreads().values()), 1))
        with Feeding(client, order, assembly, _named(plan.scheduler)):
            yield assembly


def workers(scheduler: str, jobs: int, suites: Sequence[str]) -> Workers:
    """What does on a cluster what a function has to do with names; see `collect.collect`.

    With the block ends what was begun there. As it begins, it raises as `working` does.
    """

    @contextmanager
    def fed(feed: Feed[str, Any], *load: Any) -> Iterator[None]:
        order = _order(suites, load)
        with (
            connected(scheduler, jobs) as client,
            _engaged(client, order),
            Feeding(client, order, feed, _named(scheduler)),
        ):
            yield

    return fed


def _named(scheduler: str) -> str:
    return f"the cluster at {scheduler}" if scheduler else "the cluster"


@contextmanager
def _engaged(client: Any, order: slot.Order) -> Iterator[None]:
    """Have every worker load what is needed; with the block they are as they were.

    Raises:
        UsageError: one of them cannot.
    """
    try:
        _prepare(client, order)
        yield
    finally:
        if client.status == "running":
            with suppress(OSError, TimeoutError):  # the cluster is going
                client.run(slot.end, order["run"], on_error="ignore")


def _order(suites: Sequence[str], load: tuple[Any, ...]) -> slot.Order:
    """What the workers are told: of suites by reference, and what a process there is to load."""
    suites = suites or installed_suites()
    installed = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    own = [
        str(Path(p).absolute())
        for p in sys.path
        if isinstance(p, str) and not any(Path(p).is_relative_to(root) for root in installed)
    ]
    return {
        "run": uuid.uuid4().hex,
        "begin": {
            "identity": identity(suites),
            "suites": [*suites],
            "folder": str(Path.cwd()),
            "argv": sys.argv,
            "path": own,
        },
        "load": pickle.dumps(load),
        "env": {name: os.environ[name] for name in SINGLE if name in os.environ},
    }


def _prepare(client: Any, order: slot.Order) -> None:
    """Have every worker load what is judged, or say what one lacks.

    Raises:
        UsageError: one of them cannot.
    """
    said: Mapping[str, Any] = client.run(slot.prepare, order, on_error="return")
    wrong = {worker: error for worker, error in said.items() if isinstance(error, Exception)}
    lost = {worker for worker, error in wrong.items() if isinstance(error, OSError)}
    for worker, error in wrong.items():
        if worker in lost and len(lost) < len(said):
            continue  # it is gone; there are others
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UsageError(f"the worker at {worker}{more} cannot judge this: {_why(error)}")


def _why(error: Exception) -> str:
    if isinstance(error, slot.Unfit):
        return f"{error}; it needs the same there as here, at the same path"
    return (
        f"{type(error).__name__}: {error}; install the same gradcheck there as here, and start "
        "the worker again"
    )
