"""Wrong only where an index occurs more than once: told from what is wrong elsewhere, too."""

import numpy as np

from tests.explain.scenes import changed, named, only

DUPLICATES = only("duplicates")


def looked_up(add):
    """The gradient of a table whose row gets `add(rows of the cotangent that point at it)`."""

    def vjp(ct, x, rows):
        g = np.zeros_like(x)
        flat = rows.reshape(-1)
        parts = ct.reshape(-1, ct.shape[-1])
        for row in np.unique(flat):
            g[row] = add(parts[flat == row])
        return g, None

    return vjp


def test_a_row_that_is_wrong_only_if_looked_up_twice():
    found = named("get_rows", looked_up(lambda parts: np.prod(parts, axis=0)), "x", DUPLICATES)
    assert found.label == "DI", found
    assert found.says == "dx is wrong only where rows holds a value more than once"


def test_a_row_that_is_always_wrong_is_left_to_others():
    found = named("get_rows", looked_up(lambda parts: 2 * parts.sum(axis=0)), "x", DUPLICATES)
    assert not found.label, found


def test_without_an_index_there_are_no_duplicates():
    found = named("softmax", changed("softmax", x=lambda g: 2 * g), "x", DUPLICATES)
    assert not found.label, found


def test_where_every_index_is_repeated_nothing_can_be_told():
    def vjp(ct, x, rows):  # right unless all rows that are used are used again
        g, _ = looked_up(lambda parts: parts.sum(axis=0))(ct, x, rows)
        _, counts = np.unique(rows, return_counts=True)
        return (3 * g if counts.min() > 1 else g), None

    found = named("get_rows", vjp, "x", DUPLICATES, sample="all-same")
    assert not found.label, found
