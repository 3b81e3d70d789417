"""An estimate starts cheap, gets better where it is asked to, and yields to what is certain."""

import numpy as np
import pytest
from gradcheck_cases.norm import rms_norm

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import Differences, NoiseProbe, noise_lines
from gradcheck.numerics.evaluate import Point


def draw(*roles):
    return Draw("truth", *roles)


def differences(function, *primals, index=0, cts=None, core_ranks=None, rounding=None):
    """Differences of `function`, for the cotangents `cts` [q, m] or two random ones."""
    point = Point(lambda *p: (np.asarray(function(*p)),), primals, core_ranks)
    size = np.asarray(function(*primals)).size
    cts = draw("ct").signed(2, size) if cts is None else np.asarray(cts, dtype=float)
    return Differences(point, index, cts, noise_lines(point), rounding)


def covered(estimate, true):
    return np.abs(estimate.value - true) <= estimate.bar


ROWS = (draw("x").normal(4, 6), draw("w").normal(6))


def rows(x, w):
    return rms_norm.forward(F64, x, w)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("core_ranks", [None, (1, 1)])
def test_the_triple_covers_every_element_of_every_primal(index, core_ranks):
    it = differences(rows, *ROWS, index=index, core_ranks=core_ranks)
    estimate = it.estimate
    true = np.stack(
        [rms_norm.vjp(F64, ct.reshape(4, 6), *ROWS)[index].reshape(-1) for ct in it.cts]
    )
    assert estimate.size == ROWS[index].size
    assert estimate.value.shape == estimate.bar.shape == estimate.scale.shape == true.shape
    assert covered(estimate, true).all()
    assert np.median(estimate.bar / estimate.scale) < 1e-9
    assert not estimate.settled.any()


def test_the_scale_is_the_sum_of_what_may_cancel():
    x, w = draw("x").normal(3, 4), draw("w").normal(4, 5)
    it = differences(lambda x, w: x @ w, x, w)
    cts = it.cts.reshape(2, 3, 5)
    np.testing.assert_allclose(
        it.estimate.scale.reshape(2, 3, 4), np.abs(cts) @ np.abs(w).T, rtol=1e-9
    )
    np.testing.assert_allclose(it.estimate.value.reshape(2, 3, 4), cts @ w.T, rtol=1e-9)
    assert it.estimate.terms.tolist() == [5] * 12


def test_terms_count_what_an_element_can_move_also_where_it_saturates():
    it = differences(lambda x: np.cumsum(np.tanh(400 * x), axis=-1), draw("x").signed(4))
    assert it.estimate.terms.tolist() == [4, 3, 2, 1]


def test_an_element_that_moves_nothing_has_a_gradient_of_zero():
    it = differences(lambda x: x[..., :2] ** 2, draw("x").signed(4))
    assert it.estimate.value[:, 2:].tolist() == [[0, 0], [0, 0]]
    assert np.all(it.estimate.bar[:, 2:] < 1e-12)


