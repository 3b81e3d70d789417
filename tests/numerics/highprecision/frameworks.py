"""Forwards of a framework in big numbers, against the framework's own derivatives and mpmath."""

import mpmath
import numpy as np
import pytest

from gradcheck.numerics.highprecision.forward import BigForward
from gradcheck.numerics.highprecision.numbers import Leak, NoArbiter

BUDGET = 10**7
CARRIED = 0.95
M = np.random.default_rng(18).standard_normal((4, 4)) + 0.25 * np.eye(4)
SPD = M @ M.T + 4 * np.eye(4)


def directed(name, x):
    """A direction by name; symmetric where the framework's derivative is that."""
    d = np.cos(len(name) + np.arange(x.size)).reshape(x.shape)
    return d + d.T if name in ("cholesky", "eigvalsh") else d


def compare(cases):
    """Compare values and slopes; at most 5% of the forwards may be refused.

    `cases` are by name (forward, primal, direction, value, slope).
    """
    refused = {}
    for name, (forward, x, d, value, slope) in cases.items():
        try:
            box = BigForward(forward, [x], {}, BUDGET)
            values, slopes = box.outputs()[0], box.slopes([d])
        except NoArbiter as reason:
            refused[name] = str(reason)
            continue
        np.testing.assert_allclose(values, value, 1e-11, 1e-12, True, name)
        scale = np.max(np.abs(slope))
        np.testing.assert_allclose(slopes.ahead, slope.reshape(-1), 0, 1e-12 * scale, True, name)
        np.testing.assert_array_equal(slopes.ahead, slopes.behind, name)
    assert len(refused) <= (1 - CARRIED) * len(cases), refused


def compare_elements(forward, element, x):
    """Compare with a function of mpmath of each element, to the last bit but one."""
    box = BigForward(forward, [x], {}, BUDGET)
    with mpmath.workdps(60):
        truth = [float(mpmath.diff(element, mpmath.mpf(float(v)))) for v in x]
        values = [float(element(mpmath.mpf(float(v)))) for v in x]
    np.testing.assert_allclose(np.concatenate([np.ravel(o) for o in box.outputs()]), values, 4e-16)
    np.testing.assert_allclose(box.slopes([np.ones(x.size)]).ahead, truth, 4e-16)


def slope_in_float32(forward, x):
    """The slope along ones of the sum of tanh; rounding inside float32 is no leak."""
    single = x.astype(np.float32)
    slopes = BigForward(forward, [single], {}, BUDGET).slopes([np.ones(x.size)])
    return slopes.ahead, np.sum(1 / np.cosh(single.astype(np.float64)) ** 2)


def refusal(forward, x):
    """The reason why a forward is refused as a leak."""
    with pytest.raises(Leak) as refused:
        BigForward(forward, [x], {}, BUDGET).outputs()
    return str(refused.value)
