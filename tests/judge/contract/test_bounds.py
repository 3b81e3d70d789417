import pytest
from numpy.lib.stride_tricks import as_strided

from gradcheck.judge.contract.buffers import bounds
from gradcheck.results.verdict import Verdict


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
