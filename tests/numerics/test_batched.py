"""Points along one direction: stacked where that is proved, one by one where it is not."""

import numpy as np
import pytest

from gradcheck.numerics.batched import BatchedForward, PackedPrimals, by_rows, end_to_end

RNG = np.random.default_rng(0)
T = np.array([[s * 4.0**-j] for j in (2, 3, 4) for s in (1, -1)])
"""[s, 1]; the steps are rows (1, t)."""
X, W, A, B = (RNG.normal(size=shape) for shape in [(5, 4), (4,), (6, 3), (3, 6)])
INDEX = np.array([2, 0, 1, 2])


def along(forward, primals, t=T, pairs=3, only=None):
    """Changes, products and the evaluator, where `forward` returns one array or a tuple."""

    def outputs(*values):
        out = forward(*values)
        return tuple(np.asarray(o) for o in (out if isinstance(out, tuple) else (out,)))

    places = [k for k, p in enumerate(primals) if p.dtype.kind == "f"]
    floating = [primals[k] for k in places]
    size = sum(p.size for p in floating)
    r = np.random.default_rng(1).uniform(0.5, 1.5, size)
    g = np.random.default_rng(2).normal(size=size)
    bundle = PackedPrimals(floating, g, r)
    if only is not None:
        places, bundle = [places[only]], bundle.alone(only, bundle.part(bundle.d, only))
    points = BatchedForward(outputs, primals, outputs(*primals))
    return points.along(bundle, places, np.insert(t, 0, 1.0, axis=1), pairs), points, bundle, places


def one_by_one(forward, primals, bundle, places, t):
    """The same without any stack."""
    rows = []
    for step in t[:, 0]:
        moved, point = [*primals], bundle.x + step * bundle.d
        for k, place in enumerate(places):
            moved[place] = bundle.part(point, k).reshape(bundle.shapes[k])
        out, base = forward(*moved), forward(*primals)
        parts = (out, base) if isinstance(out, tuple) else ((out,), (base,))
        rows.append(end_to_end([np.asarray(o) for o in parts[0]])
                    - end_to_end([np.asarray(o) for o in parts[1]]))  # fmt: skip
    return np.stack(rows)


def norm(x, w):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * w


