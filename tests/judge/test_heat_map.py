"""A heat map marks the elements that were made wrong, and no others."""

import itertools
import math

import numpy as np
import pytest

from gradcheck.judge.compare import (
    HEAT_CELLS,
    MAX_HEAT_COLUMNS,
    MAX_HEAT_ROWS,
    TOLERANCES,
    Interval,
    block_maxima,
    compare,
    heat_map,
)
from gradcheck.numerics.estimator import certain
from gradcheck.results.finding import GLYPHS, Heat
from gradcheck.results.verdict import Verdict

F64 = TOLERANCES["float64"]
SHAPES = [(), (1,), (7,), (MAX_HEAT_COLUMNS,), (300,), (1, 1), (6, 9),
          (MAX_HEAT_ROWS, MAX_HEAT_COLUMNS),
          (70, 101), (2, 3, 4, 5), (3, 1, 50, 2), (4, 5, 6, 60)]  # fmt: skip


def drawn(shape, seed):
    """A gradient without zeros, and a random part of its elements (at least one)."""
    rng = np.random.default_rng(seed)
    want = rng.uniform(0.5, 1.5, (1, math.prod(shape)))
    wrong = rng.random(want.shape) < 0.1
    wrong[0, rng.integers(want.size)] = True
    return want, wrong


def finding(got, want, shape, **options):
    return compare(got, certain(want), F64, **options).finding("x", shape, ("one",))


def marked(heat, shape):
    """The elements of blocks that are not fine, as the map says it, [n]."""
    tall, broad = heat.block
    cells = np.array(list(heat.cells)).reshape(heat.rows, heat.columns) != "."
    high, wide = heat.size
    whole = np.repeat(np.repeat(cells, tall, axis=0), broad, axis=1)[:high, :wide]
    assert whole.size == math.prod(shape)
    return whole.reshape(-1)


def shows(heat, wrong, shape):
    """Whether exactly the blocks that hold a wrong element are marked."""
    tall, broad = heat.block
    high, wide = heat.size
    rows, columns = np.arange(high) // tall, np.arange(wide) // broad
    where = wrong.reshape(high, wide)
    blocks = {(int(rows[i]), int(columns[j])) for i, j in np.argwhere(where)}
    inside = np.array([[(int(r), int(c)) in blocks for c in columns] for r in rows])
    return np.array_equal(inside.reshape(-1), marked(heat, shape))


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_what_was_made_wrong_is_marked_and_nothing_else(shape, seed):
    want, wrong = drawn(shape, seed)
    found = finding(np.where(wrong, 2 * want, want), want, shape)
    heat = found.heat
    assert (found.verdict, found.failed) == (Verdict.FAIL, int(wrong.sum()))
    assert (heat.shape, heat.cotangent) == (shape, "one")
    assert heat.rows <= MAX_HEAT_ROWS
    assert heat.columns <= MAX_HEAT_COLUMNS
    assert shows(heat, wrong, shape)
    if heat.block == (1, 1):
        assert np.array_equal(marked(heat, shape), wrong[0])


