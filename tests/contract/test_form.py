import numpy as np
import pytest

from gradcheck.contract.form import form


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
