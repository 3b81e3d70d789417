import inspect
import re
from itertools import combinations

import pytest

from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import SEVERITY, Verdict, worst

LEFT_OUT = {Verdict.UNSUPPORTED, Verdict.UNBOUND, Verdict.SKIP}


def test_the_words_are_those_that_the_interface_promises():
    assert {verdict.value for verdict in Verdict} == {
        "pass", "fail", "missing", "inconclusive", "error", "crash", "timeout", "notrun",
        "invalid", "unsupported", "unbound", "skip",
    }  # fmt: skip
    assert all(verdict.value == verdict.name.lower() for verdict in Verdict)


def test_nothing_is_a_pass_but_pass():
    assert {v for v in Verdict if v.checked and v.expected} == {Verdict.PASS}


def test_what_was_left_out_is_accepted_but_not_counted_as_checked():
    assert {v for v in Verdict if not v.checked} == LEFT_OUT
    assert {v for v in Verdict if v.expected} == LEFT_OUT | {Verdict.PASS}


def test_every_verdict_has_one_place_in_the_order_of_severity():
    assert sorted(SEVERITY) == sorted(Verdict)


def test_no_failure_hides_behind_a_pass_and_no_pass_behind_what_was_left_out():
    for bad in set(Verdict) - LEFT_OUT - {Verdict.PASS}:
        assert worst([Verdict.PASS, bad, Verdict.SKIP]) is bad
    for absent in LEFT_OUT:
        assert worst([absent, Verdict.PASS, absent]) is Verdict.PASS


def test_our_own_fault_comes_before_anybody_elses():
    assert worst(Verdict) is Verdict.INVALID
    assert worst(set(Verdict) - {Verdict.INVALID}) is Verdict.CRASH


def test_the_worst_does_not_depend_on_the_order():
    for pair in combinations(Verdict, 2):
        assert worst(pair) is worst(reversed(pair)) in pair


def test_the_worst_of_nothing_is_no_pass():
    assert worst([]) is Verdict.SKIP
    assert worst(iter(())) is Verdict.SKIP


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_says_what_it_means(verdict):
    # The text stands below the member in the source; a new one without it would be missed.
    source = inspect.getsource(Verdict)
    assert re.search(rf'{verdict.name} = "{verdict.value}"\n    """[A-Z].+\."""', source)


def test_a_finding_without_elements_has_no_worst_one():
    finding = Finding(name="vjp", verdict=Verdict.ERROR, reason="it raised")
    numbers = (finding.top, finding.error, finding.bound, finding.error_bar, finding.got)
    assert {*numbers, finding.want, finding.worst_index} == {None}


def test_a_finding_tells_the_numbers_of_its_first_miss():
    misses = [
        Miss(index=(k,), got=1.0 + k, want=2.0 + k, error=3.0 + k, bound=4.0 + k,
             error_bar=5.0 + k, ulp=6.0 + k, cotangent="normal")
        for k in range(2)
    ]  # fmt: skip
    finding = Finding(name="x", verdict=Verdict.FAIL, worst=tuple(misses))
    numbers = (finding.got, finding.want, finding.error, finding.bound, finding.error_bar)
    assert numbers == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert finding.worst_index == (0,)
    assert finding.top is misses[0]
