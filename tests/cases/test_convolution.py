import numpy as np
import pytest
from gradcheck_cases.convolution import (
    avg_pool_2d,
    conv_1d_1s,
    conv_1d_2s,
    conv_2d,
    conv_transpose_2d,
    depthwise_conv_2d,
    im2col,
    max_pool_2d,
)

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw

GEOMETRIES = [
    {},
    {"stride": (2, 3)},
    {"padding": (1, 2)},
    {"dilation": (2, 1)},
    {"stride": (3, 1), "padding": (2, 1), "dilation": (1, 2)},
]


def drawn(role, *shape):
    return Draw("convolution", role).normal(*shape)


# ── convolutions ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_convolution_is_a_product_with_im2col(geometry):
    x, w = drawn("x", 2, 7, 6), drawn("w", 3, 2, 3, 2)
    rows = im2col.forward(F64, x, kernel=(3, 2), **geometry)
    y = conv_2d.forward(F64, x, w, **geometry)
    np.testing.assert_allclose(np.moveaxis(rows @ w.reshape(3, -1).T, -1, 0), y, 1e-14, 1e-14)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_backward_of_a_convolution_is_the_transposed_convolution(geometry):
    x, w = drawn("x", 2, 7, 6), drawn("w", 3, 2, 3, 2)
    y = conv_2d.forward(F64, x, w, **geometry)
    ct = drawn("ct", *y.shape)
    dx, _ = conv_2d.vjp(F64, ct, x, w, **geometry)
    stride, padding, dilation = (
        geometry.get(k, d)
        for k, d in (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1)))
    )
    tail = tuple(
        (n + 2 * p - d * (k - 1) - 1) % s
        for n, k, s, p, d in zip((7, 6), (3, 2), stride, padding, dilation, strict=True)
    )
    back = conv_transpose_2d.forward(F64, ct, w, output_padding=tail, **geometry)
    np.testing.assert_allclose(back, dx, rtol=1e-13, atol=1e-13)


def test_a_depthwise_convolution_is_one_with_a_group_for_each_channel():
    x, w, attrs = drawn("x", 3, 5, 4), drawn("w", 3, 3, 2), {"stride": (2, 1), "padding": (1, 0)}
    y = depthwise_conv_2d.forward(F64, x, w, **attrs)
    np.testing.assert_allclose(
        y, conv_2d.forward(F64, x, w[:, None], groups=3, **attrs), rtol=1e-14
    )
    ct = drawn("ct", *y.shape)
    dx, dw = depthwise_conv_2d.vjp(F64, ct, x, w, **attrs)
    gx, gw = conv_2d.vjp(F64, ct, x, w[:, None], groups=3, **attrs)
    np.testing.assert_allclose(dx, gx, rtol=1e-14)
    np.testing.assert_allclose(dw, gw[:, 0], rtol=1e-14)


def test_every_second_output_of_stride_1_is_that_of_stride_2():
    for size in (6, 7):
        x, w = drawn("x", 2, size), drawn("w", 3, 2, 5)
        y = conv_1d_1s.forward(F64, x, w)
        assert y.shape == (3, size)
        np.testing.assert_array_equal(conv_1d_2s.forward(F64, x, w), y[:, ::2])


# ── im2col ───────────────────────────────────────────────────────────────────────────────────


def test_rows_and_columns_are_the_same_numbers_in_the_layouts_of_ggml_and_pytorch():
    x = np.arange(24.0).reshape(2, 3, 4)
    rows = im2col.forward(F64, x, kernel=(2, 3))
    columns = im2col.forward(F64, x, kernel=(2, 3), columns=True)
    assert rows.shape == (2, 2, 12)
    assert rows[0, 1].tolist() == [1, 2, 3, 5, 6, 7, 13, 14, 15, 17, 18, 19]
    np.testing.assert_array_equal(columns, rows.reshape(4, 12).T)


# ── pooling ──────────────────────────────────────────────────────────────────────────────────


def tied():
    """Two windows of 2 × 2: the left one has its maximum three times, the right one once."""
    x = np.array([[[3.0, 3.0, 1.0, 2.0], [0.0, 3.0, 7.0, 5.0]]])
    return x, np.array([[[6.0, 10.0]]]), {"kernel": (2, 2), "stride": (2, 2)}


def test_conventions_for_ties():
    x, ct, attrs = tied()
    (kink,) = max_pool_2d.kinks
    found = {c.name: c.vjp(F64, ct, x, **attrs).tolist() for c in kink.conventions}
    assert found == {
        "first": [[[6, 0, 0, 0], [0, 0, 10, 0]]],
        "split": [[[2, 2, 0, 0], [0, 2, 10, 0]]],
    }


def test_the_distance_from_a_tie_counts_every_window_that_reads_an_element():
    x = np.array([[[1.0, 4.0, 2.0, 2.5]]])
    geometry = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    gap = max_pool_2d.kinks[0].gap
    assert gap(F64, x, kernel=(1, 2), **geometry).tolist() == [[[3, 2, 0.5, 0.5]]]
    assert gap(F64, x, kernel=(1, 3), **geometry).tolist() == [[[3, 1.5, 2, 1.5]]]
    apart = {**geometry, "stride": (1, 3)}
    assert gap(F64, x, kernel=(1, 2), **apart).tolist() == [[[3, 3, np.inf, np.inf]]]


def test_the_two_divisors_of_an_average_differ_on_the_border_only():
    x = np.ones((1, 3, 3))
    attrs = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1)}
    without = avg_pool_2d.forward(F64, x, count_include_pad=False, **attrs)
    np.testing.assert_array_equal(without, x)
    counted = avg_pool_2d.forward(F64, x, **attrs)
    np.testing.assert_allclose(counted * 9, [[[4, 6, 4], [6, 9, 6], [4, 6, 4]]], rtol=1e-15)
