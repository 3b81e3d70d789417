"""A cluster kept busy: tasks go out as slots become free, and results come home at once."""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Self, TypeVar

from gradcheck.run.cluster import dask_worker
from gradcheck.run.workers.task_queue import Died, TaskQueue

Task = TypeVar("Task")
BATCH: Final = 0.2
"""Seconds of work that are sent together: a message costs milliseconds."""
LARGEST: Final = 32
"""Tasks in a batch at most: what is lost with a machine is done again."""
BLINK: Final = 0.01
"""Seconds between looks at what has come."""
LOOK: Final = 2.0
"""Seconds between looks at how many slots there are."""
PATIENCE: Final = 60.0
"""Seconds without any worker after which none is expected."""
HOPE: Final = 3
"""How often every slot may fail to begin, with no answer from any, until that is the end."""


class Gone(Died):
    """There is no cluster any more, or it cannot do what is asked."""

    advice = "what was finished is kept"


def connection_lost(where: str) -> Gone:
    """The scheduler of that cluster is not reached any more."""
    return Gone(f"the connection to {where} was lost")


class Feeding(Generic[Task]):
    """Keeps every slot of a client's cluster busy, from a thread of its own.

    `where` names the cluster in messages. A task may say what it is expected to take, and a result
    what it took, by an attribute `seconds`.
    """

    def __init__(
        self, client: Any, order: dask_worker.Order, feed: TaskQueue[Task, Any], where: str
    ) -> None:
        """Say what is to be done."""
        from distributed import KilledWorker, as_completed

        self._client, self._order, self._feed, self._where = client, order, feed, where
        self._killed = KilledWorker
        self._coming = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        self._under_way: dict[Any, tuple[Any, int, list[Task]]] = {}
        self._load: Counter[int] = Counter()
        self._threads: dict[str, int] = {}
        self._poor: Counter[str] = Counter()
        self._sent, self._slots, self._rounds, self._over = 0, 0, 0, False
        self._expected, self._taken, self._pace = 0.0, 0.0, 1.0
        self._seen = self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._carry_on, name="cluster", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for nothing more; what was not begun is not begun."""
        self._over = True
        self._thread.join(LOOK)
        if self._client.status == "running":
            futures = [future for future, *_ in [*self._under_way.values()]]
            with suppress(OSError, TimeoutError):  # the cluster is going
                self._client.cancel(futures, force=True)

    # ── in a thread of its own ───────────────────────────────────────────────────────────────

    def _carry_on(self) -> None:
        try:
            self._look()
            while self._feed.left and not self._over:
                self._send()
                for future, result in self._come():
                    self._take(future, result)
        except BaseException as error:  # noqa: BLE001  whoever waits must hear of it
            known = isinstance(error, Died) or self._client.status == "running"
            self._feed.broken(error if known else self._lost())

    def _send(self) -> None:
        """Give every slot something to do, and, where that is short, something to do next."""
        for ahead in (False, True):
            for number in range(self._slots):
                if self._load[number] == ahead:
                    batch = self._batch(number, ahead=ahead)
                    if batch:
                        self._submit(number, batch)

    def _batch(self, number: int, *, ahead: bool) -> list[Task]:
        """What goes out together: some short tasks, fewer near the end, where others would wait."""
        batch: list[Task] = []
        seconds = 0.0
        out = sum(len(tasks) for _, _, tasks in self._under_way.values())
        most = min(LARGEST, max((self._feed.left - out) // (2 * self._slots), 1))
        while len(batch) < most and seconds < BATCH:
            task = self._feed.next(number, ahead=ahead or bool(batch))
            if task is None:
                break
            batch.append(task)
            seconds += getattr(task, "seconds", BATCH) * self._pace
        return batch

    def _submit(self, number: int, batch: list[Task]) -> None:
        self._sent += 1
        rather = [worker for worker, n in self._threads.items() if n > self._poor[worker]]
        future = self._client.submit(
            dask_worker.judge,
            self._order,
            [*map(pickle.dumps, batch)],
            key=(f"gradcheck-{self._order['run']}", self._sent),
            pure=False,
            workers=rather if self._poor else None,
            allow_other_workers=bool(self._poor),
        )
        self._load[number] += 1
        self._under_way[future.key] = (future, number, batch)
        self._coming.add(future)

    def _come(self) -> list[tuple[Any, Any]]:
        """What has come, once there is something; nothing where there are more slots now."""
        slots = self._slots
        while not self._coming.has_ready():
            if self._over or self._slots > slots:
                return []
            self._check()
            time.sleep(BLINK)
            if time.monotonic() > self._looked + LOOK:
                self._look()
        found: list[tuple[Any, Any]] = self._coming.next_batch(block=False)
        return found

    def _look(self) -> None:
        """How many slots there are now.

        Raises:
            Gone: there have been none for long.
        """
        with suppress(OSError, TimeoutError):  # if it is gone, the client will have noticed soon
            self._threads = self._client.nthreads()
        self._count()
        self._looked = time.monotonic()
        if self._slots:
            self._seen = self._looked
        elif self._looked > self._seen + PATIENCE:
            raise Gone(f"{self._where} has had no workers for {PATIENCE:g} s")

    def _count(self) -> bool:
        """Count the slots: the threads of all workers, less those that could not begin.

        Where those are all that there are, they are asked again; then this is False.
        """
        free = {worker: max(n - self._poor[worker], 0) for worker, n in self._threads.items()}
        some = any(free.values())
        if not some:
            self._poor.clear()
        self._slots = sum((free if some else self._threads).values())
        return some

    def _lost(self) -> Gone:
        return connection_lost(self._where)

    def _check(self) -> None:
        """Look whether there is a scheduler.

        Raises:
            Gone: there is none any more; if it comes back, it knows nothing of this run.
        """
        if self._client.status != "running" and not self._over:
            raise self._lost()

    def _take(self, future: Any, result: Any) -> None:
        """Take home what came of a batch.

        Raises:
            Gone: there is no scheduler any more, a worker that joined cannot judge, or nothing
                has been able to begin for long.
            Exception: what a worker raised instead of an answer: a defect of ours.
        """
        _, number, batch = self._under_way.pop(future.key)
        self._load[number] -= 1
        if future.status == "finished":
            for task, answer in zip(batch, result, strict=False):
                if isinstance(answer, bytes):
                    self._came(task, pickle.loads(answer))
                else:
                    self._feed.lost(task, answer)
            self._back(batch[len(result) :])
            self._rounds = 0
        elif future.status == "error":
            error: BaseException = result[1]
            if isinstance(error, dask_worker.Unfit):
                raise Gone(f"a worker of {self._where} cannot judge this: {error}")
            if isinstance(error, dask_worker.Lost):
                self._back(batch)
                self._spare(*error.args)
            elif isinstance(error, self._killed):
                for task in batch:
                    self._feed.lost(task, "one worker after the other was lost with it")
            else:
                raise error
        elif not self._over:  # cancelled, and not by us: it has started anew
            raise self._lost()

    def _back(self, tasks: Sequence[Task]) -> None:
        for task in reversed(tasks):
            self._feed.back(task)

    def _spare(self, why: str, worker: str) -> None:
        """Ask less of a worker where nothing lived to judge; where that is all of them, begin anew.

        Raises:
            Gone: that has been so for long.
        """
        self._poor[worker] += 1
        if not self._count():
            self._rounds += 1
            if self._rounds >= HOPE:
                raise Gone(f"no process on {self._where} lives to judge: {why}")

    def _came(self, task: Task, result: Any) -> None:
        """Take home one result, and learn how much longer than expected tasks take."""
        self._expected += getattr(task, "seconds", 0.0)
        self._taken += getattr(result, "seconds", 0.0)
        self._pace = max(self._taken / self._expected, 1.0) if self._expected else 1.0
        self._feed.came(task, result)
