"""Attributes taken at another value: named with the value, and silent on everything else."""

import numpy as np
import pytest

from gradcheck.explain.engine import diagnose
from tests.explain.scenes import changed, named, only, probes, right

ATTRIBUTES, VALUES = only("attributes"), only("values")


def with_attrs(op, change):
    def vjp(ct, *primals, **attrs):
        found = right(op, ct, *primals, **{**attrs, **change(attrs)})
        return found[0] if len(found) == 1 else found

    return vjp


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change", "label", "says"),
    [
        ("rms_norm", "x", lambda a: {"eps": 1e-5}, "P", "takes eps = 1e-05, its default"),
        ("rms_norm", "x", lambda a: {"unit_offset": not a["unit_offset"]}, "P", "its opposite"),
        ("leaky_relu", "x", lambda a: {"negative_slope": 0.01}, "P", "its default"),
        ("softcap", "x", lambda a: {"cap": 30.0}, "P", "cap = 30.0"),
        ("diag_mask_zero", "x", lambda a: {"n_past": a["n_past"] + 1}, "I", "n_past + 1"),
    ],
)
def test_a_value_that_others_take_is_named(op, output, change, label, says):
    found = named(op, with_attrs(op, change), output, ATTRIBUTES)
    assert found.label == label, found
    assert says in found.says
    assert found.rule == "attributes"


@pytest.mark.parametrize(
    ("op", "output", "change", "label", "says"),
    [
        ("rms_norm", "x", lambda a: {"eps": 0.0}, "E", "eps = 0.0"),
        ("elu", "x", lambda a: {"alpha": a["alpha"] ** 2}, "F", "alpha² for alpha"),
        ("softplus", "x", lambda a: {"beta": 1 / a["beta"]}, "F", "1/beta for beta"),
    ],
)
def test_a_value_that_none_should_take_is_named(op, output, change, label, says):
    where = {"sample": "eps-0.1"} if op == "rms_norm" else {}
    found = named(op, with_attrs(op, change), output, VALUES, **where)
    assert found.label == label, found
    assert says in found.says


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("rms_norm", "x", lambda g: 2 * g),
        ("rms_norm", "w", lambda g: -g),
        ("layer_norm", "x", lambda g: g + 0.25),
        ("elu", "x", lambda g: g**3),
        ("diag_mask_zero", "x", lambda g: np.roll(g, 1, -1)),
        ("rope", "x", lambda g: g * 0),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change):
    for rules in (ATTRIBUTES, VALUES):
        found = named(op, changed(op, **{output: change}), output, rules)
        assert not found.label, found
        assert found.says.endswith("no known pattern")


def test_a_right_gradient_has_no_diagnosis():
    assert diagnose("x", probes("rms_norm", changed("rms_norm")), ATTRIBUTES) is None
