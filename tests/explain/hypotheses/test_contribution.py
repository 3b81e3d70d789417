"""Contributions that are lost or overwritten: named by which are left."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

CONTRIBUTIONS = only("contributions")
PAIRS = only("pairs")


def bare(found):
    return found[0] if len(found) == 1 else tuple(found)


def keeping(op, output, weigh):
    """The gradient of a cotangent of which only some slabs count: `weigh(ct)` is 0 or 1."""
    names = {"layer_norm": ("x", "w", "b"), "matmul": ("x", "w", "b"), "get_rows": ("x",),
             "add1": ("x", "s"), "sum_rows": ("x",), "softmax": ("x",)}[op]  # fmt: skip

    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        partial = right(op, (ct * weigh(ct)).astype(ct.dtype), *primals, **attrs)
        at = names.index(output)
        found[at] = partial[at]
        return bare(found)

    return vjp


def rows(test):
    """1 for rows (all axes but the last taken as one) that `test(number, count)` keeps."""

    def weigh(ct):
        lead = ct.shape[:-1]
        n = int(np.prod(lead, dtype=int))
        return test(np.arange(n), n).reshape((*lead, 1)) if lead else np.ones(ct.shape)

    return weigh


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "weigh", "label", "says"),
    [
        (
            "layer_norm",
            "w",
            rows(lambda i, n: i == n - 1),
            "A",
            "overwritten where it must be added up",
        ),
        (
            "layer_norm",
            "b",
            rows(lambda i, n: i == n - 1),
            "A",
            "overwritten where it must be added up",
        ),
        ("layer_norm", "w", rows(lambda i, n: i == 0), "B", "is what the first of"),
        ("layer_norm", "b", rows(lambda i, n: i < n - 1), "I", "lacks what the last of the places"),
        ("matmul", "w", rows(lambda i, n: i > 0), "I", "lacks what the first of the places"),
    ],
)
def test_which_slabs_are_left_is_named(op, output, weigh, label, says):
    found = named(op, keeping(op, output, weigh), output, CONTRIBUTIONS)
    assert found.label == label, found
    assert says in found.says


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


@pytest.mark.parametrize(
    ("choose", "says"),
    [
        (lambda places: places[-1:], "the last alone: overwritten"),
        (lambda places: places[:1], "the first alone"),
        (lambda places: places[:2], "two at most, the first"),
    ],
)
def test_what_is_lost_where_an_index_occurs_again_is_a_matter_of_duplicates(choose, says):
    found = named("get_rows", scattered(choose), "x", CONTRIBUTIONS)
    assert found.label == "DI", found
    assert says in found.says


def test_slabs_that_reach_elements_of_their_own_are_an_index_at_fault():
    found = named(
        "softmax", keeping("softmax", "x", rows(lambda i, n: i < n - 1)), "x", CONTRIBUTIONS
    )
    assert found.label == "I", found


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("layer_norm", "w", lambda g: 0.5 * g),
        ("layer_norm", "b", lambda g: g - g.mean()),
        ("matmul", "w", lambda g: np.flip(g, -1)),
        ("matmul", "x", lambda g: g + 0.125),
        ("get_rows", "x", lambda g: 2 * g),
        ("sum_rows", "x", lambda g: g**2),
    ],
)
@pytest.mark.parametrize("rules", [CONTRIBUTIONS, PAIRS], ids=["slabs", "pairs"])
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change, rules):
    found = named(op, changed(op, **{output: change}), output, rules)
    assert not found.label, found


def test_values_that_decide_are_no_slabs():
    def vjp(ct, x):  # the last of a row is lost where it is the largest
        (g,) = right("tanh", ct, x)
        return np.where(x >= x.max(), 0, g).astype(g.dtype)

    found = named("tanh", vjp, "x", CONTRIBUTIONS)
    assert not found.label, found


@pytest.mark.parametrize(
    ("kept", "label", "says"),
    [
        (lambda s, t: s != t, "T", "lacks what each place contributes to its own"),
        (lambda s, t: s == t, "T", "only what each place contributes to its own"),
        (lambda s, t: s // 4 == t // 4, "W", "from one block of 4 to another"),
    ],
)
def test_pairs_of_places_that_are_lost_are_named(kept, label, says):
    def vjp(ct, x, *, exclusive=False, reverse=False):
        n = ct.shape[-1]
        s, t = np.indices((n, n))
        seen = (s <= t) if reverse else (s >= t)
        if exclusive:
            seen &= s != t
        return np.einsum("...s,st->...t", ct, (seen & kept(s, t)).astype(ct.dtype))

    found = named("cumsum", vjp, "x", PAIRS)
    assert found.label == label, found
    assert says in found.says
