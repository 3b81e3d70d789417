"""Values on their way to another process: bits, layout, identity, and nothing but data."""

import json
from types import MappingProxyType

import ml_dtypes
import numpy as np
import pytest

from gradcheck.implementations.returned import Missing, as_array
from gradcheck.implementations.wire import Cargo, Packer, Unpacker, put_back


def sent(value, *, adds=True, lazily=None):
    """A value after its journey, the packer's cargo and the unpacker."""
    packer = Packer(Cargo(), adds=adds)
    said = json.loads(json.dumps(packer.pack(value)))
    blocks = [memoryview(bytes(block)) for block in packer.blocks]
    unpacker = Unpacker(Cargo(), adds=adds, lazily=lazily)
    return unpacker.unpack(said, blocks), packer, unpacker


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -(1 << 80), 1.5, -0.0, 5e-324, float("inf"), "", "é\udc80\x00",
     (), [], {}, (1, [2.0, None], {"a": (True,), 3: "x", (1, None): []})],
)  # fmt: skip
def test_plain_values_arrive_as_they_are(value):
    found, *_ = sent(value)
    assert repr(found) == repr(value)
    assert type(found) is type(value)


def test_a_nan_keeps_its_payload():
    payload = np.array([0x7FF8DEAD00000001], np.uint64).view(np.float64)
    found, *_ = sent((float(payload[0]), payload))
    assert np.float64(found[0]).tobytes() == found[1].tobytes() == payload.tobytes()


BASE = np.arange(60, dtype=np.float64).reshape(3, 4, 5)


@pytest.mark.parametrize(
    "array",
    [
        BASE, BASE.T, BASE[:, ::2, ::-1], BASE[::-1, 1:3], np.asfortranarray(BASE), BASE[1, 2, 3:4],
        np.broadcast_to(BASE[0, 0], (4, 5)), np.array(3.5), BASE[:0], BASE[:, :0, ::2],
        BASE.astype("f4"), BASE.astype("f2"), BASE.astype(ml_dtypes.bfloat16), BASE.astype(">f8"),
        BASE.astype("i8"), BASE.astype("u1"), BASE > 3, BASE.astype(complex),
        BASE.astype(ml_dtypes.bfloat16)[::2, :, ::-2],
    ],
)  # fmt: skip
@pytest.mark.parametrize("writable", [True, False])
def test_an_array_arrives_with_its_bits_dtype_layout_and_flag(array, writable):
    given = array.view()
    given.flags.writeable = writable and array.flags.writeable
    found, *_ = sent(given)
    assert (found.dtype, found.shape) == (given.dtype, given.shape)
    assert not array.size or found.strides == given.strides
    assert found.tobytes() == given.tobytes()
    assert found.flags.writeable == given.flags.writeable


def test_the_gaps_of_a_view_arrive_too():
    base = np.arange(12.0)
    found, *_ = sent(base[::3])
    wide = np.lib.stride_tricks.as_strided(found, (10,), (8,))
    assert np.array_equal(wide, base[:10])


def test_scalars_of_numpy_stay_scalars():
    for value in (np.float32(1.5), np.int64(3), ml_dtypes.bfloat16(2)):
        found, *_ = sent(value)
        assert (type(found), found) == (type(value), value)


def test_what_is_passed_twice_is_one_object():
    array, table = np.ones(3), {"a": 1}
    found, *_ = sent((array, [array], table, table))
    assert found[0] is found[1][0]
    assert found[2] is found[3]


def test_what_was_carried_before_is_named_by_its_number():
    array = np.ones(3)
    here, there = Cargo(), Cargo()
    packer = Packer(here, adds=True)
    unpacker = Unpacker(there, adds=True)
    copy = unpacker.unpack(packer.pack(array), packer.blocks)
    back = Packer(there, adds=False).pack((copy, copy[:2]))
    assert back[1][0] == ["r", 0]
    assert back[1][1][0] == "a"
    assert Unpacker(here, adds=False).unpack(back[1][0], []) is array


def test_a_missing_gradient_keeps_its_reason():
    assert sent(Missing("frozen"))[0] == Missing("frozen")


