"""What rounds to a narrower type is rejected, at primals with short mantissas too."""

import numpy as np
import pytest

from gradcheck import check, check_model
from gradcheck.api.judge_function import FAR_FACTORS, NEAR_FACTOR, jumps
from gradcheck.numerics.narrow import BFLOAT16, FLOAT16, FLOAT32, TF32, narrower

SHORT = np.array([1.0, 2.0, -3.0, 0.5, 7.0, 0.0, -1.5, 1.0])
NOTE = "would not show here; give random numbers"


def noted(found):
    """Whether a check passes with a note that rounding would not show."""
    assert found.ok, str(found)
    return any(NOTE in finding.reason for finding in found.findings)


@pytest.mark.slow(keep=2, rest=5)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("primals", [SHORT, np.ones(4), np.arange(6.0), np.array([3.0])])
def test_rounded_operands_fail_where_the_primals_fit_in_the_narrower_type(primals, dtype, full):
    x = primals.astype(dtype)
    assert not noted(check(lambda x: x**2, lambda ct, x: 2 * x * ct, x, full=full))
    for kept in narrower(dtype):

        def vjp(ct, x, kept=kept):
            return 2 * kept.rounded(x).astype(dtype) * ct

        found = check(lambda x: x**2, vjp, x, full=full)
        assert found.verdict.name == "FAIL"
        assert f"wrong at {NEAR_FACTOR:.4g} times them" in found.findings[0].reason


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kept", [TF32, FLOAT16, BFLOAT16, FLOAT32])
def test_the_cotangent_of_a_loss_that_is_rounded_fails(kept, full):
    x = np.random.default_rng(0).normal(size=5)

    def vjp(ct, x):
        return kept.rounded(ct) * x

    assert (
        check(lambda x: np.sum(x * x) / 2, vjp, x, full=full, explain=False).verdict.name == "FAIL"
    )


def frozen():
    saved = SHORT.copy()
    return np.square, lambda ct, x: 2 * saved * ct


def of_unit_length():
    """x/|x|, and its VJP for |x| = 1."""

    def forward(x):
        return x / np.sqrt(np.sum(x * x))

    return forward, lambda ct, x: ct - x * np.sum(ct * x)


def chosen_by_a_mask():
    """Forward compares with 1: there it jumps."""
    return (lambda x: np.where(x == 1.0, 0.0, x)), (lambda ct, x: np.where(SHORT == 1.0, 0.0, ct))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("full", [False, True])
def test_a_gradient_that_is_right_at_these_primals_alone_passes_with_a_note(full):
    assert noted(check(*frozen(), SHORT, full=full))
    unit = np.array([0.5, 0.5, -0.5, 0.5])
    assert noted(check(*of_unit_length(), unit, full=full))


def test_a_forward_that_ends_beside_the_primals_passes_with_a_note():
    x = np.array([1.5, 2.0, 4.0])

    def forward(x):
        return np.sqrt(x - 1.46875)  # NaN at NEAR times 1.5

    def vjp(ct, x):
        return ct / 2 / np.sqrt(x - 1.46875)

    assert noted(check(forward, vjp, x))


def test_zeros_ties_and_kinks_stay_where_they_are():
    def largest(ct, x):
        return np.where(np.arange(4) == np.argmax(x), ct, 0.0)

    ties = np.array([2.0, 1.0, -4.0, 1.0])
    assert not noted(check(lambda x: np.max(x, axis=-1), largest, ties))
    relu = np.array([1.0, 0.0, -2.0])
    assert not noted(check(lambda x: np.maximum(x, 0), lambda ct, x: ct * (x > 0), relu))
    half = np.array([0.5, 1.0, -1.0]) * 0.875
    assert not noted(check(np.arcsin, lambda ct, x: ct / np.sqrt(1 - x * x), half))


def test_a_model_whose_values_are_short_has_a_note():
    w = np.array([1.0, -2.0, 3.0])
    assert noted(check_model(lambda: np.sum(w**2), {"w": w}, {"w": 2 * w}))
    w = np.array([0.1, -0.2, 0.3])
    assert not noted(check_model(lambda: np.sum(w**2), {"w": w}, {"w": 2 * w}))


@pytest.mark.parametrize("factor", [NEAR_FACTOR, *FAR_FACTORS])
@pytest.mark.parametrize("kept", [TF32, FLOAT16, BFLOAT16, FLOAT32])
def test_the_factors_take_small_integers_off_every_narrow_type(factor, kept):
    for integer in (1.0, 3.0, 5.0, 7.0):
        value = factor * integer
        place = 2.0 ** (np.frexp(value)[1] - kept.bits)
        assert abs(kept.rounded(value) - value) >= 0.13 * place


def split(x, bits):
    """Rounded to so many bits by multiplying, adding and subtracting, as Veltkamp does."""
    big = x * (2.0 ** (53 - bits) + 1)
    return big - (big - x)


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("bits", [11, 20])
@pytest.mark.parametrize(
    ("forward", "slope", "scale"),
    [
        (np.tanh, lambda x: 1 - np.tanh(x) ** 2, 1.0),
        (np.sin, np.cos, 1e-12),
        (np.exp, np.exp, 1e-12),
        (lambda x: 1e-12 * np.exp(x), lambda x: 1e-12 * np.exp(x), 1.0),
    ],
)
def test_what_rounds_by_arithmetic_fails_though_its_formula_is_right(forward, slope, scale, bits):
    x = scale * np.random.default_rng(0).normal(size=5)
    assert check(forward, lambda ct, x: ct * slope(x), x).ok
    found = check(forward, lambda ct, x: split(ct, bits) * slope(x), x)
    assert found.verdict.name == "FAIL"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("large", [2.0**30, 2.0**40])
def test_a_right_formula_that_loses_more_than_forward_fails(large):
    x = np.random.default_rng(0).normal(size=(4, 5))

    def vjp(ct, x):
        g = ct * (1 - np.tanh(x) ** 2)
        return g * (1 + large) - g * large

    assert check(np.tanh, vjp, x, explain=False).verdict.name == "FAIL"


def test_a_right_formula_may_lose_what_forward_loses_at_the_same_point():
    a = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0] * np.logspace(0, -11, 4)

    def forward(a):
        return np.linalg.slogdet(a.T @ a)[1]

    def vjp(ct, a, factor=1.0):
        return factor * 2 * ct * a @ np.linalg.inv(a.T @ a)

    assert check(forward, vjp, a, explain=False).verdict.name != "FAIL"
    assert not check(forward, lambda ct, a: vjp(ct, a, 1.01), a, explain=False).ok


HERE = np.array([4.0, 1.0])


@pytest.mark.parametrize(
    ("close", "afar", "jumped"),
    [
        (0.0, 0.0, False),
        (2.0**-3, 2.0**-3, False),  # a 32nd part of the largest value
        (1.01 * 2.0**-3, 2.0**-3, True),
        (-1.01 * 2.0**-3, -(2.0**-3), True),
        (1.0, 2.0, False),  # twice as far away it moves twice as far
        (1.0, 1.9, True),
        (np.nan, 0.0, True),
        (np.inf, np.inf, True),
    ],
)
def test_a_value_that_moves_at_once_and_then_no_further_jumps(close, afar, jumped):
    moved = [HERE + np.array([0.0, by]) for by in (close, afar)]
    assert jumps([HERE], [moved[0]], [moved[1]]) is jumped


def test_another_shape_is_another_function():
    assert jumps([HERE], [HERE], [HERE[:1]])
    assert jumps([HERE], [HERE[:1]], [HERE])
