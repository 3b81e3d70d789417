"""Right except in a region: the places are named, not what only looks like places."""

import numpy as np

from gradcheck.explain.hypotheses.wrong_region import places
from tests.explain.scenes import changed, probes, right, spoiled, table


def at(axis, test):
    def mask(g):
        chosen = np.zeros(g.shape, dtype=bool)
        if g.ndim >= max(-axis, axis + 1):
            np.moveaxis(chosen, axis, 0)[test(np.arange(g.shape[axis]), g.shape[axis])] = True
        return chosen

    return mask


def without(op, output, mask, value=0.0):
    change = {output: lambda g: np.where(mask(g), value, g).astype(g.dtype)}
    return changed(op, **change)


def off_diagonal(g):
    rows, columns = np.indices(g.shape[-2:])
    return np.broadcast_to(rows != columns, g.shape)


def turned_in_place(ct, x):
    (g,) = right("transpose", ct, x)
    if g.shape[-1] != g.shape[-2]:
        return g
    rows, columns = np.indices(g.shape[-2:])
    return np.where(rows > columns, ct, g)


LAST, FIRST = at(-1, lambda i, n: i == n - 1), at(-1, lambda i, n: i == 0)
test_the_region_is_named = table(
    [
        ("subset", "rms_norm", "x", without("rms_norm", "x", LAST), "I",
         "the last along the last axis: it is 0 there"),
        ("subset", "layer_norm", "x", without("layer_norm", "x", at(-2, lambda i, n: i == 0)), "I",
         "the first along axis -2: it is 0 there"),
        ("subset", "rms_norm", "x", without("rms_norm", "x", at(-1, lambda i, n: i >= n // 4 * 4)),
         "W", "block of 4 along the last axis: it is 0 there"),
        ("subset", "matmul", "w", without("matmul", "w", off_diagonal), "I",
         "off the diagonal: it is 0 there"),
        ("subset", "rms_norm", "x", without("rms_norm", "x", FIRST, 1.0), "I", "1 stands there"),
        ("subset", "softmax", "x",
         spoiled("softmax", "x", lambda g, ct, p, a: np.where(LAST(g), ct, g)), "I",
         "the cotangent stands there"),
        ("subset", "transpose", "x", turned_in_place, "X", "", {"sample": "square"}),
    ],
    keep=4,
)  # fmt: skip


def test_a_block_is_only_claimed_where_it_is_filled_and_leaves_some():
    (probe, *_) = probes("tanh", lambda ct, x: 0 * ct)
    blocks = [p for p in places(probe, 1) if "block of 4 along the last axis" in p.says]
    assert [blocks[0].needs(np.zeros(n)) for n in (3, 4, 5, 8, 9)] == [0, 0, 1, 0, 1]
    assert blocks[0].of(np.zeros(6), probe).tolist() == [False] * 4 + [True] * 2