class Tensor:
    dtype = "torch.float32"

    def __init__(self, values):
        self.values = values

    def __array__(self, *_, **__):
        if self.values is None:
            raise RuntimeError("no numbers")
        return self.values


def test_a_stranger_is_told_by_its_name_its_dtype_and_its_numbers():
    found, *_ = sent(Tensor(np.arange(3.0)), adds=False)
    assert (type(found).__name__, found.dtype) == ("Tensor", "torch.float32")
    assert np.array_equal(as_array(found), np.arange(3.0))
    empty, *_ = sent(Tensor(None), adds=False)
    assert (type(empty).__name__, as_array(empty)) == ("Tensor", None)


@pytest.mark.parametrize(
    "value", [object(), b"bytes", {1, 2}, 1j, np.array(["a"]), np.array([None])]
)
def test_what_is_no_array_stays_none(value):
    found, *_ = sent(value, adds=False)
    assert as_array(found) is None
    assert type(found).__name__ == type(value).__name__


def test_a_list_that_holds_itself_is_no_array():
    endless = [1]
    endless.append(endless)
    found, *_ = sent(endless, adds=False)
    assert found[0] == 1
    assert as_array(found[1]) is None


def test_a_lazy_mapping_is_asked_for_by_name():
    class Lazy(dict):
        pass

    given = MappingProxyType({"a": 1})
    found, *_ = sent(given, lazily=lambda names: ("lazy", names))
    assert found == ("lazy", ["a"])
    assert sent(Lazy(a=1))[0] == {"a": 1}
    assert sent(given, adds=False)[0] == {"a": 1}


@pytest.mark.parametrize("of", [lambda a: a, lambda a: a.T, lambda a: a[:, ::2, ::-1]])
def test_a_write_there_is_a_write_here_even_into_what_is_read_only(of):
    mine = of(BASE.copy())
    mine.flags.writeable = False
    found, packer, unpacker = sent(mine)
    assert [*unpacker.cargo.changed()] == []
    found.flags.writeable = True
    found[0, 0, 0] = -7.0
    ((index, content),) = unpacker.cargo.changed()
    room = packer.cargo.rooms[index]
    put_back(room.low, room.size, content)
    assert mine[0, 0, 0] == -7.0
    assert mine.tobytes() == found.tobytes()


def test_views_of_one_array_share_its_memory_there_too():
    whole = np.arange(10.0)
    (left, right, outer), packer, unpacker = sent((whole[2:6], whole[4:], np.arange(3.0)))
    assert np.shares_memory(left, right)
    assert not np.shares_memory(left, outer)
    left[3] = -1.0
    wide = np.lib.stride_tricks.as_strided(left, (6,), (8,))
    wide[5] = -2.0  # beside both
    assert right[:3].tolist() == [4.0, -1.0, 6.0]
    for number, content in unpacker.cargo.changed():
        room = packer.cargo.rooms[number]
        put_back(room.low, room.size, content)
    assert whole.tolist() == [0, 1, 2, 3, 4, -1, 6, -2, 8, 9]


def test_a_view_of_much_more_travels_alone():
    _, packer, _ = sent(np.zeros(1_000_000)[10:14])
    assert [memoryview(block).nbytes for block in packer.blocks] == [32]


@pytest.mark.parametrize("strides", [None, [8]])
def test_no_bytes_become_objects(strides):
    said = ["a", 0, 0, "|O", [2], strides, 0, True]
    with pytest.raises(ValueError, match="no numbers are sent as"):
        Unpacker(Cargo(), adds=False).unpack(said, [b"\1" * 16])


def test_another_size_is_not_put_back():
    with pytest.raises(ValueError, match="another size"):
        put_back(0, 24, bytes(8))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "said",
    [["q", 1], ["r", 0], ["a", -1, 0, "<f8", [2], None, 0, True], ["f", "xx"], [], ["m", []]],
)
def test_nonsense_is_an_error(said):
    with pytest.raises((ValueError, KeyError, IndexError, TypeError)):
        Unpacker(Cargo(), adds=False).unpack(said, [])
