import pytest

from gradcheck.judge.contract.asking import Vacuous
from gradcheck.judge.contract.buffers import written


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
