"""Where views put tensors: right places, and what cannot be."""

import re

import ml_dtypes
import numpy as np
import pytest

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.expression import Context
from gradcheck.implementations.manifest.operation import CType, Role, RoleKind, View
from gradcheck.implementations.native.layout import Element, extent, place

GIVEN = frozenset({RoleKind.IN})


def put(tensor, /, *, kind=RoleKind.IN, becomes=None, **view):
    texts = {k: tuple(map(str, v)) if k in ("shape", "strides") else v for k, v in view.items()}
    view = View(role=Role(kind=kind, name="x"), becomes=becomes, **texts)
    return place(view, tensor, GIVEN, Context({}, {"ld": 7}), "here")


def positions(tensor, /, **view):
    return put(tensor, **view).positions.reshape(tensor).tolist()


@pytest.mark.parametrize(
    ("tensor", "view", "wanted"),
    [
        ((2, 3), {}, [[0, 1, 2], [3, 4, 5]]),
        ((2,), {"at": "ld - 2"}, [5, 6]),
        ((2, 3), {"strides": ["ld", 1]}, [[0, 1, 2], [7, 8, 9]]),
        ((3,), {"strides": [-1], "at": "2"}, [2, 1, 0]),
        (
            (2, 2, 2),
            {"shape": [4, 2], "strides": ["ld", 1]},
            [[[0, 1], [7, 8]], [[14, 15], [21, 22]]],
        ),
        ((), {"at": "3"}, 3),
    ],
)
def test_positions(tensor, view, wanted):
    assert positions(tensor, **view) == wanted


def test_elements_without_gaps_are_a_slice():
    assert isinstance(put((2, 3)).cells, slice)
    assert put((2,), at="5").cells == slice(5, 7)
    assert put((2, 3), strides=[3, 1]).cells == slice(0, 6)


def test_axes_from_the_outermost_in_memory():
    found = np.array(positions((2, 3, 4), axes=(2, 0, 1)))
    memory = np.arange(24).reshape(4, 2, 3)  # as it lies there: axes 2, 0, 1
    assert np.array_equal(found, memory.transpose(1, 2, 0))


def test_given_and_made():
    gradient = Role(kind=RoleKind.GRAD, name="x")
    places = put((2,)), put((2,), becomes=gradient), put((2,), kind=RoleKind.OUT)
    assert [(p.given, p.made) for p in places] == [(True, False), (True, True), (False, True)]


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ({"shape": [2, 2]}, r"a view of shape \(2, 2\) has 4 elements, x has \(2, 3\), 6 elements"),
        ({"strides": [1]}, r"1 stride for the rank 2 of \(2, 3\)"),
        ({"strides": [1, 1]}, r"strides \(1, 1\) put several elements of shape \(2, 3\) in one"),
        ({"strides": [0, 1]}, r"strides \(0, 1\) put several elements"),
        ({"axes": (0, 2)}, r"axes \[0, 2\] are no order of the 2 axes of \(2, 3\)"),
        ({"axes": (0, 0)}, r"axes \[0, 0\] are no order"),
        ({"axes": (0,)}, r"axes \[0\] are no order"),
        ({"at": "-1"}, r"`-1` yields -1; a size is not negative"),
        ({"strides": ["ld / 2", 1]}, r"yields 3.5, which is no whole number"),
    ],
)
def test_a_view_that_cannot_be(view, words):
    with pytest.raises(ManifestError, match=words):
        put((2, 3), **view)


def test_the_extent_is_up_to_the_last_element():
    assert extent([put((2, 3), strides=["ld", 1])], None, "here") == 10
    assert extent([put((2, 3)), put((2,), at="8")], None, "here") == 10
    assert extent([], None, "here") == 0
    assert extent([put((2, 3))], 6, "here") == 6
    assert put((0, 3)).count == 0
    assert extent([put((0, 3), at="9")], None, "here") == 0


@pytest.mark.parametrize(
    ("places", "size", "words"),
    [
        ([{}], 5, "here: its parts reach up to element 6, its size is 5"),
        ([{"at": "1"}], 6, "reach up to element 7"),
        ([{}, {"at": "5"}], None, "its parts overlap"),
        ([{}, {"strides": [3, 1]}], None, "its parts overlap"),
        ([{"strides": [-3, 1]}], None, "negative strides reach before its start"),
    ],
)
def test_parts_that_do_not_go_together(places, size, words):
    with pytest.raises(ManifestError, match=words):
        extent([put((2, 3), **view) for view in places], size, "here")


def test_what_one_leaves_the_other_finds():
    gradient = Role(kind=RoleKind.GRAD, name="x")
    first, then = put((2, 3)), put((2, 3), strides=[3, 1])
    assert then.follows(first)
    assert not put((2, 3), at="1").follows(first)
    assert not put((3, 2)).follows(first)
    assert not then.follows(put((2, 3), becomes=gradient))
    gapped = put((2, 3), strides=["ld", 1])
    assert gapped.follows(gapped)
    assert not gapped.follows(first)


def element(base, dtype="float64", *, floating=True):
    return Element.of(CType(base=base, pointer=1), dtype, floating=floating)


@pytest.mark.parametrize(
    ("base", "value"),
    [
        ("uint16", 65536), ("uint16", -1), ("int8", 128), ("uint64", -1), ("bool", 2),
        ("int32", 0.5), ("int32", np.nan), ("uint8", np.inf), ("int64", 2.0**63),
        ("float32", 16777217),
    ],
)  # fmt: skip
def test_a_value_that_the_type_does_not_hold(base, value):
    with pytest.raises(ManifestError, match=re.escape(f"tokens: {base} does not hold {value}")):
        element(base, floating=False).encode(np.array([value]), "tokens")


@pytest.mark.parametrize(
    ("base", "values"),
    [
        ("uint16", [0, 65535]), ("int8", [-128, 127]), ("uint64", [2**63]), ("int64", [-(2**63)]),
        ("uint8", [0.0, 255.0]), ("bool", [True, False]), ("float32", [0, 16777216]),
    ],
)  # fmt: skip
def test_a_value_that_the_type_holds(base, values):
    held = element(base, floating=False).encode(np.array(values), "")
    assert held.tolist() == values
    assert held.dtype == base


def test_floats_are_rounded_to_a_narrower_float():
    assert element("float32", "float32").encode(np.array([0.1]), "")[0] == np.float32(0.1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_bits_of_a_half(dtype):
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = np.array([1.5, -0.0, np.inf, 0.1]).astype(kind)
    one = element("uint16", dtype)
    bits = one.encode(values, "")
    assert bits.dtype == np.uint16
    assert bits.tolist() == values.view(np.uint16).tolist()
    back = one.decode(bits)
    assert back.dtype == kind
    assert back.tobytes() == values.tobytes()


def test_an_index_in_a_half_operation_is_a_number():
    tokens = element("uint16", "bfloat16", floating=False).encode(np.array([3, 7]), "")
    assert tokens.tolist() == [3, 7]


def test_a_void_pointer_leads_to_the_elements_of_the_tensor():
    for dtype, floating, storage in (
        ("float32", True, "float32"), ("bfloat16", True, "uint16"), ("float64", False, "int64"),
    ):  # fmt: skip
        assert element("void", dtype, floating=floating).storage == storage


def test_bits_survive():
    payload = np.array([0x7FF8_0000_0000_BEEF, 0x8000_0000_0000_0000], dtype=np.uint64)
    one = element("float64")
    held = one.decode(one.encode(payload.view(np.float64), ""))
    assert held.view(np.uint64).tolist() == payload.tolist()
