"""Gradients evaluated at other values: named with what was read, and silent on everything else."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

ELSEWHERE = only("elsewhere")


def reading(op, at, read):
    def vjp(ct, *primals, **attrs):
        primals = list(primals)
        primals[at] = np.asarray(read(*primals)).astype(primals[at].dtype)
        found = right(op, ct, *primals, **attrs)
        return found[0] if len(found) == 1 else found

    return vjp


@pytest.mark.parametrize(
    ("op", "output", "at", "read", "label", "says"),
    [
        ("tanh", "x", 0, np.tanh, "V", "reads the output where it needs x"),
        ("mul", "x", 1, lambda x, y: np.ones_like(y), "F", "reads ones where it needs y"),
        ("rms_norm", "x", 0, lambda x, *w: np.roll(x, 1, -2), "I", "the place before of x"),
        ("layer_norm", "x", 0, lambda x, *w: x[..., :1, :] + 0 * x, "I", "first place of x"),
        ("div", "x", 1, lambda x, y: y + 1e-3, "E", "y + 0.001"),
        ("sqr", "x", 0, np.abs, "S", "|x|"),
    ],
)
def test_what_was_read_instead_is_named(op, output, at, read, label, says):
    found = named(op, reading(op, at, read), output, ELSEWHERE)
    assert found.label == label, found
    assert says in found.says


@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("tanh", "x", lambda g: 2 * g),
        ("rms_norm", "x", lambda g: g**3),
        ("layer_norm", "x", lambda g: g + 0.25),
        ("matmul", "x", np.sign),
        ("softmax", "x", lambda g: np.flip(g, -1)),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change):
    found = named(op, changed(op, **{output: change}), output, ELSEWHERE)
    assert not found.label, found


def test_a_coincidence_at_one_point_is_not_enough():
    def sometimes(ct, x, **attrs):  # the output in place of x, in wide samples alone
        (g,) = right("tanh", ct, np.tanh(x) if x.shape[-1] > 5 else 3 * x, **attrs)
        return g

    found = named("tanh", sometimes, "x", ELSEWHERE)
    assert not found.label
