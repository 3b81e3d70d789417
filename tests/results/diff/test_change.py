"""What a difference says of itself, and which of its entries are asked for."""

import itertools
import math

import pytest

from gradcheck.results.diff.change import Mark, chosen, slug
from gradcheck.results.run import BY_BUDGET, NO_FEATURES
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


BAD = [v for v in V if not v.expected]
UNCHECKED = [V.UNSUPPORTED, V.UNBOUND, V.SKIP]


def marked(make, before, after, **options):
    """The mark between two verdicts, and whether it is worse; None where nothing changed."""
    entry = make.one(make.result(verdict=before), make.result(verdict=after), **options)
    return None if entry is None else (entry.mark, entry.worse)


@pytest.mark.parametrize("verdict", V)
def test_the_same_is_no_change(make, verdict):
    still = None if verdict.expected else (Mark.STILL_FAILING, False)
    assert marked(make, verdict, verdict) == still


@pytest.mark.slow(keep=18)
@pytest.mark.parametrize(("before", "after"), [*itertools.product(V, V)])
def test_every_pair_of_verdicts_has_its_mark(make, before, after):
    """The table of marks, written down once more by cases that exclude each other."""
    found = marked(make, before, after)
    dead = (V.CRASH, V.TIMEOUT)
    if before is after or (before in UNCHECKED and after in UNCHECKED):
        assert found == (None if before.expected else (Mark.STILL_FAILING, False))
    elif V.NOTRUN in (before, after):
        worse = after not in (V.PASS, *UNCHECKED) and before in (V.PASS, *UNCHECKED, V.NOTRUN)
        assert found == (Mark.NOT_REACHED, worse)
    elif after in dead and before not in dead:
        assert found == (Mark.NEWLY_CRASHING, True)
    elif after in BAD and before not in BAD:
        assert found == (Mark.NEWLY_FAILING, True)
    elif after in BAD:
        assert found == (Mark.OTHERWISE, False)
    elif after in UNCHECKED:
        assert found == (Mark.SUPPORT_LOST, True)
    elif before in BAD:
        assert found == (Mark.FIXED, False)
    else:
        assert before in UNCHECKED
        assert after is V.PASS
        assert found == (Mark.SUPPORT_GAINED, False)


def moved(make, before, after, factor=2.0, verdict=V.PASS, **changes):
    old, new = (make.result(verdict=verdict, times=t, **changes) for t in (before, after))
    entry = make.one(old, new, factor)
    return entry and entry.mark


@pytest.mark.parametrize("verdict", [V.PASS, V.FAIL])
@pytest.mark.parametrize(
    ("before", "after", "factor", "grew"),
    [
        (0.25, 0.5, 2, False),  # exactly twice as much
        (0.25, 0.501, 2, True),
        (0.25, 0.499, 2, False),
        (0.25, 0.5, 1.9, True),
        (0.25, 0.5, 2.1, False),
        (0.0625, 0.15, 2, False),  # more than twice, by less than a tenth of the bound
        (0.0625, 0.1625, 2, False),  # by a tenth
        (0.0625, 0.163, 2, True),
        (0.0, 0.1, 2, False),
        (0.0, 0.101, 2, True),  # of nothing, anything is a multiple
        (0.0, 0.0, 2, False),
        (3.0, 3.1, 1, False),  # with a factor of 1 a tenth is all that is asked for
        (3.0, 3.101, 1, True),
        (1e-300, 1e300, 1e300, True),
        (4.0, math.inf, 2, True),
        (4.0, math.nan, 2, True),
        (math.inf, math.inf, 2, False),
        (math.inf, math.nan, 2, False),
        (math.nan, math.nan, 2, False),
    ],
)
def test_an_error_grows_by_the_factor_and_a_tenth_of_the_bound(
    make, verdict, before, after, factor, grew
):
    still = Mark.STILL_FAILING if verdict is V.FAIL else None
    assert moved(make, before, after, factor, verdict) == (Mark.ERROR_GREW if grew else still)
    assert moved(make, after, before, factor, verdict) == (Mark.IMPROVED if grew else still)


def test_an_error_is_measured_in_its_own_bound(make):
    """The worst element may be another one, with another bound."""
    old = make.result(worst=(make.off(0.4, bound=1e-8),))
    assert make.one(old, make.result(worst=(make.off(0.4, bound=1e-2),))) is None
    assert make.one(old, make.result(worst=(make.off(0.9, bound=1e-9),))).mark is Mark.ERROR_GREW


def test_without_a_bound_only_zero_is_no_error(make):
    exact = make.result(worst=(make.off(0, bound=0),))
    wrong = make.result(worst=(make.off(1, bound=1e-8),))
    none = make.result()
    assert make.one(exact, exact) is None
    assert make.one(exact, wrong).mark is Mark.ERROR_GREW
    assert make.one(none, wrong) is None
    assert make.one(wrong, none) is None


def failed(make, label, times=4.0):
    return make.result(verdict=V.FAIL, times=times, label=label)


def test_another_class_is_another_failure(make):
    entry = make.one(failed(make, "F"), failed(make, "T"))
    assert (entry.mark, entry.worse) == (Mark.OTHERWISE, False)
    assert make.one(failed(make, "F"), failed(make, "F")).mark is Mark.STILL_FAILING


@pytest.mark.parametrize("label", ["", "no such class"])
def test_no_class_is_not_another_one(make, label):
    assert make.one(failed(make, "F"), failed(make, label)).mark is Mark.STILL_FAILING
    assert make.one(failed(make, label), failed(make, "F")).mark is Mark.STILL_FAILING


