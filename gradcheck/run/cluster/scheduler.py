"""Schedules tasks on a Dask cluster: sends them as slots become free, and takes results at once."""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Self, TypeVar

from gradcheck.run.cluster import dask_worker
from gradcheck.run.workers import WorkersLostError
from gradcheck.run.workers.pool import TaskQueue

Task = TypeVar("Task")
BATCH_SECONDS: Final = 0.2
"""Seconds of work that are sent together: a message costs milliseconds."""
MAX_BATCH: Final = 32
"""Tasks in a batch: those lost with a machine are repeated."""
POLL_INTERVAL: Final = 0.01
"""Seconds between looks for results."""
SLOTS_INTERVAL: Final = 2.0
"""Seconds between counts of the slots."""
MAX_IDLE: Final = 60.0
"""Seconds without any worker after which the run ends."""
MAX_FAILED_ROUNDS: Final = 3
"""How often every slot may fail to start, with no answer between, until the run ends."""


class ClusterLostError(WorkersLostError):
    """The cluster is lost, or cannot judge."""

    advice = "what was finished is kept"


def connection_lost(where: str) -> ClusterLostError:
    """The error of a scheduler that does not answer any more."""
    return ClusterLostError(f"the connection to {where} was lost")


class Scheduler(Generic[Task]):
    """Keeps every slot of a client's cluster busy, in a thread of its own.

    `where` names the cluster in messages. An attribute `seconds` of a task is its expected time,
    and of a result the time that it took.
    """

    def __init__(
        self, client: Any, order: dask_worker.Order, queue: TaskQueue[Task, Any], where: str
    ) -> None:
        """Take the order for the workers and the queue of tasks."""
        from distributed import KilledWorker, as_completed

        self._client, self._order, self._queue, self._where = client, order, queue, where
        self._killed = KilledWorker
        self._coming = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        self._under_way: dict[Any, tuple[Any, int, list[Task]]] = {}
        self._load: Counter[int] = Counter()
        self._threads: dict[str, int] = {}
        self._failed: Counter[str] = Counter()
        self._sent, self._slots, self._rounds, self._over = 0, 0, 0, False
        self._expected, self._taken, self._pace = 0.0, 0.0, 1.0
        self._seen = self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel all tasks."""
        self._over = True
        self._thread.join(SLOTS_INTERVAL)
        if self._client.status == "running":
            futures = [future for future, *_ in [*self._under_way.values()]]
            with suppress(OSError, TimeoutError):  # the cluster is going
                self._client.cancel(futures, force=True)

    # ── in a thread of its own ───────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._count_again()
            while self._queue.left and not self._over:
                self._send()
                for future, result in self._results():
                    self._take(future, result)
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            known = isinstance(error, WorkersLostError) or self._client.status == "running"
            self._queue.broken(error if known else self._lost())

    def _send(self) -> None:
        """Send every slot a batch, and, behind a short one, another."""
        for ahead in (False, True):
            for number in range(self._slots):
                if self._load[number] == ahead:
                    batch = self._batch(number, ahead=ahead)
                    if batch:
                        self._submit(number, batch)

    def _batch(self, number: int, *, ahead: bool) -> list[Task]:
        """Take tasks for one message: several short ones, fewer near the end."""
        batch: list[Task] = []
        seconds = 0.0
        out = sum(len(tasks) for _, _, tasks in self._under_way.values())
        most = min(MAX_BATCH, max((self._queue.left - out) // (2 * self._slots), 1))
        while len(batch) < most and seconds < BATCH_SECONDS:
            task = self._queue.next(number, ahead=ahead or bool(batch))
            if task is None:
                break
            batch.append(task)
            seconds += getattr(task, "seconds", BATCH_SECONDS) * self._pace
        return batch

    def _submit(self, number: int, batch: list[Task]) -> None:
        self._sent += 1
        rather = [worker for worker, n in self._threads.items() if n > self._failed[worker]]
        future = self._client.submit(
            dask_worker.judge,
            self._order,
            [*map(pickle.dumps, batch)],
            key=(f"gradcheck-{self._order['run']}", self._sent),
            pure=False,
            workers=rather if self._failed else None,
            allow_other_workers=bool(self._failed),
        )
        self._load[number] += 1
        self._under_way[future.key] = (future, number, batch)
        self._coming.add(future)

    def _results(self) -> list[tuple[Any, Any]]:
        """Wait for results; returns none where the slots have become more."""
        slots = self._slots
        while not self._coming.has_ready():
            if self._over or self._slots > slots:
                return []
            self._check()
            time.sleep(POLL_INTERVAL)
            if time.monotonic() > self._looked + SLOTS_INTERVAL:
                self._count_again()
        found: list[tuple[Any, Any]] = self._coming.next_batch(block=False)
        return found

    def _count_again(self) -> None:
        """Count the slots again.

        Raises:
            ClusterLostError: none for `MAX_IDLE` seconds.
        """
        with suppress(OSError, TimeoutError):  # the client will notice the loss
            self._threads = self._client.nthreads()
        self._count()
        self._looked = time.monotonic()
        if self._slots:
            self._seen = self._looked
        elif self._looked > self._seen + MAX_IDLE:
            raise ClusterLostError(f"{self._where} has had no workers for {MAX_IDLE:g} s")

    def _count(self) -> bool:
        """Count the slots: the threads of all workers but those that failed to start.

        Where all failed, they are counted again, and this returns False.
        """
        free = {worker: max(n - self._failed[worker], 0) for worker, n in self._threads.items()}
        some = any(free.values())
        if not some:
            self._failed.clear()
        self._slots = sum((free if some else self._threads).values())
        return some

    def _lost(self) -> ClusterLostError:
        return connection_lost(self._where)

    def _check(self) -> None:
        """Check the connection.

        Raises:
            ClusterLostError: the scheduler is lost; if it returns, it does not know this run.
        """
        if self._client.status != "running" and not self._over:
            raise self._lost()

    def _take(self, future: Any, result: Any) -> None:
        """Process the answers of a batch.

        Raises:
            ClusterLostError: the scheduler is lost, a worker that joined cannot judge, or no
                process stays alive.
            Exception: any exception that a worker raised.
        """
        _, number, batch = self._under_way.pop(future.key)
        self._load[number] -= 1
        if future.status == "finished":
            for task, answer in zip(batch, result, strict=False):
                if isinstance(answer, bytes):
                    self._came(task, pickle.loads(answer))
                else:
                    self._queue.lost(task, answer)
            self._back(batch[len(result) :])
            self._rounds = 0
        elif future.status == "error":
            error: BaseException = result[1]
            if isinstance(error, dask_worker.UnfitError):
                raise ClusterLostError(f"a worker of {self._where} cannot judge this: {error}")
            if isinstance(error, dask_worker.ProcessLostError):
                self._back(batch)
                self._reduce(*error.args)
            elif isinstance(error, self._killed):
                for task in batch:
                    self._queue.lost(task, "one worker after the other was lost with it")
            else:
                raise error
        elif not self._over:  # cancelled by a scheduler that was restarted
            raise self._lost()

    def _back(self, tasks: Sequence[Task]) -> None:
        for task in reversed(tasks):
            self._queue.back(task)

    def _reduce(self, why: str, worker: str) -> None:
        """Use one slot less of a worker; where none is left anywhere, try all again.

        Raises:
            ClusterLostError: all slots failed too often.
        """
        self._failed[worker] += 1
        if not self._count():
            self._rounds += 1
            if self._rounds >= MAX_FAILED_ROUNDS:
                raise ClusterLostError(f"no process on {self._where} lives to judge: {why}")

    def _came(self, task: Task, result: Any) -> None:
        """Take one result, and update how much longer than expected tasks take."""
        self._expected += getattr(task, "seconds", 0.0)
        self._taken += getattr(result, "seconds", 0.0)
        self._pace = max(self._taken / self._expected, 1.0) if self._expected else 1.0
        self._queue.came(task, result)
