"""Start-up: what is run, by turns, and what the rows say of it."""

import subprocess
import sys

import pytest

from benchmarks import startup
from benchmarks.startup import COLD, HELP, PAIRS, Pair, measured, rows, seconds


def test_a_command_that_fails_is_no_measurement():
    with pytest.raises(subprocess.CalledProcessError):
        seconds((sys.executable, "-c", "raise SystemExit(3)"))


def test_what_works_takes_processor_time_too():
    clock, spent = seconds((sys.executable, "-c", "sum(range(1_000_000))"))
    assert clock > 0
    assert spent > 0


def test_both_are_asked_by_turns_after_one_run_of_each():
    asked = []

    def ask(command):
        asked.append(command[0])
        return (4.0, 3.0) if command[0] == "a" else (2.0, 1.0)

    pair = Pair(what="x", names=("A", "B"), a=("a",), b=("b",))
    clock, spent = measured(pair, 3, ask)
    assert "".join(asked) == "abababab"
    assert (clock.what, clock.a_ms, clock.b_ms, clock.ratio) == ("x", 4000.0, 2000.0, 2.0)
    assert (spent.what, spent.ratio) == ("", 3.0)
    assert spent.b == "B, processor time"


def test_the_targets_rows_are_those_by_the_clock(monkeypatch):
    counts = []

    def fake(pair, count):
        counts.append(count)
        return measured(pair, 1, lambda command: (1.0, 9.0))

    monkeypatch.setattr(startup, "measured", fake)
    assert [(row.what, row.ratio) for row in rows(quick=True)] == [(HELP, 1.0), (COLD, 1.0)]
    rows(quick=False)
    assert counts == [startup.QUICK] * 2 + [startup.FULL] * 2


def test_what_is_run_is_what_is_named():
    for pair in PAIRS:
        assert pair.names[0] == f"`gradcheck {' '.join(pair.a[len(startup.GRADCHECK) :])}`"
        assert pair.names[1].strip("`").endswith(pair.b[-1])
