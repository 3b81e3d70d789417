"""A defect of a special path: what holds at every wrong point is named, if it predicts them."""

import numpy as np
import pytest

from gradcheck.explain.hypothesis import Observations
from tests.explain.scenes import changed, named, only, right, scene

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