@pytest.mark.parametrize("shape", [s for s in SHAPES if math.prod(s) > 1])
def test_a_map_of_other_elements_does_not_show_them(shape):
    want, wrong = drawn(shape, 0)
    (first,) = np.flatnonzero(wrong)[:1]
    alone = np.arange(wrong.size) == first
    opposite = np.arange(wrong.size) == (0 if first > wrong.size // 2 else wrong.size - 1)
    heat = finding(np.where(alone, 2 * want, want), want, shape).heat
    assert shows(heat, alone, shape)
    assert not shows(heat, opposite, shape)


def test_a_digit_is_the_power_of_ten_of_error_over_bound():
    want = np.ones((1, 12))
    plain = compare(want.copy(), certain(want), F64)
    over = np.array([0.5, 1.5, 15.0, 150.0, 1.5e3, 1.5e4, 1.5e5, 1.5e6, 1.5e7, 1.5e8, 0.0, 1.5e3])
    # A negative error: the bound, which is relative to the larger one, stays as it is.
    found = finding(want - over * plain.bound, want, (12,))
    sizes = np.maximum(np.abs(want - over * plain.bound), 1.0)
    times = over / np.where(sizes > 1, sizes, 1.0)
    digits = "".join("." if t < 1 else str(min(9, int(math.log10(t)))) for t in times[0])
    assert found.heat.cells[:8] == digits[:8] == ".0123456"
    assert found.heat.cells[10:] == ".3"


def test_the_largest_error_is_cut_at_nine():
    cells = heat_map(
        np.array([1.0, 1e9, 1e10, 1e300]), np.ones(4, bool), np.zeros(4, bool), (4,), ""
    ).cells
    assert cells == "0999"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_outranks_everything_in_its_block(bad):
    want = np.ones((1, 2 * MAX_HEAT_COLUMNS))
    got = want.copy()
    got[0, :4] = 2.0, bad, bad, 2.0
    heat = finding(got, want, (2 * MAX_HEAT_COLUMNS,)).heat
    assert heat.block == (1, 2)
    assert heat.cells == "!!" + "." * (MAX_HEAT_COLUMNS - 2)


def test_what_cannot_be_resolved_is_no_error_and_not_fine():
    want = np.ones((1, 4))
    truth = certain(want, np.array([[0.0, np.inf, np.inf, 0.0]]))
    found = compare(np.array([[1.0, 1.0, 2.0, 1.0]]), truth, F64).finding("x", (4,), ("one",))
    assert (found.verdict, found.heat.cells) == (Verdict.INCONCLUSIVE, ".??.")
    found = compare(np.array([[2.0, 1.0, 2.0, 1.0]]), truth, F64).finding("x", (4,), ("one",))
    assert (found.verdict, found.heat.cells) == (Verdict.FAIL, "7??.")


def test_a_kink_is_as_wrong_as_it_is_far_from_what_is_allowed_there():
    want = np.ones((1, 3))
    on = np.array([[True, True, False]])
    kink = Interval(on, np.zeros((1, 3)), np.ones((1, 3)))
    heat = finding(np.array([[0.5, 3.0, 1.0]]), want, (3,), kinks=[kink]).heat
    assert heat.cells[0] == heat.cells[2] == "."
    assert heat.cells[1] in "789"


def test_it_shows_the_cotangent_of_the_worst_element():
    want = np.ones((3, 4))
    got = want.copy()
    got[1, 2] += 1e-6
    got[2, 3] += 1e-3
    found = compare(got, certain(want), F64).finding("x", (2, 2), ("a", "b", "c"))
    assert (found.top.cotangent, found.heat.cotangent, found.heat.cells) == ("c", "c", "...4")


def test_a_pass_has_no_map():
    want = np.ones((1, 3))
    found = finding(want, want, (3,))
    assert (found.verdict, found.heat) == (Verdict.PASS, None)


def test_nothing_has_no_map():
    none = np.zeros(0)
    assert heat_map(none, none.astype(bool), none.astype(bool), (0, 3), "") is None
    assert finding(np.zeros((1, 0)), np.zeros((1, 0)), (0,)).heat is None


@pytest.mark.parametrize(
    ("high", "wide"), [*itertools.product((1, 2, 31, 32, 33, 65, 97), (1, 48, 49, 145))]
)
def test_blocks_are_as_small_as_fit_and_every_element_is_in_one(high, wide):
    ranks = np.zeros((high, wide), dtype=np.int64)
    cells = block_maxima(ranks)
    tall, broad = -(-high // MAX_HEAT_ROWS), -(-wide // MAX_HEAT_COLUMNS)
    assert cells.shape == (-(-high // tall), -(-wide // broad))
    for i, j in ((0, 0), (high - 1, wide - 1), (high // 2, wide // 2)):
        ranks[:] = 0
        ranks[i, j] = 7
        assert np.argwhere(block_maxima(ranks)).tolist() == [[i // tall, j // broad]]
    found = Heat(shape=(high, wide), rows=cells.shape[0], columns=cells.shape[1],
                 cells="." * cells.size, cotangent="")  # fmt: skip
    assert found.block == (tall, broad)


def test_every_rank_is_a_glyph_that_a_map_may_hold():
    assert set(HEAT_CELLS) == GLYPHS
    assert len(HEAT_CELLS) == len(GLYPHS)


@pytest.mark.parametrize(
    "change",
    [{"cells": "..."}, {"cells": "...x"}, {"rows": 0, "cells": ""}, {"rows": 4, "columns": 1},
     {"shape": (0, 2)}, {"shape": ()}],
)  # fmt: skip
def test_what_is_no_map_is_refused(change):
    plain = {"shape": (2, 2), "rows": 2, "columns": 2, "cells": "....", "cotangent": ""}
    Heat(**plain)
    with pytest.raises(ValueError, match="heat map"):
        Heat(**plain | change)