def test_the_same_point_gives_the_same_bits():
    first, second = (differences(rows, *ROWS).estimate for _ in range(2))
    for name in ("value", "bar", "scale", "terms"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_what_is_known_of_rounding_widens_the_bar_and_only_where_it_is_lost():
    def tail(x):
        return 1 + np.tanh(x)

    x = np.array([-25.0, 0.5])  # at −25 this is exactly 0, whatever the step
    blind = differences(tail, x, cts=[[1.0, 1.0]]).estimate
    told = differences(tail, x, cts=[[1.0, 1.0]], rounding=np.array([4.0, 4.0])).estimate
    true = 1 / np.cosh(x) ** 2
    assert not covered(blind, true)[0, 0]
    assert covered(told, true).all()
    assert told.bar[0, 1] == blind.bar[0, 1]


# ── the ladder ───────────────────────────────────────────────────────────────────────────────


def mixed(x):
    """Ordinary elements, and one whose length scale is a millionth of theirs."""
    return np.where(np.arange(6) == 4, np.tanh(1e6 * x), np.sin(x))


def test_refine_improves_what_it_is_asked_for_and_leaves_the_rest():
    x = np.array([0.3, -0.7, 1.2, 0.9, 2e-7, -1.1])

    def scrambled(x):  # every output sees every element: six colours
        return np.cumsum(mixed(x), axis=-1)[..., ::-1] + 0 * x.sum(axis=-1, keepdims=True)

    it = differences(scrambled, x, cts=np.ones((1, 6)))
    assert it.structure.colours == 6
    before = it.estimate.value.copy(), it.estimate.bar.copy()
    assert it.refine(np.array([4]))
    slope = np.where(np.arange(6) == 4, 1e6 * (1 - np.tanh(1e6 * x) ** 2), np.cos(x))
    true = slope * np.arange(6, 0, -1)
    rest = np.arange(6) != 4
    assert np.array_equal(it.estimate.value[:, rest], before[0][:, rest])
    assert np.array_equal(it.estimate.bar[:, rest], before[1][:, rest])
    assert covered(it.estimate, true[None]).all()
    assert it.estimate.bar[0, 4] < 1e-6 * true[4]


def test_refine_has_nothing_new_to_say_twice():
    it = differences(rows, *ROWS)
    assert it.refine(np.array([3, 5]))
    assert not it.refine(np.array([3]))
    assert not it.refine(np.array([], dtype=np.int64))
    assert it.refine(np.array([3, 7]))


def test_an_element_at_the_edge_of_the_domain_is_recovered():
    x = np.array([1e-4, 300.0])  # half of 300 is the step for both: log is undefined there
    it = differences(np.log, x, cts=np.ones((1, 2)))
    it.refine(np.arange(2))
    assert covered(it.estimate, (1 / x)[None]).all()
    assert np.all(it.estimate.bar <= 1e-6 / x)
    assert np.isfinite(it.estimate.scale).all()


def test_a_forward_that_refuses_every_step_leaves_the_bar_infinite():
    x = draw("x").signed(3)

    def only_here(y):
        if not np.array_equal(y, x):
            raise ValueError("nowhere else")
        return np.exp(y)

    it = differences(only_here, x)
    it.refine(np.arange(3))
    assert np.isinf(it.estimate.bar).all()


def test_a_slope_that_underflows_lies_within_every_bar():
    """The square of 1e-200 is 0, and so are the squares of its neighbours."""
    x = 1e-200 * draw("x").signed(64)
    point = Point(lambda x: (x * x,), (x,))
    it = Differences(point, 0, np.ones((1, 64)), NoiseProbe(point))
    assert it.estimate.screened.all()
    assert covered(it.estimate, 2 * x).all()
    it.sharpen(np.arange(64))
    assert covered(it.estimate, 2 * x).all()
    it.refine(np.arange(64))
    assert covered(it.estimate, 2 * x).all()


# ── settling ─────────────────────────────────────────────────────────────────────────────────


def test_what_is_settled_stays_settled():
    it = differences(rows, *ROWS)
    certain = draw("certain").normal(2, 24)
    which = np.zeros((2, 24), dtype=bool)
    which[1, 3] = True
    untouched = it.estimate.value.copy()
    it.settle(certain, which)
    it.refine(np.arange(24))
    assert it.estimate.value[1, 3] == certain[1, 3]
    assert it.estimate.bar[1, 3] == np.spacing(1.0) * abs(certain[1, 3])
    assert it.estimate.settled.sum() == 1
    np.testing.assert_allclose(it.estimate.value[~which], untouched[~which], rtol=1e-6)


# ── shapes ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (1,), (1, 1, 1)])
def test_every_shape_has_an_estimate(shape):
    x = draw("x").signed(*shape)
    it = differences(np.exp, x)
    assert it.estimate.value.shape == (2, x.size)
    it.refine(np.arange(x.size))
    assert covered(it.estimate, it.cts * np.exp(x).reshape(-1)).all()


def test_a_float32_primal_is_differenced_in_its_own_steps():
    x = draw("x").normal(5).astype(np.float32)
    it = differences(np.tanh, x, cts=np.ones((1, 5)))
    it.refine(np.arange(5))
    assert covered(it.estimate, 1 / np.cosh(x.astype(np.float64)) ** 2).all()
    assert 1e-9 < np.median(it.estimate.bar) < 1e-3
