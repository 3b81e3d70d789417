import numpy as np
import pytest

from gradcheck.judge.contract.side_effects import first_size, owned, pure, repeatable, stateless
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


@pytest.mark.parametrize("name", ["cached-by-shape", "first-weights"])
def test_what_is_kept_by_shape_is_wrong_for_other_values(subject, mutant, name):
    breach = stateless(subject(mutant(name)))
    assert breach.seen.startswith("after a call with other values of the same shape, d")
    assert "outside their bound" in breach.seen


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
