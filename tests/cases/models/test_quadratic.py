import numpy as np
import pytest
from gradcheck_cases.linear import matmul

from gradcheck.numerics.arithmetic import F64

SIZES = ["tiny", "uneven", "large"]


def folded(program, **given):
    """The loss and every cotangent at values of our own."""
    given = {name: np.array(value, dtype=np.float64) for name, value in given.items()}
    values = program.forward(F64, given)
    return values["loss"], program.backward(F64, values, np.array(1.0))


def test_the_headers_own_example(suite):
    value, cts = folded(suite.models["quadratic"].build(), x=[2], a=[3], b=[4])
    assert value == 16
    assert (cts["x"], cts["a"], cts["b"]) == ([12.0], [4.0], [1.0])


def test_x_is_read_twice_and_gets_both_gradients(case, fold):
    uneven = case("quadratic", "uneven")
    x, a = uneven.given["x"], uneven.given["a"]
    assert uneven.program.tied == {"x"}
    np.testing.assert_allclose(fold(uneven)["x"], 2 * a * x, rtol=1e-15)

    def once(stage, cts, values):
        found = stage.vjp(F64, cts, values)
        return (None, found[1]) if stage.name == "square" else found

    np.testing.assert_allclose(fold(uneven, vjp=once)["x"], a * x, rtol=1e-15)


@pytest.mark.parametrize("size", SIZES)
def test_the_gradients_of_the_fit(case, fold, size):
    test_opt = case("test_opt", size)
    a, b, c = (test_opt.given[name] for name in "abc")
    rest, cts = c - b @ a.T, fold(test_opt)
    np.testing.assert_allclose(cts["a"], -2 * rest.T @ b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(cts["b"], -2 * rest @ a, rtol=1e-12, atol=1e-12)


def test_a_perfect_fit_has_no_gradient_and_any_other_has_one(case):
    tiny = case("test_opt", "tiny")
    a, b = tiny.given["a"], tiny.given["b"]
    fit = matmul.forward(F64, b, a)  # in the program's own order of summation: no rest is left
    value, cts = folded(tiny.program, a=a, b=b, c=fit)
    assert value == 0
    assert not cts["a"].any()
    assert not cts["b"].any()
    value, cts = folded(tiny.program, a=a, b=b, c=fit + np.eye(*tiny.given["c"].shape))
    assert value == pytest.approx(min(tiny.given["c"].shape), rel=1e-14)
    np.testing.assert_allclose(cts["a"][:4], -2 * b, rtol=1e-14)
