import itertools

import numpy as np
import pytest
from gradcheck_cases import reduction
from gradcheck_cases.reduction import (
    cumsum,
    max_rows,
    repeat,
    sort,
    spaced,
    sum_all,
    top_k,
    variance,
)

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw


def drawn(*shape):
    """A point and a cotangent of the same shape."""
    draw = Draw("reduction", *shape)
    return draw.away(0.0, *shape), draw.signed(*shape)


def gap(spec, x, **attrs):
    (kink,) = spec.kinks
    return kink.gap(F64, np.asarray(x, dtype=float), **attrs)


# ── sums and means ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("axis", [None, 0, -1, 1, (0, 2), (-1, -3), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_sum_is_numpys_and_its_vjp_the_transpose(axis, keepdims):
    x, _ = drawn(2, 3, 5)
    attrs = {"axis": axis, "keepdims": keepdims}
    y = sum_all.forward(F64, x, **attrs)
    np.testing.assert_array_equal(y, np.sum(x, **attrs))
    ct = Draw("ct").signed(*y.shape)
    dx = sum_all.vjp(F64, ct, x, **attrs)
    assert (dx * x).sum() == pytest.approx((ct * y).sum())


# ── repeat ───────────────────────────────────────────────────────────────────────────────────


def test_the_two_orders_are_numpys_tile_and_repeat():
    x, _ = drawn(3, 2)
    np.testing.assert_array_equal(repeat.forward(F64, x, counts=(2, 5)), np.tile(x, (2, 5)))
    np.testing.assert_array_equal(
        repeat.forward(F64, x, counts=(2, 5), interleave=True), x.repeat(2, 0).repeat(5, 1)
    )
    for interleave, row in [(False, [0.0, 1.0, 0.0, 1.0]), (True, [0.0, 0.0, 1.0, 1.0])]:
        y = repeat.forward(F64, np.array([[0.0, 1.0]]), counts=(1, 2), interleave=interleave)
        assert y.tolist() == [row]


# ── max ──────────────────────────────────────────────────────────────────────────────────────


def test_the_gap_of_a_maximum_counts_the_first_place_only():
    assert gap(max_rows, [[3.0, 1.0, 1.0, 2.5]]).tolist() == [[0.5, 2.0, 2.0, 0.5]]
    assert gap(max_rows, [[3.0, 3.0, 1.0]]).tolist() == [[0, 0, 2]]
    assert gap(max_rows, [[7.0]]).tolist() == [[1]]


# ── running sums ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_running_sum_is_a_triangle_and_its_vjp_the_transpose(exclusive, reverse):
    attrs = {"exclusive": exclusive, "reverse": reverse}
    triangle = cumsum.forward(F64, np.eye(4), **attrs).T
    want = np.triu(np.ones((4, 4)), exclusive) if reverse else np.tril(np.ones((4, 4)), -exclusive)
    np.testing.assert_array_equal(triangle, want)
    np.testing.assert_array_equal(cumsum.vjp(F64, np.eye(4), np.eye(4), **attrs), want)


# ── order ────────────────────────────────────────────────────────────────────────────────────


def test_sorting_scatters_and_a_cycle_of_three_tells_it_from_gathering():
    x, ct = np.array([2.0, 3.0, 1.0]), np.array([1.0, 10.0, 100.0])
    assert sort.forward(F64, x).tolist() == [1, 2, 3]
    assert sort.vjp(F64, ct, x).tolist() == [10, 100, 1]
    assert ct[np.argsort(x)].tolist() == [100, 1, 10]  # gathered: the inverse
    assert sort.vjp(F64, ct, x, descending=True).tolist() == [10, 1, 100]


def test_no_order_of_the_cycles_is_its_own_inverse():
    (sample,) = [s for s in sort.samples if s.name == "cycles"]
    (x,) = sample.primals(Draw("cycles"))
    for order in np.argsort(x, axis=-1):
        assert order[order].tolist() != [0, 1, 2, 3, 4]


def test_top_k_is_the_start_of_a_descending_sort():
    x = spaced(Draw("top"), 3, 7)
    _, ct = drawn(3, 7)
    whole = sort.forward(F64, x, descending=True)
    for k in (1, 3, 7):
        np.testing.assert_array_equal(top_k.forward(F64, x, k=k), whole[:, :k])
        kept = np.where(np.arange(7) < k, ct, 0)
        np.testing.assert_array_equal(
            top_k.vjp(F64, ct[:, :k], x, k=k), sort.vjp(F64, kept, x, descending=True)
        )
    np.testing.assert_array_equal(
        top_k.forward(F64, x, k=3, largest=False), -top_k.forward(F64, -x, k=3)
    )


def test_ties_among_those_left_out_are_no_kink_of_top_k():
    x = [[1.0, 1.0, 4.0, 2.0, 3.0]]
    assert (gap(top_k, x, k=3) > 0).all()
    assert gap(sort, x)[0, :2].tolist() == [0, 0]
    assert gap(top_k, x, k=4)[0, :2].tolist() == [0, 0]  # the edge runs between them
    assert gap(top_k, x, k=5)[0, :2].tolist() == [0, 0]
    assert gap(top_k, x, k=2, largest=False)[0, :2].tolist() == [0, 0]


def test_spaced_rows_keep_their_distance():
    x = spaced(Draw("spaced"), 5, 37)
    for row in x:
        apart = min(abs(a - b) for a, b in itertools.combinations(row, 2))
        assert apart >= 3 / 16
    assert not np.any(x == x.astype(np.float32))


# ── variance and norm ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ddof", [0, 1, 2])
def test_the_variance_is_numpys_and_its_gradient_sums_to_zero(ddof):
    x, _ = drawn(3, 5)
    np.testing.assert_allclose(variance.forward(F64, x, ddof=ddof), x.var(axis=-1, ddof=ddof))
    dx = variance.vjp(F64, np.ones(3), x, ddof=ddof)
    np.testing.assert_allclose(dx.sum(axis=-1), 0, atol=1e-15)
    np.testing.assert_allclose((dx * x).sum(axis=-1), 2 * x.var(axis=-1, ddof=ddof))


def test_beside_is_the_next_number_of_float32():
    assert reduction.beside(1.0) == 1 + 2.0**-23
    assert reduction.beside(1.0, 2) == 1 + 2.0**-22
