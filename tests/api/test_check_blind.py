"""Nothing wrong passes for want of sight: zeros, and multiples of a gradient, at any scale."""

import numpy as np
import pytest

from gradcheck import check
from gradcheck.api.elementwise_check import Request
from gradcheck.api.judge_function import judge_function
from gradcheck.results.verdict import Verdict

NUMBERS = np.array([0.34567, -1.20431, 0.78113])


def huber(x):
    return np.where(np.abs(x) <= 1.3, x * x / 2.6, np.abs(x) - 0.65)


def normalised(x):
    return x / np.sqrt((x * x).sum())


FUNCTIONS = {  # forward, slope, scales
    "cbrt": (np.cbrt, lambda x: np.cbrt(x) / x / 3, (1e-300, 1e-150, 1.0, 1e300)),
    "soft abs": (
        lambda x: np.hypot(x, 1e-9),
        lambda x: x / np.hypot(x, 1e-9),
        (1e-250, 1e-12, 1e9),
    ),
    "huber": (huber, lambda x: np.clip(x / 1.3, -1, 1), (1e-200, 1e-9, 1e6)),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2, (1e-100, 1.0, 30.0)),
    "arctan": (np.arctan, lambda x: 1 / (1 + x * x), (1e-20, 1e9, 1e100)),
    "sin": (np.sin, np.cos, (1e-300, 1e3, 1e200)),
}
WRONG = {"zeros": 0.0, "negated": -1.0, "halved": 0.5, "a tenth too large": 1.1}


def verdict(forward, vjp, x):
    """As of `check`, without the diagnosis."""
    asked = Request(
        forward=forward, vjp=vjp, names=("x",), attrs={}, dtype=x.dtype.name, seed=0, subject="",
        full=False, order=1, double_vjp=None, jvp=None, explain=False,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        (finding,) = judge_function(asked, (x,))
    return finding.verdict


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_multiples_of_a_gradient_pass_at_no_scale(name):
    forward, slope, scales = FUNCTIONS[name]
    for scale in scales:
        for error, factor in WRONG.items():
            got = verdict(forward, lambda ct, x, k=factor: k * (ct * slope(x)), scale * NUMBERS)
            assert got is not Verdict.PASS, (scale, error)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_itself_passes_at_every_scale(name):
    forward, slope, scales = FUNCTIONS[name]
    for scale in scales:
        got = verdict(forward, lambda ct, x: ct * slope(x), scale * NUMBERS)
        assert got is Verdict.PASS, scale


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("far", "dtype"), [(40.0, "float64"), (400.0, "float64"), (40.0, "float32")]
)
def test_zeros_fail_where_values_absorb_what_moves(far, dtype):
    def absorbed(x):
        return (1e3 + np.exp(-far - x)) - 1e3

    x = np.abs(NUMBERS).astype(dtype)
    assert verdict(absorbed, lambda ct, x: np.zeros_like(x), x) is Verdict.FAIL


def test_zeros_are_not_settled_where_forward_overflows():
    x = 1e200 * NUMBERS
    with np.errstate(all="ignore"):
        assert not normalised(x).any()
        found = check(normalised, lambda ct, x: np.zeros_like(x), x)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "do not prove it" in found.findings[0].reason
    assert "other values in 50 digits" in found.findings[0].reason


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: np.maximum(x - 5, 0),
        lambda x: np.exp(x - x.max()).sum() / np.exp(x - x.max()).sum(),
        lambda x: np.array([float(int(10 * v)) for v in x]),
    ],
    ids=["dead", "cancelled", "a staircase without 50 digits"],
)
def test_zeros_pass_where_forward_is_flat(forward):
    assert verdict(forward, lambda ct, x: np.zeros_like(x), NUMBERS) is Verdict.PASS
