import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from gradcheck.implementations.torch_op import array_of, lent, tensor_of
from gradcheck.numerics.arrays import dtype_named

X = np.arange(12.0).reshape(3, 4)
LAYOUTS = {
    "C": X,
    "Fortran": np.asfortranarray(X),
    "every second": np.repeat(np.repeat(X, 2, 0), 2, 1)[::2, ::2],
    "offset": np.concatenate([[9.0], X.reshape(-1)])[1:].reshape(3, 4),
    "expanded": np.broadcast_to(np.arange(4.0), (3, 4)),
    "one value": np.broadcast_to(np.float64(2), (3, 4)),
    "scalar": np.array(3.0),
    "empty": np.zeros((3, 0)),
}


def sealed(array):
    view = array.view()
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_read_only_array_is_copied_with_its_strides(name):
    array = LAYOUTS[name]
    copy = lent(sealed(array))
    np.testing.assert_array_equal(copy, array)
    assert not np.shares_memory(copy, array)
    assert copy.flags.writeable
    assert copy.strides == array.strides or not array.size


def test_a_writable_array_is_lent_itself():
    for array in (X, X.T, X[:, ::2]):
        assert lent(array) is array


def test_gaps_between_elements_hold_nan():
    copy = lent(sealed(X[:, ::2]))
    assert np.isnan(as_strided(copy, (3, 3), (32, 8))[:, 1]).all()


@pytest.mark.parametrize("array", [X[::-1], X[:, ::-1], X[::-1, ::-1]])
def test_negative_strides_become_c_order_for_pytorch_ends_the_process_on_them(array):
    for given in (array, sealed(array)):
        copy = lent(given)
        np.testing.assert_array_equal(copy, array)
        assert copy.flags.c_contiguous


def test_strides_that_are_no_multiple_of_an_item_become_c_order():
    field = np.zeros(4, dtype=[("a", "i4"), ("b", "f8")])["b"]
    assert field.strides == (12,)
    assert lent(field).strides == (8,)


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_tensors_have_the_bits_and_the_strides_of_the_array_both_ways(name, dtype):
    torch = pytest.importorskip("torch")
    layout = LAYOUTS[name]
    array = np.empty_like(layout, dtype=dtype_named(dtype), subok=False)
    array[...] = layout
    if 0 in layout.strides:
        array = np.broadcast_to(array[:1] if name == "expanded" else array[:1, :1], layout.shape)
    for given in (array, sealed(array)):
        tensor = tensor_of(torch, given)
        assert str(tensor.dtype) == f"torch.{dtype}"
        if array.size:
            assert tensor.stride() == tuple(s // array.itemsize for s in array.strides)
        back = array_of(tensor)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert back.tobytes() == array.tobytes()


@pytest.mark.frameworks
def test_a_writable_array_and_its_tensor_share_memory():
    torch = pytest.importorskip("torch")
    array = np.zeros(3)
    tensor_of(torch, array)[1] = 5
    assert array.tolist() == [0, 5, 0]
    tensor = torch.zeros(3)
    array_of(tensor)[2] = 7
    assert tensor.tolist() == [0, 0, 7]


@pytest.mark.frameworks
def test_a_tensor_that_only_says_zero_or_is_conjugate_or_in_a_graph_becomes_an_array():
    torch = pytest.importorskip("torch")
    assert array_of(torch._efficientzerotensor(2)).tolist() == [0, 0]
    assert array_of(torch.ones(2, requires_grad=True) * 3).tolist() == [3, 3]
    assert array_of(torch.eye(2).to_sparse()).tolist() == [[1, 0], [0, 1]]
    negative = torch.view_as_complex(torch.ones(2, 2)).conj().imag
    assert negative.is_neg()
    assert array_of(negative).tolist() == [-1, -1]
