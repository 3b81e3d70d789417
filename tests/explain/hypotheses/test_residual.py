"""Residuals: a direction is named where every wrong row lies along it, and nowhere else."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

RESIDUAL = only("residual")


def along(op, direction):
    """The right gradient, and a part of the cotangent's sum along a direction, row by row."""

    def vjp(ct, x, *rest, **attrs):
        found = list(right(op, ct, x, *rest, **attrs))
        found[0] = found[0] + direction(x) * (ct * x).sum(-1, keepdims=True) / 3
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "direction", "says"),
    [
        ("rms_norm", lambda x: x, "a multiple of x in every row"),
        ("layer_norm", np.ones_like, "one number in every row: a mean"),
        ("softmax", softmax, "a multiple of the output in every row"),
        ("softmax", lambda x: np.exp(softmax(x)), "a multiple of exp of the output"),
    ],
)
def test_the_direction_of_a_missing_term_is_named(op, direction, says):
    found = named(op, along(op, direction), "x", RESIDUAL)
    assert found.label == "T"
    assert says in found.says
    assert any("1 − R²" in line for line in found.evidence)


def test_a_projection_that_the_truth_takes_out_is_called_one():
    def vjp(ct, x, **attrs):
        return right("l2_normalize", ct, x, **attrs)[0] + x * (ct * x).sum(-1, keepdims=True)

    found = named("l2_normalize", vjp, "x", RESIDUAL)
    assert found.says == (
        "dx is off by a multiple of x in every row: a projection along it is missing or "
        "mis-weighted"
    )


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("rms_norm", lambda g: 2 * g),
        ("rms_norm", np.sign),
        ("layer_norm", lambda g: g + 0.25),  # not linear in the cotangent
        ("layer_norm", lambda g: np.flip(g, -1)),
        ("softmax", np.zeros_like),
        ("softmax", lambda g: g * np.linspace(0.5, 1.5, g.shape[-1])),
        ("softmax", lambda g: g * np.nan),
    ],
)
def test_what_lies_along_nothing_is_left_to_others(op, change):
    found = named(op, changed(op, x=change), "x", RESIDUAL)
    assert not found.label, found


def test_a_factor_per_row_is_no_residual_along_the_right_gradient():
    def vjp(ct, x, **attrs):  # the gradient of l2_norm lies along x, and so does what is left
        (g,) = right("l2_norm", ct, x, **attrs)
        return g * (1 + np.abs(x).max(-1, keepdims=True))

    assert not named("l2_norm", vjp, "x", RESIDUAL).label


def test_one_row_that_lies_elsewhere_is_enough_to_reject():
    def vjp(ct, x, *rest, **attrs):
        found = list(right("rms_norm", ct, x, *rest, **attrs))
        extra = x * (ct * x).sum(-1, keepdims=True) / 3
        extra[..., -1, :] = extra[..., -1, ::-1]
        found[0] = found[0] + extra
        return tuple(found)

    assert not named("rms_norm", vjp, "x", RESIDUAL).label


def test_a_term_in_few_rows_alone_is_a_matter_of_place():
    def vjp(ct, x, *rest, **attrs):
        found = list(right("softmax", ct, x, *rest, **attrs))
        extra = softmax(x) * (ct * x).sum(-1, keepdims=True)
        last = np.arange(x.shape[-2]) == x.shape[-2] - 1 if x.ndim > 1 else np.array(True)
        found[0] = found[0] + np.where(np.expand_dims(last, -1), extra, 0.0)
        return found[0]

    assert not named("softmax", vjp, "x", RESIDUAL).label
