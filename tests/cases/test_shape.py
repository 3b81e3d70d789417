from itertools import permutations

import numpy as np
import pytest
from gradcheck_cases.shape import (
    acc,
    concat,
    cont,
    cpy,
    diag,
    flip,
    pad,
    permute,
    reshape,
    set_2d,
    transpose,
    tril,
    triu,
    view_1d,
    view_2d,
    where,
)

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw


def count(*sizes):
    """1, 2, 3, … in a shape: an element is its own place in memory, from 1."""
    return np.arange(1.0, np.prod(sizes) + 1).reshape(sizes)


# ── copies and rearrangements ────────────────────────────────────────────────────────────────


def test_cpy_takes_the_destinations_shape_and_gives_it_no_gradient():
    a, b = count(1, 2, 3), np.full((3, 1, 2), 9.0)
    assert cpy.forward(F64, a, b).tolist() == [[[1, 2]], [[3, 4]], [[5, 6]]]
    da, db = cpy.vjp(F64, 10 * count(3, 1, 2), a, b)
    assert da.tolist() == [[[10, 20, 30], [40, 50, 60]]]
    assert db.tolist() == [[[0, 0]], [[0, 0]], [[0, 0]]]
    with pytest.raises(ValueError, match="cannot reshape"):
        cpy.forward(F64, a, np.zeros((1, 2, 2)))


def test_cont_of_a_transposed_operand_writes_the_gradient_through_its_strides():
    x = count(1, 2, 3)
    assert cont.forward(F64, x, axes=(0, 2, 1)).tolist() == [[[1, 4], [2, 5], [3, 6]]]
    dx = cont.vjp(F64, count(1, 3, 2), x, axes=(0, 2, 1))
    assert dx.tolist() == [[[1, 3, 5], [2, 4, 6]]]


def test_a_reshape_to_the_transposes_shape_does_not_transpose():
    x = count(1, 2, 3)
    assert reshape.forward(F64, x, shape=(1, 3, 2)).tolist() == [[[1, 2], [3, 4], [5, 6]]]
    assert reshape.vjp(F64, count(1, 3, 2), x, shape=(1, 3, 2)).tolist() == x.tolist()


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


# ── concat, diag ─────────────────────────────────────────────────────────────────────────────


def test_concat_puts_the_parts_side_by_side():
    x, y = np.array([[[1.0], [2.0]]]), np.array([[[3.0, 4.0], [5.0, 6.0]]])
    assert concat.forward(F64, x, y).tolist() == [[[1, 3, 4], [2, 5, 6]]]
    dx, dy = concat.vjp(F64, count(1, 2, 3), x, y)
    assert dx.tolist() == [[[1], [4]]]
    assert dy.tolist() == [[[2, 3], [5, 6]]]


def test_diag_is_the_identity_times_x_and_reads_the_diagonal_back():
    x = np.array([2.0, 3.0])
    assert diag.forward(F64, x).tolist() == [[2, 0], [0, 3]]
    assert diag.forward(F64, x, offset=1).tolist() == [[0, 2, 0], [0, 0, 3], [0, 0, 0]]
    assert diag.forward(F64, x, offset=-1).tolist() == [[0, 0, 0], [2, 0, 0], [0, 3, 0]]
    assert diag.vjp(F64, count(3, 3), x, offset=1).tolist() == [2, 6]
    assert diag.vjp(F64, count(3, 3), x, offset=-1).tolist() == [4, 8]


# ── views ────────────────────────────────────────────────────────────────────────────────────


def test_a_view_reads_memory_by_offset_and_stride():
    x = count(3, 4)
    assert view_1d.forward(F64, x, ne0=3, offset=5).tolist() == [6, 7, 8]
    y = view_2d.forward(F64, x, ne0=2, ne1=3, nb1=5, offset=0)  # down the diagonal
    assert y.tolist() == [[1, 2], [6, 7], [11, 12]]
    assert view_2d.forward(F64, x, ne0=2, offset=1).tolist() == [[2, 3], [6, 7], [10, 11]]


