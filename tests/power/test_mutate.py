"""What each mutation operator changes, and that it changes nothing else."""

import inspect

import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F64, FLOATS
from gradcheck.power import mutate
from gradcheck.spec.mutant import check

CT, X, W = np.array([1.0, -2.0]), np.array([3.0, 5.0]), np.array([7.0, 11.0])
I = np.array([1, 0])  # noqa: E741


def one(xp, ct, x, *, alpha=2.0, beta=3.0):
    return alpha * ct * x + beta


def two(xp, ct, x, w):
    return ct * w, ct * x


def indexed(xp, ct, x, i):
    return ct[i], None


def called(vjp, *arguments, **attrs):
    """The gradients as lists; the arguments are read-only, so that a write is an error."""
    frozen = [np.array(a) for a in arguments]
    for array in frozen:
        array.flags.writeable = False
    out = vjp(np, *frozen, **attrs)
    return [None if g is None else g.tolist() for g in (out if isinstance(out, tuple) else (out,))]


@pytest.mark.parametrize(
    ("mutated", "wanted"),
    [
        (mutate.negated(two, 0), [[-7, 22], [3, -10]]),
        (mutate.negated(two, 1), [[7, -22], [-3, 10]]),
        (mutate.scaled(two, 1, 0.5), [[7, -22], [1.5, -5]]),
        (mutate.scaled(two, 0, lambda xp, x, w: xp.sum(w)), [[126, -396], [3, -10]]),
        (mutate.output(two, 1, lambda xp, g, x, w: g + w), [[7, -22], [10, 1]]),
        (mutate.output(two, 0, lambda *_: None), [None, [3, -10]]),
        (mutate.swapped(two, 0, 1), [[3, -10], [7, -22]]),
        (mutate.cotangent(two, lambda xp, ct, x, w: xp.abs(ct)), [[7, 22], [3, 10]]),
        (mutate.primal(two, 1, lambda xp, x, w: w - x), [[4, -12], [3, -10]]),
        (mutate.negated(mutate.scaled(two, 0, 2.0), 0), [[-14, 44], [3, -10]]),
    ],
)
def test_of_two_gradients_only_the_one_meant_is_changed(mutated, wanted):
    assert called(mutated, CT, X, W) == wanted
    assert called(two, CT, X, W) == [[7, -22], [3, -10]]


@pytest.mark.parametrize(
    ("mutated", "wanted"),
    [
        (mutate.negated(one, 0), [-9, 17]),
        (mutate.scaled(one, 0, lambda xp, x, *, alpha, beta: alpha * beta), [54, -102]),
        (mutate.attribute(one, alpha=0.0), [3, 3]),
        (mutate.attribute(one, beta=lambda alpha, beta: alpha - beta), [5, -21]),
        (mutate.attribute(one, alpha=1.0, beta=lambda alpha, **_: alpha), [5, -8]),
    ],
)
def test_a_single_gradient_stays_bare_and_attributes_reach_everything(mutated, wanted):
    assert called(mutated, CT, X, alpha=2.0, beta=3.0) == [wanted]
    assert not isinstance(mutated(np, CT, X, alpha=2.0, beta=3.0), tuple)


def test_an_attribute_that_is_not_meant_keeps_the_callers_value():
    assert called(mutate.attribute(one, alpha=0.0), CT, X, alpha=2.0, beta=9.0) == [[9, 9]]


def test_the_gradient_of_an_index_stays_none():
    assert called(mutate.negated(indexed, 0), CT, X, I) == [[2, -1], None]


def parts(xp, ct, x):
    return ct[0] * x + ct[1]


def test_a_cotangent_of_several_parts_is_changed_as_one():
    dropped = mutate.cotangent(parts, lambda xp, ct, x: (ct[0], xp.zeros_like(ct[1])))
    assert dropped(np, (CT, CT), X).tolist() == [3, -10]


