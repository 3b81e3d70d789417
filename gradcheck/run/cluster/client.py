"""A client of a Dask cluster: it connects, has every worker load the plan, and cleans up."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import UsageError
from gradcheck.implementations.processes.child import SINGLE
from gradcheck.run.cluster import dask_worker
from gradcheck.run.cluster.process import identity
from gradcheck.run.cluster.scheduler import (
    MAX_IDLE,
    ClusterLostError,
    Scheduler,
    connection_lost,
)
from gradcheck.run.plan import Plan
from gradcheck.run.workers import remote
from gradcheck.run.workers.collect import Workers
from gradcheck.run.workers.pool import TaskQueue
from gradcheck.run.workers.run_queue import RunQueue
from gradcheck.spec.case import AnyCase
from gradcheck.spec.loading import installed_suites
from gradcheck.system.reading import contents
from gradcheck.system.user_modules import here, path_without

MAX_FILE_BYTES: Final = 1 << 20
"""Bytes of a scheduler's file."""
CONNECT_SECONDS: Final = 10
"""Seconds in which a scheduler must answer."""
JOIN_SECONDS: Final = 20
"""Seconds in which a scheduler must have a worker."""
ADDRESS: Final = re.compile(r"(?:(tcp|tls|ws|wss|ucx)://)?[^\s/]+:[0-9]+")
LOGGERS: Final = ("distributed", "tornado", "asyncio", "bokeh")
"""Packages whose log messages would stand between the lines of a report."""
MAX_LOADING_LOSSES: Final = 3
"""Workers that may be lost while they load, as many as Dask itself allows a task."""
RETRY_INTERVAL: Final = 0.2
"""Seconds between looks for a worker after a loss."""


@contextmanager
def working(plan: Plan, cases: Sequence[AnyCase]) -> Iterator[RunQueue]:
    """Judge cases on a cluster, until the block ends.

    Raises:
        UsageError: no cluster answers, or its workers cannot judge this.
        ClusterLostError: it was lost before a worker was ready.
    """
    load = (remote.judge, remote.begin, (remote.sent(plan),))
    order, where = _order(plan.suites, load, plan.implementations), _named(plan.scheduler)
    with connected(plan.scheduler, plan.jobs) as client, _prepared(client, order, where):
        queue = RunQueue(plan, cases, max(sum(client.nthreads().values()), 1))
        with Scheduler(client, order, queue, where):
            yield queue


def workers(scheduler: str, jobs: int, suites: Sequence[str]) -> Workers:
    """Workers of a cluster for `collect.collect`; their block raises as `working` does."""

    @contextmanager
    def working_on(queue: TaskQueue[str, Any], *load: Any) -> Iterator[None]:
        order, where = _order(suites, load), _named(scheduler)
        with (
            connected(scheduler, jobs) as client,
            _prepared(client, order, where),
            Scheduler(client, order, queue, where),
        ):
            yield

    return working_on


def _named(scheduler: str) -> str:
    return f"the cluster at {scheduler}" if scheduler else "the cluster"


@contextmanager
def _prepared(client: Any, order: dask_worker.Order, where: str) -> Iterator[None]:
    """Prepare all workers; end their processes with the block.

    Raises:
        UsageError, ClusterLostError: as `_prepare` does.
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
    """The order for the workers: the suites, the code to load, and where to find it.

    `words` are those of `--impl`, which name frameworks.
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
    """Have every worker load the plan; wait until one is ready.

    A worker that is lost while it loads is replaced by the next.

    Raises:
        UsageError: a worker lacks something, or no process stays alive on any of them.
        ClusterLostError: the scheduler was lost, or one worker after the other.
    """
    lost: set[str] = set()
    seen = time.monotonic()
    while True:
        said = _answers(client, order, where)
        wrong = {worker: error for worker, error in said.items() if isinstance(error, Exception)}
        fallen = {worker for worker, error in wrong.items() if isinstance(error, OSError)}
        poor = [
            worker
            for worker, error in wrong.items()
            if isinstance(error, dask_worker.ProcessLostError)
        ]
        unfit = [worker for worker in wrong if worker not in {*fallen, *poor}]
        if unfit or (poor and len(poor) == len(said)):
            raise UsageError(_refused([*unfit, *poor][0], wrong))
        if len(fallen) + len(poor) < len(said):
            return
        if said.keys() - lost:
            seen = time.monotonic()
        lost |= fallen
        if len(lost) > MAX_LOADING_LOSSES:
            raise ClusterLostError(
                f"{where} lost one worker after the other while they loaded this"
            )
        if time.monotonic() > seen + MAX_IDLE:
            raise ClusterLostError(f"{where} has had no workers for {MAX_IDLE:g} s")
        time.sleep(RETRY_INTERVAL)


