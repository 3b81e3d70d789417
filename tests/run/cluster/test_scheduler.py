"""A cluster kept busy: what becomes of a batch, a loss, a defect, an empty cluster."""

import pickle
import threading
import time
import uuid
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from gradcheck.run.cluster import dask_worker, scheduler
from gradcheck.run.cluster.client import connected
from gradcheck.run.cluster.scheduler import ClusterLostError, Scheduler

distributed = pytest.importorskip("distributed")
LONG = 300
"""Seconds after which a test gives up what is to happen soon."""


@dataclass(frozen=True)
class Task:
    word: str
    seconds: float = 1.0


class Line:
    """Tasks, and what is told of them."""

    def __init__(self, *tasks):
        self.waiting, self.left = [*tasks], len(tasks)
        self.told, self.backed = [], []
        self.error, self.over = None, threading.Event()

    def next(self, number, *, ahead=False):
        return self.waiting.pop(0) if self.waiting else None

    def came(self, task, result):
        self._settled(task, result)

    def lost(self, task, how):
        self._settled(task, how)

    def back(self, task):
        self.backed.append(task.word)
        self.waiting.insert(0, task)

    def broken(self, error):
        self.error = error
        self.over.set()

    def _settled(self, task, what):
        self.told.append((task.word, what))
        self.left -= 1
        if not self.left:
            self.over.set()


def sizes(order, batch):
    return [pickle.dumps(len(batch))] * len(batch)


class Slow(tuple):
    """A result that says that it took a minute."""

    seconds = 60.0


def slow(order, batch):
    return [pickle.dumps(Slow((len(batch), "")))] * len(batch)


