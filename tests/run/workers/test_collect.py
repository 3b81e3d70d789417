"""One result per name: begun and given in their order, and nothing known is lost."""

import pytest

from gradcheck.run.workers import MAX_TRIES
from gradcheck.run.workers.collect import NameQueue, collect
from tests.run.workers import tasks


def told(name):
    if name == "stop":
        raise KeyboardInterrupt
    return tasks.told(name)


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_names(jobs):
    seen = []
    found = collect(
        tasks.told, "cab", jobs, tasks.begin, ("x",), progress=lambda *words: seen.append(words)
    )
    assert found.results == [("c", "x"), ("a", "x"), ("b", "x")]
    assert (found.complete, found.troubles) == (True, ())
    assert seen[0] == (0, 3, "c")
    assert all(total == 3 for _, total, _ in seen)


def test_names_are_begun_in_their_order():
    line = NameQueue([*"badce"])
    assert [line.next(0) for _ in range(6)] == [*"badce", None]


def test_nothing_is_sent_ahead():
    line = NameQueue([*"ab"])
    assert line.next(0, ahead=True) is None
    assert line.next(0) == "a"


def test_a_name_that_is_lost_comes_again_at_once_and_then_no_more():
    line = NameQueue([*"abc"])
    for attempt in range(MAX_TRIES):
        assert line.left == 3
        assert line.next(0) == "a", attempt
        line.lost("a", "SIGKILL")
    assert (line.left, line.crashed, line.next(0)) == (2, {"a": "SIGKILL"}, "b")


def test_what_dies_costs_its_own_result_alone():
    found = collect(tasks.dies, "abdef", 2, tasks.begin, ())
    assert found.results == [*"abef"]
    assert not found.complete
    assert found.troubles == (
        "d: a worker process died of it, twice (exit status 3); run again with -j 1 to see where",
    )


def test_where_no_worker_can_begin_it_is_said_once():
    found = collect(tasks.told, "abc", 2, tasks.unfit, ())
    assert (found.results, found.complete) == ([], False)
    (trouble,) = found.troubles
    assert "OSError: no such library" in trouble


def test_an_interruption_leaves_what_is_known_here():
    found = collect(told, ["a", "stop", "b"], 1, tasks.begin, ("x",))
    assert (found.results, found.complete, found.troubles) == ([("a", "x")], False, ())


def test_an_interruption_leaves_what_is_known_of_all_names_elsewhere():
    def stops(done, total, name):
        if done == 3:
            raise KeyboardInterrupt

    found = collect(tasks.sleeps, "asbc", 2, tasks.begin, (), progress=stops)
    assert (found.results, found.complete) == ([*"abc"], False)


def test_no_names_are_no_work():
    assert collect(tasks.told, (), 2, tasks.begin, ()).results == []
