"""Kinks that nobody declared: the library face has no spec, and must find them from values."""

import numpy as np
import pytest

from gradcheck import check
from tests.functions import network, network_vjp, relu
from tests.sizes import few


def judged(forward, slopes, x):
    """What `check` says of a VJP with these `slopes` of an element-wise or scalar forward."""

    def vjp(ct, x):
        return ct * np.asarray(slopes, x.dtype)

    quick, full = (check(forward, vjp, np.array(x), full=whole) for whole in (False, True))
    (finding,) = full.findings
    assert quick.verdict == finding.verdict
    return finding


def leaky(x):
    return np.where(x > 0, x, 1.5 * x)


# ── on a kink ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("forward", "outside", "accepted", "rejected"),
    [
        (relu, (0.0, 1.0), (0.0, 0.5, 1.0), (-0.1, 1.1, 2.0)),
        (leaky, (1.5, 1.0), (1.0, 1.2, 1.5), (0.9, 1.6, 0.0)),
        (np.abs, (-1.0, 1.0), (-1.0, 0.0, 1.0), (-1.1, 1.5)),
        (lambda x: np.clip(x, 0, 9), (0.0, 1.0), (0.0, 1.0), (-0.5, 2.0)),
    ],
)
def test_any_slope_between_the_two_sides_will_do_and_no_other(
    forward, outside, accepted, rejected, dtype
):
    left, right = outside
    x = np.array([-1.25, 0.0, 2.5], dtype)
    for slopes, verdict in ((accepted, "pass"), (rejected, "fail")):
        for slope in slopes:
            found = judged(forward, [left, slope, right], x)
            assert (found.verdict, slope) == (verdict, slope)
            if slope != (left + right) / 2:  # what a central difference gives
                assert found.kinked == 3
                assert "forward has an undeclared kink at x[1] = 0: judged by" in found.reason


def test_a_kink_does_not_excuse_the_elements_beside_it():
    for slopes in ([0.1, 0.0, 1.0], [0.0, 0.0, 1.1]):
        assert judged(relu, slopes, [-1.25, 0.0, 2.5]).verdict == "fail"


def test_a_number_on_a_kink_is_named_without_an_index():
    assert "kink at x = 0: judged" in judged(relu, 1.0, 0.0).reason
    assert judged(relu, 1.5, 0.0).verdict == "fail"


def test_all_kinks_are_counted_and_the_first_is_named():
    found = judged(np.abs, np.zeros((2, 3)), np.zeros((2, 3)))
    assert (found.verdict, found.kinked) == ("pass", 18)
    assert "undeclared kink at x[0, 0] = 0 and at 5 more" in found.reason


def test_two_kinks_that_cancel_in_the_sum_are_still_two_kinks():
    # |x| − |x| is smooth as a sum, but each output has a convention of its own.
    def forward(x):
        return np.abs(x), np.abs(x)

    def vjp(ct, x):
        return 0.7 * ct[0] - 0.3 * ct[1]

    (found,) = check(forward, vjp, np.zeros(1)).findings
    assert (found.verdict, found.kinked) == ("pass", 3)
    (found,) = check(forward, lambda ct, x: 1.7 * ct[0] + 0.4 * ct[1], np.zeros(1)).findings
    assert found.verdict == "fail"


@pytest.mark.slow(keep=1, rest=1)
@pytest.mark.parametrize("slopes", [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.5, 0.5]])
def test_a_tie_of_the_maximum_is_reported_and_not_failed(slopes):
    found = judged(np.max, slopes, [-1.0, 2.0, 2.0])
    assert found.verdict in ("pass", "inconclusive")
    assert "undeclared kink at a[1] = 2 and at 1 more" in found.reason
    assert judged(np.max, [0.0, 2.0, 0.0], [-1.0, 2.0, 2.0]).verdict == "fail"
    assert judged(np.max, [0.0, -0.1, 1.0], [-1.0, 2.0, 2.0]).verdict == "fail"


# ── beside a kink ────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=2, rest=5)
@pytest.mark.parametrize("distance", [0.3, 1e-3, 1e-7, 1e-8, 1e-11, 1e-13, 1e-17, 1e-300])
def test_beside_a_kink_only_the_slope_of_its_side_will_do(distance):
    x = [-2.0, distance, -distance, 1.0]
    found = judged(relu, [0.0, 1.0, 0.0, 1.0], x)
    assert (found.verdict, found.kinked, found.reason) == ("pass", 0, "")
    for wrong in ([0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0], [0.0, 0.7, 0.0, 1.0]):
        assert judged(relu, wrong, x).verdict == "fail"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("forward", "slope"),
    [
        (lambda x: np.log1p(np.exp(1e3 * x)) / 1e3, lambda x: 1 / (1 + np.exp(-1e3 * x))),
        (lambda x: np.sqrt(x * x + 1e-8), lambda x: x / np.sqrt(x * x + 1e-8)),
        (lambda x: np.where(x > 0, x, np.expm1(x)), lambda x: np.where(x > 0, 1, np.exp(x))),
    ],
    ids=["softplus", "smooth abs", "elu"],
)
def test_a_narrow_bend_is_no_kink(forward, slope):
    x = np.array([-0.5, 0.0, 0.25])
    found = judged(forward, slope(x), x)
    assert (found.verdict, found.kinked) == ("pass", 0)
    for wrong in (0.25, 0.75):
        slopes = np.where(x == 0, slope(x) + wrong - 0.5, slope(x))
        assert judged(forward, slopes, x).verdict == "fail"


# ── jumps and ends ───────────────────────────────────────────────────────────────────────────


