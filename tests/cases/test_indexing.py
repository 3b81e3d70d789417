import numpy as np
import pytest
from gradcheck_cases.indexing import (
    encoder,
    gather,
    get_rows,
    get_rows_back,
    input_embedding,
    scatter_add,
)

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw

ZEROS = np.zeros((5, 1))


def bits(*positions):
    return float(sum(1 << p for p in positions))


def cotangent(*shape):
    """2^i at position i: a sum of them says which positions went in."""
    return np.exp2(np.arange(np.prod(shape))).reshape(*shape, 1)


def test_encoder_adds_every_position_of_a_token_once():
    tokens = np.array([3, 1, 3, 3, 0])
    dwte, dwpe, none = encoder.vjp(F64, cotangent(5), ZEROS, ZEROS, tokens)
    assert dwte.ravel().tolist() == [bits(4), bits(1), 0, bits(0, 2, 3), 0]
    assert dwpe.ravel().tolist() == [bits(p) for p in range(5)]
    assert none is None


def test_encoder_adds_over_the_batch_and_leaves_unused_positions_at_zero():
    tokens = np.array([[3, 1, 3], [1, 4, 0]])
    dwte, dwpe, _ = encoder.vjp(F64, cotangent(2, 3), ZEROS, ZEROS, tokens)
    assert dwte.ravel().tolist() == [bits(5), bits(1, 3), 0, bits(0, 2), bits(4)]
    assert dwpe.ravel().tolist() == [bits(0, 3), bits(1, 4), bits(2, 5), 0, 0]


def test_input_embedding_adds_every_position_of_a_token_but_the_last():
    tokens = np.array([[3, 1, 3, 2], [1, 4, 0, 4]])
    dw, none = input_embedding.vjp(F64, cotangent(2, 3), ZEROS, tokens)
    assert dw.ravel().tolist() == [bits(5), bits(1, 3), 0, bits(0, 2), bits(4)]
    assert none is None


@pytest.mark.parametrize(
    ("c", "bf16_scale", "scale"),
    [
        (3, False, 3**0.5),
        (3, True, 222 / 128),  # bfloat16 keeps eight bits of 1.7320508
        (9, True, 3.0),
        (1023, True, 32.0),  # 31.98 rounds up to a power of two
        (2048, True, 45.25),  # Gemma 2B
    ],
)
def test_input_embedding_scales_both_ways(c, bf16_scale, scale):
    w, tokens = np.ones((2, c)), np.array([1, 0])
    y = input_embedding.forward(F64, w, tokens, bf16_scale=bf16_scale)
    dw, _ = input_embedding.vjp(F64, np.ones((1, c)), w, tokens, bf16_scale=bf16_scale)
    assert np.array_equal(y, np.full((1, c), scale))
    assert np.array_equal(dw, np.array([[0.0], [scale]]) * w)


# ── get_rows and get_rows_back ───────────────────────────────────────────────────────────────

ROWS = np.array([3, 1, 3, 3, 0])


def test_get_rows_adds_every_position_of_a_row_once():
    dx, none = get_rows.vjp(F64, cotangent(5), ZEROS, ROWS)
    assert dx.ravel().tolist() == [bits(4), bits(1), 0, bits(0, 2, 3), 0]
    assert none is None


def test_the_gradient_of_get_rows_back_is_get_rows():
    ct = Draw("rows").normal(7, 3)
    dg, none = get_rows_back.vjp(F64, ct, np.zeros((5, 3)), ROWS, n_rows=7)
    assert np.array_equal(dg, ct[ROWS])
    assert none is None


def test_rows_that_no_index_names_are_zero():
    back = get_rows_back.forward(F64, np.ones((2, 3)), np.array([4, 4]), n_rows=6)
    assert back.sum(axis=1).tolist() == [0, 0, 0, 0, 6, 0]
    empty = get_rows_back.forward(F64, np.ones((0, 3)), np.array([], dtype=int), n_rows=2)
    assert np.array_equal(empty, np.zeros((2, 3)))


# ── gather and scatter_add ───────────────────────────────────────────────────────────────────

X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("axis", "index", "y"),
    [
        (-1, [[3, 3, 0], [1, 2, 0]], [[3, 3, 0], [5, 6, 4]]),
        (-2, [[2, 0], [2, 1], [0, 0], [1, 1]], [[8, 1], [8, 5], [0, 1], [4, 5]]),
    ],
)
def test_gather_looks_up_along_one_axis_and_keeps_the_place_along_the_other(axis, index, y):
    assert gather.forward(F64, X, np.array(index), axis=axis).tolist() == y


def test_gather_adds_every_use_of_an_element_once():
    index = np.array([[1, 1, 0], [2, 1, 1]])
    ct = cotangent(6).reshape(2, 3)
    by_column, none = gather.vjp(F64, ct, np.zeros((3, 3)), index, axis=-1)
    by_row, _ = gather.vjp(F64, ct, np.zeros((3, 3)), index, axis=-2)
    assert by_column.tolist() == [[bits(2), bits(0, 1), 0], [0, bits(4, 5), bits(3)], [0, 0, 0]]
    assert by_row.tolist() == [[0, 0, bits(2)], [bits(0), bits(1, 4), bits(5)], [bits(3), 0, 0]]
    assert none is None


@pytest.mark.parametrize("axis", [-1, -2])
def test_scatter_add_is_the_transpose_of_gather(axis):
    draw = Draw("scatter")
    index, src, ct = draw.integers(0, 3, 2, 3), draw.normal(2, 3), draw.normal(4, 5)
    added = scatter_add.forward(F64, np.zeros((4, 5)), index, src, axis=axis)
    gathered = gather.forward(F64, ct, index, axis=axis)
    assert np.sum(added * ct) == pytest.approx(np.sum(src * gathered), rel=1e-14)
    dx, none, dsrc = scatter_add.vjp(F64, ct, np.zeros((4, 5)), index, src, axis=axis)
    assert np.array_equal(dx, ct)
    assert np.array_equal(dsrc, gathered)
    assert none is None


def test_scatter_add_keeps_what_was_there():
    index = np.array([[1, 1, 1]])
    y = scatter_add.forward(F64, X, index, np.array([[10.0, 20.0, 30.0]]))
    assert y.tolist() == [[0, 61, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
