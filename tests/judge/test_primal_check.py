"""A function without a spec: what its differences cannot see, 50 digits do."""

import numpy as np

from gradcheck import check


def test_zeros_fail_where_but_some_outputs_move():
    def beside_constants(x):
        return np.concatenate([(1e3 + np.exp(-40 - x)) - 1e3, np.ones(2)])

    x = np.array([0.34567, 1.20431, 0.78113])
    assert check(beside_constants, lambda ct, x: 0 * x, x, explain=False).verdict == "fail"


def test_digits_that_a_right_formula_loses_as_forward_does_are_no_failure():
    """x/√(x² + 1) − 1 is −1/(2x²): at 1000, nothing of it is left in float32."""
    x = np.array([345.67, 1204.31, 781.13], np.float32)

    def forward(x):
        return np.sqrt(x * x + 1) - x

    def vjp(ct, x):
        return ct * (x / np.sqrt(x * x + 1) - 1)

    (found,) = check(forward, vjp, x, explain=False).findings
    assert found.verdict == "pass"
    assert found.reason == "what vjp gives in 50 digits is right: the rest is its rounding"
    assert check(forward, lambda ct, x: vjp(ct, x) - ct / x, x, explain=False).verdict == "fail"
