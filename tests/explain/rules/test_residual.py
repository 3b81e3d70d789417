"""One term that is wrong, seen in the direction of what is off; silent on everything else."""

import numpy as np
import pytest

from gradcheck.explain.rules.residual import residual
from gradcheck.explain.suspicion import Rule
from tests.explain.scenes import changed, named, right

RESIDUAL = (Rule("residual", "one term", residual),)


def with_term(op, term):
    """A VJP whose dx has one term more."""

    def vjp(ct, x, *rest, **attrs):
        found = list(right(op, ct, x, *rest, **attrs))
        found[0] = (found[0] + term(ct, x)).astype(x.dtype)
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


def row(values):
    return np.sum(values, axis=-1, keepdims=True)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("op", "term", "says"),
    [
        ("rms_norm", lambda ct, x: x * row(ct * x), "proportional to x in every row"),
        ("layer_norm", lambda ct, x: row(ct) + 0 * x, "one number in every row"),
        ("layer_norm", lambda ct, x: row(ct) + x * row(ct * x), "x, but for one number, in every"),
        ("silu", lambda ct, x: 0.5 * ct, "proportional to the cotangent in every row"),
        ("softmax", lambda ct, x: right("softmax", np.roll(ct, 1), x)[0] * 0
         + np.exp(x) / row(np.exp(x)) * row(ct), "proportional to the output in every row"),
    ],
)  # fmt: skip
def test_the_direction_of_what_is_off_is_named(op, term, says, dtype):
    found = named(op, with_term(op, term), "x", RESIDUAL, dtype=dtype)
    assert (found.label, found.rule) == ("T", "residual")
    assert says in found.says
    assert "rows, each with a factor of its own" in found.evidence[0]


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("rms_norm", lambda g: 2 * g),
        ("rms_norm", lambda g: g + g**3),
        ("layer_norm", lambda g: np.roll(g, 1, -1)),
        ("softmax", lambda g: g + np.arange(g.shape[-1])),
        ("scale", lambda g: 2 * g),  # the whole of it is the cotangent's: no term of it is
        ("neg", lambda g: -g),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, change):
    assert not named(op, changed(op, x=change), "x", RESIDUAL).label


def test_a_direction_in_some_rows_alone_is_none():
    def term(ct, x):
        off = x * row(ct * x)
        off[..., :1, :] = ct[..., :1, :]
        return off

    assert not named("rms_norm", with_term("rms_norm", term), "x", RESIDUAL).label
