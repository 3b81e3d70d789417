"""Sizes that are wrong are told from values; entries that are right alone from others."""

import numpy as np

from tests.explain.scenes import changed, spoiled, table


def wide(limit):
    """Wrong where the last axis is longer than a limit."""

    def change(g, ct, p, a):
        return g + g.mean(-1, keepdims=True) + 0.01 if p["x"].shape[-1] > limit else g

    return change


def remainder(block):
    def change(g, ct, p, a):
        n = p["x"].shape[-1]
        return g if n % block == 0 else g - g[..., : n // block * block].sum(-1, keepdims=True) - 1

    return change


def sized(op, change, says, evidence=""):
    where = {"sample": "width-67", "evidence": evidence}
    return "sizes", op, "x", spoiled(op, "x", change), "W", says, where


SIZES = "70 sizes from 1 to 70"
test_the_sizes_that_are_wrong_are_named = table(
    [
        sized("l2_norm", wide(64), "more than 64 elements", SIZES),
        sized("variance", wide(32), "more than 32 elements", SIZES),
        sized("variance", wide(64), "more than 64 elements", SIZES),
        sized("variance", remainder(4), "no multiple of 4"),
        sized("variance", remainder(8), "no multiple of 8"),
    ],
    keep=2,
)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def statistics_of_the_first_row(g, ct, p, a):
    y = softmax(p["x"])
    return y * (ct - (ct * y).sum(-1, keepdims=True).reshape(-1)[0])


def arguments_of_the_first_row(g, ct, p, a):
    y = softmax(p["x"])
    y = np.broadcast_to(y.reshape(-1, y.shape[-1])[0], y.shape)
    return y * (ct - (ct * y).sum(-1, keepdims=True))


def placed(g):
    return g * (1 + np.arange(len(g)).reshape(-1, *(1,) * (g.ndim - 1)))


PLACE = "dx is wrong by the place along axis 0: each entry alone is right"
test_entries_that_are_right_alone_are_named = table(
    [
        ("alone", "softmax", "x", spoiled("softmax", "x", statistics_of_the_first_row), "I",
         "dx mixes up the entries along axis 0: each alone is right"),
        ("alone", "softmax", "x", spoiled("softmax", "x", arguments_of_the_first_row), "I", ""),
        ("alone", "softmax", "x", changed("softmax", x=placed), "I", PLACE),
        ("alone", "tanh", "x", changed("tanh", x=placed), "I", PLACE),
    ]
)  # fmt: skip
