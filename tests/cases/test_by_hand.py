"""Values and gradients that were worked out by hand, of operators of several families."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple


def count(*sizes):
    """1, 2, 3, … in a shape: an element is its own place in memory, from 1."""
    return np.arange(1.0, np.prod(sizes) + 1).reshape(sizes)


def powers(*sizes):
    """1, 2, 4, … in a shape: a sum of them tells which elements it holds."""
    return 2.0 ** np.arange(np.prod(sizes)).reshape(sizes)


ZEROS, ONES = np.zeros, np.ones
ROW, DESTINATION = count(1, 2, 3), np.full((3, 1, 2), 9.0)
COLUMN, WINDOW = [[-1.0], [-2.0]], [[[[-1.0], [-2.0]]]]
IMAGE, KERNELS = [[[1.0, 2, 3], [4, 5, 6]]], [[[[10.0, 1]]], [[[0.0, -1]]]]
AHEAD, SPIKE = [[[-1.0, -2], [-3, -4]]], [[[1.0, 0], [0, 0]], [[0, 0], [0, 2.0]]]
AROUND = {"kernel": (2, 2), "stride": (1, 1), "padding": (1, 1)}
CORNER = {"rows": (1, 0), "columns": (0, 1), "value": 1.5}
DIAGONAL = {"ne0": 2, "ne1": 3, "nb1": 5, "offset": 0}
PAIR, TRIPLE = np.array([[1.0, 2.0]]), np.array([[[1.0, 10.0, 100.0]]])
POINTS, MARGINS = np.array([0.5, 2.0, -3.0, 6.0]), np.array([0.5, 2.0, -3.0, -3.0])
LABELS = np.array([1, 1, 1, -1])
MASK = np.array([0, 1, 2, -1])

VALUES = [
    ("cpy", {}, (ROW, DESTINATION), [[[1, 2]], [[3, 4]], [[5, 6]]]),
    ("cont", {"axes": (0, 2, 1)}, (ROW,), [[[1, 4], [2, 5], [3, 6]]]),
    ("reshape", {"shape": (1, 3, 2)}, (ROW,), [[[1, 2], [3, 4], [5, 6]]]),
    ("concat", {}, ([[[1.0], [2]]], [[[3.0, 4], [5, 6]]]), [[[1, 3, 4], [2, 5, 6]]]),
    ("diag", {}, ([2.0, 3],), [[2, 0], [0, 3]]),
    ("diag", {"offset": 1}, ([2.0, 3],), [[0, 2, 0], [0, 0, 3], [0, 0, 0]]),
    ("diag", {"offset": -1}, ([2.0, 3],), [[0, 0, 0], [2, 0, 0], [0, 3, 0]]),
    ("view_1d", {"ne0": 3, "offset": 5}, (count(3, 4),), [6, 7, 8]),
    ("view_2d", DIAGONAL, (count(3, 4),), [[1, 2], [6, 7], [11, 12]]),
    ("view_2d", {"ne0": 2, "offset": 1}, (count(3, 4),), [[2, 3], [6, 7], [10, 11]]),
    ("set_2d", {"offset": 1}, (count(2, 3), COLUMN), [[1, -1, 3], [4, -2, 6]]),
    ("acc", {"offset": 1}, (count(1, 1, 2, 3), WINDOW), [[[[1, 1, 3], [4, 3, 6]]]]),
    ("pad", {"columns": (2, 1)}, (count(1, 3),), [[0, 0, 1, 2, 3, 0]]),
    ("pad", {"columns": (2, 1), "mode": "reflect"}, (count(1, 3),), [[3, 2, 1, 2, 3, 2]]),
    ("pad", {"columns": (2, 1), "mode": "replicate"}, (count(1, 3),), [[1, 1, 1, 2, 3, 3]]),
    ("pad", {"columns": (2, 1), "mode": "circular"}, (count(1, 3),), [[2, 3, 1, 2, 3, 1]]),
    ("pad", CORNER, (count(1, 2),), [[1.5, 1.5, 1.5], [1, 2, 1.5]]),
    ("flip", {}, (count(2, 3),), [[3, 2, 1], [6, 5, 4]]),
    ("flip", {"axes": (-2,)}, (count(2, 3),), [[4, 5, 6], [1, 2, 3]]),
    ("where", {}, (MASK, count(4), 10 * count(4)), [10, 2, 3, 4]),
    ("conv_2d", {}, (IMAGE, KERNELS, [0.5, 0]),
     [[[12.5, 23.5], [45.5, 56.5]], [[-2, -3], [-5, -6]]]),
    ("conv_transpose_1d", {}, (PAIR, TRIPLE), [[1, 12, 120, 200]]),
    ("conv_transpose_1d", {"stride": 2}, (PAIR, TRIPLE), [[1, 10, 102, 20, 200]]),
    ("conv_transpose_1d", {"stride": 2, "padding": 1}, (PAIR, TRIPLE), [[10, 102, 20]]),
    ("conv_transpose_1d", {"dilation": 2}, (PAIR, TRIPLE), [[1, 2, 10, 20, 100, 200]]),
    ("conv_transpose_1d", {"stride": 4}, (PAIR, TRIPLE), [[1, 10, 100, 0, 2, 20, 200]]),
    ("max_pool_2d", AROUND, (AHEAD,), [[[-1, -1, -2], [-1, -1, -2], [-3, -3, -4]]]),
    ("upscale", {"factor": (2, 3)}, (PAIR,), [[1, 1, 1, 2, 2, 2]] * 2),
    ("matmul", {}, (PAIR, [[1.0, 10], [2, 20], [3, 30]], [100.0, 200, 300]), [[121, 242, 363]]),
    ("mul_mat", {}, ([[[[1.0, 10], [2, 20], [3, 30]]]], [[[[1.0, 1], [2, 0]]]]),
     [[[[11, 22, 33], [2, 4, 6]]]]),
    ("outer_product", {}, (PAIR, [[3.0, 5, 7]]), [[3, 6], [5, 10], [7, 14]]),
    ("square_error", {}, ([3.0, 1], [1.0, 4]), 13),
    ("huber", {"delta": 2.0}, (POINTS, ZEROS(4)), [0.125, 2, 4, 10]),
    ("hinge", {}, (MARGINS, LABELS), [0.5, 0, 4, 0]),
    ("hinge", {"squared": True}, (MARGINS, LABELS), [0.25, 0, 16, 0]),
    ("l2_normalize", {"eps": 2.0}, ([[0.25, -0.5], [0, 0]],), [[0.125, -0.25], [0, 0]]),
    ("prod", {}, (ZEROS((3, 0)),), [1, 1, 1]),
]  # fmt: skip

GRADIENTS = [
    ("cpy", {}, (ROW, DESTINATION), count(3, 1, 2), (ROW, ZEROS((3, 1, 2)))),
    ("cont", {"axes": (0, 2, 1)}, (ROW,), count(1, 3, 2), ([[[1, 3, 5], [2, 4, 6]]],)),
    ("reshape", {"shape": (1, 3, 2)}, (ROW,), count(1, 3, 2), (ROW,)),
    ("concat", {}, (ZEROS((1, 2, 1)), ZEROS((1, 2, 2))), ROW, ([[[1], [4]]], [[[2, 3], [5, 6]]])),
    ("diag", {"offset": 1}, ([2.0, 3],), count(3, 3), ([2, 6],)),
    ("diag", {"offset": -1}, ([2.0, 3],), count(3, 3), ([4, 8],)),
    ("set_2d", {"offset": 1}, (count(2, 3), COLUMN), 10 * count(2, 3),
     ([[10, 0, 30], [40, 0, 60]], [[20], [50]])),
    ("acc", {"offset": 1}, (count(1, 1, 2, 3), WINDOW), count(1, 1, 2, 3),
     (count(1, 1, 2, 3), [[[[2], [5]]]])),
    ("pad", {"columns": (2, 1), "mode": "reflect"}, (count(1, 3),), ONES((1, 6)), ([[1, 3, 2]],)),
    ("pad", {"columns": (2, 1), "mode": "replicate"}, (count(1, 3),), ONES((1, 6)), ([[3, 1, 2]],)),
    ("pad", {"columns": (2, 1), "mode": "circular"}, (count(1, 3),), ONES((1, 6)), ([[2, 2, 2]],)),
    ("pad", CORNER, (count(1, 2),), count(2, 3), ([[4, 5]],)),
    ("where", {}, (MASK, count(4), 10 * count(4)), count(4), (None, [0, 2, 3, 4], [1, 0, 0, 0])),
    ("conv_2d", {}, (IMAGE, KERNELS, [0.5, 0]), SPIKE,
     ([[[10, 1, 0], [0, 0, -2]]], [[[[1, 2]]], [[[10, 12]]]], [1, 2])),
    ("max_pool_2d", AROUND, (AHEAD,), ONES((1, 3, 3)), ([[[4, 2], [2, 1]]],)),
    ("upscale", {"factor": (2, 3)}, (PAIR,), count(2, 6) - 1, ([[24, 42]],)),
    ("matmul", {}, (PAIR, [[1.0, 10], [2, 20], [3, 30]], ZEROS(3)), powers(1, 3),
     ([[17, 170]], [[1, 2], [2, 4], [4, 8]], [1, 2, 4])),
    ("outer_product", {}, (PAIR, [[3.0, 5, 7]]), [[1.0, 0], [0, 1], [0, 0]],
     ([[3, 5]], [[1, 2, 0]])),
    ("square_error", {}, ([3.0, 1], [1.0, 4]), 10.0, ([40, -60], [-40, 60])),
    ("huber", {"delta": 2.0}, (POINTS, ZEROS(4)), ONES(4), ([0.5, 2, -2, 2], [-0.5, -2, 2, -2])),
    ("huber", {"delta": 2.0, "scaled": True}, (POINTS, ZEROS(4)), ONES(4),
     ([0.25, 1, -1, 1], [-0.25, -1, 1, -1])),
    ("hinge", {}, (MARGINS, LABELS), 10 * ONES(4), ([-10, 0, -10, 0], None)),
    ("hinge", {"squared": True}, (MARGINS, LABELS), ONES(4), ([-1, 0, -8, 0], None)),
    ("l2_normalize", {"eps": 2.0}, ([[0.25, -0.5], [0, 0]],), [[1.0, 2]] * 2, ([[0.5, 1]] * 2,)),
    ("max", {}, ([[2.0, 1, 2, 2], [0, 3, 1, 2]],), [6.0, -1], ([[6, 0, 0, 0], [0, -1, 0, 0]],)),
    ("add", {}, (ZEROS((2, 3)), ZEROS(3)), powers(2, 3), (powers(2, 3), [9, 18, 36])),
    ("add", {}, (ZEROS((1, 3)), ZEROS((2, 1))), powers(2, 3), ([[9, 18, 36]], [[7], [56]])),
    ("sub", {}, (ZEROS(3), ZEROS((2, 3))), powers(2, 3), ([9, 18, 36], -powers(2, 3))),
    ("mul", {}, ([[1.0, 0, 3], [2, 5, -1]], [1.0, 2, 4]), powers(2, 3),
     ([[1, 4, 16], [8, 32, 128]], [17, 80, -20])),
    ("div", {}, ([[1.0, 0, 3], [2, 5, -1]], [1.0, 2, 4]), powers(2, 3),
     ([[1, 1, 1], [8, 8, 8]], [-17, -20, 1.25])),
    ("add1", {}, ([[1.0, 0, -1], [0, 2, 1]], 3.0), powers(2, 3), (powers(2, 3), 63)),
    ("scale", {}, ([[1.0, 0, -1], [0, 2, 1]], 3.0), powers(2, 3), (3 * powers(2, 3), 61)),
    ("neg", {}, ([0.25, 1, 4],), [1.0, -2, 8], ([-1, 2, -8],)),
    ("sqr", {}, ([0.25, 1, 4],), [1.0, -2, 8], ([0.5, -4, 64],)),
    ("sqrt", {}, ([0.25, 1, 4],), [1.0, -2, 8], ([1, -1, 2],)),
    ("log", {}, ([0.25, 1, 4],), [1.0, -2, 8], ([4, -2, 2],)),
    ("abs", {}, ([-0.25, -1, -4],), [1.0, -2, 8], ([-1, 2, -8],)),
]  # fmt: skip


def ids(rows):
    return [row[0] for row in rows]


@pytest.mark.parametrize(("op", "attrs", "primals", "wanted"), VALUES, ids=ids(VALUES))
def test_a_value_by_hand(op, attrs, primals, wanted):
    found = SUITE.operators[op].forward(F64, *map(np.array, primals), **attrs)
    np.testing.assert_allclose(found, wanted, rtol=1e-15, strict=False)
    assert np.shape(found) == np.shape(wanted)


@pytest.mark.parametrize(("op", "attrs", "primals", "ct", "wanted"), GRADIENTS, ids=ids(GRADIENTS))
def test_a_gradient_by_hand(op, attrs, primals, ct, wanted):
    found = as_tuple(SUITE.operators[op].vjp(F64, np.array(ct), *map(np.array, primals), **attrs))
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        if want is None:
            assert got is None
        else:
            np.testing.assert_allclose(got, want, rtol=1e-15)
            assert np.shape(got) == np.shape(want)


def test_a_copy_into_another_number_of_elements_is_refused():
    with pytest.raises(ValueError, match="cannot reshape"):
        SUITE.operators["cpy"].forward(F64, ROW, ZEROS((1, 2, 2)))
