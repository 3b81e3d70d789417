"""One closed list of functions, the same in float32, float64 and 50 digits."""

import copy

import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F32, F64, FLOATS
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.numerics.rounding import ROUNDING

ALL = (F32, F64, mp50())
NUMBERS = {"name", "dtype", "asarray", "const", "pi", "sqrt_of"}
OWN = {"context", "inner", "to_float64"}  # of the 50-digit arithmetic


def names(xp):
    return {n for n in dir(xp) if not n.startswith("_")}


def draw(*roles):
    return Draw("arithmetic", *roles)


X, Y = draw("x").signed(2, 3, 4), draw("y").signed(2, 3, 4)
ROW = draw("row").signed(4)
TOKENS = np.array([[2, 0, 2], [1, 2, 2]])
ORDER = np.argsort(-X, axis=-1)  # indices along the last axis, in the shape of X

# name → calls of it on floating arguments, batch axes among them
CALLS = {
    "abs": [(lambda xp, x: xp.abs(x), X)],
    "add_rows": [
        (lambda xp, r, t: xp.add_rows(r, TOKENS[0], t), X[0], X[1]),
        (lambda xp, r, t: xp.add_rows(r, TOKENS, t), X, Y[0]),
    ],
    "add_along": [
        (lambda xp, x, y: xp.add_along(x, ORDER, y, axis=-1), X, Y),
        (lambda xp, x, y: xp.add_along(x, ORDER % 2, y, axis=0), X, Y),
    ],
    "argmax": [(lambda xp, x: xp.pick(x, xp.argmax(x, axis=-1)), X)],
    "argsort": [(lambda xp, x: xp.take_along(x, xp.argsort(x, axis=1), axis=1), X)],
    "broadcast_to": [(lambda xp, x: xp.broadcast_to(x, (2, 3, 4)), ROW)],
    "causal": [(lambda xp, x: xp.where(xp.causal(3, 4), x, 0), X)],
    "concatenate": [(lambda xp, x, y: xp.concatenate([x, y], axis=-2), X, Y)],
    "cos": [(lambda xp, x: xp.cos(x), 4 * X)],
    "cumprod": [
        (lambda xp, x: xp.cumprod(x, axis=-1), X),
        (lambda xp, x: xp.cumprod(x, axis=0), X),
    ],
    "cumsum": [(lambda xp, x: xp.cumsum(x, axis=-1), X), (lambda xp, x: xp.cumsum(x, axis=1), X)],
    "einsum": [
        (lambda xp, x, y: xp.einsum("abc,abd->acd", x, y), X, Y),
        (lambda xp, x: xp.einsum("abc->b", x), X),
    ],
    "erf": [(lambda xp, x: xp.erf(x), X)],
    "exp": [(lambda xp, x: xp.exp(x), 4 * X)],
    "expand_dims": [(lambda xp, x: xp.expand_dims(x, 1), X)],
    "expm1": [(lambda xp, x: xp.expm1(x), X / 64)],
    "flip": [(lambda xp, x: xp.flip(x, 1), X)],
    "full": [(lambda xp, x: xp.full((3, 4), "0.1") * x, X)],
    "gather": [(lambda xp, x: xp.gather(x, TOKENS), X)],
    "is_index": [(lambda xp, x: xp.where(xp.is_index(TOKENS, 4), x, 0), X)],
    "log": [(lambda xp, x: xp.log(x), np.abs(4 * X))],
    "log1p": [(lambda xp, x: xp.log1p(x), np.abs(X) / 64)],
    "matmul": [
        (lambda xp, x, y: xp.matmul(x, xp.swapaxes(y, -1, -2)), X, Y),
        (lambda xp, x, y: xp.matmul(x, y), X, Y[0].T),
    ],
    "max": [(lambda xp, x: xp.max(x), X), (lambda xp, x: xp.max(x, axis=-1, keepdims=True), X)],
    "maximum": [
        (lambda xp, x, y: xp.maximum(x, y), X, ROW),
        (lambda xp, x: xp.maximum(x, 1) / 3, X),
    ],
    "mean": [
        (lambda xp, x: xp.mean(x), X),
        (lambda xp, x: xp.mean(x, axis=-1, keepdims=True), X),
        (lambda xp, x: xp.mean(x, axis=(0, -1)), X),
    ],
    "min": [(lambda xp, x: xp.min(x), X), (lambda xp, x: xp.min(x, axis=1, keepdims=True), X)],
    "minimum": [(lambda xp, x: xp.minimum(x, 0), X)],
    "moveaxis": [(lambda xp, x: xp.moveaxis(x, 0, 2), X)],
    "pad": [
        (lambda xp, x: xp.pad(x, -1, 1, 2), X),
        (lambda xp, x: xp.pad(x, 1, 0, 1, "0.1"), X),
    ],
    "pick": [(lambda xp, x: xp.pick(x, TOKENS), X), (lambda xp, x: xp.pick(x, TOKENS), X[0])],
    "positions": [(lambda xp, x: xp.positions(4) / 3 + x, X)],
    "power": [
        (lambda xp, x, y: xp.power(x, y), np.abs(X) + 0.5, Y),
        (lambda xp, x: xp.power(x, 3.0), X),
    ],
    "prod": [
        (lambda xp, x: xp.prod(x, axis=1), X),
        (lambda xp, x: xp.prod(x, axis=-1, keepdims=True), X),
    ],
    "reduce_to": [
        (lambda xp, x, y: xp.reduce_to(x, y), X, ROW),
        (lambda xp, x, y: xp.reduce_to(x, y), X, X[:, :1]),
        (lambda xp, x, y: xp.reduce_to(x, y), X, X[:1, :1, :1]),
    ],
    "reshape": [(lambda xp, x: xp.reshape(x, (4, -1)), X)],
    "scatter_add": [(lambda xp, x: xp.scatter_add(x, np.array([0, 4, 4, 1]), 5), X)],
    "sigmoid": [(lambda xp, x: xp.sigmoid(x), 8 * X)],
    "sign": [(lambda xp, x: xp.sign(x) * x, X)],
    "sin": [(lambda xp, x: xp.sin(x), 4 * X)],
    "sqrt": [(lambda xp, x: xp.sqrt(x), np.abs(X))],
    "stack": [(lambda xp, x, y: xp.stack([x, y], axis=-1), X, Y)],
    "sum": [(lambda xp, x: xp.sum(x), X), (lambda xp, x: xp.sum(x, axis=(0, 2)), X)],
    "swapaxes": [(lambda xp, x: xp.swapaxes(x, 0, 2), X)],
    "take_along": [(lambda xp, x: xp.take_along(x, ORDER, axis=-1), X)],
    "take_rows": [
        (lambda xp, t: xp.take_rows(t, TOKENS), X[0]),
        (lambda xp, t: xp.take_rows(t, TOKENS), X),
    ],
    "tanh": [(lambda xp, x: xp.tanh(x), X)],
    "transpose": [(lambda xp, x: xp.transpose(x, (2, 0, 1)), X)],
    "where": [(lambda xp, x, y: xp.where(x > 0, x, y), X, Y)],
    "zeros": [(lambda xp, x: xp.zeros((2, 4)) + x[0, :2], X)],
    "zeros_like": [(lambda xp, x: xp.zeros_like(x) + 1, X)],
}
EXAMPLES = [
    pytest.param(call, args, id=f"{name}-{k}")
    for name, calls in CALLS.items()
    for k, (call, *args) in enumerate(calls)
]