# ── set, acc ─────────────────────────────────────────────────────────────────────────────────


def test_set_overwrites_a_window_and_keeps_the_rest():
    a, b = count(2, 3), np.array([[-1.0], [-2.0]])
    assert set_2d.forward(F64, a, b, offset=1).tolist() == [[1, -1, 3], [4, -2, 6]]
    da, db = set_2d.vjp(F64, 10 * count(2, 3), a, b, offset=1)
    assert da.tolist() == [[10, 0, 30], [40, 0, 60]]
    assert db.tolist() == [[20], [50]]


def test_acc_adds_into_a_window_and_keeps_the_rest():
    a, b = count(1, 1, 2, 3), np.array([[[[-1.0], [-2.0]]]])
    assert acc.forward(F64, a, b, offset=1)[0, 0].tolist() == [[1, 1, 3], [4, 3, 6]]
    da, db = acc.vjp(F64, 10 * count(1, 1, 2, 3), a, b, offset=1)
    assert da[0, 0].tolist() == [[10, 20, 30], [40, 50, 60]]
    assert db[0, 0].tolist() == [[20], [50]]


# ── pad, slice, flip ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mode", "row", "gradient"),
    [
        ("constant", [0, 0, 1, 2, 3, 0], [1, 1, 1]),
        ("reflect", [3, 2, 1, 2, 3, 2], [1, 3, 2]),
        ("replicate", [1, 1, 1, 2, 3, 3], [3, 1, 2]),
        ("circular", [2, 3, 1, 2, 3, 1], [2, 2, 2]),
    ],
)
def test_what_lies_outside_by_mode(mode, row, gradient):
    x, attrs = count(1, 3), {"columns": (2, 1), "mode": mode}
    assert pad.forward(F64, x, **attrs).tolist() == [row]
    assert pad.vjp(F64, np.ones((1, 6)), x, **attrs).tolist() == [gradient]


def test_a_constant_other_than_0_has_no_gradient_of_its_own():
    x = count(1, 2)
    y = pad.forward(F64, x, rows=(1, 0), columns=(0, 1), value=1.5)
    assert y.tolist() == [[1.5, 1.5, 1.5], [1, 2, 1.5]]
    assert pad.vjp(F64, count(2, 3), x, rows=(1, 0), columns=(0, 1), value=1.5).tolist() == [[4, 5]]


def test_flip_undoes_itself():
    x = count(2, 3)
    assert flip.forward(F64, x).tolist() == [[3, 2, 1], [6, 5, 4]]
    assert flip.forward(F64, x, axes=(-2,)).tolist() == [[4, 5, 6], [1, 2, 3]]
    for axes in ((), (-1,), (-2,), (-2, -1)):
        y = flip.forward(F64, x, axes=axes)
        np.testing.assert_array_equal(flip.vjp(F64, y, x, axes=axes), x)


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


def test_any_number_but_0_takes_the_first():
    mask, x, y = np.array([0, 1, 2, -1]), count(4), 10 * count(4)
    assert where.forward(F64, mask, x, y).tolist() == [10, 2, 3, 4]
    none, dx, dy = where.vjp(F64, count(4), mask, x, y)
    assert none is None
    assert dx.tolist() == [0, 2, 3, 4]
    assert dy.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("xp", [F64, F32])
def test_the_branch_not_taken_has_no_slope_however_steep_it_is(xp):
    mask, x = np.array([1, 0, 0, 0]), xp.asarray([4.0, 0.0, -1.0, 2.0**-120])
    with np.errstate(all="raise"):
        z = where.forward(xp, mask, x, 0 * x, guard="sqrt")
        _, dx, dy = where.vjp(xp, xp.asarray(np.ones(4)), mask, x, 0 * x, guard="sqrt")
    assert z.tolist() == [2, 0, 0, 0]
    assert dx.tolist() == [0.25, 0, 0, 0]
    assert dy.tolist() == [0, 1, 1, 1]
