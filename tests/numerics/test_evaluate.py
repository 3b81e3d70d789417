"""Copies are stacked only where that changes no bit; everything else is evaluated one by one."""

import math

import numpy as np
import pytest
from gradcheck_cases.linear import matmul
from gradcheck_cases.norm import layer_norm

from gradcheck.numerics import evaluate
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Evaluator, Point, along, flatten


def draw(*roles):
    return Draw("evaluate", *roles)


X = draw("x").signed(4, 3)


class Counted:
    """A function as forward, and how often it was called."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, *primals):
        self.calls += 1
        return (np.asarray(self.function(*primals)),)


def only_four_by_three(x):
    assert x.shape == (4, 3)
    return x.sum(axis=0)


STACKS = {
    "elementwise": np.tanh,
    "rows": lambda x: x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5),
    "last two axes": lambda x: np.swapaxes(x, -1, -2) @ x,
    "constant": lambda x: np.broadcast_to(np.arange(3.0), (*x.shape[:-2], 3)),
    "constant that ignores the copies": lambda x: np.ones((1, 3)) if x.ndim == 3 else np.ones(3),
}
LOOPS = {
    "mean over the batch": lambda x: x - x.mean(axis=0),
    "everything in one number": lambda x: np.sum(np.exp(x)),
    "scalar code": lambda x: [[math.sin(v) for v in row] for row in x],
    "a fixed shape": only_four_by_three,
    "reshaped": lambda x: x.reshape(2, 6) ** 2,
    "fixed letters": lambda x: np.einsum("ij,kj->ik", x, x),
    "leading axis reversed": lambda x: x[::-1] * 2,
    "first slice": lambda x: x[0] ** 2,
    "transposed": lambda x: x.T * 1.5,
}
ALL = {**STACKS, **LOOPS}


def sweep(evaluator, count, fill, group=1):
    chunks = list(evaluator.sweep(count, fill, group))
    assert [s for rows, _ in chunks for s in range(rows.start, rows.stop)] == list(range(count))
    return np.concatenate([values for _, values in chunks])


def bump(rows, copies):
    """Copy k differs from the primal by k in element k (mod 12)."""
    flat = copies.reshape(len(copies), -1)
    for k, row in enumerate(range(rows.start, rows.stop)):
        flat[k, row % 12] += row


@pytest.mark.parametrize("name", ALL)
def test_a_function_is_stacked_exactly_where_that_is_safe(name):
    assert Evaluator(Point(Counted(ALL[name]), (X,)), 0).stacked == (name in STACKS)


@pytest.mark.slow(keep=8)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("chunk", [1, 500, 1 << 20])
def test_stacked_or_not_the_values_are_those_of_single_calls(name, chunk, monkeypatch):
    monkeypatch.setattr(evaluate, "CHUNK_BYTES", chunk)
    values = sweep(Evaluator(Point(Counted(ALL[name]), (X,)), 0), 30, bump)
    for row in range(30):
        x = X.copy()
        x.reshape(-1)[row % 12] += row
        assert values[row].tolist() == np.asarray(ALL[name](x), dtype=float).reshape(-1).tolist()


def test_stacking_saves_calls():
    few, many = Counted(np.tanh), Counted(LOOPS["scalar code"])
    for forward, bound in ((few, 10), (many, 1010)):
        evaluator = Evaluator(Point(forward, (X,)), 0)
        sweep(evaluator, 1000, bump)
        assert forward.calls <= bound
    assert many.calls > 1000


@pytest.mark.parametrize("group", [2, 6])
def test_a_chunk_holds_whole_groups(group, monkeypatch):
    monkeypatch.setattr(evaluate, "CHUNK_BYTES", 100)
    evaluator = Evaluator(Point(Counted(np.tanh), (X,)), 0)
    for rows, values in evaluator.sweep(24, bump, group):
        assert rows.start % group == 0
        assert len(values) % group == 0


# ── several primals ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("spec", [matmul, layer_norm], ids=lambda s: s.name)
def test_core_ranks_let_every_primal_of_a_spec_stack(spec, batch, index):
    d = draw(spec.name, *batch)
    x, b = d.normal(*batch, 5, 4), d.normal(4)
    weight = d.normal(4, 4) if spec is matmul else d.normal(4)
    forward = Counted(lambda *p: spec.forward(F64, *p))
    evaluator = Evaluator(Point(forward, (x, weight, b), spec.core_ranks), index)
    assert evaluator.stacked
    primals = [x, weight, b]
    copies = np.stack([primals[index] + k for k in range(3)])
    for values, copy in zip(evaluator.values(copies), copies, strict=True):
        primals[index] = copy
        assert values.tolist() == spec.forward(F64, *primals).reshape(-1).tolist()


def test_without_core_ranks_a_weight_may_stack_alone_or_with_padding():
    w, x = draw("w").normal(3), draw("x").normal(4, 3)
    padded = Evaluator(Point(Counted(lambda x, w: x * w), (x, w)), 1)
    alone = Evaluator(Point(Counted(lambda x, w: np.tanh(w)), (x, w)), 1)
    assert padded.stacked
    assert alone.stacked


def test_several_outputs_are_flattened_in_order_as_float64():
    def forward(x):
        return x[..., :1].astype(np.float32), x[..., 1:] * 2

    evaluator = Evaluator(Point(forward, (X,)), 0)
    assert evaluator.stacked
    assert evaluator.base.dtype == np.float64
    assert evaluator.base.tolist() == flatten(forward(X)).tolist()
    assert evaluator.values(np.stack([X, 2 * X]))[1].tolist() == flatten(forward(2 * X)).tolist()
    assert flatten([]).shape == (0,)


def test_an_empty_primal_is_no_trouble():
    evaluator = Evaluator(Point(Counted(np.tanh), (np.zeros((0, 3)),)), 0)
    assert not evaluator.stacked
    assert evaluator.values(np.zeros((2, 0, 3))).shape == (2, 0)


def test_a_forward_that_writes_into_its_copy_spoils_nothing():
    def forward(x):
        x = np.asarray(x)
        first = x.flat[0]
        x[...] = -1.0
        return (np.asarray(first),)

    x = X.copy()
    evaluator = Evaluator(Point(forward, (x,)), 0)
    assert evaluator.values(np.stack([X, X + 1]))[:, 0].tolist() == [X[0, 0], X[0, 0] + 1]
    assert np.array_equal(x, X)


# ── outside the domain ───────────────────────────────────────────────────────────────────────


def scalar_log(x):
    return [math.log(v) for v in x.reshape(-1)]  # raises ValueError from 0 downwards


def choosy_log(x):
    if np.any(x <= 0):
        raise KeyError("a domain error of its own")
    return np.log(x)


def narrowing(x):
    return x[x > 0]


@pytest.mark.parametrize("function", [scalar_log, choosy_log, narrowing])
def test_a_copy_that_forward_refuses_is_nan_and_the_others_are_not(function):
    x = np.abs(X[0])
    evaluator = Evaluator(Point(Counted(function), (x,)), 0)
    values = evaluator.values(np.stack([x, -x, 2 * x, x - x[1]]))
    assert values[0].tolist() == np.asarray(function(x)).tolist()
    assert values[2].tolist() == np.asarray(function(2 * x)).tolist()
    assert np.isnan(values[[1, 3]]).all()


def test_a_keyboard_interrupt_is_nobodys_domain():
    def forward(x):
        if x[0] > 100:
            raise KeyboardInterrupt
        return (np.tanh(x),)

    evaluator = Evaluator(Point(forward, (X[0],)), 0)
    with pytest.raises(KeyboardInterrupt):
        evaluator.values(np.stack([X[0], X[0] + 1000]))


# ── all primals at once ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", [lambda x, w: x * w, lambda x, w: (x - x.mean(axis=0)) @ w])
def test_along_a_line_all_primals_move_together(function):
    x, w = draw("x").normal(4, 3), draw("w").normal(3)
    moved = [np.stack([p + 0.1 * k * k for k in range(5)]) for p in (x, w)]
    values = along(Point(Counted(function), (x, w)), moved)
    for k, row in enumerate(values):
        assert row.tolist() == function(*(copies[k] for copies in moved)).reshape(-1).tolist()


def test_a_line_that_leaves_the_domain_is_none():
    x = np.abs(X)
    assert along(Point(Counted(choosy_log), (x,)), [np.stack([x, 2 * x, 3 * x])]) is not None
    for line in ([x, 2 * x, -x], [x, -x, 2 * x]):
        assert along(Point(Counted(choosy_log), (x,)), [np.stack(line)]) is None


def test_only_floating_primals_are_differentiated():
    point = Point(np.add, (X, np.arange(3), X.astype(np.float32)))
    assert point.differentiable == (0, 2)


def test_pairs_come_in_chunks_that_fit_in_a_cache():
    """Two copies of 4096 numbers are 64 KiB: eight such pairs are half a megabyte."""
    evaluator = Evaluator(Point(lambda x: (x * x,), (np.arange(4096.0),)), 0)
    cells = np.arange(20)[:, None]
    above, below = cells + 1.0, cells - 1.0
    found = list(evaluator.pairs(cells, above, below))
    assert [(rows.start, rows.stop) for rows, _ in found] == [(0, 8), (8, 16), (16, 20)]
    values = np.concatenate([v for _, v in found])
    want = np.zeros((20, 4096))
    want[np.arange(20), np.arange(20)] = 4 * np.arange(20)
    np.testing.assert_array_equal(values, want)
