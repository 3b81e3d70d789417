"""Types with fewer bits: which lie below a dtype, and which numbers fit in one."""

import numpy as np
import pytest

from gradcheck.numerics.narrow import fits_narrow, narrower


@pytest.mark.parametrize(
    ("dtype", "below"),
    [
        ("float64", {"tf32", "bfloat16", "float16", "float32"}),
        ("float32", {"tf32", "bfloat16", "float16"}),
        ("float16", {"bfloat16"}),
        ("bfloat16", set()),
    ],
)
def test_the_types_below_a_dtype_are_those_with_fewer_bits(dtype, below):
    assert {one.name for one in narrower(dtype)} == below


FULL = {"float64": 1 + 2.0**-24, "float32": 1 + 2.0**-11}
"""The least number above 1 that float32, or TF32, does not hold."""
SHORT = {"float64": 1 + 2.0**-23, "float32": 1 + 2.0**-10}
"""The least one above 1 that it holds."""


@pytest.mark.parametrize("dtype", FULL)
@pytest.mark.parametrize(
    ("full", "short", "zeros", "fits"),
    [
        (0, 4, 0, True),
        (4, 0, 0, False),
        (2, 3, 0, True),
        (2, 2, 0, False),  # half of them are not most of them
        (3, 2, 0, False),
        (2, 3, 9, True),
        (1, 1, 9, False),  # zeros say nothing
        (0, 0, 9, False),
    ],
)
def test_numbers_fit_where_most_that_are_not_zero_do(dtype, full, short, zeros, fits):
    values = [FULL[dtype]] * full + [-SHORT[dtype]] * short + [0.0] * zeros
    assert fits_narrow(np.array(values, dtype=dtype), dtype) is fits
