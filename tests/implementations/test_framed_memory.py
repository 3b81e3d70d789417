import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from gradcheck.implementations.framed_memory import MARGIN, expanded, framed, layouts

X = np.arange(1.0, 22.0, dtype=np.float32).reshape(3, 7)
HOW = [how for how, _ in layouts(X)]


@pytest.mark.parametrize("how", HOW)
def test_a_view_holds_the_same_numbers_otherwise(how):
    view = dict(layouts(X))[how]
    np.testing.assert_array_equal(view, X)
    assert view.dtype == X.dtype
    assert not view.flags.writeable
    assert not view.flags.owndata
    if how == "an offset view":
        assert view.flags.c_contiguous
    else:
        assert not view.flags.c_contiguous


def test_each_layout_has_its_own_strides():
    strides = {how: view.strides for how, view in layouts(X)}
    assert strides == {
        "an offset view": (28, 4),
        "in Fortran order": (4, 12),
        "rows of a wider array": (40, 4),
        "every second element": (56, 8),
        "with a negative stride": (28, -4),
    }


@pytest.mark.parametrize("how", [h for h in HOW if h != "an offset view"])
def test_a_flat_reading_gives_other_numbers_and_stays_inside(how):
    view = dict(layouts(X))[how]
    flat = as_strided(view, X.shape, X.strides)
    assert not np.array_equal(flat, X)
    assert np.isfinite(flat).all()


def test_expanded_views_repeat_along_each_axis_and_along_all():
    found = dict(expanded(X))
    assert list(found) == [
        "expanded along axis 1",
        "expanded along axis 0",
        "expanded along all axes",
    ]
    assert found["expanded along axis 1"].strides[1] == 0
    assert found["expanded along axis 0"].strides[0] == 0
    assert found["expanded along all axes"].strides == (0, 0)
    np.testing.assert_array_equal(found["expanded along axis 0"], np.broadcast_to(X[:1], X.shape))
    for view in found.values():
        assert not np.array_equal(as_strided(view, X.shape, X.strides), view)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (1, 1), (1, 5), (5, 1), (2, 1, 3)])
def test_degenerate_shapes_have_the_layouts_that_they_can_have(shape):
    x = np.arange(float(np.prod(shape))).reshape(shape)
    for _, view in (*layouts(x), *expanded(x)):
        assert view.shape == shape
    for _, view in layouts(x):
        np.testing.assert_array_equal(view, x)


def test_noise_beside_indices_stays_in_bounds():
    ids = np.array([[3, 1], [2, 0]])
    flat = as_strided(dict(layouts(ids))["every second element"], ids.shape, ids.strides)
    assert set(flat.ravel().tolist()) <= {0, 1, 2, 3}


def test_a_stray_write_is_found_by_its_place():
    out = framed(X)
    np.testing.assert_array_equal(out.array, X)
    assert out.array.flags.writeable
    assert out.strayed is None
    out.array[...] = 5.0
    assert out.strayed is None
    out.whole[MARGIN - 2] = 1.0
    assert out.strayed == -2
    other = framed(X)
    other.whole[MARGIN + X.size] = np.nextafter(other.whole[0], np.float32(2))
    assert other.strayed == X.size


def test_an_empty_array_is_framed_too():
    out = framed(np.zeros((0, 3)))
    assert out.array.shape == (0, 3)
    out.whole[MARGIN] = 0.0
    assert out.strayed == 0


@pytest.mark.parametrize("count", [1, 5000])
def test_who_reads_a_view_as_if_it_were_contiguous_stays_inside(count):
    """From its first element, as far as twice what it stands for, in either direction."""
    for _, view in layouts(np.ones(count)):
        whole = view
        while whole.base is not None:
            whole = whole.base
        first = (view.ctypes.data - whole.ctypes.data) // whole.itemsize
        assert first >= max(MARGIN, 4096, 2 * count)
        assert whole.size - first >= max(MARGIN, 4096, 2 * count)
