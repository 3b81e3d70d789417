"""What a worker does, without a cluster: processes that judge, die, are refused, and end."""

import asyncio
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gradcheck.run.cluster import dask_worker
from gradcheck.run.cluster.process import identity
from tests.run.cluster.conftest import LONG, eventually, gone

MODULE = """
import os, signal, sys, time
from gradcheck.errors import LoadError

def load(word):
    if word == "missing":
        raise LoadError("--impl missing: there is no such file")
    if word == "dies":
        os._exit(3)
    if word == "dies once" and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    global WORD
    WORD = word

def judge(task):
    if task == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if task == "print":
        print("::error::printed", flush=True)
    if task == "defect":
        raise RuntimeError("of ours")
    if task == "wait":
        open("waits", "w").close()
        time.sleep(1000)
    return WORD, task, os.getpid(), os.getcwd(), sys.argv, os.environ["OMP_NUM_THREADS"]
"""


def awaited(coroutine):
    """What it returns: run in a thread of its own, for other tests may have a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


class Toy:
    """Orders for a module of the test's, each for a run of its own."""

    def __init__(self, path):
        self.path, self.runs = path, []
        (path / "toy.py").write_text(MODULE)

    def order(self, word="word", **begin):
        import toy

        self.runs.append(f"run {len(self.runs)} {self.path}")
        usual = {
            "identity": identity([]), "suites": [], "words": [], "folder": str(self.path),
            "argv": ["gradcheck", "run"], "path": [str(self.path)],
        }  # fmt: skip
        load = pickle.dumps((toy.judge, toy.load, (word,)))
        env = {"OMP_NUM_THREADS": "7"}
        return {"run": self.runs[-1], "begin": {**usual, **begin}, "load": load, "env": env}

    def judged(self, order, *tasks):
        answers = dask_worker.judge(order, [pickle.dumps(task) for task in tasks])
        return [pickle.loads(a) if isinstance(a, bytes) else a for a in answers]

    def end(self, order):
        awaited(dask_worker.end(order["run"]))


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    # However slow this machine is, no batch is long.
    monkeypatch.setattr(dask_worker, "MAX_BATCH_SECONDS", 1000)
    made = Toy(tmp_path)
    yield made
    for run in made.runs:
        awaited(dask_worker.end(run))
    monkeypatch.delitem(sys.modules, "toy", raising=False)


def test_a_process_is_as_the_client_is_and_stays_for_the_next_task(toy):
    order = toy.order()
    awaited(dask_worker.prepare(order))
    (first, second), (third,) = toy.judged(order, "a", "b"), toy.judged(order, "c")
    word, task, pid, folder, argv, threads = first
    assert (word, task, threads) == ("word", "a", "7")
    assert (folder, argv) == (str(toy.path), ["gradcheck", "run"])
    assert [second[1:3], third[1:3]] == [("b", pid), ("c", pid)]
    assert pid != os.getpid()
    toy.end(order)
    assert gone(pid)


def test_a_folder_that_is_not_here_is_no_hindrance(toy):
    order = toy.order(folder="/no/such/folder", path=["/no/such", str(toy.path)])
    (found,) = toy.judged(order, "a")
    assert found[3] == str(Path.cwd())


@pytest.mark.slow
def test_a_process_that_dies_costs_its_own_task_alone(toy):
    before, how, after = toy.judged(toy.order(), "a", "die", "b")
    assert (before[1], how, after[1]) == ("a", "SIGSEGV", "b")
    assert before[2] != after[2]


@pytest.mark.slow
def test_a_process_that_went_away_unasked_is_replaced(toy):
    order = toy.order()
    ((_, _, pid, *_),) = toy.judged(order, "a")
    (idle,) = dask_worker._pool_of(order["run"])._idle
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    eventually(lambda: not idle.alive)  # its first thread has ended, others of it are about to
    assert toy.judged(order, "b")[0][1] == "b"


def test_what_is_printed_is_inert_and_in_the_log(toy, capsys):
    assert toy.judged(toy.order(), "print")[0][1] == "print"
    assert capsys.readouterr() == ("", "| ::error::printed\n")