@pytest.mark.parametrize("vjp", [one, two, indexed])
def test_what_is_mutated_takes_what_the_original_takes(vjp):
    for mutated in (
        mutate.output(vjp, 0, lambda xp, g, *_, **__: g),
        mutate.cotangent(vjp, lambda xp, ct, *_, **__: ct),
        mutate.primal(vjp, 0, lambda xp, x, *_, **__: x),
        mutate.attribute(vjp),
        mutate.swapped(vjp, 0, 1),
    ):
        assert inspect.signature(mutated) == inspect.signature(vjp)


def test_the_registry_takes_it_for_the_operators_own(make):
    check(make.mutant(mutate.negated(make.double, 0)), make.op())


# ── whole gradients ──────────────────────────────────────────────────────────────────────────


def other(xp, ct, x, w):
    return ct + 0, ct + 1


@pytest.mark.parametrize(
    ("mutated", "wanted"),
    [
        (mutate.replaced(two, 0, other), [[1, -2], [3, -10]]),
        (mutate.replaced(two, 1, other), [[7, -22], [2, -1]]),
    ],
)
def test_a_gradient_may_be_another_vjps(mutated, wanted):
    assert called(mutated, CT, X, W) == wanted


def test_a_single_gradient_replaced_stays_bare():
    replaced = mutate.replaced(one, 0, lambda xp, ct, x, *, alpha, beta: ct * 100)
    assert replaced(np, CT, X, alpha=2.0, beta=3.0).tolist() == [100, -200]


def gain(xp, x, w):
    return x * w


def gain_vjp(xp, ct, x, w):
    return ct * w, xp.reduce_to(ct * x, w)


@pytest.mark.parametrize(
    ("x", "w", "dw"),
    [
        ([[1, 2], [3, 4], [5, 6]], [1, 1], [50, 60]),  # of the last row alone, not [90, 120]
        ([5, 6], [1, 1], [50, 60]),
        ([[1, 2], [5, 6]], [[1, 1], [1, 1]], [[10, 20], [50, 60]]),  # nothing is shared
    ],
)
def test_of_a_batch_that_shares_a_primal_the_last_entry_is_kept(make, x, w, dw):
    spec = make.op("gain", gain, gain_vjp, "(n),(n)->(n)")
    x, w = np.array(x, dtype=float), np.array(w, dtype=float)
    dx, found = mutate.of_last(spec, 1)(F64, np.full(x.shape, 10.0), x, w)
    assert found.tolist() == dw
    assert dx.tolist() == np.full(x.shape, 10.0).tolist()


def test_a_gradient_written_over_the_cotangent_is_right_and_a_write():
    ct = CT.copy()
    dx, dw = mutate.overwriting(two)(np, ct, X, W)
    assert (dx.tolist(), dw.tolist(), ct.tolist()) == ([7, -22], [3, -10], [7, -22])
    with pytest.raises(ValueError, match="read-only"):
        called(mutate.overwriting(two), CT, X, W)


# ── with a memory ────────────────────────────────────────────────────────────────────────────


def test_one_gradient_grows_from_call_to_call_and_the_other_does_not():
    vjp = mutate.accumulated(two, 1)()
    assert [called(vjp, CT, X, W) for _ in range(3)] == [
        [[7, -22], [3, -10]],
        [[7, -22], [6, -20]],
        [[7, -22], [9, -30]],
    ]


def test_each_gradient_has_a_buffer_of_its_own_and_each_shape_too():
    vjp = mutate.accumulated(two)()
    long = [np.ones(3)] * 3
    assert called(vjp, CT, X, W) == [[7, -22], [3, -10]]
    assert called(vjp, *long) == [[1, 1, 1], [1, 1, 1]]
    assert called(vjp, CT, X, W) == [[14, -44], [6, -20]]
    assert called(mutate.accumulated(two)(), CT, X, W) == [[7, -22], [3, -10]]


def test_an_index_has_no_buffer():
    vjp = mutate.accumulated(indexed)()
    assert [called(vjp, CT, X, I) for _ in range(2)] == [[[-2, 1], None], [[-4, 2], None]]


