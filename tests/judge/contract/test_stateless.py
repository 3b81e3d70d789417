import pytest

from gradcheck.judge.contract.side_effects import first_size, stateless
from gradcheck.results.verdict import Verdict


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
