"""Axes that do not mix are found, and an output never answers for another element's step."""

import numpy as np
import pytest
from gradcheck_cases import attention, indexing, linear, norm

from gradcheck.numerics import sparsity
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Evaluator, Point


def draw(*roles):
    return Draw("structure", *roles)


def normal(*shape):
    return draw(*shape).normal(*shape)


def found(function, *primals, index=0):
    point = Point(lambda *p: (np.asarray(function(*p)),), primals)
    evaluator = Evaluator(point, index)
    return evaluator, sparsity.find(evaluator, np.random.default_rng(0))


def of(spec):
    return lambda *primals: spec.forward(F64, *primals)


def leaky(x):
    """Elementwise, but for one output that also sees an element of the other sequence."""
    y = np.tanh(x)
    y[..., 1, 2] += 1e-3 * x[..., 0, 1]
    return y


def diagonal(x):
    return np.stack([x[..., 0, 0] ** 2, x[..., 1, 1] ** 2, x[..., 2, 2] ** 2], axis=-1)


TOKENS = np.array([2, 0, 2, 1])
KEYS, VALUES = normal(4, 6) + 1, normal(4, 6) - 1  # other values than the queries

# name → function, primals, index of the one perturbed, colours that suffice
FOUND = {
    "elementwise": (np.exp, [normal(3, 5)], 0, 1),
    "elementwise in 3 axes": (np.exp, [normal(2, 3, 5)], 0, 1),
    "rows": (of(norm.rms_norm), [normal(4, 5), normal(5)], 0, 5),
    "rows of a batch": (of(norm.rms_norm), [normal(2, 3, 5), normal(5)], 0, 5),
    "a gain": (of(norm.rms_norm), [normal(4, 5), normal(5)], 1, 1),
    "columns of a weight": (lambda x, w: x @ w, [normal(3, 4), normal(4, 5)], 1, 4),
    "rows of a weight": (of(linear.matmul), [normal(3, 4), normal(5, 4)], 1, 4),
    "columns mixed": (lambda x: x - x.mean(axis=-2, keepdims=True), [normal(3, 5)], 0, 3),
    "everything mixed": (lambda x: np.exp(x) / np.exp(x).sum(), [normal(3, 4)], 0, 12),
    "queries": (of(attention.attention), [normal(4, 6), KEYS, VALUES], 0, 6),
    "keys seen causally": (of(attention.attention), [normal(4, 6), KEYS, VALUES], 1, 24),
    "one sequence each": (of(attention.packed_attention), [normal(2, 3, 6)], 0, 18),
    "a look-up table": (
        lambda t: of(indexing.encoder)(t, normal(4, 3), TOKENS),
        [normal(3, 3)],
        0,
        1,
    ),
    "a leak across the batch": (leaky, [normal(2, 3)], 0, 6),
    "a diagonal": (diagonal, [normal(3, 3)], 0, 1),
    "a constant": (lambda x: np.ones(x.shape[:-1]), [normal(3, 4)], 0, 1),
    "one that saturates": (np.tanh, [np.linspace(-400, 400, 12).reshape(3, 4)], 0, 1),
    "rows that saturate": (of(attention.softmax), [400 * normal(3, 4)], 0, 4),
    "a scalar": (np.exp, [np.asarray(0.5)], 0, 1),
    "one row": (of(attention.softmax), [normal(1, 4)], 0, 4),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_colours_are_as_few_as_the_function_allows(name):
    function, primals, index, colours = FOUND[name]
    _, it = found(function, *primals, index=index)
    assert it.colours == colours
    assert it.colours * it.blocks == primals[index].size
    assert sorted(it.grid.reshape(-1)) == list(range(primals[index].size))


def movers(evaluator):
    """Outputs that move with each element, by brute force: [n, m]."""
    n = evaluator.x.size
    moves = np.zeros((n, evaluator.base.size), dtype=bool)
    for element in range(n):
        for change in (0.3, -1e-3, 700.0, np.nan):
            copy = evaluator.x.copy()
            copy.reshape(-1)[element] += change
            values = evaluator.values(copy[None])[0]
            moves[element] |= (values != evaluator.base) & ~np.isnan(evaluator.base)
    return moves


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("name", FOUND)
def test_every_output_belongs_to_the_block_that_moves_it(name):
    function, primals, index, _ = FOUND[name]
    evaluator, it = found(function, *primals, index=index)
    block = np.empty(evaluator.x.size, dtype=int)
    block[it.grid] = np.arange(it.blocks)
    moves = movers(evaluator)
    for output, owner in enumerate(it.owner):
        assert set(block[moves[:, output]]) <= {owner}, output
        if owner < 0:
            assert not moves[:, output].any()


@pytest.mark.parametrize("name", FOUND)
def test_sums_by_block_are_sums_over_owned_outputs(name):
    function, primals, index, _ = FOUND[name]
    evaluator, it = found(function, *primals, index=index)
    values = np.random.default_rng(1).normal(size=(2, evaluator.base.size))
    for block in range(it.blocks):
        expected = values[:, it.owner == block].sum(axis=-1)
        np.testing.assert_allclose(it.by_block(values)[:, block], expected, rtol=1e-12, atol=1e-15)
    assert it.by_block(np.ones((3, evaluator.base.size), dtype=np.int64)).dtype == np.int64


def test_an_output_that_moves_with_nothing_has_no_owner():
    _, it = found(lambda x: np.concatenate([x[..., :2] ** 2, np.ones_like(x)], axis=-1), normal(3))
    assert it.owner.tolist() == [0, 1, -1, -1, -1]
    assert it.colours == 1


def test_what_a_saturated_value_hides_is_found_by_nan():
    # tanh is 1.0 at 400, whatever finite step is tried; its row still belongs to it.
    _, it = found(np.tanh, np.full((2, 3), 400.0))
    assert it.owner.tolist() == list(range(6))


def test_a_swallowed_nan_leaves_the_finite_steps():
    _, it = found(lambda x: np.where(np.isnan(x), 0.5, x**2), normal(2, 3))
    assert it.owner.tolist() == list(range(6))


def test_what_only_a_short_step_moves_is_found_too():
    def blip(x):  # flat but for a hundredth around 1, and deaf to NaN
        return np.where(np.abs(x - 1) < 0.01, x - 1, 0.0)

    _, it = found(blip, np.ones((2, 3)))
    assert it.owner.tolist() == list(range(6))


def test_zeros_move_too():
    _, it = found(of(attention.softmax), np.zeros((3, 4)))
    assert it.colours == 4
    assert it.owner.tolist() == np.repeat(np.arange(3), 4).tolist()


def test_a_point_that_forward_refuses_costs_colours_and_nothing_else():
    def forward(x):
        if np.isnan(x).any():
            raise ValueError("no NaN here")
        return np.exp(x)

    evaluator, it = found(forward, normal(2, 3))
    assert it.colours == 6
    assert set(it.owner) == {0}
    assert not np.isnan(evaluator.base).any()


def test_a_long_axis_costs_the_logarithm_of_its_length():
    seen = []

    def forward(x):
        seen.append(x.shape[0] if x.ndim == 2 else 1)
        return (x**3,)

    evaluator = Evaluator(Point(forward, (normal(1000),)), 0)
    seen.clear()
    it = sparsity.find(evaluator, np.random.default_rng(0))
    assert it.colours == 1
    assert it.owner.tolist() == list(range(1000))
    assert sum(seen) <= 2 * 10 * (len(sparsity.NUDGES) + 1)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("length", [2, 3, 4, 5, 7, 8, 9, 16, 17])
def test_every_slice_of_any_length_is_told_from_the_others(length):
    _, it = found(lambda x: x[..., ::-1] ** 2, normal(length))
    assert it.owner.tolist() == list(range(length))[::-1]
    for a, b in np.ndindex(length, length):
        if a != b:  # one output that two slices move, wherever they are
            _, it = found(lambda x, a=a, b=b: np.stack([x[..., a] * x[..., b]], -1), normal(length))
            assert it.colours == length
