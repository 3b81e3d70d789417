"""Two processes against one: what is run, by turns, and what the rows say of it."""

import subprocess

import pytest

from benchmarks import parallel
from benchmarks.parallel import Took, measured, rows, took
from benchmarks.targets import PARALLEL


@pytest.fixture
def asked(monkeypatch):
    """What was run; two processes take half as long."""
    words = []

    def run(*given):
        words.append(given)
        wall = 2.0 if "-j" in given else 4.0
        return Took(wall=wall, busy=4.4, said=b"the report")

    monkeypatch.setattr(parallel, "took", run)
    return words


def test_a_run_that_fails_is_no_measurement():
    with pytest.raises(subprocess.CalledProcessError):
        took("--op", "nothing-of-that-name")


def test_both_are_run_by_turns_after_one_run_of_each(asked):
    pairs, same = measured(("--op", "x"), 2)
    assert [word[2:] for word in asked] == [(), ("-j", "2")] * 3
    assert [(one.wall, two.wall) for one, two in pairs] == [(4.0, 2.0)] * 2
    assert same


def test_the_whole_suite_is_the_target_and_comes_first(asked):
    (row,) = rows(quick=True)
    assert (row.what, row.ratio, row.a_ms) == (PARALLEL, 2.0, 4000.0)
    assert {word[:1] for word in asked} == {(), ("-j",)}
    assert len(rows(quick=False)) == len(parallel.WORKLOADS)


def test_other_bytes_are_no_speed(monkeypatch):
    said = iter(range(100))
    monkeypatch.setattr(
        parallel, "took", lambda *_: Took(wall=1.0, busy=1.0, said=b"%d" % next(said))
    )
    with pytest.raises(RuntimeError, match="different reports"):
        rows(quick=True)
