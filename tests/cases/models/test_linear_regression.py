import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F64

SIZES = ["tiny", "uneven", "large"]


@pytest.mark.parametrize("size", SIZES)
def test_the_gradients_are_moments_of_the_errors(case, fold, size):
    regression = case("linear_regression", size)
    x, y, w, b = (regression.given[name] for name in ("x", "y", "w", "b"))
    errors, cts = x @ w.T + b - y, fold(regression)
    np.testing.assert_allclose(cts["w"], 2 * errors.T @ x / errors.size, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(cts["b"], 2 * errors.sum(axis=0) / errors.size, rtol=1e-12)


def test_the_least_squares_solution_has_no_gradient_and_any_other_has_one(case):
    tiny = case("linear_regression", "tiny")
    x, y = tiny.inputs["x"], tiny.inputs["y"]
    solution = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y)[0].T

    def gradients(shift):
        given = {**tiny.given, "w": solution[:, :-1] + shift, "b": solution[:, -1]}
        cts = tiny.program.backward(F64, tiny.program.forward(F64, given), np.array(1.0))
        return np.abs(cts["w"]).max(), np.abs(cts["b"]).max()

    assert max(gradients(0.0)) < 1e-14
    assert min(gradients(1e-6)) > 1e-8
