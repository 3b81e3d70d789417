"""Sums and products of 50-digit numbers in whole numbers: exact, and rounded once.

A number of mpmath is ±m·2ᵉ. Where numbers are brought to one exponent, their sum, or a sum of their
products, is one of Python's whole numbers, which costs a tenth of as many operations that round one
by one. What does not fit (an infinity, NaN, exponents that are far apart) is refused, and the
caller computes as ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Whole = tuple[list[int], int]
"""Whole numbers, and the exponent of two that all of them share."""

SPAN: Final = 1 << 14
"""Bits that exponents may lie apart: whole numbers of more would be slower than what they save."""


class Unfit(ValueError):  # noqa: N818  numbers are
    """Numbers that have no common exponent."""


def aligned(numbers: Sequence[Any]) -> Whole:
    """Numbers of mpmath as whole numbers times one power of two.

    Raises:
        Unfit: one is infinite or NaN, or is no such number, or the exponents lie too far apart.
    """
    try:
        raw = [number._mpf_ for number in numbers]
    except AttributeError as error:
        raise Unfit(str(error)) from None
    low = min([exponent for _, whole, exponent, _ in raw if whole], default=0)
    out = []
    for sign, whole, exponent, _ in raw:
        up = exponent - low
        if up > SPAN or (exponent and not whole):
            raise Unfit("no common exponent")
        up = whole << up if whole else whole
        out.append(-up if sign else up)
    return out, low


def total(numbers: Whole) -> tuple[int, int]:
    """Their sum: a whole number, and its exponent."""
    return sum(numbers[0]), numbers[1]


def product(x: Whole, y: Whole) -> tuple[int, int]:
    """The sum of the products of pairs: a whole number, and its exponent."""
    return sum(map(mul, x[0], y[0])), x[1] + y[1]


def rows(x: Array) -> Array:
    """The last axis of `x` [..., k], aligned: an object array [...].

    Raises:
        Unfit: as `aligned`.
    """
    flat = x.reshape(-1, x.shape[-1])
    out = np.empty(len(flat), dtype=object)
    for i, row in enumerate(flat.tolist()):
        out[i] = aligned(row)
    return out.reshape(x.shape[:-1])


def floats(numbers: Sequence[Any]) -> list[float]:
    """Numbers of mpmath rounded to float64.

    Raises:
        Unfit: one is infinite or NaN, or is no such number, or is too large.
    """
    try:
        raw = [number._mpf_ for number in numbers]
        # Python rounds a whole number to the nearest float, as mpmath does.
        out = [math.ldexp(-whole if sign else whole, exponent) for sign, whole, exponent, _ in raw]
    except (AttributeError, OverflowError) as error:
        raise Unfit(str(error)) from None
    if any(exponent and not whole for _, whole, exponent, _ in raw):
        raise Unfit("not finite")
    return out


def parts(values: NDArray[np.float64]) -> list[tuple[int, int, int, int]]:
    """Finite float64 values [n] as mpmath holds numbers: sign, odd whole number, exponent, bits."""
    fraction, exponent = np.frexp(np.abs(values))
    whole = np.ldexp(fraction, 53).astype(np.int64)
    zeros = np.frexp((whole & -whole).astype(np.float64))[1] - 1  # binary ones at its end
    zeros = np.where(whole == 0, 0, zeros)
    here = whole != 0
    return list(
        zip(
            ((values < 0) & here).astype(int).tolist(),
            (whole >> zeros).tolist(),
            np.where(here, exponent - 53 + zeros, 0).tolist(),
            np.where(here, 53 - zeros, 0).tolist(),
            strict=True,
        )
    )
