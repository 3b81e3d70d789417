"""Other cotangents than the one that was given: named with what was read, silent on all else."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, reading_cotangent, right, spoiled

COTANGENT, REPLACED = only("cotangent"), only("replaced")


def whole(edit):
    return lambda ct, *primals: edit(ct)


def filled(value):
    return whole(lambda ct: np.full_like(ct, value(ct)))


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("op", "output", "edit", "label", "says"),
    [
        ("tanh", "x", whole(np.ones_like), "U", "ignores the cotangent: it is taken for all ones"),
        ("matmul", "w", filled(np.mean), "U", "takes the mean of the cotangent for all of it"),
        ("rms_norm", "x", filled(lambda c: c.flat[0]), "U", "takes the first element"),
        ("gelu", "x", filled(lambda c: c.flat[-1]), "U", "takes the last element"),
        ("silu", "x", filled(np.sum), "U", "takes the sum of the cotangent"),
        ("layer_norm", "x", whole(np.abs), "NL", "its sign is lost"),
        ("tanh", "x", whole(lambda c: c * np.abs(c)), "NL", "multiplied by its magnitude"),
        ("matmul", "b", whole(np.square), "NL", "it is multiplied in twice"),
        ("rms_norm", "w", whole(np.sign), "NL", "the sign of the cotangent alone"),
        ("tanh", "x", whole(lambda c: np.clip(c, -1, 1)), "NL", "to [-1, 1]"),
        ("tanh", "x", whole(lambda c: np.clip(c, -0.5, 0.5)), "NL", "to [-0.5, 0.5]"),
        ("gelu", "x", whole(lambda c: c / np.linalg.norm(c)), "NL", "by its norm"),
        ("tanh", "x", whole(lambda c: np.maximum(c, 0)), "NL", "loses the negative part"),
        (
            "softmax",
            "x",
            whole(lambda c: c[..., :1, :] + 0 * c),
            "U",
            "takes the first entry of the cotangent's axis -2 for all of them",
        ),
        (
            "tanh",
            "x",
            whole(lambda c: c.reshape(-1, c.shape[-1])[0] + 0 * c),
            "U",
            "takes the cotangent of the first row for all rows",
        ),
    ],
)
def test_what_stands_in_its_place_is_named(op, output, edit, label, says):
    found = named(op, reading_cotangent(op, edit), output, COTANGENT)
    assert found.label == label, found
    assert says in found.says
    assert found.rule == "cotangent"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "edit", "label", "says"),
    [
        ("tanh", "x", lambda ct, x: x, "U", "dx reads x in place of the cotangent"),
        ("tanh", "x", lambda ct, x: np.tanh(x), "U", "reads the output in place of the cotangent"),
        ("mul", "x", lambda ct, x, y: 0 * ct + x * y, "U", "reads the output in place of"),
        ("tanh", "x", lambda ct, x: np.tanh(ct), "NL", "it passes through forward first"),
    ],
)
def test_another_array_in_its_place_is_named(op, output, edit, label, says):
    found = named(op, reading_cotangent(op, edit), output, REPLACED)
    assert found.label == label, found
    assert says in found.says


def test_forward_applied_to_the_cotangent():
    found = named("tanh", lambda ct, x: np.tanh(ct), "x", REPLACED)
    assert (found.label, found.rule) == ("NL", "replaced")
    assert found.says == "dx is not linear in the cotangent: forward is applied to it"


def test_whatever_the_cotangent():
    found = named("tanh", lambda ct, x: np.cos(x), "x", REPLACED)
    assert found.label == "U"
    assert "does not depend on the cotangent" in found.says


def test_a_copy_that_holds_ones_was_not_written():
    """Of an operator that copies, ones are what its memory held."""
    found = named("flip", reading_cotangent("flip", whole(np.ones_like)), "x", COTANGENT)
    assert found.label == "A"


def two_states(op, edit):
    def vjp(ct, *primals, **attrs):
        return right(op, edit(*ct), *primals, **attrs)

    return vjp


def test_one_of_two_outputs_is_ignored():
    vjp = two_states("lstm_cell", lambda h, c: (h, 0 * c))
    found = named("lstm_cell", vjp, "w_ih", COTANGENT)
    assert found.label == "U"
    assert found.says == "dw_ih ignores the cotangent of output 2"


def test_one_gradient_that_lacks_an_output_is_a_missing_term():
    """Where the others have it, it is a path that is missing, and not the cotangent."""

    def vjp(ct, *primals, **attrs):
        found = list(right("lstm_cell", ct, *primals, **attrs))
        found[0] = right("lstm_cell", (ct[0], 0 * ct[1]), *primals, **attrs)[0]
        return tuple(found)

    found = named("lstm_cell", vjp, "x", COTANGENT)
    assert found.label == "T"
    assert found.says == "dx ignores the cotangent of output 2"


def test_cotangents_of_outputs_exchanged():
    found = named("lstm_cell", two_states("lstm_cell", lambda h, c: (c, h)), "x", COTANGENT)
    assert found.label == "U"
    assert found.says == "dx exchanges the cotangents of outputs 1 and 2"


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("rules", [COTANGENT, REPLACED])
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("tanh", "x", lambda g: 2 * g),
        ("rms_norm", "x", lambda g: g + 0.25),
        ("matmul", "w", lambda g: -g),
        ("layer_norm", "x", lambda g: np.flip(g, -1)),
        ("gelu", "x", lambda g: 0 * g),
        ("lstm_cell", "x", lambda g: 2 * g),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change, rules):
    found = named(op, changed(op, **{output: change}), output, rules)
    assert not found.label, found


def test_the_first_row_for_all_must_hold_in_all_shapes():
    """Of wide samples every row reads the first one's, of narrow ones the last one's."""

    def edit(ct, x):
        return (ct[..., :1, :] if ct.shape[-1] > 4 else ct[..., -1:, :]) + 0 * ct

    assert not named("softmax", reading_cotangent("softmax", edit), "x", COTANGENT).label


def test_a_gradient_kept_from_an_earlier_call_is_not_independent_of_the_cotangent():
    kept = {}

    def vjp(ct, x):
        (g,) = right("tanh", ct, x)
        return kept.setdefault(x.shape, g)

    assert not named("tanh", vjp, "x", REPLACED).label


def test_ones_are_not_a_constant_gradient():
    """Half of the derivative, whatever the cotangent, is not the derivative."""
    found = named("tanh", spoiled("tanh", "x", lambda g, ct, p, a: 0.5 * g / ct), "x", COTANGENT)
    assert not found.label
