"""A stage on a kink: any convention passes, and what no convention returns does not."""

import numpy as np
import pytest
from gradcheck_cases import SUITE, activation, convolution

from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.stage import judge_stage
from gradcheck.judge.tie_bounds import tied
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.results.verdict import Verdict
from gradcheck.spec.program import Stage

(CASE,) = SUITE.model_cases(["mnist_cnn"], sizes=["blank"])
TRUTH = ModelTruth(CASE)
POOLS = ["conv1.pool", "conv2.pool"]


def judged(name, change, dtype="float64"):
    """The finding on a pool whose gradient is `change(windows, ct, own)`, [c, p, q, kl]."""

    def vjp(stage, cts, values):
        x, ct = values[stage.reads[0]], cts[0]
        blocks = x.reshape(*x.shape[:-2], x.shape[-2] // 2, 2, x.shape[-1] // 2, 2)
        windows = np.swapaxes(blocks, -3, -2).reshape(*ct.shape, 4)
        shares = change(windows, ct[..., None]).astype(x.dtype)
        back = np.swapaxes(shares.reshape(*ct.shape, 2, 2), -3, -2)
        return (back.reshape(x.shape),)

    return judge_stage(TRUTH, CASE.program.stage(name), vjp, dtype)


def nth_largest(windows, n):
    """True at the n-th of the largest elements of each window."""
    largest = windows == windows.max(axis=-1, keepdims=True)
    place = n % largest.sum(axis=-1, keepdims=True)
    return largest & (np.cumsum(largest, axis=-1) == place + 1)


def test_every_pool_has_ties_in_some_windows_and_none_in_others():
    for name in POOLS:
        (on,) = TRUTH.stage(CASE.program.stage(name)).on_kink
        assert 0 < on.sum() < on.size


# ── what no convention returns ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_equal_elements_cannot_get_the_whole_gradient(name, dtype):
    found = judged(name, lambda w, ct: ct * (w == w.max(axis=-1, keepdims=True)), dtype)
    assert found.verdict is Verdict.FAIL
    assert "whatever the convention" in found.reason


@pytest.mark.parametrize("name", POOLS)
def test_a_tied_window_cannot_drop_its_gradient(name):
    def alone(windows, ct):
        first = nth_largest(windows, 0)
        largest = windows == windows.max(axis=-1, keepdims=True)
        return ct * (first & (largest.sum(axis=-1, keepdims=True) == 1))

    found = judged(name, alone)
    assert found.verdict is Verdict.FAIL
    assert "whatever the convention" in found.reason


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("factor", [-1.0, 1.001, 0.999, 2.0])
def test_the_share_of_a_tied_element_has_its_size_and_sign(name, factor):
    def scaled(windows, ct):
        largest = windows == windows.max(axis=-1, keepdims=True)
        tie = largest.sum(axis=-1, keepdims=True) > 1
        return ct * nth_largest(windows, 0) * np.where(tie, factor, 1.0)

    assert judged(name, scaled).verdict is Verdict.FAIL


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_fails_on_a_kink_too(wrong):
    def broken(windows, ct):
        out = ct * nth_largest(windows, 0)
        largest = windows == windows.max(axis=-1, keepdims=True)
        ties = np.argwhere(largest & (largest.sum(axis=-1, keepdims=True) > 1))
        out[tuple(ties[0])] = wrong
        return out

    assert judged("conv1.pool", broken).verdict is Verdict.FAIL


def test_elements_off_the_kink_are_judged_as_ever():
    def moved(windows, ct):
        tie = (windows == windows.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True) > 1
        return ct * np.where(tie, nth_largest(windows, 0), np.roll(nth_largest(windows, 0), 1, -1))

    found = judged("conv1.pool", moved)
    assert found.verdict is Verdict.FAIL
    assert "outside their bound" in found.reason


# ── what conventions return ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", list(FLOATS))
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("place", [0, 1, 2, -1])
def test_any_one_of_the_equal_elements_may_get_it(name, place, dtype):
    found = judged(name, lambda w, ct: ct * nth_largest(w, place), dtype)
    assert found.verdict is Verdict.PASS
    assert found.kinked > 0


@pytest.mark.parametrize("dtype", list(FLOATS))
@pytest.mark.parametrize("name", POOLS)
def test_equal_elements_may_share_it(name, dtype):
    def shared(windows, ct):
        largest = windows == windows.max(axis=-1, keepdims=True)
        return ct * (largest / largest.sum(axis=-1, keepdims=True))

    assert judged(name, shared, dtype).verdict is Verdict.PASS


def test_a_corner_allows_what_lies_between_its_slopes():
    stage = Stage(name="act", op=activation.relu, reads=("x",), writes="y")
    x, ct = np.array([0.0, 1.0, 0.0, -2.0]), np.array([3.0, 5.0, -7.0, 9.0])
    found = tied(stage, [x], [(ct,)], 0, x == 0)
    assert found.interval.which.tolist() == [[True, False, True, False]]
    assert found.interval.low.tolist() == [[0.0, 0.0, -7.0, 0.0]]
    assert found.interval.high.tolist() == [[3.0, 0.0, 0.0, 0.0]]
    assert found.total is None


@pytest.mark.parametrize("side", [2, 4])
def test_the_points_beside_a_tie_give_each_element_its_turn(side):
    stage = Stage(
        name="pool",
        op=convolution.max_pool_2d,
        reads=("x",),
        writes="y",
        attrs={"kernel": (side, side), "stride": (side, side)},
    )
    x, ct = np.ones((1, side, 4 * side)), np.array([[[2.0, -3.0, 5.0, 7.0]]])
    x[0, 0, -side:] = 0.0
    found = tied(stage, [x], [(ct,)], 0, x == 1)
    columns = np.repeat(ct[0, 0], side)
    ends = np.where(x[0] == 1, columns, 0.0).reshape(1, -1)
    assert np.array_equal(found.interval.high, np.maximum(ends, 0))
    assert np.array_equal(found.interval.low, np.minimum(ends, 0))
    assert found.total.tolist() == [11.0]
