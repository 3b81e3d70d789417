import pytest

from gradcheck.judge.contract.side_effects import repeatable
from gradcheck.results.verdict import Verdict


def test_a_rare_order_of_a_sum_is_seen(subject, mutant):
    breach = repeatable(subject(mutant("race")))
    assert breach.seen == "call 8 gives other bits of dw"
    assert breach.verdict is Verdict.ERROR


def test_the_tenth_call_counts(subject, right):
    calls = []
    both = right.both

    def late(ct, x, w, eps):
        calls.append(1)
        dx, dw = both(ct, x, w, eps)
        return dx, dw + (len(calls) == 10) * dw * 2**-20

    right.both = late
    assert repeatable(subject(right)).seen == "call 10 gives other bits of dw"
    assert len(calls) == 10


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_repeat(subject, right, dtype):
    assert repeatable(subject(right, dtype=dtype)) is None
