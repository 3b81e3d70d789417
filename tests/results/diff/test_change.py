"""What a difference says of itself, and which of its entries are asked for."""

import pytest

from gradcheck.results.diff.change import Mark, chosen, slug
from gradcheck.results.verdict import Verdict

V = Verdict


@pytest.fixture
def changes(make):
    """By mark, a difference with one entry."""
    plain, failing = make.result(), make.result(verdict=V.FAIL)
    ends = {
        Mark.NEWLY_FAILING: (plain, failing),
        Mark.NEWLY_CRASHING: (plain, make.result(verdict=V.CRASH)),
        Mark.FIXED: (failing, plain),
        Mark.STILL_FAILING: (failing, failing),
        Mark.SUPPORT_LOST: (plain, make.result(verdict=V.SKIP)),
        Mark.SUPPORT_GAINED: (make.result(verdict=V.SKIP), plain),
    }
    return {mark: make.diff(*map(make.run, pair)) for mark, pair in ends.items()}


def test_marks_are_chosen_by_name(changes):
    for mark, found in changes.items():
        assert {other for other in Mark if chosen(found.entries, [slug(other)])} == {mark}
        assert chosen(found.entries, [slug(Mark.REMOVED), slug(mark)])
        assert not chosen(found.entries, [])


def test_worse_and_change_are_chosen_by_what_they_mean(changes):
    worse = {mark for mark, found in changes.items() if chosen(found.entries, ["worse"])}
    assert worse == {Mark.NEWLY_FAILING, Mark.NEWLY_CRASHING, Mark.SUPPORT_LOST}
    assert worse == {mark for mark, found in changes.items() if found.worse}
    change = {mark for mark, found in changes.items() if chosen(found.entries, ["change"])}
    assert change == {*changes} - {Mark.STILL_FAILING}
    assert change == {mark for mark, found in changes.items() if found.changes}


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        (Mark.NEWLY_FAILING,
         "DIFF worse compared=1 same=0 newly-crashing=0 newly-failing=1 fixed=0"),
        (Mark.FIXED, "DIFF changed compared=1 same=0 newly-crashing=0 newly-failing=0 fixed=1"),
        (Mark.STILL_FAILING,
         "DIFF same compared=1 same=0 newly-crashing=0 newly-failing=0 fixed=0 still-failing=1"),
    ],
)  # fmt: skip
def test_the_last_line_is_for_scripts(changes, mark, says):
    assert changes[mark].summary == says