def test_a_buffer_is_not_the_array_that_was_returned():
    vjp = mutate.accumulated(one)()
    first = vjp(np, CT, X, alpha=1.0, beta=0.0)
    kept = first.copy()
    vjp(np, CT, X, alpha=1.0, beta=0.0)
    assert np.array_equal(first, kept)


def test_a_stale_gradient_is_the_first_of_its_shape():
    vjp = mutate.stale(two, 1)()
    assert called(vjp, CT, X, W) == [[7, -22], [3, -10]]
    assert called(vjp, -CT, X, W) == [[-7, 22], [3, -10]]
    assert called(vjp, *([np.ones(3)] * 3)) == [[1, 1, 1], [1, 1, 1]]
    assert called(mutate.stale(two, 1)(), -CT, X, W) == [[-7, 22], [-3, 10]]


# ── changes ──────────────────────────────────────────────────────────────────────────────────

G = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
SQUARE = np.array([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("change", "g", "wanted"),
    [
        (mutate.nothing, G, None),
        (mutate.zeros, SQUARE, [[0, 0], [0, 0]]),
        (mutate.ones, SQUARE, [[1, 1], [1, 1]]),
        (mutate.half, np.array([1.0, 1 + 2.0**-12, 1e6, -1e-9]), [1, 1, np.inf, 0]),
        (mutate.transposed, SQUARE, [[1, 3], [2, 4]]),
        (mutate.transposed, G, G.tolist()),
        (mutate.transposed, CT, CT.tolist()),
        (mutate.relaid, G, [[1, 4, 2], [5, 3, 6]]),
        (mutate.first_entry(1), G, [[1, 2, 3], [0, 0, 0]]),
        (mutate.first_entry(2), G, G.tolist()),
        (mutate.cut(2), G, [[1, 2, 0], [4, 5, 0]]),
        (mutate.cut(-1), G, [[1, 2, 0], [4, 5, 0]]),
        (mutate.cut(1, axis=0), G, [[1, 2, 3], [0, 0, 0]]),
        (mutate.cut(-1, axis=-2), G, [[1, 2, 3], [0, 0, 0]]),
        (mutate.cut(lambda n: n // 2), G, [[1, 0, 0], [4, 0, 0]]),
        (mutate.cut(0), G, [[0, 0, 0], [0, 0, 0]]),
        (mutate.cut(9), G, G.tolist()),
        (mutate.whole_blocks(4), G, [[1, 2, 3], [4, 0, 0]]),
        (mutate.whole_blocks(6), G, G.tolist()),
        (mutate.whole_blocks(2), np.array(3.0), 0),
        (mutate.first_for_all(), G, [[1, 1, 1], [1, 1, 1]]),
        (mutate.first_for_all(0), G, [[1, 2, 3], [1, 2, 3]]),
        (mutate.first_for_all(-1), G, [[1, 1, 1], [4, 4, 4]]),
        (mutate.first_for_all(0), np.zeros((0, 2)), []),
        (mutate.flushed(3.0), -G, [[0, 0, -3], [-4, -5, -6]]),
    ],
)
def test_a_change_gives_the_same_in_every_arithmetic_and_leaves_its_argument(change, g, wanted):
    for xp in FLOATS.values():
        before = xp.asarray(g)
        before.flags.writeable = False
        out = change(xp, before, X, eps=1)
        if wanted is None:
            assert out is None
            continue
        assert out.tolist() == wanted
        assert out.dtype == before.dtype
        assert out.shape == g.shape


def test_rounded_keeps_so_many_bits_and_the_dtype():
    x = np.array([1.0, 1 + 2.0**-12, 3.0, -(2.0**100)])
    for dtype in ("float32", "float64"):
        rounded = mutate.rounded(11)(F64, x.astype(dtype))
        assert rounded.tolist() == [1.0, 1.0, 3.0, -(2.0**100)]
        assert rounded.dtype == dtype
    assert mutate.rounded(13)(F64, x).tolist() == x.tolist()
