"""What is said of a gradient that no rule names: how much is wrong, where, and what moves it."""

import numpy as np

from gradcheck.explain.engine import describe_residual
from tests.explain.scenes import changed, right, scene


def test_size_place_and_causes_of_a_residual_are_told():
    def vjp(ct, x, y):
        dx, dy = right("mul", ct, x, y)
        dx = np.array(dx)
        dx.reshape(-1)[0] += ct.sum() * y.reshape(-1)[0] * 100
        return dx, dy

    size, linear, moved = describe_residual(scene("mul", vjp, "x"))
    assert "in 1 of 15 elements, at typical; the largest is at dx[0, 0]" in size
    assert "of the gradient's norm" in size
    assert linear == "the residual doubles with the cotangent"
    assert moved == "it changes with y, not with x"


def test_a_constant_is_seen_to_depend_on_nothing():
    found = list(describe_residual(scene("tanh", changed("tanh", x=lambda g: g + 0.5), "x")))
    assert "the residual does not double with the cotangent" in found
    assert "it does not change with x" in found


def test_what_is_not_finite_is_counted():
    def some(g):
        return np.where(np.arange(g.size).reshape(g.shape) < 2, np.inf, g)

    found = list(describe_residual(scene("tanh", changed("tanh", x=some), "x")))
    assert found == ["2 of 21 elements are not finite at typical"]


def test_a_gradient_of_another_shape_is_none():
    found = list(describe_residual(scene("tanh", lambda ct, x: np.zeros(9), "x")))
    assert found == ["no gradient of the right shape came back"]
