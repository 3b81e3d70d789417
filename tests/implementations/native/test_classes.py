"""What a C function does with memory tells the class of its defect, beside the verdict."""

import pytest


@pytest.mark.parametrize(
    ("symbol", "name", "label", "says"),
    [
        ("mul_unwritten", "y", "A", "elements of the gradient of y keep what their buffer held"),
        ("mul_adds", "x", "A", "the gradient of x is added to what its buffer held"),
        ("mul_keeps_sign", "x", "A", "depends on what its buffer held before"),
        ("mul_swapped", "x", None, ""),
        ("mul", "x", None, ""),
    ],
)
def test_what_a_buffer_held_is_an_accumulation(native, judged, entry, symbol, name, label, says):
    found = judged(native(entry(symbol)), "mul", "same-shape")[name].diagnosis
    assert (found.label if found else None) == label
    assert says in (found.says if found else "")


PACKED = "double *d, const double *dz, const double *xy, int rows, int n, int ld"


def pair(first, second):
    part = {"shape": ["rows", "n"], "strides": ["ld", "1"]}
    return {
        "size": "rows * ld",
        "parts": [{"is": first, **part}, {"is": second, **part, "at": "n"}],
    }


@pytest.mark.parametrize(
    ("symbol", "label", "says"),
    [
        ("packed_into_gap", "I", "an index into `d` leaves its part"),
        ("packed_from_gap", "I", "an index into `xy` leaves its part"),
        ("packed", None, ""),
    ],
)
def test_what_leaves_its_part_is_an_index(native, judged, entry, symbol, label, says):
    bound = {"d": pair("grad:x", "grad:y"), "xy": pair("in:x", "in:y"),
             "rows": "rows(x)", "n": "dim(x, -1)", "ld": "2 * n + 1"}  # fmt: skip
    found = judged(native(entry(symbol, PACKED, **bound)), "mul", "same-shape")
    told = next((f.diagnosis for f in found.values() if f.diagnosis), None)
    assert (told.label if told else None) == label
    assert (told.says if told else "") == says
