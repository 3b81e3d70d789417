"""Which elements reach which: told from code whose choice follows values."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

SUPPORT = only("support")


def masked(keep):
    def vjp(ct, x, *, diagonal=0):
        rows, columns = np.indices(x.shape[-2:])
        return np.where(keep(columns - rows, diagonal), ct, 0).astype(ct.dtype)

    return vjp


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("keep", "says"),
    [
        (lambda d, k: np.ones_like(d, dtype=bool), "pass where they should be held back"),
        (lambda d, k: d <= k + 1, "pass where they should be held back"),
        (lambda d, k: d <= k - 2, "loses elements"),
        (lambda d, k: d >= k, "in other places than they belong to"),
    ],
)
def test_a_mask_drawn_at_another_place_is_an_index_at_fault(keep, says):
    found = named("tril", masked(keep), "x", SUPPORT)
    assert found.label == "I", found
    assert says in found.says


def test_copies_in_another_order_are_a_layout():
    def vjp(ct, x, *, shape=(-1,)):  # rows of the operand in reverse
        return np.flip(right("reshape", ct, x, shape=shape)[0], 0).copy()

    found = named("reshape", vjp, "x", SUPPORT)
    assert found.label == "L", found


def test_what_is_chosen_by_value_and_put_elsewhere_is_an_index_at_fault():
    def vjp(ct, x, *, descending=False):  # the order of |x| in place of that of x
        order = np.argsort(-np.abs(x) if descending else np.abs(x), axis=-1, kind="stable")
        g = np.zeros_like(ct)
        np.put_along_axis(g, order, ct, axis=-1)
        return g

    found = named("sort", vjp, "x", SUPPORT)
    assert found.label == "I", found


def test_operands_read_at_other_places_are_an_index_at_fault():
    def vjp(ct, x, w, b=None):  # dw of the next channel's input, the last of the first's
        found = list(right("conv_1d_1s", ct, x, w, *([] if b is None else [b])))
        mixed = right("conv_1d_1s", ct, np.roll(x, 1, -2), w, *([] if b is None else [b]))
        found[1] = mixed[1]
        return tuple(found)

    found = named("conv_1d_1s", vjp, "w", SUPPORT)
    assert found.label == "I", found


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "vjp"),
    [
        ("relu", lambda ct, x: ct),
        ("relu", lambda ct, x: np.where(x < 0, ct, 0)),
        ("sgn", lambda ct, x: ct),
        ("tril", lambda ct, x, *, diagonal=0: np.where(np.tril(x, diagonal) != 0, ct * (x > 0), 0)),
        ("tanh", lambda ct, x: ct * (np.abs(x) > 1)),
    ],
)
def test_a_choice_that_follows_values_is_left_to_others(op, vjp):
    found = named(op, vjp, "x", SUPPORT)
    assert not found.label, found


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("softmax", "x", lambda g: 3 * g),
        ("matmul", "w", lambda g: g + 1),
        ("matmul", "w", lambda g: g * np.abs(g)),
        ("transpose", "x", lambda g: 0.5 * g),
        ("layer_norm", "x", lambda g: g - g[..., :1]),
        ("mul", "x", lambda g: g * np.float32(1 + 1e-6)),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change):
    found = named(op, changed(op, **{output: change}), output, SUPPORT)
    assert not found.label, found
