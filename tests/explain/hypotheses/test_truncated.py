"""A part of an axis that never takes part: where the loop ends is named."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

TRUNCATED = only("truncated")


def cut(op, end):
    """The gradient of the function of the first elements of the last axis; 0 for the rest."""

    def vjp(ct, x, **attrs):
        n = x.shape[-1]
        kept = max(end(n), 0)
        if kept >= n:
            return right(op, ct, x, **attrs)[0]
        if kept == 0:
            return np.zeros_like(x)
        part = ct[..., :kept] if ct.shape == x.shape else ct
        g = np.zeros_like(x)
        g[..., :kept] = right(op, part, np.ascontiguousarray(x[..., :kept]), **attrs)[0]
        return g

    return vjp


@pytest.mark.parametrize(
    ("op", "end", "label", "says"),
    [
        ("logsumexp", lambda n: n - 1, "I", "without the last along axis -1"),
        ("softmax", lambda n: n - 1, "I", "without the last along axis -1"),
        ("logsumexp", lambda n: n // 4 * 4, "W", "whole blocks of 4"),
        ("softmax", lambda n: min(n, 4), "W", "beyond the first 4"),
    ],
)
def test_where_the_axis_ends_is_named(op, end, label, says):
    found = named(op, cut(op, end), "x", TRUNCATED)
    assert found.label == label, found
    assert says in found.says


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("logsumexp", lambda g: 2 * g),
        ("logsumexp", lambda g: g + 0.25),
        ("softmax", lambda g: np.flip(g, -1)),
        ("softmax", lambda g: g * np.abs(g)),
        ("softmax", lambda g: 0 * g),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, change):
    found = named(op, changed(op, x=change), "x", TRUNCATED)
    assert not found.label, found


def test_right_values_that_merely_end_are_a_set_of_places():
    def vjp(ct, x, **attrs):  # the last element is lost, but took part
        g = right("softmax", ct, x, **attrs)[0].copy()
        g[..., -1:] = 0
        return g

    found = named("softmax", vjp, "x", TRUNCATED)
    assert not found.label, found