def half(order, batch):
    """What a worker does for which the batch has become long."""
    return [pickle.dumps(len(batch))] * ((len(batch) + 1) // 2)


SAYS = "on here: SIGKILL while it loaded the run, in 2 tries"
POOR = SimpleNamespace(times=[], worker=[])
"""An item per process that dies while it loads; or which worker it is that loses all of its own."""


def loses(order, batch):
    """What a worker does whose process dies."""
    address = distributed.get_worker().address
    try:
        POOR.times.pop()
    except IndexError:
        return words(order, batch)
    raise dask_worker.ProcessLostError(SAYS, address)


def first_loses(order, batch):
    """What a worker does: the one that is asked first loses every process."""
    address = distributed.get_worker().address
    POOR.worker.append(address)
    if POOR.worker[0] == address:
        raise dask_worker.ProcessLostError(SAYS, address)
    return words(order, batch)


def words(order, batch):
    return [pickle.dumps(pickle.loads(task).word) for task in batch]


def bad(order, batch):
    (word,) = (pickle.loads(task).word for task in batch)
    if word == "killed":
        raise distributed.KilledWorker(word, SimpleNamespace(address="tcp://x"), 3)
    if word == "unfit":
        raise dask_worker.UnfitError("on other: NumPy 1.0, not 2.0 as here")
    if word == "defect":
        raise ZeroDivisionError("of ours")
    return ["SIGSEGV" if word == "died" else pickle.dumps(word)]


@pytest.fixture(scope="module")
def client():
    """A cluster of two workers within this process."""
    with connected("", 2) as found:
        yield found


@pytest.fixture
def fed(client, monkeypatch):
    """A line, carried out by workers that judge in a way of the test's."""

    def carried_out(judge, *tasks):
        monkeypatch.setattr(dask_worker, "judge", judge)
        line = Line(*tasks)
        order = {"run": uuid.uuid4().hex, "begin": {}, "load": b"", "env": {}}
        with Scheduler(client, order, line, "the cluster"):
            assert line.over.wait(LONG)
        return line

    return carried_out


def test_short_tasks_travel_together_and_long_ones_alone(fed):
    short, long = scheduler.BATCH_SECONDS / 4.5, 2 * scheduler.BATCH_SECONDS
    tasks = [*(Task("long", long) for _ in range(3)), *(Task("short", short) for _ in range(100))]
    told = fed(sizes, *tasks).told
    assert [size for word, size in told if word == "long"] == [1, 1, 1]
    found = [size for word, size in told if word == "short"]
    assert max(found) == 5
    assert found.count(5) > 50  # but near the end, slots would wait for the last batch
    assert found.count(1) >= 4


def test_no_batch_is_larger_than_what_may_be_lost(fed):
    told = fed(sizes, *(Task(str(n), 1e-9) for n in range(1000))).told
    assert sorted(int(word) for word, _ in told) == [*range(1000)]
    assert max(size for _, size in told) == scheduler.MAX_BATCH


@pytest.mark.slow
def test_tasks_that_take_longer_than_expected_do_not_wait_for_each_other(fed):
    told = fed(slow, *(Task("short", 1e-3) for _ in range(400))).told
    together = [size for _, (size, _) in told if size > 1]
    assert together == [scheduler.MAX_BATCH] * len(together)
    assert 0 < len(together) <= 4 * scheduler.MAX_BATCH  # sent before anything had come


def test_a_task_whose_worker_or_process_is_lost_is_told_so(fed):
    told = dict(fed(bad, Task("killed"), Task("died"), Task("right")).told)
    assert told.pop("killed") == "one worker after the other was lost with it"
    assert told == {"died": "SIGSEGV", "right": "right"}


def test_what_a_worker_left_undone_goes_out_again_in_its_order(fed):
    line = fed(half, *(Task(str(n), 1e-9) for n in range(200)))
    assert sorted(int(word) for word, _ in line.told) == [*range(200)]
    end, half_batch = int(line.backed[0]) + 1, scheduler.MAX_BATCH // 2
    assert end % scheduler.MAX_BATCH == 0  # of either worker's first batch
    undone = [str(n) for n in reversed(range(end - half_batch, end))]
    assert line.backed[:half_batch] == undone


def test_what_was_lost_while_it_loaded_is_done_by_others(client, fed, monkeypatch):
    monkeypatch.setattr(POOR, "worker", [])
    submit, rather = client.submit, []

    def told(*words, workers, allow_other_workers, **more):
        rather.append((workers, allow_other_workers))
        return submit(*words, workers=workers, allow_other_workers=allow_other_workers, **more)

    monkeypatch.setattr(client, "submit", told)
    line = fed(first_loses, *(Task(str(n)) for n in range(20)))
    assert line.error is None
    assert sorted(int(word) for word, _ in line.told) == [*range(20)]
    assert all(word == answer for word, answer in line.told)
    (good,) = client.nthreads().keys() - {POOR.worker[0]}
    assert rather[0] == (None, False)
    assert rather[-1] == ([good], True)


def test_where_nothing_can_begin_for_a_while_it_is_tried_again(fed, monkeypatch):
    monkeypatch.setattr(
        POOR, "times", [0] * 2 * (scheduler.MAX_FAILED_ROUNDS - 1)
    )  # of each of two workers
    line = fed(loses, *(Task(str(n)) for n in range(9)))
    assert (line.error, len(line.told)) == (None, 9)


def test_and_not_for_ever(fed, monkeypatch):
    monkeypatch.setattr(POOR, "times", [0] * 10_000)
    line = fed(loses, *(Task(str(n)) for n in range(9)))
    assert isinstance(line.error, ClusterLostError)
    assert str(line.error) == (
        "no process on the cluster lives to judge: on here: SIGKILL while it loaded the run, "
        "in 2 tries"
    )
    assert line.told == []


def test_a_worker_that_joined_and_cannot_judge_ends_the_run(fed):
    error = fed(bad, Task("unfit")).error
    assert isinstance(error, ClusterLostError)
    assert str(error) == (
        "a worker of the cluster cannot judge this: on other: NumPy 1.0, not 2.0 as here"
    )


def test_a_defect_of_ours_is_heard(fed):
    assert isinstance(fed(bad, Task("defect"), Task("right")).error, ZeroDivisionError)


def test_a_cluster_without_workers_is_waited_for_but_not_for_ever(monkeypatch, client, fed):
    monkeypatch.setattr(client, "nthreads", dict)
    monkeypatch.setattr(scheduler, "SLOTS_INTERVAL", 0.01)
    monkeypatch.setattr(scheduler, "MAX_IDLE", 0.1)
    line = fed(bad, Task("right"))
    assert str(line.error) == "the cluster has had no workers for 0.1 s"
    assert line.told == []


def test_workers_that_join_late_get_their_share(monkeypatch, client, fed):
    begun = time.monotonic()
    real = client.nthreads
    monkeypatch.setattr(
        client, "nthreads", lambda: real() if time.monotonic() > begun + 0.2 else {}
    )
    monkeypatch.setattr(scheduler, "SLOTS_INTERVAL", 0.01)
    assert fed(bad, Task("right")).told == [("right", "right")]
