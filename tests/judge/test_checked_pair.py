"""Whatever a call owes besides numbers, a breach of it is no pass by projection."""

import ctypes

import numpy as np
import pytest

from gradcheck.judge.quick_check import FunctionPair

X, W = np.random.default_rng(0).normal(size=(2, 6))
V = np.random.default_rng(1).normal(size=6)


def forward(x, w):
    return x * w


def vjp(ct, x, w):
    return ct * w, ct * x


def asked(forward=forward, vjp=vjp, primals=(X, W)):
    """The gradient [N], or None."""
    with np.errstate(all="ignore"):
        handed = FunctionPair(forward, vjp, primals, {})
        base = handed.outputs()
        return None if base is None else handed.gradient(V, base)


def test_what_is_right_is_handed_over_end_to_end():
    np.testing.assert_array_equal(asked(), np.concatenate([V * W, V * X]))
    found = asked(primals=(X.astype(np.float32), W.astype(np.float32)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.concatenate([V * W, V * X]), rtol=1e-6)


def test_an_index_has_no_gradient():
    index = np.array([0, 2, 1, 5, 4, 3])
    found = asked(lambda x, i: x[i], lambda ct, x, i: (ct[np.argsort(i)], None), (X, index))
    np.testing.assert_array_equal(found, V[np.argsort(index)])


def raises(*args):
    raise SystemExit


def overwrites(ct, x, w):
    """As C code does, which sees no flag."""
    ctypes.memset(x.ctypes.data, 0, 8)
    return ct * w, ct * x


def spoils_its_cotangent(ct, x, w):
    out = ct * w, ct * x
    ctypes.memset(ct.ctypes.data, 0, 8)
    return out


def stale():
    """Returns what the call before should have."""
    kept = []

    def late(ct, x, w):
        kept.append(vjp(ct, x, w))
        return kept[max(len(kept) - 2, 0)]

    return late


def accumulates():
    total = [np.zeros(6), np.zeros(6)]

    def added(ct, x, w):
        for k, g in enumerate(vjp(ct, x, w)):
            total[k] += g
        return tuple(total)

    return added


WRONG = {
    "raises": raises,
    "one too few": lambda ct, x, w: (ct * w,),
    "bare": lambda ct, x, w: ct * w,
    "nothing": lambda ct, x, w: (ct * w, None),
    "text": lambda ct, x, w: (ct * w, "x"),
    "a shape": lambda ct, x, w: (ct * w, (ct * x)[None]),
    "a dtype": lambda ct, x, w: (ct * w, (ct * x).astype(np.float32)),
    "writes": lambda ct, x, w: (np.multiply(ct, w, out=ct), ct * x),
    "overwrites": overwrites,
    "spoils its cotangent": spoils_its_cotangent,
    "draws": lambda ct, x, w: (ct * w * np.random.default_rng().normal(), ct * x),
    "stale": stale(),
    "accumulates": accumulates(),
    "of ones": lambda ct, x, w: (w + 0 * ct, ct * x),
    "of |ct|": lambda ct, x, w: (np.abs(ct) * w, ct * x),
    "not linear": lambda ct, x, w: (ct * w + 1e-9, ct * x),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_vjp_that_breaks_its_contract_gives_nothing(name):
    assert asked(vjp=WRONG[name]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        raises,
        lambda x, w: None,
        lambda x, w: (),
        lambda x, w: (x * w).astype(np.float16),
        lambda x, w: (x * w).astype(int),
        lambda x, w: x[:0],
        lambda x, w: np.multiply(x, w, out=x),
    ],
)
def test_a_forward_that_breaks_its_contract_gives_nothing(wrong):
    assert asked(forward=wrong) is None


def test_a_gradient_that_is_a_view_of_a_buffer_is_kept_as_it_was():
    buffer = np.empty((2, 6))

    def into(ct, x, w):
        buffer[:] = ct * w, ct * x
        return buffer[0], buffer[1]

    np.testing.assert_array_equal(asked(vjp=into), np.concatenate([V * W, V * X]))


def test_an_interruption_is_none_of_ours():
    def stop(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(forward=stop)


@pytest.mark.parametrize(
    ("forward", "promoted"),
    [
        (lambda x, w: x * w, True),
        (lambda x, w: (x * w).astype(np.float32), False),
        (lambda x, w: x * w if x.dtype == np.float32 else raises(), False),
        (lambda x, w: x * w if x.dtype == np.float32 else 2 * x * w, False),
        (lambda x, w: x * w if x.dtype == np.float32 else (x * w)[None], False),
    ],
)
def test_only_a_forward_that_computes_in_its_arguments_dtype_is_promoted(forward, promoted):
    primals = tuple(p.astype(np.float32) for p in (X, W))
    handed = FunctionPair(forward, vjp, primals, {})
    wide = handed.promoted(handed.outputs())
    assert (wide is not None) is promoted
    if promoted:
        assert wide[0].dtype == np.float64
        np.testing.assert_array_equal(wide[0], primals[0].astype(float) * primals[1].astype(float))


def test_primals_of_any_layout_are_handed_over_row_by_row():
    x, w = np.asfortranarray(np.outer(X, W)), np.array(2.0)
    handed = FunctionPair(lambda x, w: x * w, lambda ct, x, w: (ct * w, (ct * x).sum()), (x, w), {})
    base = handed.outputs()
    v = np.random.default_rng(2).normal(size=36)
    want = np.append(2.0 * v, np.sum(v * x.reshape(-1)))
    np.testing.assert_allclose(handed.gradient(v, base), want, rtol=1e-14)
    assert handed.floating == [0, 1]


def test_a_cotangent_of_thirds_cannot_be_written_to():
    """Whoever scales it in place would have scaled what it is judged by."""
    x = np.ones(3)

    def vjp(ct, x):
        ct *= 0.5
        return (ct * 2 * x,)

    handed = FunctionPair(lambda x: np.sum(x * x), vjp, (x,), {})
    with np.errstate(all="ignore"):
        base = handed.outputs()
        assert not handed.scales(2 * x, base[0])
        right = FunctionPair(lambda x: np.sum(x * x), lambda ct, x: (ct * 2 * x,), (x,), {})
        assert right.scales(2 * x, right.outputs()[0])
