"""Work in other processes: the same results in the same order, and no result lost."""

import multiprocessing
import os
import signal
import sys
import time

import pytest
from gradcheck_cases import SUITE

from gradcheck import pool
from gradcheck.plan import Plan
from gradcheck.run import execute

STATE = []


def begin(*words):
    STATE[:] = words


def told(task):
    return (task, *STATE)


def slow_first(task):
    time.sleep(0.2 if task == 0 else 0)
    return task


def fatal(task):
    if task == 9:
        os._exit(3)
    return task


def sleeps_later(task):
    if task >= pool.CHUNK:
        time.sleep(1000)
    return task


def noisy(task):
    sys.stdout.write("not for the report\n")
    sys.stdout.flush()
    os.write(1, b"nor this\n")
    return task


def commands(task):
    sys.stdout.write("::error::no\n")
    sys.stderr.write("::error::no\n")
    return task


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_process_is_set_up_once_and_results_keep_their_order(jobs):
    assert list(pool.each(told, range(9), jobs, begin, ("a", "b"))) == [
        (task, "a", "b") for task in range(9)
    ]


def test_a_run_that_is_left_does_not_wait_for_what_is_at_work():
    before = {*multiprocessing.active_children()}
    found = pool.each(sleeps_later, range(3 * pool.CHUNK), 2, begin, ())
    assert next(found) == 0
    started = {*multiprocessing.active_children()} - before
    assert started
    found.close()
    for process in started:
        process.join(100)
        assert process.exitcode in (0, -signal.SIGTERM)  # it was at work, or still starting


def test_a_slow_task_holds_its_place():
    assert list(pool.each(slow_first, range(20), 2, begin, ())) == list(range(20))


def test_a_process_that_dies_says_so_after_what_was_known():
    known = []
    results = pool.each(fatal, range(40), 2, begin, ())
    with pytest.raises(pool.Died, match="a worker process died"):
        known.extend(results)
    assert known == list(range(len(known)))
    assert len(known) <= 9


def test_what_workers_print_does_not_reach_stdout(capfd):
    assert list(pool.each(noisy, range(3), 2, begin, ())) == [0, 1, 2]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("not for the report") == captured.err.count("nor this") == 3


def plan(jobs, **options):
    cases = SUITE.cases(["relu", "rms_norm", "rope"])
    options = {"suite": SUITE, "implementations": ["reference"], "dtypes": ["float64"]} | options
    return Plan(cases=cases, seed=3, jobs=jobs, **options)


def test_records_do_not_depend_on_the_number_of_processes():
    assert execute(plan(2)) == execute(plan(1))


def test_an_implementation_that_kills_its_process_leaves_a_partial_run(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(
        "import os\nIMPL = {'rope': {'vjp': lambda ct, x, **attrs: os._exit(1)}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    run = execute(plan(2, implementations=["reference", "deadly:IMPL"]))
    assert not run.complete
    assert "a worker process died; run again with -j 1" in run.troubles[0]
    assert {r.op for r in run.results} <= {"relu", "rms_norm", "rope"}
    assert run.results


# ── work under way ───────────────────────────────────────────────────────────────────────────


def hangs_at_first(task):
    time.sleep(1000 if task == 0 else 0)
    return task


def fails_at(task):
    if task == 3:
        raise ValueError("three")
    return task


@pytest.mark.parametrize("chunk", [1, 3])
def test_what_is_finished_is_known_before_its_turn(chunk):
    with pool.Work(hangs_at_first, range(9), 2, begin, (), chunk=chunk) as work:
        last = work.result(8)
        while len(found := work.finished()) < 9 - chunk:
            time.sleep(0.01)
    assert last == 8
    assert found == {task: task for task in range(chunk, 9)}
    assert [*found] == sorted(found)


def test_what_raised_is_not_finished():
    with pool.Work(fails_at, range(6), 2, begin, ()) as work:
        with pytest.raises(ValueError, match="three"):
            work.result(3)
        assert [work.result(task) for task in (5, 4, 2, 1, 0)] == [5, 4, 2, 1, 0]
        assert 3 not in work.finished()


def test_what_had_come_before_a_process_died_is_finished():
    with pool.Work(fatal, range(12), 1, begin, ()) as work:
        with pytest.raises(pool.Died, match="a worker process died"):
            work.result(11)
        assert work.finished() == {task: task for task in range(9)}


def test_an_interruption_of_its_beginning_leaves_no_process(monkeypatch):
    before = {*multiprocessing.active_children()}

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor.submit", stopped)
    with pytest.raises(KeyboardInterrupt):
        pool.Work(told, range(9), 2, begin, ())
    assert {*multiprocessing.active_children()} == before


def test_prints_of_workers_are_no_commands(capfd):
    with pool.Work(commands, range(2), 2, begin, ()) as work:
        assert [work.result(0), work.result(1)] == [0, 1]
    captured = capfd.readouterr()
    assert captured.err.count("| ::error::no") == captured.err.count("::error::no") == 4
