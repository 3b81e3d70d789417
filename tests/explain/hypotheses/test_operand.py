"""Gradients evaluated at other values: named with what was read, and silent on everything else."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right, spoiled

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
        ("div", "x", 1, lambda x, y: y + 1e-3, "E", "y + 0.001"),
        ("sqr", "x", 0, np.abs, "S", "|x|"),
    ],
)
def test_what_was_read_instead_is_named(op, output, at, read, label, says):
    found = named(op, reading(op, at, read), output, ELSEWHERE)
    assert found.label == label, found
    assert says in found.says


@pytest.mark.slow(keep=1)
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


LOST, SLOTS, PACKED = only("lost"), only("slots"), only("packed")


def called(op, order, back=None):
    """The right VJP with primals in another order; its gradients in the order `back`."""

    def vjp(ct, *primals, **attrs):
        found = right(op, ct, *(primals[k] for k in order), **attrs)
        return tuple(found[k] for k in back or range(len(found)))

    return vjp


def exchanged(op, i, j):
    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        found[i], found[j] = found[j], found[i]
        return tuple(found)

    return vjp


@pytest.mark.parametrize(("op", "output"), [("matmul", "b"), ("rms_norm", "x"), ("add", "y")])
def test_zeros_are_a_lost_gradient(op, output):
    found = named(op, changed(op, **{output: lambda g: 0 * g}), output, LOST)
    assert found.label == "G"
    assert found.says == f"d{output} is zero: it is lost"


def test_nearly_zero_is_not_lost():
    """Rounding leaves something, as where the cotangent is taken for ones in a softmax."""
    vjp = spoiled("softmax", "x", lambda g, ct, p, a: 1e-17 * g)
    assert not named("softmax", vjp, "x", LOST).label


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "wrong", "says"),
    [
        ("mul", "x", exchanged("mul", 0, 1), "dx is the gradient of y"),
        ("low_rank_linear", "a", exchanged("low_rank_linear", 1, 2), "da is the gradient of b"),
        ("layer_norm", "w", exchanged("layer_norm", 1, 2), "dw is the gradient of b"),
        ("div", "x", called("div", (1, 0)), "dx is right for x and y exchanged"),
        ("div", "y", called("div", (1, 0), (1, 0)), "dy is right for x and y exchanged"),
    ],
)
def test_slots_and_arguments_exchanged(op, output, wrong, says):
    found = named(op, wrong, output, SLOTS)
    assert found.label == "G", found
    assert found.says.startswith(says)


def test_an_argument_and_the_cotangent_exchanged():
    def vjp(ct, g, y):
        return right("tanh_back", g, ct, y)

    found = named("tanh_back", vjp, "g", SLOTS)
    assert found.label == "G"
    assert "g and the cotangent exchanged" in found.says


def test_exchanged_arguments_must_explain_all_gradients():
    """Where the other one is right, one argument alone was read in the wrong place."""

    def vjp(ct, x, y):
        return right("div", ct, y, x)[0], right("div", ct, x, y)[1]

    assert not named("div", vjp, "x", SLOTS).label


def test_another_gradient_added():
    def vjp(ct, x, y):
        dx, dy = right("mul", ct, x, y)
        return (dx + dy if dx.shape == dy.shape else dx), dy

    found = named("mul", vjp, "x", SLOTS)
    assert found.label == "T"
    assert found.says == "dx has the gradient of y added to it"


def halves(change):
    def edited(g, ct, p, a):
        a, b = np.split(g, 2, axis=-1)
        return np.concatenate(change(a, b), axis=-1)

    return edited


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a, b: (b, a), "dx has its halves in the order 2, 1"),
        (lambda a, b: (a, 0 * b), "dx is lost in its second half: 0 stands there"),
        (lambda a, b: (a, a), "dx is lost in its second half: that of the first stands there"),
    ],
)
def test_parts_of_a_packed_tensor(change, says):
    vjp = spoiled("packed_geglu", "x", halves(change))
    found = named("packed_geglu", vjp, "x", PACKED)
    assert found.label == "G"
    assert found.says == says


def test_parts_read_in_another_order():
    def vjp(ct, x, **attrs):
        a, b = np.split(x, 2, axis=-1)
        (g,) = right("packed_geglu", ct, np.concatenate((b, a), axis=-1), **attrs)
        c, d = np.split(g, 2, axis=-1)
        return np.concatenate((d, c), axis=-1)

    found = named("packed_geglu", vjp, "x", PACKED)
    assert found.label == "G"
    assert found.says == "dx takes the halves of x in the order 2, 1"


def test_halves_of_what_is_not_packed_are_no_slots():
    def turned(g, ct, p, a):
        return np.roll(g, g.shape[-1] // 2, -1)

    assert not named("tanh", spoiled("tanh", "x", turned), "x", PACKED).label


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("rules", [LOST, SLOTS, PACKED])
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("mul", "x", lambda g: 2 * g),
        ("layer_norm", "w", lambda g: -g),
        ("packed_geglu", "x", lambda g: g + 0.25),
        ("rope", "x", lambda g: np.flip(g, -1)),
        ("matmul", "w", np.sign),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others_argument_swaps(op, output, change, rules):
    found = named(op, changed(op, **{output: change}), output, rules)
    assert not found.label, found
