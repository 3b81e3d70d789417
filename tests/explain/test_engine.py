"""What is said of a gradient that no rule names; a defect of a special path."""

import numpy as np
import pytest

from gradcheck.explain.engine import describe_residual
from gradcheck.explain.hypothesis import Observations
from tests.explain.scenes import changed, named, only, right, scene


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


SOMEWHERE = only("somewhere")


def where(op, special, change):
    """The right gradient, changed where `special(x)` holds."""

    def vjp(ct, x, **attrs):
        (g,) = right(op, ct, x, **attrs)
        return np.asarray(change(g) if special(x) else g).astype(g.dtype)

    return vjp


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("change", "label", "says"),
    [
        (lambda g: np.flip(g, -1), "L", "last axis reversed"),
        (lambda g: np.where(np.arange(g.shape[-1]) == 0, 0, g), "I", "right except the first"),
    ],
)
def test_a_defect_of_some_shapes_is_named_by_what_it_does_there(change, label, says):
    vjp = where("softmax", lambda x: x.ndim == 2 and x.shape[0] == x.shape[1], change)
    found = named("softmax", vjp, "x", SOMEWHERE, sample="square")
    assert found.label == label, found
    assert says in found.says
    assert any("takes another way at" in line for line in found.evidence)


def test_without_a_right_point_nothing_is_special():
    seen = scene("softmax", changed("softmax", x=lambda g: np.flip(g, -1)), "x")
    (rule,) = SOMEWHERE
    assert [*rule.propose(seen)]
    assert not [*rule.propose(Observations("x", seen.failing, ()))]
    assert not [*rule.propose(Observations("x", seen.failing[:1], seen.passing))]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("change", [lambda g: g + 0.25, lambda g: g * np.abs(g), np.sign])
def test_what_no_rule_predicts_stays_unknown(change):
    vjp = where("softmax", lambda x: x.ndim > 2, change)
    found = named("softmax", vjp, "x", SOMEWHERE)
    assert not found.label, found


def test_two_kinds_of_wrong_points_are_not_one_defect():
    def vjp(ct, x, **attrs):
        (g,) = right("softmax", ct, x, **attrs)
        if x.ndim > 2:
            return np.flip(g, -1)
        return np.roll(g, 1, -1) if x.shape[0] == x.shape[-1] else g

    found = named("softmax", vjp, "x", SOMEWHERE, sample="square")
    assert not found.label, found
