"""Gradients without a right form: what they are instead, and nothing where they have one."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.shape_or_state import malformed
from tests.explain.scenes import changed, probes, right


def named(op, vjp, output, **where):
    return malformed(output, probes(op, vjp, **where))


def test_a_right_form_is_none_of_its_business():
    assert named("tanh", changed("tanh", x=lambda g: 2 * g), "x") is None


def test_a_gradient_that_is_not_there_is_a_slot():
    def vjp(ct, x, y):
        return right("mul", ct, x, y)[0], None

    found = named("mul", vjp, "y")
    assert (found.label, found.rule) == ("G", "form")
    assert found.says == "dy is not returned: y gets no gradient"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_another_dtype_is_a_precision(dtype):
    other = {"float64": "float32", "float32": "float64"}[dtype]

    def vjp(ct, x):
        return right("tanh", ct, x)[0].astype(other)

    found = named("tanh", vjp, "x", dtype=dtype)
    assert found.label == "O"
    assert found.says.startswith(f"dx comes in {other}, x in {dtype}")


def shaped(op, output, change):
    """A VJP whose one gradient is made of the right ones by `change(ct, gradient, *primals)`."""

    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        at = NAMES[op].index(output)
        found[at] = change(ct, found[at], *primals)
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


NAMES = {"mul": ("x", "y"), "tanh": ("x",), "sum_rows": ("x",)}
ROW = {"dialect": "broadcast", "sample": "row"}
"""Where y is repeated along the rows of x."""


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change", "label", "says"),
    [
        ("mul", "y", lambda ct, g, x, y: ct * x, "B", "not summed over the axes along which y"),
        ("tanh", "x", lambda ct, g, x: np.moveaxis(g, 0, -1), "L", "its axes in another order"),
        ("tanh", "x", lambda ct, g, x: g.reshape(-1), "L", "right gradient in another shape"),
        ("tanh", "x", lambda ct, g, x: g.sum(axis=0), "B", "summed over axes that x has"),
        ("sum_rows", "x", lambda ct, g, x: ct, "L", "the cotangent itself"),
        ("sum_rows", "x", lambda ct, g, x: np.concatenate([g, g], axis=-1)[1:], "I", "cut along"),
        ("tanh", "x", lambda ct, g, x: np.stack([g**3, g], axis=0), "", "no known pattern"),
    ],
)
def test_another_shape_says_what_it_is(op, output, change, label, says):
    where = ROW if op == "mul" else {}
    found = named(op, shaped(op, output, change), output, **where)
    assert found.label == label, found
    assert says in found.says
    assert f"d{output} has shape" in found.evidence[0]


def test_wrong_numbers_in_a_wrong_shape_are_no_broadcast():
    wrong = shaped("mul", "y", lambda ct, g, x, y: 2 * ct * x)
    found = named("mul", wrong, "y", **ROW)
    assert found.label == ""


def test_what_holds_in_one_probe_alone_is_not_said():
    def vjp(ct, x):  # reshaped in one sample, stretched in the others
        (g,) = right("tanh", ct, x)
        return g.reshape(-1) if g.size == 15 else np.stack([g, 3 * g])

    assert named("tanh", vjp, "x").label == ""


def test_another_gradient_in_its_place():
    """Where shapes differ, it is its numbers that tell."""

    def vjp(ct, x, a, b, **attrs):
        dx, da, db = right("low_rank_linear", ct, x, a, b, **attrs)
        return dx, db, da

    found = named("low_rank_linear", vjp, "a")
    assert found.label == "G"
    assert found.says == "da is the gradient of b: it stands in the wrong place"


def test_half_of_another_gradient_is_none():
    def vjp(ct, x, a, b, **attrs):
        dx, da, db = right("low_rank_linear", ct, x, a, b, **attrs)
        return dx, db / 2, da

    assert named("low_rank_linear", vjp, "a").label != "G"
