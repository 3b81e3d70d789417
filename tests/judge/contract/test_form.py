import numpy as np
import pytest

from gradcheck.implementations.returned import Broken
from gradcheck.judge.contract.other_points import form
from gradcheck.results.verdict import Verdict
from tests.ending import ends


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("double-zeros", "with a cotangent of zeros, dx is float64, and x float32"),
        ("double-of-one-row", "with 1 along the first axis, dw is float64, and w float32"),
        ("wrong-dtype", "with the cotangent normal, dw is float64, and w float32"),
    ],
)
def test_a_path_with_another_dtype_is_seen(subject, mutant, name, seen):
    assert form(subject(mutant(name))).seen == seen


def test_integers_are_no_gradient(subject, silu):
    silu.vjp = lambda ct, x: np.zeros(x.shape, dtype=np.int64)
    assert form(subject(silu, "silu/default/typical")).seen.endswith("dx is int64, and x float32")


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_right_ones_keep_the_dtype(subject, dtype):
    assert form(subject(dtype=dtype)) is None


def test_a_size_that_raises_is_another_question(subject, right):
    both = right.both

    def some(ct, x, w, eps):
        if not x.size:
            raise ValueError("nothing to do")
        return both(ct, x, w, eps)

    right.both = some
    assert form(subject(right)) is None


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ((Verdict.CRASH, Verdict.ERROR), Verdict.CRASH),
        ((Verdict.ERROR, Verdict.CRASH), Verdict.CRASH),
        ((Verdict.ERROR, None), Verdict.ERROR),
        ((Verdict.CRASH, None), Verdict.CRASH),
        ((Verdict.ERROR, Verdict.ERROR), None),
    ],
)
def test_what_fails_once_is_told_and_what_refuses_is_another_question(subject, silu, calls, told):
    """A size that raises, and again, is not supported; whatever ends a process is told."""
    right, left = silu.vjp, [*calls]

    def vjp(ct, x):
        how = left.pop(0) if left else None
        return right(ct, x) if how is None else ends("vjp", "it failed", how)

    silu.vjp = vjp
    asked = subject(silu, "silu/default/typical")
    if told is None:
        assert asked.raw_if_any(asked.cts[0]) == {}
    else:
        with pytest.raises(Broken) as error:
            asked.raw_if_any(asked.cts[0])
        assert error.value.finding.verdict is told
