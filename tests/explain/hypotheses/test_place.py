"""Right except in a set of places: the places are named, not what only looks like places."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.wrong_region import places
from tests.explain.scenes import changed, named, only, probes, right

SUBSET = only("subset")


def without(mask, value=0.0):
    return lambda g: np.where(mask(g), value, g).astype(g.dtype)


def at(axis, test):
    def mask(g):
        if g.ndim < max(-axis, axis + 1):
            return np.zeros(g.shape, dtype=bool)
        n = g.shape[axis]
        chosen = np.zeros(g.shape, dtype=bool)
        np.moveaxis(chosen, axis, 0)[test(np.arange(n), n)] = True
        return chosen

    return mask


def off_diagonal(g):
    rows, columns = np.indices(g.shape[-2:])
    return np.broadcast_to(rows != columns, g.shape)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "mask", "label", "says"),
    [
        ("rms_norm", "x", at(-1, lambda i, n: i == n - 1), "I", "the last along the last axis"),
        ("layer_norm", "x", at(-2, lambda i, n: i == 0), "I", "the first along axis -2"),
        ("rms_norm", "x", at(-1, lambda i, n: i >= n // 4 * 4), "W", "block of 4 along"),
        ("matmul", "w", off_diagonal, "I", "off the diagonal"),
    ],
)
def test_the_places_are_named(op, output, mask, label, says):
    found = named(op, changed(op, **{output: without(mask)}), output, SUBSET)
    assert found.label == label, found
    assert says in found.says
    assert found.says.endswith("it is 0 there")


def test_what_stands_there_is_named():
    change = without(at(-1, lambda i, n: i == 0), 1.0)
    found = named("rms_norm", changed("rms_norm", x=change), "x", SUBSET)
    assert found.label == "I", found
    assert "1 stands there" in found.says


def test_the_cotangent_may_stand_there():
    def vjp(ct, x, **attrs):
        (g,) = right("softmax", ct, x, **attrs)
        return np.where(at(-1, lambda i, n: i == n - 1)(g), ct, g)

    found = named("softmax", vjp, "x", SUBSET)
    assert found.label == "I", found
    assert "the cotangent stands there" in found.says


def test_a_transposition_in_place_keeps_one_triangle():
    def vjp(ct, x):
        (g,) = right("transpose", ct, x)
        if g.shape[-1] != g.shape[-2]:
            return g
        rows, columns = np.indices(g.shape[-2:])
        return np.where(rows > columns, ct, g)

    found = named("transpose", vjp, "x", SUBSET, sample="square")
    assert found.label == "X", found


@pytest.mark.parametrize(
    ("op", "mask"),
    [
        ("silu", lambda x: x > np.median(x)),
        ("silu", lambda x: np.abs(x) > 1),
        ("exp", lambda x: x < 0),
        ("tanh", lambda x: x == x.max()),
    ],
)
def test_what_depends_on_values_is_no_set_of_places(op, mask):
    def vjp(ct, x, **attrs):
        (g,) = right(op, ct, x, **attrs)
        return np.where(mask(x), 0, g).astype(g.dtype)

    found = named(op, vjp, "x", SUBSET)
    assert not found.label, found


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("softmax", "x", lambda g: 3 * g),
        ("softmax", "x", lambda g: 0 * g),
        ("layer_norm", "x", lambda g: np.flip(g, -1)),
        ("matmul", "w", lambda g: g + 1),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change):
    found = named(op, changed(op, **{output: change}), output, SUBSET)
    assert not found.label, found


def test_a_block_is_only_claimed_where_it_is_filled_and_leaves_some():
    (probe, *_) = probes("tanh", lambda ct, x: 0 * ct)
    blocks = [p for p in places(probe, 1) if "block of 4 along the last axis" in p.says]
    assert [blocks[0].needs(np.zeros(n)) for n in (3, 4, 5, 8, 9)] == [0, 0, 1, 0, 1]
    assert blocks[0].of(np.zeros(6), probe).tolist() == [False] * 4 + [True] * 2
