from dataclasses import replace

import pytest

from gradcheck.judge.contract.asking import Unasked
from gradcheck.judge.contract.other_points import layouts


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("flat-dy", "with the cotangent in Fortran order, dx["),
        ("strides-of-x", "with the cotangent in Fortran order, dx["),
        ("flat-x", "with x in Fortran order, dx["),
        ("flat-w", "with w every second element, dx["),
    ],
)
def test_assumed_strides_are_seen(subject, mutant, name, seen):
    assert layouts(subject(mutant(name))).seen.startswith(seen)


def test_code_that_copies_only_what_it_cannot_read_must_see_stride_zero(subject, mutant):
    """A check for rows that follow each other lets an expanded row pass."""
    naive = mutant("flat-dy")
    flat, right = naive.both, mutant("right").both

    def both(ct, x, w, eps):
        rows = ct.strides[-1] in (0, ct.itemsize)
        return flat(ct, x, w, eps) if rows else right(ct, x, w, eps)

    naive.both = both
    assert "the cotangent" in layouts(subject(naive)).seen


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_read_any_layout(subject, right, dtype):
    assert layouts(subject(right, dtype=dtype)) is None
    assert layouts(subject(name="get_rows/default/typical", dtype=dtype)) is None
    assert layouts(subject(name="lstm_cell/pytorch/typical", dtype=dtype)) is None


def test_what_only_ever_sees_copies_cannot_be_asked(subject, right):
    asked = subject(right)
    asked.bound = replace(asked.bound, strided=False)
    with pytest.raises(Unasked, match="contiguous copies"):
        layouts(asked)
