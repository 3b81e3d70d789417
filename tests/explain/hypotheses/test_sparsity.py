"""Which elements reach which: told from code whose choice follows values."""

import numpy as np

from tests.explain.scenes import right, table


def masked(keep):
    def vjp(ct, x, *, diagonal=0):
        rows, columns = np.indices(x.shape[-2:])
        return np.where(keep(columns - rows, diagonal), ct, 0).astype(ct.dtype)

    return vjp


def rows_reversed(ct, x, *, shape=(-1,)):
    return np.flip(right("reshape", ct, x, shape=shape)[0], 0).copy()


def order_of_magnitudes(ct, x, *, descending=False):
    order = np.argsort(-np.abs(x) if descending else np.abs(x), axis=-1, kind="stable")
    g = np.zeros_like(ct)
    np.put_along_axis(g, order, ct, axis=-1)
    return g


def next_channels_input(ct, x, w, *b):
    """dw of the next channel's input, the last of the first's."""
    found = list(right("conv_1d_1s", ct, x, w, *b))
    found[1] = right("conv_1d_1s", ct, np.roll(x, 1, -2), w, *b)[1]
    return tuple(found)


HELD_BACK = "pass where they should be held back"
test_elements_that_reach_others_are_named = table(
    [
        ("support", "tril", "x", masked(lambda d, k: np.ones_like(d, dtype=bool)), "I", HELD_BACK),
        ("support", "tril", "x", masked(lambda d, k: d <= k + 1), "I", HELD_BACK),
        ("support", "tril", "x", masked(lambda d, k: d <= k - 2), "I", "loses elements"),
        ("support", "tril", "x", masked(lambda d, k: d >= k), "I",
         "in other places than they belong to"),
        ("support", "reshape", "x", rows_reversed, "L", ""),
        ("support", "sort", "x", order_of_magnitudes, "I", ""),
        ("support", "conv_1d_1s", "w", next_channels_input, "I", ""),
    ],
    keep=4,
)  # fmt: skip
