"""Numbers as a C type holds them."""

import re

import ml_dtypes
import numpy as np
import pytest

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.operation import CType
from gradcheck.implementations.native.layout import Element


def element(base, dtype="float64", *, floating=True):
    return Element.of(CType(base=base, pointer=1), dtype, floating=floating)


@pytest.mark.parametrize(
    ("base", "values"),
    [
        ("uint16", [65536]),
        ("uint16", [-1]),
        ("int8", [128]),
        ("uint64", [-1]),
        ("bool", [2]),
        ("int32", [0.5]),
        ("int32", [np.nan]),
        ("uint8", [np.inf]),
        ("int64", [2.0**63]),
    ],
)
def test_a_value_that_the_type_does_not_hold(base, values):
    with pytest.raises(ManifestError, match=re.escape(f"tokens: {base} does not hold {values[0]}")):
        element(base, floating=False).encode(np.array(values), "tokens")


@pytest.mark.parametrize(
    ("base", "values"),
    [
        ("uint16", [0, 65535]),
        ("int8", [-128, 127]),
        ("uint64", [2**63]),
        ("int64", [-(2**63)]),
        ("uint8", [0.0, 255.0]),
        ("bool", [True, False]),
        ("float32", [0, 16777216]),
    ],
)
def test_a_value_that_the_type_holds(base, values):
    held = element(base, floating=False).encode(np.array(values), "")
    assert held.tolist() == values
    assert held.dtype == base


def test_a_float_that_does_not_hold_an_index():
    with pytest.raises(ManifestError, match="float32 does not hold 16777217"):
        element("float32", floating=False).encode(np.array([16777217]), "")


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


@pytest.mark.parametrize(
    ("dtype", "floating", "storage"),
    [("float32", True, "float32"), ("bfloat16", True, "uint16"), ("float64", False, "int64")],
)
def test_a_void_pointer_leads_to_what_the_tensor_is(dtype, floating, storage):
    assert element("void", dtype, floating=floating).storage == storage


def test_bits_survive():
    payload = np.array([0x7FF8_0000_0000_BEEF, 0x8000_0000_0000_0000], dtype=np.uint64)
    one = element("float64")
    held = one.decode(one.encode(payload.view(np.float64), ""))
    assert held.view(np.uint64).tolist() == payload.tolist()
