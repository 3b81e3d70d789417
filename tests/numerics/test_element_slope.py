"""Seven steps of one element: what they exclude, and where they keep silent."""

import numpy as np
import pytest

from gradcheck.numerics.element_slope import excluding


def asked(forward, x, got):
    here = np.array(x)
    base = np.atleast_1d(forward(here)).astype(np.float64)
    unit = 2.0 ** np.floor(np.log2(abs(x))) if x else 1.0
    return excluding(lambda v: (np.atleast_1d(forward(v)),), here, base, np.ones(1), unit, got)


@pytest.mark.parametrize("factor", [1.01, 0.0, -1.0, np.nan])
def test_a_wrong_derivative_is_excluded_by_its_true_value(factor):
    known = asked(np.tanh, 0.7, factor * (1 - np.tanh(0.7) ** 2))
    assert known is not None
    assert known.value == pytest.approx(1 - np.tanh(0.7) ** 2, rel=1e-4)


SILENT = {
    "a kink on the element": (abs, 0.0, 1.0),
    "a kink beside it": (lambda x: np.maximum(x - 1 + 1e-13, 0.0), 1.0, 1.0),
    "a feature narrower than most steps": (lambda x: np.tanh(1e12 * (x - 1)), 1.0, 1e12),
    "absorbed": (lambda x: (1e9 + np.exp(x)) - 1e9, 0.5, np.exp(0.5)),
    "float16 inside": (lambda x: np.float64(np.float16(np.tanh(x))), 0.7, 0.6347),
    "a staircase, straight through": (lambda x: np.round(x, 4), 0.7, 1.0),
    "right": (np.tanh, 0.7, 1 - np.tanh(0.7) ** 2),
    "right but for rounding": (np.tanh, 0.7, (1 - np.tanh(0.7) ** 2) * (1 + 1e-9)),
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_excluded_where_the_steps_do_not_agree(name):
    assert asked(*SILENT[name]) is None