def test_on_a_jump_there_is_no_slope_to_judge_by():
    for slope in (0.0, 1.0, 100.0):
        assert judged(np.floor, [0.0, slope, 0.0], [0.3, 2.0, 1.7]).verdict == "inconclusive"
    envelope = judged(np.floor, [1.0, 0.0, 0.0], [0.3, 2.0, 1.7])
    assert envelope.verdict == "inconclusive"
    assert "as of a straight-through estimator" in envelope.reason
    assert judged(np.floor, [np.nan, 0.0, 0.0], [0.3, 2.0, 1.7]).verdict == "fail"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("slope", [0.0, 7.0, 1e6])
def test_where_one_side_cannot_be_seen_a_kink_excuses_nothing(slope):
    # The first output has a kink at 0, the second ends there: no slope bounds their sum.
    def forward(x):
        return np.abs(x), x * np.sqrt(x)

    (found,) = check(forward, lambda ct, x: slope * ct[0], np.zeros(1)).findings
    assert found.verdict == "inconclusive"


# ── networks ─────────────────────────────────────────────────────────────────────────────────


def layer(x, w):
    return relu(x @ w.T)


def layer_vjp(ct, x, w):
    g = ct * (x @ w.T > 0)
    return g @ w, g.T @ x


@pytest.mark.slow(keep=1, rest=2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", [*range(3), *few(range(3, 20), lambda _: False)])
def test_thousands_of_elements_and_kinks_raise_no_false_alarm(seed, dtype):
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(16, 40)).astype(dtype), rng.normal(size=(64, 40)).astype(dtype)
    assert check(layer, layer_vjp, x, w, seed=seed).ok
    found = check(layer, layer_vjp, x, w, seed=seed, full=True)
    assert found.ok, str(found)
    assert sum(f.compared for f in found.findings) == 3 * (640 + 2560)


@pytest.mark.slow(keep=4, rest=3)
@pytest.mark.parametrize("seed", range(10))
def test_a_deeper_network_raises_no_false_alarm_and_hides_no_error(seed):
    rng = np.random.default_rng(seed)
    x, w, v = rng.normal(size=16), rng.normal(size=(96, 16)), rng.normal(size=(4, 96))
    for full in (False, True):
        found = check(network, network_vjp, x, w, v, seed=seed, full=full)
        assert found.ok, str(found)

    def wrong(ct, *primals):
        dx, dw, dv = network_vjp(ct, *primals)
        z = primals[1] @ primals[0]
        dw[np.argmin(np.abs(z)), 0] += 1e-3  # the unit that is closest to its kink
        return dx, dw, dv

    found = check(network, wrong, x, w, v, seed=seed)
    assert {f.name: f.verdict.value for f in found.findings} == {
        "x": "pass", "w": "fail", "v": "pass",
    }  # fmt: skip


@pytest.mark.slow(keep=1, rest=2)
@pytest.mark.parametrize("seed", range(2))
def test_units_that_are_exactly_on_their_kink_are_not_failed(seed):
    rng = np.random.default_rng(seed)
    x, w = rng.integers(-2, 3, 6).astype(float), rng.integers(-2, 3, (40, 6)).astype(float)
    assert (w @ x == 0).sum() >= 1
    for at_zero in (0.0, 0.5, 1.0):

        def vjp(ct, x, w, at_zero=at_zero):
            g = ct * np.where(w @ x == 0, at_zero, w @ x > 0)
            return w.T @ g, np.outer(g, x)

        found = check(lambda x, w: relu(w @ x), vjp, x, w)
        assert "fail" not in {f.verdict.value for f in found.findings}, str(found)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("factor", [0.0, 0.5, -1.0])
def test_half_of_the_slope_is_wrong_about_a_step_beside_a_kink(factor, full):
    x = np.array([2.25, 100 + 1.1e-10, 100 - 0.9e-10])
    found = check(
        lambda x: np.maximum(x - 100.0, 0), lambda ct, x: factor * ct * (x > 100), x, full=full
    )
    assert not found.ok
    assert check(lambda x: np.maximum(x - 100.0, 0), lambda ct, x: ct * (x > 100), x, full=full).ok


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("forward", "x"),
    [
        (np.cbrt, 1e-120 * np.array([1.25, -0.7, 0.3])),
        (lambda x: np.exp(x) - 1, 1e-17 * np.array([1.25, -0.7, 0.3])),
        (lambda x: 1 - np.cos(x), 1e-9 * np.array([1.25, -0.7, 0.3])),
        (lambda x: 1 - np.tanh(x), np.array([30.1, 31.2, 29.3])),
    ],
)
@pytest.mark.parametrize("full", [False, True])
def test_zeros_are_wrong_where_only_the_values_stand_still(forward, x, full):
    assert not check(forward, lambda ct, x: 0 * ct, x, full=full, explain=False).ok


def test_zeros_are_right_where_forward_stands_still():
    x = np.array([30.1, 31.2, 29.3])
    for forward in (np.floor, lambda x: np.maximum(-x, 0), lambda x: 0 * x):
        assert check(forward, lambda ct, x: 0 * ct, x).ok


def test_a_thousandth_of_all_is_wrong_where_elements_are_seen_less_sharply():
    x = 1e6 + np.array([-0.81, -0.7, -1.74, -1.31, -0.16])

    def forward(x):
        return (x * x).mean() - x.mean() ** 2

    def vjp(ct, x):
        return ct * 2 * (x - x.mean()) / x.size

    assert not check(forward, lambda ct, x: 1.001 * vjp(ct, x), x, explain=False).ok
