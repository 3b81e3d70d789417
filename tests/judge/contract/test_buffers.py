import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from gradcheck.judge.contract.asking import Unasked, Vacuous
from gradcheck.judge.contract.side_effects import accumulates, aliases, bounds, written
from gradcheck.results.verdict import Verdict


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


def test_a_sum_into_what_was_there_is_seen(subject, mutant):
    assert written(subject(mutant("adds"))).seen.startswith(
        "21 of 21 elements of dx depend on what was there: with NaN before, dx[0, 0] is NaN after"
    )


def test_rows_that_return_early_are_seen(subject, mutant):
    seen = written(subject(mutant("skips-zero-rows"))).seen
    assert seen.startswith("for a cotangent of zeros, 21 of 21 elements of dx depend on")


def test_an_element_that_is_left_out_is_seen(subject, right):
    def short(outs, ct, x, w, *, eps=1e-5):
        dx, dw = right.both(ct, x, w, eps)
        outs["x"].reshape(-1)[:-1] = dx.reshape(-1)[:-1]
        outs["w"] += dw

    right.vjp_into = short
    assert written(subject(right)).seen.startswith(
        "vjp_into gives other numbers than vjp: dx[2, 6]"
    )


def test_code_that_knows_nan_is_seen_by_numbers(subject, right):
    def wary(outs, ct, x, w, *, eps=1e-5):
        dx, dw = right.both(ct, x, w, eps)
        outs["x"][...] = dx + outs["x"] * (outs["x"] == outs["x"]) if outs["x"].any() else dx
        outs["x"][outs["x"] != outs["x"]] = dx[outs["x"] != outs["x"]]
        outs["w"] += dw

    right.vjp_into = wary
    assert "it is added to" in written(subject(right)).seen


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_write_everything(subject, right, dtype):
    assert written(subject(right, dtype=dtype)) is None


def test_what_may_want_zeros_is_left_out(subject, mutant):
    adds = mutant("adds")
    adds.zeroed = ("x",)
    with pytest.raises(Vacuous):
        written(subject(adds))


@pytest.mark.parametrize(("name", "wrong"), [("two-steps", "dx["), ("weights-last", "dw[")])
def test_an_argument_that_is_read_after_it_was_written_is_seen(subject, mutant, name, wrong):
    assert aliases(subject(mutant(name))).seen.startswith(f"with dx in the memory of ct, {wrong}")


def test_a_primal_may_be_shared_too(subject, mutant):
    late = mutant("weights-last")
    late.aliases = (("x", "x"),)
    assert aliases(subject(late)).seen.startswith("with dx in the memory of x, dw[")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_may_share(subject, right, dtype):
    right.aliases = (("x", "ct"), ("x", "x"), ("w", "w"))
    right.accumulates = ()
    into = right.vjp_into

    def assigns(outs, ct, x, w, *, eps=1e-5):
        outs["x"][...], outs["w"][...] = right.both(ct, x, w, eps)

    right.vjp_into = assigns
    assert aliases(subject(right, dtype=dtype)) is None
    right.vjp_into = into


def test_nothing_is_owed_where_no_alias_is_declared(subject, mutant, silu):
    late = mutant("weights-last")
    late.aliases = ()
    with pytest.raises(Vacuous):
        aliases(subject(late))
    with pytest.raises(Unasked):
        aliases(subject(silu, "silu/default/typical"))


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("whole-blocks", "1 past the end of dx (21 elements)"),
        ("one-past-the-end", "1 past the end of dw (7 elements)"),
    ],
)
def test_a_write_past_the_end_is_seen(subject, mutant, name, seen):
    breach = bounds(subject(mutant(name)))
    assert breach.seen == seen
    assert breach.verdict is Verdict.ERROR


def test_a_write_before_the_start_is_seen(subject, right):
    def early(outs, ct, x, w, *, eps=1e-5):
        outs["x"][...], outs["w"][...] = right.both(ct, x, w, eps)
        flipped = outs["w"][::-1]
        as_strided(flipped, (w.size + 2,), flipped.strides)[-2:] = 3.0

    right.vjp_into = early
    assert bounds(subject(right)).seen == "2 before the start of dw (7 elements)"


@pytest.mark.parametrize("size", [8, 1])
def test_a_write_at_another_size_is_seen(subject, right, size):
    def blocks(outs, ct, x, w, *, eps=1e-5):
        outs["x"][...], outs["w"][...] = right.both(ct, x, w, eps)
        if x.shape[-1] == size:
            as_strided(outs["w"], (size + 1,), outs["w"].strides)[size] = 0

    right.vjp_into = blocks
    said = f"1 past the end of dw ({size} elements) at size {size}"
    assert bounds(subject(right)).seen == said


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_stay_inside(subject, right, dtype):
    assert bounds(subject(right, dtype=dtype)) is None
