import ctypes

import numpy as np
import pytest

from gradcheck.judge.contract.purity import guarded, is_write, mutated


def test_the_copies_hold_the_same_bits_and_share_nothing():
    x = np.array([[1.0, -0.0, np.nan], [np.inf, 2.0**-1074, 3.0]])
    i = np.array([3, 1])
    copies = guarded([x, x[:, ::2], np.asfortranarray(x), i, np.float32(2.0)])
    for copy, original in zip(copies, [x, x[:, ::2], x, i, np.float32(2.0)], strict=True):
        assert copy.tobytes() == original.tobytes()
        assert copy.dtype == original.dtype
        assert copy.flags.c_contiguous
        assert copy.flags.owndata
        assert not copy.flags.writeable
        assert not np.shares_memory(copy, x)


def write_item(x):
    x[0] = 1


def write_in_place(x):
    x += 1


def write_through_out(x):
    np.multiply(x, 2.0, out=x)


def write_through_a_view(x):
    x.reshape(-1)[:1] = 1


def fill(x):
    x.fill(0.0)


def sort(x):
    x.sort()


def put(x):
    np.put(x, [0], [1.0])


def copy_to(x):
    np.copyto(x, 1.0)


@pytest.mark.parametrize(
    "write",
    [write_item, write_in_place, write_through_out, write_through_a_view, fill, sort, put, copy_to],
)
def test_writing_through_numpy_raises_and_is_recognised(write):
    (copy,) = guarded([np.array([3.0, 1.0, 2.0])])
    with pytest.raises(ValueError, match="read-only") as caught:
        write(copy)
    assert is_write(caught.value)
    assert copy.tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "error", [ValueError("shapes differ"), TypeError("read-only"), OSError("read-only file system")]
)
def test_another_error_is_no_write(error):
    assert not is_write(error)


def through_ctypes(copy):
    ctypes.memset(copy.ctypes.data, 0xFF, 1)


def through_ctypeslib(copy):
    pointer = copy.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    np.ctypeslib.as_array(pointer, copy.shape)[-1] = 7.0


def through_the_flag(copy):
    copy.flags.writeable = True
    copy[1] = -copy[1]


def through_a_sign_bit(copy):
    copy.setflags(write=True)
    copy[0] = -0.0


def through_the_bits_of_a_nan(copy):
    copy.setflags(write=True)
    copy.view(np.uint64)[2] += 1


@pytest.mark.parametrize(
    "write",
    [
        through_ctypes,
        through_ctypeslib,
        through_the_flag,
        through_a_sign_bit,
        through_the_bits_of_a_nan,
    ],
)
def test_a_write_behind_numpys_back_shows_in_the_bytes(write):
    x, w = np.array([0.0, 1.0, np.nan]), np.array([5.0])
    copies = guarded([w, x])
    assert mutated([w, x], copies, "wx") is None
    write(copies[1])
    assert mutated([w, x], copies, "wx") == "x"


def test_the_first_argument_that_changed_is_named():
    before = [np.zeros(2), np.zeros(2), np.zeros(2)]
    after = [np.zeros(2), np.ones(2), np.ones(2)]
    assert mutated(before, after, ["ct", "x", "w"]) == "x"


def test_a_primal_in_another_memory_order_has_not_changed():
    x = np.arange(6.0).reshape(2, 3)
    for original in (np.asfortranarray(x), x[:, ::-1], np.broadcast_to(x[0], (4, 3))):
        assert mutated([original], guarded([original]), "x") is None