def test_what_is_worse_goes_before_what_is_other(make):
    assert make.one(failed(make, "F"), failed(make, "T", 9.0)).mark is Mark.ERROR_GREW
    assert make.one(failed(make, "F", 9.0), failed(make, "T")).mark is Mark.OTHERWISE
    assert make.one(failed(make, "F", 9.0), failed(make, "F")).mark is Mark.IMPROVED


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"hash": "ffff"}, "its hash is another"), ({"seed": 1}, "seed 0, now 1"),
     ({"seed": 1, "hash": "ffff"}, "seed 0, now 1")],
)  # fmt: skip
def test_another_case_is_not_compared(make, changes, why):
    old = make.result()
    entry = make.one(old, make.result(**changes))
    assert (entry.mark, entry.worse) == (Mark.NOT_COMPARABLE, False)
    assert why in entry.why
    entry = make.one(old, make.result(verdict=V.FAIL, **changes))
    assert (entry.mark, entry.worse) == (Mark.NOT_COMPARABLE, True)
    known = make.result(verdict=V.FAIL)
    assert not make.one(known, make.result(verdict=V.CRASH, **changes)).worse


@pytest.mark.parametrize("verdict", [v for v in V if v is not V.UNBOUND])
def test_what_only_one_run_has_is_added_or_removed(make, verdict):
    only = make.result(verdict=verdict)
    gone, came = make.one(only, None), make.one(None, only)
    assert (gone.mark, gone.worse, gone.old, gone.new) == (Mark.REMOVED, True, only, None)
    worse = not verdict.expected
    assert (came.mark, came.worse, came.old, came.new) == (Mark.ADDED, worse, None, only)


def test_what_is_not_implemented_and_not_reported_is_no_change(make):
    """`--all` decides whether it is reported; what was judged before and is gone is worse."""
    silent, other = make.result(verdict=V.UNBOUND), make.result(op="tanh")
    for old, new in itertools.permutations([make.run(other, silent), make.run(other)]):
        found = make.diff(old, new)
        assert (found.entries, found.worse) == ((), False)
    assert make.one(make.result(), silent).mark is Mark.SUPPORT_LOST
    assert make.one(make.result(), None).worse


@pytest.mark.parametrize("reason", [f"{BY_BUDGET} 120", NO_FEATURES])
def test_what_a_run_left_out_by_its_flags_is_not_reached(make, reason):
    before, left = make.result(), make.result(verdict=V.SKIP, reason=reason)
    for entry in (make.one(before, left), make.one(left, before)):
        assert (entry.mark, entry.worse, entry.why) == (Mark.NOT_REACHED, False, reason)
    assert make.one(before, make.result(verdict=V.SKIP)).mark is Mark.SUPPORT_LOST
    assert make.one(left, make.result(verdict=V.FAIL)).worse


def lacking(make, old, new, verdict=V.PASS, dtype="float64"):
    """What it means that the second run lacks a result, and that the first one does."""
    only = make.result(verdict=verdict, dtype=dtype)
    (gone,) = make.diff(make.run(only, **old), make.run(**new)).entries
    (came,) = make.diff(make.run(**old), make.run(only, **new)).entries
    return (gone.mark, gone.worse), (came.mark, came.worse), gone.why


def test_an_incomplete_run_did_not_reach_what_it_lacks(make):
    half = {"complete": False}
    gone, came, why = lacking(make, {}, half)
    assert (gone, why) == ((Mark.NOT_REACHED, True), "the new run stopped early")
    assert came == (Mark.ADDED, False)  # the old run was complete
    gone, came, _ = lacking(make, half, {})
    assert (gone, came) == ((Mark.REMOVED, True), (Mark.NOT_REACHED, False))
    gone, came, _ = lacking(make, half, {}, V.FAIL)
    assert came == (Mark.NOT_REACHED, True)  # nobody knows that it failed before


def test_a_shard_has_only_its_own(make):
    first, second = {"shard": "1/2"}, {"shard": "2/2"}
    gone, came, why = lacking(make, {}, first)
    assert (gone, why) == ((Mark.NOT_REACHED, False), "the new run is shard 1/2")
    assert came == (Mark.ADDED, False)
    assert lacking(make, first, second)[:2] == ((Mark.NOT_REACHED, False),) * 2
    assert lacking(make, first, first)[:2] == ((Mark.REMOVED, True), (Mark.ADDED, False))


def test_another_dtype_and_another_suite_are_not_comparable(make):
    narrow = {"dtypes": ("float32",)}
    gone, came, why = lacking(make, {}, narrow)
    assert (gone, why) == ((Mark.NOT_COMPARABLE, False), "the new run has no float64")
    assert came == (Mark.ADDED, False)
    assert lacking(make, {}, narrow, dtype="float32")[0] == (Mark.REMOVED, True)
    gone, came, why = lacking(make, {}, {"suite": "mine"}, V.FAIL)
    assert (gone, came) == ((Mark.NOT_COMPARABLE, False), (Mark.NOT_COMPARABLE, True))
    assert why == "the new run is of the suite mine"
    newer = {"suite_version": "2026.12"}  # a case keeps its hash as long as it means the same
    assert lacking(make, {}, newer)[0] == (Mark.REMOVED, True)


def test_what_was_not_run_says_why(make):
    found = make.one(make.result(), make.result(verdict=V.NOTRUN, reason="after 10 crashes"))
    assert (found.mark, found.why) == (Mark.NOT_REACHED, "after 10 crashes")
    found = make.one(make.result(verdict=V.NOTRUN, reason="after 10 crashes"), make.result())
    assert (found.mark, found.why, found.worse) == (Mark.NOT_REACHED, "after 10 crashes", False)
