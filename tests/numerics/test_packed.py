"""Tensors end to end: how far each moves, and what must show of each."""

import numpy as np
import pytest

from gradcheck.numerics.packed import PackedPrimals, by_rows, end_to_end

RNG = np.random.default_rng(0)


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
