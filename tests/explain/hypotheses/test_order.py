"""The right numbers in the wrong places: named with the move."""

import numpy as np

from tests.explain.scenes import changed, named, only, reading, reading_cotangent, right, table

ORDERS = ("orientation", "forward mode", "layout")


def by_columns(g):
    return np.ascontiguousarray(g.ravel(order="F").reshape(g.shape))


def pairs_for_halves(x):  # u0 g0 u1 g1 … for u0 u1 … g0 g1 …
    return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def halves_for_pairs(x):
    return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape)


def other_layout(ct, x, **attrs):
    return halves_for_pairs(right("packed_swiglu", ct, pairs_for_halves(x), **attrs)[0])


def dealt_channels(ct, x, w=None, b=None, *, groups=2, eps=1e-5):
    """Channel c belongs to group c % groups, and so do the vectors that go with the axis."""
    order = np.arange(x.shape[-2]).reshape(-1, groups).T.ravel()
    given = [p if p is None else p[order] for p in (w, b)]
    found = list(right("group_norm", ct[:, order], x[:, order], *given, groups=groups, eps=eps))
    back = np.argsort(order)
    return (found[0][:, back], *(g if g is None else g[back] for g in found[1:]))


def cumsum_forward(ct, x, *, exclusive=False, reverse=False):
    g = np.flip(ct, -1) if reverse else ct
    g = np.cumsum(g, -1) - (g if exclusive else 0)
    return np.flip(g, -1) if reverse else g


def flipped_in_some_ranks(ct, x, **attrs):
    (g,) = right("softmax", ct, x, **attrs)
    return np.flip(g, -1) if x.ndim > 2 else 3 * g


test_the_move_is_named = table(
    [
        (ORDERS, "matmul", "w", changed("matmul", w=by_columns), "L", "exchanged"),
        (ORDERS, "softmax", "x", changed("softmax", x=lambda g: np.flip(g, -1)), "L",
         "last axis reversed"),
        (ORDERS, "layer_norm", "x", changed("layer_norm", x=lambda g: np.roll(g, 1, -1)), "I",
         "1 place"),
        (ORDERS, "layer_norm", "x", changed("layer_norm", x=lambda g: np.roll(g, -2, -1)), "I",
         "2 places"),
        (ORDERS, "rms_norm", "x", reading_cotangent("rms_norm", lambda ct, *_: by_columns(ct)), "L",
         "reads the cotangent with"),
        (ORDERS, "matmul", "x", reading("matmul", 1, lambda x, w, *b: by_columns(w)), "L",
         "dx reads w with"),
        (ORDERS, "conv_1d_1s", "x",
         reading("conv_1d_1s", 1, lambda x, w, *b: np.flip(w, -1).copy()), "L", "reversed"),
        (ORDERS, "swiglu", "gate", changed("swiglu", gate=halves_for_pairs), "L", "2 parts"),
        (ORDERS, "packed_swiglu", "x", other_layout, "L", "right for another layout"),
        # a move of the gradient wins over one of what it reads
        (ORDERS, "tanh", "x", changed("tanh", x=lambda g: np.flip(g, -1)), "L",
         "dx holds the right numbers"),
        (ORDERS, "group_norm", "x", dealt_channels, "L", "parts "),
        (ORDERS, "cumsum", "x", cumsum_forward, "L", "not its transpose"),
        (ORDERS, "softmax", "x", flipped_in_some_ranks, "", ""),  # at one sample alone
    ],
    keep=6,
)  # fmt: skip


def displaced(g):
    """A quarter of the width; what comes in is other numbers."""
    by = max(g.shape[-1] // 4, 1)
    return np.concatenate([3 * g[..., -by:], g[..., :-by]], -1)


def lost(op, output, change, label, says):
    return "displaced", op, output, changed(op, **{output: change}), label, says


test_what_is_doubled_or_falls_out_is_named = table(
    [
        lost("layer_norm", "w", lambda g: 0 * g + g.sum(-1, keepdims=True), "B", "the sum over"),
        lost("layer_norm", "w", lambda g: 0 * g + g[..., :1], "I", "first entry of its last axis"),
        lost("softmax", "x", lambda g: np.concatenate([0 * g[..., :1], g[..., :-1]], -1), "I",
             "zero comes in"),
        lost("softmax", "x", lambda g: np.concatenate([g[..., 1:], g[..., -1:]], -1), "I",
             "the end stays"),
        lost("rms_norm", "x", displaced, "I", "it is displaced"),
    ],
    keep=2,
)  # fmt: skip


def test_equal_numbers_are_not_displaced():
    def change(g):  # the gradient of a mean is the same along the axis, wherever it stands
        return np.where(np.arange(g.shape[-1]) >= g.shape[-1] - 1, 0, g)

    found = named("mean", changed("mean", x=change), "x", only("displaced"))
    assert "it is displaced" not in found.says, found
