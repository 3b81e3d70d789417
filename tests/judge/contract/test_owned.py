import numpy as np

from gradcheck.judge.contract.side_effects import owned


def test_a_buffer_that_is_used_again_is_seen(subject, mutant):
    breach = owned(subject(mutant("reused-buffer")))
    assert breach.seen == "dx is a view of a buffer that the next call writes into"


def test_a_view_of_an_argument_is_no_breach(subject, right):
    """Autograd passes cotangents on as they are."""
    both = right.both
    right.both = lambda ct, x, w, eps: (both(ct, x, w, eps)[0], np.add(ct, 0)[0])
    assert owned(subject(right)) is None


def test_right_ones_give_away_what_they_return(subject, right, silu):
    assert owned(subject(right)) is None
    assert owned(subject(silu, "silu/default/typical")) is None
