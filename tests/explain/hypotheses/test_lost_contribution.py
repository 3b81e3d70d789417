"""Contributions that are lost or overwritten, named by which are left; a term that is missing."""

import numpy as np

from tests.explain.scenes import right, spoiled, table


def keeping(op, output, test):
    """The gradient of the cotangent's rows that `test(number, count)` keeps."""

    def change(g, ct, p, a):
        lead = ct.shape[:-1]
        n = int(np.prod(lead, dtype=int))
        kept = test(np.arange(n), n).reshape((*lead, 1)) if lead else np.ones(ct.shape)
        found = right(op, (ct * kept).astype(ct.dtype), *p.values(), **a)
        return found[[*p].index(output)]

    return spoiled(op, output, change)


def scattered(choose):
    """The gradient of rows that were looked up, of which each keeps what `choose` leaves."""

    def vjp(ct, x, rows):
        g = np.zeros_like(x)
        for lead in np.ndindex(ct.shape[:-2]):
            for row in np.unique(rows[lead] if rows.ndim > 1 else rows):
                places = np.flatnonzero((rows[lead] if rows.ndim > 1 else rows) == row)
                for t in choose(places):
                    g[(*lead, row) if x.ndim > 2 else row] += ct[(*lead, t)]
        return g, None

    return vjp


def cumsum_of_pairs(kept):
    def vjp(ct, x, *, exclusive=False, reverse=False):
        s, t = np.indices((ct.shape[-1],) * 2)
        seen = (s <= t) if reverse else (s >= t)
        if exclusive:
            seen &= s != t
        return np.einsum("...s,st->...t", ct, (seen & kept(s, t)).astype(ct.dtype))

    return vjp


def last(i, n):
    return i == n - 1


test_the_contributions_that_are_left_are_named = table(
    [
        ("contributions", "layer_norm", "w", keeping("layer_norm", "w", last), "A",
         "overwritten where it must be added up"),
        ("contributions", "layer_norm", "b", keeping("layer_norm", "b", last), "A",
         "overwritten where it must be added up"),
        ("contributions", "layer_norm", "w", keeping("layer_norm", "w", lambda i, n: i == 0), "B",
         "is what the first of"),
        ("contributions", "layer_norm", "b", keeping("layer_norm", "b", lambda i, n: i < n - 1),
         "I", "lacks what the last of the places"),
        ("contributions", "matmul", "w", keeping("matmul", "w", lambda i, n: i > 0), "I",
         "lacks what the first of the places"),
        # slabs that reach elements of their own: an index is at fault
        ("contributions", "softmax", "x", keeping("softmax", "x", lambda i, n: i < n - 1), "I", ""),
        # where an index occurs again it is a matter of duplicates
        ("contributions", "get_rows", "x", scattered(lambda places: places[-1:]), "DI",
         "the last alone: overwritten"),
        ("contributions", "get_rows", "x", scattered(lambda places: places[:1]), "DI",
         "the first alone"),
        ("contributions", "get_rows", "x", scattered(lambda places: places[:2]), "DI",
         "two at most, the first"),
        ("pairs", "cumsum", "x", cumsum_of_pairs(lambda s, t: s != t), "T",
         "lacks what each place contributes to its own"),
        ("pairs", "cumsum", "x", cumsum_of_pairs(lambda s, t: s == t), "T",
         "only what each place contributes to its own"),
        ("pairs", "cumsum", "x", cumsum_of_pairs(lambda s, t: s // 4 == t // 4), "W",
         "from one block of 4 to another"),
    ],
    keep=8,
)  # fmt: skip


def dots(ct, p):
    return (ct * p["x"]).sum(-1, keepdims=True)


def along(op, direction):
    """The right gradient, and a part of the cotangent's sum along a direction, row by row."""
    return spoiled(op, "x", lambda g, ct, p, a: g + direction(p["x"]) * dots(ct, p) / 3)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def one_row_elsewhere(g, ct, p, a):
    extra = p["x"] * dots(ct, p) / 3
    extra[..., -1, :] = extra[..., -1, ::-1]
    return g + extra


def last_row_alone(g, ct, p, a):
    x = p["x"]
    rows = np.arange(x.shape[-2]) == x.shape[-2] - 1 if x.ndim > 1 else np.array(True)
    return g + np.where(np.expand_dims(rows, -1), softmax(x) * dots(ct, p), 0.0)


test_the_direction_of_a_missing_term_is_named = table(
    [
        ("residual", "rms_norm", "x", along("rms_norm", lambda x: x), "T",
         "a multiple of x in every row", {"evidence": "1 − R²"}),
        ("residual", "layer_norm", "x", along("layer_norm", np.ones_like), "T",
         "one number in every row: a mean"),
        ("residual", "softmax", "x", along("softmax", softmax), "T",
         "a multiple of the output in every row"),
        ("residual", "softmax", "x", along("softmax", lambda x: np.exp(softmax(x))), "T",
         "a multiple of exp of the output"),
        ("residual", "l2_normalize", "x",
         spoiled("l2_normalize", "x", lambda g, ct, p, a: g + p["x"] * dots(ct, p)), "T",
         "off by a multiple of x in every row: a projection along it is missing or mis-weighted"),
        # one row that lies elsewhere is enough to reject; few rows are a matter of place
        ("residual", "rms_norm", "x", spoiled("rms_norm", "x", one_row_elsewhere), "", ""),
        ("residual", "softmax", "x", spoiled("softmax", "x", last_row_alone), "", ""),
    ],
    keep=4,
)  # fmt: skip