def test_a_defect_is_no_answer(toy):
    with pytest.raises(RuntimeError, match="of ours"):
        toy.judged(toy.order(), "defect")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("order", "why"),
    [
        ({"word": "missing"}, "--impl missing: there is no such file"),
        ({"identity": {**identity([]), "NumPy": "1.0"}}, r"NumPy [\d.]+, not 1.0 as here"),
        (
            {"identity": {**identity([]), "PyTorch": "1.0"}, "words": ["torch"]},
            r"PyTorch \S+, not 1.0 as here",
        ),
        ({"identity": {"suite a:B": "of files 1"}, "suites": ["a:B"]}, "of files missing, not of"),
    ],
)
def test_a_worker_that_cannot_judge_says_why(toy, order, why):
    wanted = toy.order(**order)
    with pytest.raises(dask_worker.UnfitError, match=f"on .*: .*{why}"):
        awaited(dask_worker.prepare(wanted))
    with pytest.raises(dask_worker.UnfitError, match=why):
        toy.judged(wanted, "a")


@pytest.mark.slow
def test_a_process_that_dies_once_while_it_loads_is_begun_again(toy):
    (found,) = toy.judged(toy.order("dies once"), "a")
    assert (toy.path / "died").exists()
    assert found[:2] == ("dies once", "a")


@pytest.mark.slow
def test_one_that_dies_again_is_lost_and_nobody_is_to_blame(toy):
    order, why = toy.order("dies"), "status 3 before it answered while it loaded the run, in 2 tr"
    with pytest.raises(dask_worker.ProcessLostError, match=f"on .*: exited with {why}"):
        awaited(dask_worker.prepare(order))
    with pytest.raises(dask_worker.ProcessLostError, match=why) as raised:
        toy.judged(order, "a")
    assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args
    assert raised.value.args[1] == ""  # the worker's address: here is none


def full(*_, **__):
    raise BlockingIOError(11, "Resource temporarily unavailable")


def test_where_no_process_can_be_had_it_is_lost(toy, monkeypatch):
    monkeypatch.setattr(dask_worker, "Child", full)
    with pytest.raises(
        dask_worker.ProcessLostError, match="Resource temporarily unavailable, in 2 tries"
    ):
        toy.judged(toy.order(), "a")


def test_what_is_done_of_a_batch_is_kept_where_no_other_process_begins(toy, monkeypatch):
    order = toy.order()
    awaited(dask_worker.prepare(order))
    monkeypatch.setattr(dask_worker, "Child", full)
    before, how = toy.judged(order, "a", "die", "b")
    assert (before[1], how) == ("a", "SIGSEGV")


def test_a_batch_that_takes_long_goes_home_as_it_is(toy, monkeypatch):
    monkeypatch.setattr(dask_worker, "MAX_BATCH_SECONDS", 0)
    assert [task for _, task, *_ in toy.judged(toy.order(), *"abc")] == ["a"]


@pytest.mark.slow
def test_a_process_goes_when_nothing_more_comes(toy, monkeypatch):
    soon = dask_worker.PROGRAM.replace(
        "main(sys.argv)", "main.__globals__['IDLE'] = 0.1; main(sys.argv)"
    )
    monkeypatch.setattr(dask_worker, "PROGRAM", soon)
    ((_, _, pid, *_),) = toy.judged(toy.order(), "a")
    assert gone(pid)


def test_a_run_that_has_ended_starts_nothing_more(toy):
    order = toy.order()
    toy.end(order)
    with pytest.raises(dask_worker.RunEndedError):
        toy.judged(order, "a")


def test_the_end_of_a_run_ends_what_is_at_work(toy):
    order, heard = toy.order(), []

    def wait():
        try:
            toy.judged(order, "wait")
        except dask_worker.RunEndedError as error:
            heard.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually((toy.path / "waits").exists)
    toy.end(order)
    thread.join(LONG)
    assert len(heard) == 1
