from itertools import permutations

import numpy as np
import pytest
from gradcheck_cases.shape import (
    permute,
    transpose,
    tril,
    triu,
    where,
)

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw

# ── permute ──────────────────────────────────────────────────────────────────────────────────

ORDERS = list(permutations(range(4)))


def test_there_are_24_orders_and_the_samples_hold_every_kind():
    assert len(ORDERS) == 24
    sampled = [s.attrs["axes"] for s in permute.samples]

    def cycles(axes):
        seen, lengths = set(), []
        for start in range(4):
            length, k = 0, start
            while k not in seen:
                seen.add(k)
                length, k = length + 1, axes[k]
            lengths += [length] if length else []
        return tuple(sorted(lengths))

    assert {cycles(axes) for axes in ORDERS} == {cycles(axes) for axes in sampled}


@pytest.mark.parametrize("axes", ORDERS)
def test_all_24_orders_come_back(axes):
    draw = Draw("permute", *axes)
    x = draw.normal(2, 3, 5, 7)
    y = permute.forward(F64, x, axes=axes)
    np.testing.assert_array_equal(y, np.transpose(x, axes))
    np.testing.assert_array_equal(permute.vjp(F64, y, x, axes=axes), x)


@pytest.mark.parametrize("axes", ORDERS)
def test_ggml_says_where_an_axis_goes(axes):
    draw = Draw("permute", *axes)
    x = draw.normal(2, 3, 5, 7)
    y = permute.forward(F64, x, axes=axes, form="destination")
    ne = x.shape[::-1]  # ggml's order: innermost first
    assert [y.shape[::-1][place] for place in axes] == list(ne)
    for index in ((0, 0, 0, 0), (6, 4, 2, 1), (1, 2, 0, 1)):  # innermost first
        moved = [0] * 4
        for axis, place in enumerate(axes):
            moved[place] = index[axis]
        assert y[tuple(moved[::-1])] == x[index[::-1]]
    np.testing.assert_array_equal(permute.vjp(F64, y, x, axes=axes, form="destination"), x)


def test_ggmls_transpose_is_its_permute_of_the_first_two_axes():
    x = Draw("transpose").normal(2, 3, 5, 7)
    np.testing.assert_array_equal(
        transpose.forward(F64, x),
        permute.forward(F64, x, axes=(1, 0, 2, 3), form="destination"),
    )


# ── tril, triu ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("diagonal", range(-4, 6))
def test_two_triangles_make_a_whole(diagonal):
    x = Draw("triangles").normal(3, 5)
    below = tril.forward(F64, x, diagonal=diagonal)
    above = triu.forward(F64, x, diagonal=diagonal + 1)
    np.testing.assert_array_equal(below, np.tril(x, diagonal))
    np.testing.assert_array_equal(above, np.triu(x, diagonal + 1))
    np.testing.assert_array_equal(below + above, x)
    np.testing.assert_array_equal(
        tril.vjp(F64, x, x, diagonal=diagonal) + triu.vjp(F64, x, x, diagonal=diagonal + 1), x
    )


# ── where ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("xp", [F64, F32])
def test_the_branch_not_taken_has_no_slope_however_steep_it_is(xp):
    mask, x = np.array([1, 0, 0, 0]), xp.asarray([4.0, 0.0, -1.0, 2.0**-120])
    with np.errstate(all="raise"):
        z = where.forward(xp, mask, x, 0 * x, guard="sqrt")
        _, dx, dy = where.vjp(xp, xp.asarray(np.ones(4)), mask, x, 0 * x, guard="sqrt")
    assert z.tolist() == [2, 0, 0, 0]
    assert dx.tolist() == [0.25, 0, 0, 0]
    assert dy.tolist() == [0, 1, 1, 1]