# name: forward, primals, whether copies can be stacked
FORWARDS = {
    "element by element": (np.tanh, (X,), True),
    "a weight of lower rank": (norm, (X, W), True),
    "matrices": (lambda a, b: a @ b, (A, B), True),
    "two outputs": (lambda x, w: (x * w, np.sum(x, axis=-1)), (X, W), True),
    "axes are counted": (lambda x, w: x + w[..., None, :], (X, W), True),
    "a mask": (lambda x, m: x * m, (X, X > 0), True),
    "an index": (lambda x, i: x[i], (W, INDEX), False),
    "the sum of everything": (lambda x: x / x.sum(), (X,), False),
    "one number": (lambda x: (x**3).sum(), (X,), False),
    "along the first axis": (lambda x: np.cumsum(x, axis=0), (X,), False),
    "a batch of one": (lambda x: x - x.mean(axis=0) + x**2, (X[:1],), False),
    "a scan over a batch of one": (lambda x: np.cumsum(x, axis=0), (X[:1],), False),
    "backwards": (lambda x: x[::-1], (np.ones(6),), False),
    "its length": (lambda x: x * len(x), (X,), False),
    "a square": (lambda x: x.T @ x, (X[:4],), False),
    "transposed": (lambda x: x.T, (X[:4],), False),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_values_are_those_of_single_calls_whatever_forward_does_with_its_axes(name):
    forward, primals, stacks = FORWARDS[name]
    found, points, bundle, places = along(forward, primals)
    change, given = found
    # A stack may round otherwise in rows other than the one that is proved.
    np.testing.assert_allclose(
        change, one_by_one(forward, primals, bundle, places, T), rtol=0, atol=1e-13
    )
    assert (points.evaluations <= 7 * (1 + 5 * len(primals))) is True
    assert (points.evaluations == 7) >= stacks * (name not in ("axes are counted",))
    stack = bundle.x + T * bundle.d
    want = (stack[0::2] - stack[1::2]) @ bundle.g
    np.testing.assert_allclose(given, want, rtol=1e-12)


@pytest.mark.parametrize("name", ["a weight of lower rank", "matrices", "two outputs", "an index"])
def test_one_tensor_moves_and_the_others_stay(name):
    forward, primals, _ = FORWARDS[name]
    found, _, bundle, places = along(forward, primals, only=0)
    want = one_by_one(forward, primals, bundle, places, T)
    np.testing.assert_allclose(found[0], want, rtol=0, atol=1e-13)


def test_many_points_of_large_primals_come_in_chunks():
    calls = []

    def forward(x):
        calls.append(x.shape)
        return np.tanh(x)

    t = np.concatenate([4.0 ** -np.arange(1, 11)[:, None] * [1, -1]]).reshape(-1, 1)
    t = np.concatenate([t, [[1e-9], [2e-9]]])
    x = RNG.normal(size=(20, 400))
    found, _, bundle, places = along(forward, (x,), t, 10)
    stacks = [shape[0] for shape in calls if len(shape) == 3]
    assert len(stacks) > 1
    assert sum(stacks) == 22
    want = one_by_one(np.tanh, (x,), bundle, places, t)
    np.testing.assert_array_equal(found[0], want)
    assert len(found[1]) == 10
    whole = bundle.x + t * bundle.d
    np.testing.assert_allclose(found[1], (whole[0:20:2] - whole[1:20:2]) @ bundle.g, rtol=1e-9)


def test_points_that_just_fill_a_chunk_are_one_stack(monkeypatch):
    shapes = []

    def forward(x):
        shapes.append(x.shape)
        return np.tanh(x)

    each = 2 * 8 * X.size  # bytes of a primal and of its output
    monkeypatch.setattr("gradcheck.numerics.batched.CHUNK_BYTES", len(T) * each)
    found, _, bundle, places = along(forward, (X,))
    assert shapes[1:] == [X.shape, (len(T), *X.shape)]
    np.testing.assert_array_equal(found[0], one_by_one(np.tanh, (X,), bundle, places, T))


def test_many_points_that_cannot_be_stacked_are_all_evaluated():
    def forward(x):
        return x / x.sum()  # another value, but no error, for a stack

    t = (4.0 ** -np.arange(1, 11)[:, None] * [1, -1]).reshape(-1, 1)
    t = np.concatenate([t, [[1e-9], [2e-9]]])
    x = RNG.uniform(1, 2, size=(20, 400))
    found, points, bundle, places = along(forward, (x,), t, 10)
    np.testing.assert_array_equal(found[0], one_by_one(forward, (x,), bundle, places, t))
    assert len(found[1]) == 10
    assert points.evaluations >= 22


def test_a_few_points_of_large_primals_are_evaluated_alone():
    shapes = []

    def forward(x):
        shapes.append(x.shape)
        return np.tanh(x)

    found, points, *_ = along(forward, (RNG.normal(size=(200, 400)),))
    assert set(shapes) == {(200, 400)}
    assert points.evaluations == 6
    assert found[0].shape == (6, 80_000)


def test_a_forward_that_refuses_a_point_has_no_values():
    def forward(x):
        if np.any(x > np.max(X) + 0.01):
            raise ValueError("outside")
        return x * 2

    assert along(forward, (X,))[0] is None


def test_a_forward_that_refuses_stacks_is_asked_one_by_one():
    def forward(x):
        if x.ndim != 2:
            raise SystemExit("a matrix, please")
        return x * x

    found, points, bundle, places = along(forward, (X,))
    np.testing.assert_array_equal(found[0], one_by_one(forward, (X,), bundle, places, T))
    assert points.evaluations == 1 + 6 + 6


def test_a_forward_that_writes_moves_no_other_point():
    def forward(x, w):
        x *= 2.0
        return x * w

    found, *_ = along(lambda x, w: forward(x.copy(), w), (X, W))
    dirty, *_ = along(forward, (X.copy(), W))
    assert dirty is not None
    np.testing.assert_allclose(np.diff(dirty[0], axis=0), np.diff(found[0], axis=0), atol=1e-12)


def test_a_forward_that_returns_one_buffer_again_and_again_is_read_in_time():
    buffers = {}

    def forward(x):
        out = buffers.setdefault(x.shape, np.empty_like(x))
        np.multiply(x, x, out=out)
        return out

    points = BatchedForward(lambda x: (forward(x),), (X,), (X * X,))
    bundle = PackedPrimals([X], np.zeros(X.size), np.ones(X.size))
    change, _ = points.along(bundle, [0], np.insert(T, 0, 1.0, axis=1), 3)
    moved = X.reshape(-1) + T * bundle.d
    np.testing.assert_allclose(change, moved**2 - X.reshape(-1) ** 2, atol=1e-15)


def test_a_forward_that_draws_is_seen_where_a_copy_is_asked_twice():
    rng = np.random.default_rng(0)
    found, points, *_ = along(lambda x: x * rng.normal(size=x.shape), (X,))
    assert points.evaluations == 1 + 6 + 4  # alone, a stack, and one by one up to that copy
    assert found is None


def bundle(*primals, gradients=None):
    gradients = gradients or [np.ones_like(p) for p in primals]
    size = sum(p.size for p in primals)
    signs = np.where(np.arange(size) % 2, 1.0, -0.5)
    return PackedPrimals(primals, end_to_end(gradients).astype(float), signs)


def test_tensors_lie_end_to_end_and_each_moves_by_its_own_size():
    x, w, b = RNG.normal(size=(3, 4)), 100 * RNG.normal(size=5), np.array(2.0)
    found = bundle(x, w, b)
    np.testing.assert_array_equal(found.part(found.x, 0), x.reshape(-1))
    np.testing.assert_array_equal(found.part(found.x, 1), w)
    assert found.part(found.x, 2) == [2.0]
    assert found.shapes == [(3, 4), (5,), ()]
    want = [np.std(x), np.std(w), 2.0 / 16]
    assert found.units == pytest.approx(want)
    for k, unit in enumerate(want):
        np.testing.assert_allclose(found.part(found.d, k), found.part(found.r, k) * unit)


@pytest.mark.parametrize(
    ("x", "unit"),
    [
        (np.zeros(4), 1.0),
        (np.full(4, 3.0), 3.0 / 16),
        (1000 + np.array([3.0, -3.0]), 1000 / 16),
        (np.array([3e-200, -3e-200]), 3e-200),
        (np.array([3e200, -3e200]), 3e200),
    ],
)
def test_the_unit_of_a_tensor_is_its_spread_without_underflow(x, unit):
    with np.errstate(over="ignore"):  # as its callers do
        found = bundle(x)
    assert found.units == pytest.approx([unit], rel=1e-4)


def test_float32_is_widened():
    assert bundle(np.ones(3, np.float32)).x.dtype == np.float64


def test_what_must_show_is_the_least_element_that_is_not_lost_in_rounding():
    g = [np.array([1.0, -2.0, 0.0, 1e-20]), np.array([0.0, 0.0]), np.array([5.0])]
    primals = [np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, -1.0]), np.array([16.0])]
    found = bundle(*primals, gradients=g)
    products, squares, least = found.weigh(2.0**-40)
    np.testing.assert_allclose(products, [-0.5 - 2.0 + 1e-20, 0, 5 * -0.5])
    np.testing.assert_allclose(squares, [0.25 + 4, 0, 2.5**2])
    np.testing.assert_allclose(least, [0.5, 0, 2.5])


