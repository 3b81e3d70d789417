"""An answer that is kept: named where another point's comes back, and silent elsewhere."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

EARLIER = only("earlier")


def kept(op, key):
    """A VJP that computes its gradient once for each `key(primal)`."""
    memory = {}

    def vjp(ct, *primals, **attrs):
        return memory.setdefault(key(primals[0]), right(op, ct, *primals, **attrs)[0])

    return vjp


@pytest.mark.parametrize("op", ["tanh", "softmax", "silu"])
def test_the_answer_of_a_shape_is_kept(op):
    found = named(op, kept(op, np.shape), "x", EARLIER)
    assert (found.label, found.rule) == ("V", "earlier")
    assert found.says.startswith("dx is the answer to an earlier call of the same shape")


@pytest.mark.parametrize(
    ("op", "vjp"),
    [
        ("tanh", changed("tanh", x=np.zeros_like)),
        ("tanh", changed("tanh", x=lambda g: 2 * g)),
        ("neg", lambda ct, x: -np.ones_like(x)),  # no cotangent: the same everywhere, too
        ("tanh", lambda ct, x: right("tanh", np.ones_like(ct), x)[0]),
        ("neg", lambda ct, x: np.arange(x.size, dtype=x.dtype).reshape(x.shape)),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, vjp):
    assert not named(op, vjp, "x", EARLIER).label


def test_what_is_kept_sometimes_is_not_said():
    keeping = kept("tanh", np.shape)

    def vjp(ct, x):
        return keeping(ct, x) if x.shape[-1] != 5 else 3 * right("tanh", ct, x)[0]

    assert not named("tanh", vjp, "x", EARLIER).label
