"""`check` near the largest and the smallest numbers: no warning, no failure of what is right."""

import warnings

import numpy as np
import pytest

from gradcheck import check
from tests.functions import attention, attention_vjp, rms_norm, rms_norm_vjp, softmax, softmax_vjp


def mean(x):
    return x.mean(-1)


def mean_vjp(ct, x):
    return np.repeat(ct[:, None], x.shape[-1], axis=1) / x.shape[-1]


def product(a, b):
    return a @ np.swapaxes(b, -1, -2)


def product_vjp(ct, a, b):
    return ct @ b, ct.T @ a


CASES = {
    "softmax": (softmax, softmax_vjp, [(3, 4)]),
    "rms_norm": (rms_norm, rms_norm_vjp, [(2, 3), (3,)]),
    "mean": (mean, mean_vjp, [(3, 4)]),
    "product": (product, product_vjp, [(3, 4), (2, 4)]),
    "square": (np.square, lambda ct, x: 2 * ct * x, [(3,)]),
    "cube": (lambda x: x * x * x, lambda ct, x: 3 * ct * x * x, [(3,)]),
    "attention": (attention, attention_vjp, [(3, 4), (3, 4), (3, 4)]),
    "exp": (np.exp, lambda ct, x: ct * np.exp(x), [(3,)]),
}
FLOAT32 = {1e30: np.float32, 1e-30: np.float32}
RIGHT = {"softmax", "mean", "product", "square", "cube", "exp", "attention"}
"""Their VJPs neither overflow nor underflow where forward does not."""


@pytest.mark.slow(keep=8, rest=16)
@pytest.mark.parametrize("scale", [1e300, 1e150, 1e30, 1e-30, 1e-150, 1e-300])
@pytest.mark.parametrize("name", CASES)
def test_no_warning_leaves_a_check(name, scale):
    forward, vjp, shapes = CASES[name]
    rng = np.random.default_rng(0)
    primals = [rng.normal(size=shape) * scale for shape in shapes]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for full in (False, True):
            found = check(forward, vjp, *primals, full=full)
            assert not (name in RIGHT and found.verdict.wrong), str(found)
        if scale in FLOAT32:
            check(forward, vjp, *(p.astype(np.float32) for p in primals))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("scale", [1e200, 1e30, 1e-30, 1e-200])
def test_a_wrong_gradient_is_seen_at_any_scale(scale):
    x = np.random.default_rng(0).normal(size=(3, 4)) * scale
    assert check(mean, mean_vjp, x).ok
    assert not check(mean, lambda ct, x: 1.1 * mean_vjp(ct, x), x, explain=False).ok


@pytest.mark.slow(keep=5, rest=24)
@pytest.mark.parametrize("size", [8, 64], ids=["triple", "screen"])
@pytest.mark.parametrize("scale", [1e-6, 1e-10, 1e-20, 1e-50, 1e-80])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_far_below_one_the_full_check_steps_by_the_primals_own_size(power, scale, size):
    x = np.random.default_rng(0).normal(size=size) * scale

    def vjp(ct, x):
        return power * ct * x ** (power - 1)

    assert check(lambda x: x**power, vjp, x, full=True).ok
    found = check(lambda x: x**power, lambda ct, x: 1.01 * vjp(ct, x), x, full=True)
    assert found.verdict.name == "FAIL"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("full", [False, True], ids=["projection", "full"])
@pytest.mark.parametrize("size", [8, 64])
@pytest.mark.parametrize("power", [2, 3])
def test_what_underflows_in_forward_is_not_held_against_a_gradient(power, size, full):
    x = np.random.default_rng(0).normal(size=size) * 1e-200
    found = check(lambda x: x**power, lambda ct, x: power * ct * x ** (power - 1), x, full=full)
    assert found.verdict.name in ("INCONCLUSIVE", "PASS"), str(found)
