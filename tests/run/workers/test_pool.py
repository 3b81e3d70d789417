"""Worker processes: each is set up once, all stay, and what dies costs no more than its task."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from gradcheck.run.workers import WorkersLostError, fork_server
from gradcheck.run.workers.collect import NameQueue
from gradcheck.run.workers.pool import LISTEN, MAX_LOSSES, MAX_SERVER_LOSSES, Pool
from tests.run.workers import tasks


class Watched(NameQueue):
    """A line that remembers what it was told, and lets tasks be sent ahead."""

    def __init__(self, names, ahead=False):
        super().__init__(names)
        self.names, self.ahead, self.sent, self.backed, self.broke = names, ahead, [], [], []

    def next(self, slot, *, ahead=False):
        task = super().next(slot) if not ahead or self.ahead else None
        if task is not None:
            self.sent.append((slot, task))
        return task

    def back(self, task):
        self.backed.append(task)
        super().back(task)

    def broken(self, error):
        self.broke.append(error)
        super().broken(error)


def worked(names, function, jobs=2, setup=tasks.begin, arguments=(), ahead=False):
    """All results, and the line that they came from."""
    line = Watched(names, ahead)
    with Pool(line, function, jobs, setup, arguments):
        assert sorted(line.arrivals(len(names))) == sorted(names)
    return line


def gone(pid):
    """Whether a process ends soon."""

    def ended():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(ended)
    return True


def eventually(happened):
    """Wait until something has happened; a machine may be busy."""
    deadline = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def at_work(pool):
    """The slots whose workers have been sent something, and are known by their numbers."""
    return [slot for slot in [*pool._slots] if slot.sent and slot.ready and slot.pid]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("ahead", [False, True])
def test_every_worker_is_set_up_once_and_stays(ahead):
    line = worked("abcdefghi", tasks.told, arguments=("x", "y"), ahead=ahead)
    assert line.results == {name: (name, "x", "y") for name in "abcdefghi"}
    pids = worked("abcdefghi", tasks.born, ahead=ahead).results.values()
    assert 1 <= len({*pids}) <= 2
    assert os.getpid() not in pids
    assert all(map(gone, pids))


def test_there_are_no_more_workers_than_tasks():
    assert {slot for slot, _ in worked("ab", tasks.told, jobs=9).sent} <= {0, 1}
    assert worked("", tasks.told).results == {}


def test_nothing_waits_for_a_slow_one(tmp_path):
    first, *others = (str(tmp_path / name) for name in "abcdef")
    line = Watched([first, *others])
    with Pool(line, tasks.slow_first, 2, tasks.begin):
        arrived = [*line.arrivals(6)]
    assert sorted(arrived) == [first, *others]
    assert arrived.index(first) > 3  # before those that came after it


def test_what_dies_twice_is_given_up_and_costs_nothing_else():
    line = worked("abcdefgh", tasks.dies)
    assert line.results == {name: name for name in "abcefgh"}
    assert line.crashed == {"d": "exit status 3"}
    assert [task for _, task in line.sent].count("d") == 2


def test_what_dies_once_is_done_by_another(tmp_path):
    once = str(tmp_path / "once")
    line = worked([*"abc", once, *"efg"], tasks.dies)
    assert line.results == {name: name for name in [*"abc", once, *"efg"]}
    assert not line.crashed


def test_what_was_sent_to_one_that_died_is_not_to_blame():
    line = worked("dabc", tasks.dies, jobs=1, ahead=True)
    assert line.crashed == {"d": "exit status 3"}
    assert line.backed == ["a", "d", "a"]
    assert line.results == {name: name for name in "abc"}


def test_a_worker_killed_from_outside_is_replaced():
    line = Watched("abcs")
    with Pool(line, tasks.sleeps, 2, tasks.begin) as pool:
        arrivals = line.arrivals(4)
        assert sorted(next(arrivals) for _ in range(3)) == [*"abc"]
        for _ in range(2):
            eventually(lambda: at_work(pool))
            (busy,) = at_work(pool)
            os.kill(busy.pid, signal.SIGKILL)
            eventually(lambda slot=busy: slot not in pool._slots)
        assert next(arrivals) == "s"
    assert line.crashed == {"s": "SIGKILL"}


def test_there_is_an_end_to_hope(monkeypatch):
    assert MAX_LOSSES > 20
    monkeypatch.setattr("gradcheck.run.workers.pool.MAX_LOSSES", 2)
    line = Watched("dddd")
    line.lost = lambda task, how: line.back(task)
    with (
        Pool(line, tasks.dies, 1, tasks.begin),
        pytest.raises(WorkersLostError, match="exit status 3"),
    ):
        [*line.arrivals(4)]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("setup", "why"),
    [(tasks.unfit, "OSError: no such library"), (tasks.ends, r"it began \(exit status 7\)")],
)
def test_workers_that_cannot_begin_end_the_work_with_the_reason(setup, why):
    line = Watched("abc", ahead=True)
    with Pool(line, tasks.told, 2, setup), pytest.raises(WorkersLostError, match=why):
        [*line.arrivals(3)]
    assert line.left == 3


def test_what_raises_is_raised_where_it_is_awaited():
    line = Watched("afb")
    with Pool(line, tasks.fails, 1, tasks.begin), pytest.raises(ValueError, match="the f"):
        [*line.arrivals(3)]
    assert line.results == {"a": "a"}


def test_a_result_that_cannot_be_sent_is_an_error_and_no_riddle():
    line = Watched("a")
    with Pool(line, tasks.unsendable, 1, tasks.begin), pytest.raises(TypeError, match="pickle"):
        [*line.arrivals(1)]


def test_a_large_result_comes_whole():
    assert worked("ab", tasks.large).results == {name: name * 3_000_000 for name in "ab"}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("function", [tasks.sleeps, tasks.deaf])
def test_work_that_is_left_waits_for_nobody_and_leaves_nobody(function, monkeypatch):
    monkeypatch.setattr("gradcheck.run.workers.pool.STOP_SECONDS", 0.3)
    line = Watched("asbs")
    with Pool(line, function, 2, tasks.begin) as pool:
        next(line.arrivals(4))
        eventually(lambda: at_work(pool))
        pids = [slot.pid for slot in pool._slots if slot.pid]
    assert pids
    assert all(map(gone, pids))
    pool._thread.join(300)
    assert not pool._thread.is_alive()


def test_what_workers_print_does_not_reach_stdout_and_is_no_command(capfd):
    worked("abc", tasks.prints)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("not for the report") == captured.err.count("nor this") == 3
    assert captured.err.count("| ::error::no") == captured.err.count("::error::no") == 3


# ── where they come from ─────────────────────────────────────────────────────────────────────


def first(function):
    return ("tests.run.workers.tasks", function, ())


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("forks", [True, False])
def test_workers_are_forked_or_begin_from_nothing(forks, monkeypatch):
    if forks and not fork_server.FORKS:
        pytest.skip("nobody forks here")
    monkeypatch.setattr("sys.argv", ["some", "words"])
    monkeypatch.setattr(
        "gradcheck.run.workers.pool.server_for", partial(fork_server.ForkServer, forks=forks)
    )
    line = worked("abcd", tasks.said)
    assert line.results == {name: (["words"], True) for name in "abcd"}
    line = worked("adb", tasks.dies)
    assert line.results == {name: name for name in "ab"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted where /proc is")
def test_what_brings_threads_is_not_forked():
    with fork_server.prestarted(LISTEN, [first("threaded")]):
        assert worked("ab", tasks.alone).results == {"a": 1, "b": 1}


def test_what_fails_to_load_ahead_is_no_matter_yet():
    with fork_server.prestarted(LISTEN, [first("unfit"), ("nowhere", "to", ()), first("nor")]):
        assert worked("ab", tasks.told).results == {"a": ("a",), "b": ("b",)}


def test_a_server_started_ahead_and_not_needed_is_ended():
    with fork_server.prestarted(LISTEN, []):
        (waiting,) = fork_server._PRESTARTED
    assert waiting._process.returncode is not None
    assert not fork_server._PRESTARTED


@pytest.mark.slow
def test_the_end_of_where_they_come_from_costs_no_task(tmp_path):
    names = [f"{tmp_path}/{letter}" for letter in "abc"]
    line = Watched(names)
    with Pool(line, tasks.stays_once, 2, tasks.begin) as pool:
        eventually(lambda: len(at_work(pool)) == 2 and len([*tmp_path.iterdir()]) == 2)
        pids = [slot.pid for slot in pool._slots]
        pool._server._process.kill()
        eventually(Path(names[2]).exists)
        pool._server._process.kill()
        assert sorted(line.arrivals(3)) == names
    assert line.crashed == {}
    assert all(map(gone, pids))


def test_a_server_started_ahead_may_have_been_killed():
    with fork_server.prestarted(LISTEN, []):
        (waiting,) = fork_server._PRESTARTED
        waiting._process.kill()
        waiting._process.wait(60)
        assert worked("ab", tasks.told).results == {"a": ("a",), "b": ("b",)}


@pytest.mark.slow
def test_a_place_they_come_from_that_ends_again_and_again_ends_the_work():
    line = Watched("as")
    with Pool(line, tasks.sleeps, 1, tasks.begin) as pool:
        arrivals = line.arrivals(2)
        assert next(arrivals) == "a"
        for ends in range(MAX_SERVER_LOSSES + 1):
            eventually(lambda n=ends: pool._server_losses == n and any(s.pid for s in pool._slots))
            pool._server._process.kill()
        with pytest.raises(WorkersLostError, match=f"ended {MAX_SERVER_LOSSES + 1} times"):
            next(arrivals)


def test_the_keyboard_is_not_for_workers():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    line = worked("a", tasks.said)
    assert line.results["a"][1] is True
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