def evaluate(xp, call, args):
    return call(xp, *(xp.asarray(a) for a in args))


# ── the list ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("xp", ALL, ids=repr)
def test_a_name_outside_the_list_is_refused_with_the_file_to_edit(xp):
    with pytest.raises(AttributeError, match=r"`xp.softplus` is not in the namespace; add it to"):
        xp.softplus(1.0)
    with pytest.raises(AttributeError, match=r"gradcheck/numerics/\{arithmetic"):
        _ = xp.linalg


def test_protocol_lookups_see_a_plain_miss():
    assert copy.copy(F32).name == "float32"
    with pytest.raises(AttributeError, match=r"^__nothing__$"):
        _ = F64.__nothing__


def test_all_arithmetics_offer_the_same_names():
    assert names(F32) == names(F64) == names(mp50()) - OWN == names(ROUNDING)
    assert {"float32", "float64"} == set(FLOATS)


def test_every_function_of_the_list_has_an_example_here():
    assert set(CALLS) == names(F64) - NUMBERS


# ── agreement ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=14)
@pytest.mark.parametrize(("call", "args"), EXAMPLES)
def test_floats_agree_with_fifty_digits_and_keep_their_dtype(call, args):
    xp = mp50()
    true = evaluate(xp, call, args)
    assert isinstance(true, np.ndarray)
    assert all(isinstance(v, xp.context.mpf) for v in true.reshape(-1))
    rounded = xp.to_float64(true)
    for floats in (F32, F64):
        got = evaluate(floats, call, args)
        assert isinstance(got, np.ndarray)
        assert got.dtype == floats.dtype
        assert got.shape == true.shape
        u = np.finfo(floats.dtype).eps / 2
        np.testing.assert_allclose(got, rounded, rtol=16 * u, atol=64 * u)


