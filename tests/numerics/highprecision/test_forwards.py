"""Forwards in many people's styles, unmodified, in big numbers."""

import numpy as np
import pytest

from gradcheck.numerics.highprecision.forward import BigForward, NoArbiter
from tests.numerics.highprecision.forwards import FORWARDS, drawn

BUDGET = 10**6
STEP = 1e-6


def flat(returned):
    parts = returned if isinstance(returned, (tuple, list)) else [returned]
    return np.concatenate([np.ravel(p) for p in parts])


@pytest.mark.suite
def test_every_forward_is_carried_and_none_is_wrong():
    refused = {}
    for name, (forward, shapes, attrs) in FORWARDS.items():
        primals = drawn(name, *shapes)
        direction = [np.cos(1.0 + np.arange(p.size)).reshape(p.shape) for p in primals]
        try:
            box = BigForward(forward, primals, attrs, BUDGET)
            values, slopes = flat(box.outputs()), box.slopes(direction)
        except NoArbiter as reason:
            refused[name] = str(reason)
            continue
        np.testing.assert_allclose(values, flat(forward(*primals, **attrs)), 1e-7, 1e-9, True, name)
        sides = [
            flat(forward(*[p + s * d for p, d in zip(primals, direction, strict=True)], **attrs))
            for s in (STEP, -STEP)
        ]
        central = (sides[0] - sides[1]) / (2 * STEP)
        size = 1e-9 + np.max(np.abs(central))
        np.testing.assert_allclose(slopes.ahead, central, 1e-5, 1e-6 * size, True, name)
        np.testing.assert_array_equal(slopes.ahead, slopes.behind, name)
    assert not refused


def test_what_a_forward_stores_is_not_touched():
    class Layer:
        def __init__(self):
            self.seen = None

        def forward(self, x):
            self.seen = x
            return self.double(x)

        def double(self, x):
            out = np.zeros(3)
            out[:] = 2 * x
            return out

    layer = Layer()
    box = BigForward(layer.forward, [np.arange(1.0, 4.0)], {}, BUDGET)
    assert box.slopes([np.ones(3)]).ahead.tolist() == [2.0, 2.0, 2.0]
    assert layer.seen is None


def test_containers_that_a_forward_fills_are_not_touched():
    seen, slots = [1.0], {}

    class Odd:
        __slots__ = ("scale",)

        def __getattr__(self, name):
            raise RuntimeError(name)

    odd = Odd()
    odd.scale = 3.0

    def forward(x):
        seen.append(x)
        slots["x"] = x
        return odd.scale * x

    box = BigForward(forward, [np.ones(2)], {}, BUDGET)
    assert box.slopes([np.ones(2)]).ahead.tolist() == [3.0, 3.0]
    assert seen == [1.0]
    assert slots == {}


def test_scipy_is_carried():
    scipy_special = pytest.importorskip("scipy.special")
    linalg = pytest.importorskip("scipy.linalg")
    stats = pytest.importorskip("scipy.stats")
    ndimage = pytest.importorskip("scipy.ndimage")
    signal = pytest.importorskip("scipy.signal")
    x = np.array([[0.3, -0.7, 1.1], [0.4, 0.9, -0.2], [1.3, 0.1, 0.8]])
    v = np.array([0.3, 0.7, 1.9])
    forwards = [
        (lambda x: scipy_special.softmax(x, axis=1), x),
        (lambda x: scipy_special.logsumexp(x, axis=0), x),
        (lambda x: scipy_special.log_softmax(x, axis=-1), x),
        (lambda x: scipy_special.erf(x) * scipy_special.expit(x), x),
        (lambda x: scipy_special.gammaln(x) + scipy_special.digamma(x), v),
        (lambda x: scipy_special.i0e(x) + scipy_special.j1(x) + scipy_special.k0(x), v),
        (lambda x: scipy_special.log_ndtr(x) + scipy_special.ndtri(x / 3), v),
        (lambda x: scipy_special.xlogy(x, x) + scipy_special.entr(x), v),
        (lambda x: scipy_special.polygamma(1, x), v),
        (lambda x: scipy_special.betaln(x, 2.5) + scipy_special.betainc(2.0, x, 0.3), v),
        (lambda x: scipy_special.gammainc(x, 1.5) + scipy_special.exp1(x), v),
        (linalg.expm, x),
        (lambda x: linalg.solve_triangular(x, v, lower=True), x),
        (lambda x: linalg.cho_solve(linalg.cho_factor(x @ x.T + np.eye(3)), v), x),
        (lambda x: linalg.lu(x)[2], x),
        (lambda x: linalg.toeplitz(x) @ x, v),
        (lambda x: linalg.block_diag(x, x).sum(axis=0), x),
        (lambda x: signal.fftconvolve(x, x, mode="same"), v),
        (lambda x: signal.lfilter([0.2], [1.0, -0.5], x), v),
        (lambda x: linalg.lu_solve(linalg.lu_factor(x), v, trans=1), x),
        (lambda x: np.log(np.abs(np.diag(linalg.lu_factor(x)[0]))), x),
        (lambda x: linalg.sqrtm(x @ x.T + np.eye(3)), x),
        (lambda x: linalg.logm(x @ x.T + np.eye(3)), x),
        (lambda x: linalg.solve_sylvester(x, x + np.eye(3), x.T), x),
        (lambda x: stats.norm.pdf(x, 0.5, 2.0) + stats.norm.logcdf(x), v),
        (lambda x: stats.multivariate_normal.logpdf(x, np.zeros(3), np.eye(3)), v),
        (lambda x: ndimage.gaussian_filter(x, 0.6), x),
        (lambda x: ndimage.convolve1d(x, [1.0, 2.0, 4.0], mode="constant"), v),
    ]
    for k, (forward, point) in enumerate(forwards):
        box = BigForward(forward, [point], {}, BUDGET)
        d = np.cos(1.0 + np.arange(point.size)).reshape(point.shape)
        np.testing.assert_allclose(flat(box.outputs()), flat(forward(point)), 1e-9, 1e-12, True, k)
        central = (flat(forward(point + STEP * d)) - flat(forward(point - STEP * d))) / (2 * STEP)
        np.testing.assert_allclose(box.slopes([d]).ahead, central, 1e-6, 1e-7, True, k)
