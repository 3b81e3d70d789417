"""A run whose time is up ends in what it knows, and says NOTRUN of the rest."""

import signal
import threading
from contextlib import contextmanager

import pytest

from gradcheck.run.limits import ALARM_INTERVAL, TimeLimit, TimeUp

LONG = 60.0
"""Seconds after which what should have been ended goes on, and its test fails."""


def test_a_block_is_ended_when_the_time_is_up():
    with TimeLimit(0.01) as limit, pytest.raises(TimeUp), limit.breaking():
        threading.Event().wait(LONG)


def test_it_is_ended_once_more_where_something_swallows_the_first():
    """As a callback of the garbage collector does."""
    with TimeLimit(LONG) as limit, limit.breaking():
        assert signal.getitimer(signal.ITIMER_REAL)[1] == ALARM_INTERVAL
        limit._end = 0.0
        for _ in range(2):
            with pytest.raises(TimeUp):
                signal.raise_signal(signal.SIGALRM)


def test_nothing_but_what_may_be_ended_is():
    with TimeLimit(1e-6) as limit:
        while not limit.over:
            pass
        signal.raise_signal(signal.SIGALRM)  # a report is being written, say
        with pytest.raises(TimeUp), limit.breaking():
            pytest.fail("it is begun all the same")
        with pytest.raises(TimeUp), limit.entered(begins_late()):
            pytest.fail("it is entered all the same")


@contextmanager
def begins_late():
    yield pytest.fail("it is begun all the same")


def test_a_time_that_is_not_up_ends_nothing():
    for seconds in (None, 1e12):
        with TimeLimit(seconds) as limit, limit.breaking():
            if seconds:
                signal.raise_signal(signal.SIGALRM)
        assert not limit.over


def test_signals_are_afterwards_what_they_were():
    before, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    with TimeLimit(LONG):
        assert signal.getsignal(signal.SIGALRM) != before
    assert signal.getsignal(signal.SIGALRM) == before
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    assert (left > 0, interval) == (timer[0] > 0, timer[1])


def test_in_a_thread_what_begins_too_late_is_not_begun():
    found = []

    def work():
        with TimeLimit(1e-9) as limit:
            try:
                with limit.breaking():
                    found.append("begun")
            except TimeUp as up:
                found.append(type(up))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [TimeUp]