def _answers(client: Any, order: dask_worker.Order, where: str) -> Mapping[str, Any]:
    """The answer of each worker: None, or its exception.

    Raises:
        ClusterLostError: the scheduler was lost.
    """
    try:
        said: Mapping[str, Any] = client.run(dask_worker.prepare, order, on_error="return")
    except OSError:
        raise connection_lost(where) from None
    return said


def _refused(worker: str, wrong: Mapping[str, Exception]) -> str:
    """Why a worker cannot judge, and how many others cannot."""
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"the worker at {worker}{more} cannot judge this: {_why(wrong[worker])}"


def _why(error: Exception) -> str:
    if isinstance(error, dask_worker.ProcessLostError):
        return f"{error}; what it printed is in the log of that worker"
    if isinstance(error, dask_worker.UnfitError):
        return f"{error}; it needs the same there as here, at the same path"
    return (
        f"{type(error).__name__}: {error}; install the same gradcheck there as here, and start "
        "the worker again"
    )


# ── the connection ───────────────────────────────────────────────────────────────────────────────


def check_installed() -> None:
    """Refuse to go on without Dask.

    Raises:
        UsageError: the extra is not installed.
    """
    if find_spec("distributed") is None:
        raise UsageError(
            "--executor dask: Dask is not installed; run: pip install 'gradcheck[dask]'"
        )


def address_of(scheduler: str) -> str:
    """The address of a scheduler, as given or as its file says.

    >>> address_of("head:8786"), address_of("tls://10.0.0.1:8786")
    ('tcp://head:8786', 'tls://10.0.0.1:8786')

    Raises:
        UsageError: neither is an address.
    """
    flag = f"--scheduler {scheduler}"
    if scheduler.endswith(".json"):
        try:
            scheduler = str(json.loads(contents(Path(scheduler), MAX_FILE_BYTES))["address"])
        except OSError as error:
            raise UsageError(f"{flag}: {error.strerror}; is the scheduler running?") from None
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{flag}: not what `dask scheduler --scheduler-file` writes") from None
    found = ADDRESS.fullmatch(scheduler)
    if found is None:
        raise UsageError(f"{flag}: no address; write tcp://HOST:PORT, as `dask scheduler` prints")
    return scheduler if found[1] else f"tcp://{scheduler}"


@contextmanager
def connected(scheduler: str, jobs: int) -> Iterator[Any]:
    """A client of the cluster at an address, or, without one, of a new one with `jobs` workers.

    Raises:
        UsageError: Dask is not installed, nothing answers there, or it has no workers.
    """
    check_installed()
    address = address_of(scheduler) if scheduler else ""
    with ExitStack() as stack:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the versions that matter are compared elsewhere
            stack.enter_context(quiet())
            client = stack.enter_context(
                _reached(scheduler, address) if address else _embedded(jobs)
            )
        try:
            client.wait_for_workers(1, timeout=JOIN_SECONDS)
        except TimeoutError:
            raise UsageError(
                f"--scheduler {scheduler}: it has no workers; start some: dask worker {address}"
            ) from None
        yield client


def _reached(scheduler: str, address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TypeError) as error:  # TypeError: tls:// without keys
        raise UsageError(
            f"--scheduler {scheduler}: no Dask scheduler answers there ({error}); start one with "
            "`dask scheduler`, and give the address that it prints"
        ) from None


@contextmanager
def _embedded(jobs: int) -> Iterator[Any]:
    """A cluster within this process: its workers only wait for processes that judge."""
    import dask
    from distributed import Client, LocalCluster

    with (
        tempfile.TemporaryDirectory(prefix="gradcheck-") as folder,
        dask.config.set({"temporary-directory": folder}),
        LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            memory_limit=None,
            silence_logs=False,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs of Dask; errors are reported in one line."""

    def silent(_: logging.LogRecord) -> bool:
        return False

    import distributed  # noqa: F401  it makes its loggers

    known = logging.root.manager.loggerDict
    meant = [
        logger
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in LOGGERS
    ]
    silenced = [*meant, *(handler for logger in meant for handler in logger.handlers)]
    for each in silenced:
        each.addFilter(silent)
    try:
        yield
    finally:
        for each in silenced:
            each.removeFilter(silent)
