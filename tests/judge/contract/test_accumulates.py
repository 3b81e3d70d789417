import numpy as np
import pytest

from gradcheck.judge.contract.asking import Unasked, Vacuous
from gradcheck.judge.contract.buffers import accumulates


def test_an_assignment_is_seen(subject, mutant):
    seen = accumulates(subject(mutant("overwrites"))).seen
    assert seen.startswith("dw overwrites its buffer: dw[0] held ")


def test_a_buffer_that_is_scaled_is_seen(subject, right):
    into = right.vjp_into

    def halves(outs, ct, x, w, *, eps=1e-5):
        outs["w"] *= 0.5
        into(outs, ct, x, w, eps=eps)

    right.vjp_into = halves
    assert accumulates(subject(right)).seen.startswith("dw is not added to its buffer: dw[0] held ")


def test_vjp_into_must_give_what_vjp_gives(subject, right):
    into = right.vjp_into
    right.vjp_into = lambda outs, ct, x, w, *, eps=1e-5: into(outs, 2 * ct, x, w, eps=eps)
    assert accumulates(subject(right)).seen.startswith(
        "from buffers of zeros, vjp_into gives other numbers than vjp: d"
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_add(subject, right, dtype):
    assert accumulates(subject(right, dtype=dtype)) is None


def test_a_sum_that_starts_from_the_buffer_is_right(subject, right):
    """Row by row into the buffer: rounded in another order than the sum alone."""

    def rows(outs, ct, x, w, *, eps=1e-5):
        outs["x"][...] = right.both(ct, x, w, eps)[0]
        for i in range(len(x)):
            outs["w"] += right.both(ct[i : i + 1], x[i : i + 1], w, eps)[1]

    right.vjp_into = rows
    assert accumulates(subject(right)) is None


def test_nothing_is_owed_where_nothing_is_declared(subject, right):
    right.accumulates = ()
    with pytest.raises(Vacuous):
        accumulates(subject(right))


def test_without_a_vjp_into_it_cannot_be_asked(subject, silu):
    with pytest.raises(Unasked, match="vjp_into"):
        accumulates(subject(silu, "silu/default/typical"))


@pytest.mark.parametrize("times", [1.05, -1.05, 0.95])
def test_a_sum_may_be_off_by_its_bound_and_no_more(subject, right, times):
    """By the bounds of both answers, and the roundings of as many additions as there are terms."""
    asked = subject(right)
    ct = asked.cts[0]
    alone = asked.fill(ct)["w"].array.astype(np.float64)
    bound = asked.allowed(ct, {"w": alone, "x": asked.fill(ct)["x"].array})["w"]
    into = right.vjp_into

    def off(outs, ct, x, w, *, eps=1e-5):
        start = outs["w"].astype(np.float64)
        into(outs, ct, x, w, eps=eps)
        if start.any():
            terms = ct[0].size * 2.0**-24 * (np.abs(start) + np.abs(alone) + bound)
            outs["w"][...] = start + alone + times * (2 * bound + terms)

    right.vjp_into = off
    seen = accumulates(subject(right))
    assert seen is None if times < 1 and times > 0 else "dw is not added" in seen.seen