def test_one_tensor_alone_keeps_its_shape():
    found = bundle(RNG.normal(size=3), RNG.normal(size=(2, 2)))
    only = found.alone(1, np.full(4, 7.0))
    assert (only.shapes, only.sizes) == ([(2, 2)], [4])
    np.testing.assert_array_equal(only.d, np.full(4, 7.0))
    np.testing.assert_array_equal(only.part(only.x, 0), found.part(found.x, 1))


def test_rows_have_sizes_of_their_own():
    x = np.array([[3.0, 4.0], [3e-6, 4e-6], [0.0, 0.0], [3e-200, 4e-200]])
    rms = np.sqrt(12.5)
    want = [rms, rms * 1e-6, rms, rms * 2.0**-24]
    np.testing.assert_allclose(by_rows(x.reshape(-1), x.shape), np.repeat(want, 2))
    np.testing.assert_array_equal(by_rows(np.zeros(6), (2, 3)), np.ones(6))


def test_values_and_direction_are_rows_of_one_product():
    found = bundle(RNG.normal(size=(3, 4)), RNG.normal(size=5).astype(np.float32))
    for one in (found, found.alone(1, np.full(5, 7.0))):
        point = np.array([1.0, 0.25]).dot(one.line)
        np.testing.assert_array_equal(point, one.x + 0.25 * one.d)


def test_an_element_counts_by_how_it_moves_or_by_its_gradient():
    one = bundle(np.ones(4), gradients=[np.array([1.0, 1e-3, 0.5, 1e-3])])
    found = one.alone(0, np.array([1e-3, 1.0, 1e-3, 1e-3]))
    assert found.counts(0, 0.1).tolist() == [True, True, True, False]
    assert found.counts(0, 0.6).tolist() == [True, True, False, False]
