import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from gradcheck.judge.contract.asking import Unasked, Vacuous
from gradcheck.judge.contract.side_effects import (
    accumulates,
    aliases,
    bounds,
    first_size,
    owned,
    preload,
    pure,
    repeatable,
    stateless,
    written,
)
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import plural


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


@pytest.mark.parametrize("name", ["cached-by-shape", "first-weights"])
def test_what_is_kept_by_shape_is_wrong_for_other_values(subject, mutant, name):
    breach = stateless(subject(mutant(name)))
    assert breach.seen.startswith("after a call with other values of the same shape, d")
    assert "outside the tolerance" in breach.seen


def test_a_workspace_that_grew_is_seen(subject, mutant):
    breach = stateless(subject(mutant("growing-workspace")))
    assert breach.seen == "dw has other bits after calls with other shapes"
    assert breach.verdict is Verdict.ERROR


def test_of_a_wrong_gradient_the_repeats_are_told_and_nothing_else(subject, mutant):
    wrong = mutant("growing-workspace")
    both = wrong.both
    wrong.both = lambda ct, x, w, eps: tuple(2 * g for g in both(ct, x, w, eps))
    assert stateless(subject(wrong)).seen == "dw has other bits after calls with other shapes"


def test_what_another_shape_raises_is_another_question(subject, right):
    both = right.both

    def narrow(ct, x, w, eps):
        if x.shape != (3, 7):
            raise ValueError("3 rows of 7, please")
        return both(ct, x, w, eps)

    right.both = narrow
    assert stateless(subject(right)) is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_keep_nothing(subject, right, dtype):
    assert stateless(subject(right, dtype=dtype)) is None


def test_the_size_of_a_scalar_is_one(subject, silu):
    assert first_size(subject(silu, "silu/default/typical"), -1) > 1


@pytest.mark.parametrize(("name", "what"), [("scales-dy", "ct"), ("normalises-x", "x")])
def test_a_write_where_it_is_allowed_is_seen(subject, mutant, name, what):
    breach = pure(subject(mutant(name)))
    assert breach.seen == f"vjp writes into {what} where it may"
    assert breach.verdict is Verdict.ERROR


def test_vjp_into_is_watched_too(subject, right):
    def careless(outs, ct, x, w, *, eps=1e-5):
        outs["x"][...], dw = right.both(ct, x, w, eps)
        outs["w"] += dw
        w *= 1.5

    right.vjp_into = careless
    assert pure(subject(right)).seen == "vjp_into writes into w where it may"


def test_bits_count_and_not_values(subject, silu):
    def zeroes(ct, x):
        gradient = vjp(ct, x)
        if x.flags.writeable:
            ct[ct == ct.max()] = -ct.max()
        return gradient

    vjp, silu.vjp = silu.vjp, zeroes
    assert pure(subject(silu, "silu/default/typical")).seen == "vjp writes into ct where it may"


def test_right_ones_write_nowhere(subject, right, silu):
    assert pure(subject(right)) is None
    assert pure(subject(silu, "silu/default/typical")) is None


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


@pytest.mark.parametrize("largest", [3e-20, 3.0, 3e20])
@pytest.mark.parametrize("beside", [0.0, np.nan, -np.inf])
def test_a_buffer_holds_numbers_as_large_as_the_gradient(subject, largest, beside):
    """Much larger ones would swallow it in rounding, much smaller ones would be lost in it."""
    gradient = np.full((8, 8), -largest, np.float32)
    gradient[3, 3] = beside
    held = preload(subject(), {"x": gradient})["x"]
    assert largest / 2 < np.abs(held).min() <= np.abs(held).max() < 4 * largest


def test_a_gradient_of_zeros_is_added_to_numbers_too(subject):
    assert preload(subject(), {"x": np.zeros((8, 8))})["x"].all()


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
    said = f"1 past the end of dw ({plural(size, 'element')}) at size {size}"
    assert bounds(subject(right)).seen == said


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_stay_inside(subject, right, dtype):
    assert bounds(subject(right, dtype=dtype)) is None