def test_the_examples_know_a_wrong_function():
    (call, x), *_ = CALLS["sin"]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(evaluate(F64, call, [x]), np.cos(4 * X), atol=1e-3)


def test_constants_are_as_exact_as_their_arithmetic():
    xp = mp50()
    tenth = xp.const("0.1") * 10 - 1
    assert float(abs(tenth)) < 1e-49
    assert float(abs(xp.asarray(0.1) * 10 - 1)) > 1e-18  # what a bare 0.1 would mean
    assert float(abs(xp.sin(xp.asarray([0.0]) + xp.pi)[0])) < 1e-49
    assert float(abs(xp.sqrt_of(3) ** 2 - 3)) < 1e-48
    assert F64.const("0.1") == 0.1
    assert F32.pi == np.pi


@pytest.mark.parametrize("floats", [F32, F64], ids=repr)
def test_no_constant_promotes_an_array(floats):
    x = floats.asarray(X)
    scaled = (x * floats.const("0.044715") + floats.pi) / floats.sqrt_of(7)
    chosen = floats.where(x > 0, 1, floats.where(x < -1, 0.5, x))
    for result in (scaled, chosen, floats.where(x > 0, 1, 0), floats.zeros((3,)), x**2 + 1):
        assert result.dtype == floats.dtype


def test_scalars_stay_arrays():
    for xp in ALL:
        total = xp.sum(xp.asarray(X))
        assert isinstance(total, np.ndarray)
        assert total.shape == ()
        assert isinstance(xp.mean(total), np.ndarray)
    empty = mp50().sum(mp50().zeros((0,)))
    assert isinstance(empty[()], mp50().context.mpf)


def test_sigmoid_overflows_on_neither_side():
    for xp in (F32, F64):
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            y = xp.sigmoid(xp.asarray([-800.0, 0.0, 800.0]))
        assert y.tolist() == [0.0, 0.5, 1.0]


# ── look-ups and their adjoints ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("xp", ALL, ids=repr)
@pytest.mark.parametrize("index", [np.array([3, 1, 3, 3, 0]), draw("i").integers(0, 5, 2, 3, 4)])
def test_add_rows_is_the_adjoint_of_take_rows(xp, index):
    table = xp.asarray(draw("table").signed(5, 2))
    rows = xp.asarray(draw("rows").signed(*index.shape, 2))
    taken = xp.take_rows(table, index)
    added = xp.add_rows(rows, index, table)
    assert added.shape == table.shape
    left, right = xp.sum(taken * rows), xp.sum(table * added)
    assert float(abs(left - right)) <= 1e-5 * float(xp.sum(xp.abs(taken * rows)))
    overwritten = np.array(xp.zeros_like(table))
    overwritten[index] = rows  # what accumulating repeated indices is not
    assert float(abs(left - xp.sum(table * overwritten))) > 0.01


def test_take_rows_and_pick_take_what_an_index_names():
    table, x = draw("table").signed(2, 5, 3), draw("x").signed(2, 3, 5)
    index = draw("i").integers(0, 5, 2, 3)
    taken, picked = F64.take_rows(table, index), F64.pick(x, index)
    for b, t in np.ndindex(2, 3):
        assert taken[b, t].tolist() == table[b, index[b, t]].tolist()
        assert picked[b, t] == x[b, t, index[b, t]]
    assert F64.is_index(index, 5)[1, 2].tolist() == [v == index[1, 2] for v in range(5)]


@pytest.mark.parametrize("shape", [(4,), (3, 1), (1, 4), (2, 1, 1), (2, 3, 4), (1,), ()])
def test_reduce_to_is_the_adjoint_of_broadcasting(shape):
    like = draw("like").signed(*shape)
    reduced = F64.reduce_to(X, like)
    assert reduced.shape == shape
    np.testing.assert_allclose(np.sum(X * like), np.sum(reduced * like), rtol=1e-14)


def test_a_query_sees_itself_and_what_came_before():
    assert F64.causal(2, 3).tolist() == [[True, False, False], [True, True, False]]
