"""Other values, gradients or parts of arguments: named with what was read or returned."""

import numpy as np

from tests.explain.scenes import changed, reading, right, spoiled, table


def coincidence(ct, x):
    """The output in the place of x, in wide samples alone."""
    return right("tanh", ct, np.tanh(x) if x.shape[-1] > 5 else 3 * x)[0]


test_what_was_read_instead_is_named = table(
    [
        ("elsewhere", "tanh", "x", reading("tanh", 0, np.tanh), "V",
         "reads the output where it needs x"),
        ("elsewhere", "mul", "x", reading("mul", 1, lambda x, y: np.ones_like(y)), "F",
         "reads ones where it needs y"),
        ("elsewhere", "div", "x", reading("div", 1, lambda x, y: y + 1e-3), "E", "y + 0.001"),
        ("elsewhere", "sqr", "x", reading("sqr", 0, np.abs), "S", "|x|"),
        ("elsewhere", "tanh", "x", coincidence, "", ""),
    ]
)  # fmt: skip


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


def added(ct, x, y):
    dx, dy = right("mul", ct, x, y)
    return (dx + dy if dx.shape == dy.shape else dx), dy


def halves(change):
    def edited(g, ct, p, a):
        return np.concatenate(change(*np.split(g, 2, axis=-1)), axis=-1)

    return spoiled("packed_geglu", "x", edited)


def turned_halves(x):
    return np.concatenate(np.split(x, 2, axis=-1)[::-1], axis=-1)


def halves_read_in_another_order(ct, x, **attrs):
    return turned_halves(right("packed_geglu", ct, turned_halves(x), **attrs)[0])


def zeros(op, name):
    return changed(op, **{name: np.zeros_like})


test_lost_and_exchanged_gradients_are_named = table(
    [
        ("lost", "matmul", "b", zeros("matmul", "b"), "G", "db is zero: it is lost"),
        ("lost", "rms_norm", "x", zeros("rms_norm", "x"), "G", "dx is zero: it is lost"),
        ("lost", "add", "y", zeros("add", "y"), "G", "dy is zero: it is lost"),
        ("slots", "mul", "x", exchanged("mul", 0, 1), "G", "dx is the gradient of y"),
        ("slots", "low_rank_linear", "a", exchanged("low_rank_linear", 1, 2), "G",
         "da is the gradient of b"),
        ("slots", "layer_norm", "w", exchanged("layer_norm", 1, 2), "G", "dw is the gradient of b"),
        ("slots", "div", "x", called("div", (1, 0)), "G", "dx is right for x and y exchanged"),
        ("slots", "div", "y", called("div", (1, 0), (1, 0)), "G",
         "dy is right for x and y exchanged"),
        ("slots", "tanh_back", "g", lambda ct, g, y: right("tanh_back", g, ct, y), "G",
         "g and the cotangent exchanged"),
        # where the other gradient is right, one argument alone was read in the wrong place
        ("slots", "div", "x", lambda ct, x, y: (
            right("div", ct, y, x)[0], right("div", ct, x, y)[1]), "", ""),
        ("slots", "mul", "x", added, "T", "dx has the gradient of y added to it"),
        ("packed", "packed_geglu", "x", halves(lambda a, b: (b, a)), "G",
         "dx has its halves in the order 2, 1"),
        ("packed", "packed_geglu", "x", halves(lambda a, b: (a, 0 * b)), "G",
         "dx is lost in its second half: 0 stands there"),
        ("packed", "packed_geglu", "x", halves(lambda a, b: (a, a)), "G",
         "dx is lost in its second half: that of the first stands there"),
        ("packed", "packed_geglu", "x", halves_read_in_another_order, "G",
         "dx takes the halves of x in the order 2, 1"),
    ],
    keep=11,
)  # fmt: skip
