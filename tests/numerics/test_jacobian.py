"""Jacobians by differences: every slope within its bar, none where there is none."""

import numpy as np
import pytest

from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import noise_lines
from gradcheck.numerics.evaluate import Point, flatten
from gradcheck.numerics.jacobian import jacobian
from gradcheck.numerics.noise import per_output

X, W = Draw("jacobian", "x").normal(4, 3), Draw("jacobian", "w").normal(3)


def made(forward, *primals, index=0):
    def function(*values):
        out = forward(*values)
        return out if isinstance(out, tuple) else (out,)

    point = Point(function, primals)
    with np.errstate(all="ignore"):
        blur = per_output(noise_lines(point), flatten(function(*primals)))
    found = jacobian(point, index, blur)
    again = jacobian(point, index, blur, found.mixing)
    assert np.array_equal(found.value, again.value, equal_nan=True)
    return found.value, found.bar


def exact(vjp, shape, primals, index):
    """Rows of a known VJP, one per output."""
    size = int(np.prod(shape))
    return np.stack([vjp(row.reshape(shape), *primals)[index].reshape(-1) for row in np.eye(size)])


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


CASES = {
    "elementwise": (np.tanh, lambda ct, x: (ct * (1 - np.tanh(x) ** 2),), (X,)),
    "rows": (
        softmax,
        lambda ct, x: (softmax(x) * (ct - (ct * softmax(x)).sum(-1, keepdims=True)),),
        (X,),
    ),
    "product": (lambda x, w: x * w, lambda ct, x, w: (ct * w, (ct * x).sum(0)), (X, W)),
    "matrix": (lambda x, w: x @ w, lambda ct, x, w: (np.outer(ct, w), ct @ x), (X, W)),
    "scalar": (lambda x: np.sum(x**3), lambda ct, x: (3 * ct * x**2,), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_slope_is_within_its_bar_and_sharp(name):
    forward, vjp, primals = CASES[name]
    for index, primal in enumerate(primals):
        value, bar = made(forward, *primals, index=index)
        want = exact(vjp, np.shape(forward(*primals)), primals, index)
        assert value.shape == bar.shape == want.shape == (want.shape[0], primal.size)
        assert np.all(np.abs(value - want) <= bar)
        assert np.max(bar) <= 1e-9 * np.max(np.abs(want))


def test_another_function_is_told_apart():
    value, bar = made(np.tanh, X)
    assert not np.all(np.abs(value - np.diag(np.cosh(X).reshape(-1) ** -1)) <= bar)


def test_a_kink_has_no_slope_though_symmetric_differences_agree():
    value, bar = made(lambda x: np.maximum(x, 0), np.array([-1.0, 0.0, 2.0]))
    assert np.isinf(np.diag(bar)).tolist() == [False, True, False]
    assert np.diag(value)[[0, 2]] == pytest.approx([0, 1])


def test_beyond_the_domain_nothing_is_known():
    _, bar = made(np.sqrt, np.array([0.0, 1.0]))
    assert np.isinf(np.diag(bar)).tolist() == [True, False]


def test_outputs_that_nothing_moves_are_flat():
    value, bar = made(lambda x: np.stack([x[..., 0], np.ones_like(x[..., 0])]), X)
    assert not value[4:].any()
    assert not bar[4:].any()


def test_a_float32_forward_has_wider_bars_that_hold():
    x = X.astype(np.float32)
    value, bar = made(lambda x: x**3, x)
    want = np.diag(3 * x.astype(np.float64).reshape(-1) ** 2)
    assert np.all(np.abs(value - want) <= bar)
    assert np.max(bar) > 1e-8


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_without_elements_there_is_nothing_to_know(shape):
    value, bar = made(lambda x: x, np.zeros(shape))
    assert value.size == bar.size == 0
