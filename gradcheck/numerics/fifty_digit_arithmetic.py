"""The 50-digit arithmetic: the closed namespace over object arrays of mpmath numbers.

Sums and products are exact and rounded once. A number of mpmath is ±m·2ᵉ: with a common exponent, a
sum, or a sum of products, is one of Python's integers, which costs a tenth of operations that round
one by one. Numbers that have no common exponent (an infinity, NaN, exponents far apart) are added
by mpmath.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from operator import mul
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradcheck.numerics.arithmetic import DIGITS, Arithmetic, Array, Axis

Whole = tuple[list[int], int]
"""Integers, and the exponent of two that all of them share."""

SPAN: Final = 1 << 14
"""The largest difference of exponents: beyond it, mpmath's own sum is faster."""


class NoCommonExponent(ValueError):  # noqa: N818  a property of numbers
    """Numbers that have no common exponent."""


def aligned(numbers: Sequence[Any]) -> Whole:
    """Numbers of mpmath as integers times one power of two.

    Raises:
        NoCommonExponent: a value is not a finite mpmath number, or exponents lie too far apart.
    """
    try:
        raw = [number._mpf_ for number in numbers]
    except AttributeError as error:
        raise NoCommonExponent(str(error)) from None
    low = min([exponent for _, whole, exponent, _ in raw if whole], default=0)
    out = []
    for sign, whole, exponent, _ in raw:
        up = exponent - low
        if up > SPAN or (exponent and not whole):
            raise NoCommonExponent("no common exponent")
        up = whole << up if whole else whole
        out.append(-up if sign else up)
    return out, low


def exact_sum(numbers: Whole) -> tuple[int, int]:
    """The sum: an integer and its exponent."""
    return sum(numbers[0]), numbers[1]


def exact_product(x: Whole, y: Whole) -> tuple[int, int]:
    """The sum of the products of pairs: an integer and its exponent."""
    return sum(map(mul, x[0], y[0])), x[1] + y[1]


def reduced_rows(x: Array, axis: Axis) -> tuple[Array, list[int], list[int]]:
    """`x` with the axes that are reduced, all of them or `axis`, as its last one.

    Returns:
        The rows [..., k]; the shape without these axes; the shape with 1 in their places.
    """
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    gone = sorted({a % x.ndim for a in axes} if x.ndim else ())
    left = [a for a in range(x.ndim) if a not in gone]
    shape = [x.shape[a] for a in left]
    rows = x.transpose(*left, *gone).reshape(*shape, math.prod(x.shape[a] for a in gone))
    return rows, shape, [1 if a in gone else n for a, n in enumerate(x.shape)]


def aligned_rows(x: Array) -> Array:
    """The last axis of `x` [..., k], aligned: an object array [...].

    Raises:
        NoCommonExponent: as `aligned`.
    """
    flat = x.reshape(-1, x.shape[-1])
    out = np.empty(len(flat), dtype=object)
    for i, row in enumerate(flat.tolist()):
        out[i] = aligned(row)
    return out.reshape(x.shape[:-1])


def rounded_floats(numbers: Sequence[Any]) -> list[float]:
    """Numbers of mpmath rounded to float64.

    Raises:
        NoCommonExponent: a value is not a finite mpmath number, or is too large.
    """
    try:
        raw = [number._mpf_ for number in numbers]
        # Python rounds an integer to the nearest float, as mpmath does.
        out = [math.ldexp(-whole if sign else whole, exponent) for sign, whole, exponent, _ in raw]
    except (AttributeError, OverflowError) as error:
        raise NoCommonExponent(str(error)) from None
    if any(exponent and not whole for _, whole, exponent, _ in raw):
        raise NoCommonExponent("not finite")
    return out


def float64_parts(values: NDArray[np.float64]) -> list[tuple[int, int, int, int]]:
    """Finite float64 values [n] as mpmath stores numbers: sign, odd integer, exponent, bits."""
    fraction, exponent = np.frexp(np.abs(values))
    whole = np.ldexp(fraction, 53).astype(np.int64)
    zeros = np.frexp((whole & -whole).astype(np.float64))[1] - 1  # binary ones at its end
    zeros = np.where(whole == 0, 0, zeros)
    here = whole != 0
    return list(
        zip(
            (values < 0).astype(int).tolist(),
            (whole >> zeros).tolist(),
            np.where(here, exponent - 53 + zeros, 0).tolist(),
            np.where(here, 53 - zeros, 0).tolist(),
            strict=True,
        )
    )


MIN_CONVERTED_TOGETHER: Final = 16
"""Arrays below this size are converted element by element, which is faster."""


class BigArithmetic(Arithmetic):
    """Object arrays of mpmath numbers with 50 significant digits."""

    def __init__(self) -> None:
        """Set up a private mpmath context, independent of the global precision."""
        import mpmath  # deferred: 80 ms

        context = mpmath.mp.clone()
        context.dps = DIGITS
        context.npconvert = _refusing(context.npconvert)
        self.context = context
        self.name = "mp50"
        self.dtype = np.dtype(object)
        for name in ("exp", "expm1", "log", "log1p", "sqrt", "tanh", "sin", "cos", "erf"):
            setattr(self, name, self._lifted(getattr(context, name)))
        power = np.frompyfunc(context.power, 2, 1)
        self.power = lambda x, y: self._wrap(power(x, y))
        self._number = np.frompyfunc(context.mpf, 1, 1)
        self._total = np.frompyfunc(lambda x: context.mpf(exact_sum(x)), 1, 1)
        self._product = np.frompyfunc(lambda x, y: context.mpf(exact_product(x, y)), 2, 1)
        self._constants: dict[tuple[str, int], Any] = {}

    def _lifted(self, function: Callable[[Any], Any]) -> Callable[[Array], Array]:
        ufunc = np.frompyfunc(function, 1, 1)
        return lambda x: self._wrap(ufunc(x))

    def asarray(self, values: ArrayLike) -> Array:
        values = np.asarray(values)
        if values.dtype != object:
            values = values.astype(np.float64)
        if (
            values.dtype == object
            or values.size < MIN_CONVERTED_TOGETHER
            or not np.isfinite(values).all()
        ):
            return self._wrap(self._number(values))
        out = np.empty(values.size, dtype=object)
        make, whole = self.context.make_mpf, type(self.context.one.man)  # int, or gmpy2's
        out[:] = [make((s, whole(m), e, b)) for s, m, e, b in float64_parts(values.reshape(-1))]
        return out.reshape(values.shape)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self.context.zero, dtype=object)

    def full(self, shape: tuple[int, ...], text: str) -> Array:
        return np.full(shape, self.const(text)[()], dtype=object)

    def sum(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        x = np.asarray(x)  # NumPy turns 0-d results into scalars
        if x.dtype != object or axis == () or not (x.ndim and x.size):
            return super().sum(x, axis, keepdims)
        rows, shape, kept = reduced_rows(x, axis)
        try:
            totals = self._total(aligned_rows(rows))
        except NoCommonExponent:
            return super().sum(x, axis, keepdims)
        return self._wrap(totals).reshape(kept if keepdims else shape)

    def matmul(self, x: Array, y: Array) -> Array:
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype != object or y.dtype != object or min(x.ndim, y.ndim) < 2 or not x.shape[-1]:
            return super().matmul(x, y)
        try:
            left, right = aligned_rows(x), aligned_rows(np.swapaxes(y, -1, -2))
        except NoCommonExponent:
            return super().matmul(x, y)
        if x.shape[-1] != y.shape[-2]:
            return super().matmul(x, y)  # raises for mismatched shapes
        return self._wrap(self._product(left[..., :, None], right[..., None, :]))

    def inner(self, x: Array, y: Array) -> Any:
        """The sum of x·y over all elements of two arrays of one shape: a number."""
        try:
            pair = [aligned(np.ravel(part).tolist()) for part in (x, y)]
        except NoCommonExponent:
            return np.sum(x * y)
        return self.context.mpf(exact_product(*pair))

    def const(self, text: str) -> Any:
        key = text, self.context.prec
        if key not in self._constants:
            self._constants[key] = self.context.mpf(text)
        return np.asarray(self._constants[key], dtype=object)

    @property
    def pi(self) -> Any:
        return self._scalar(self.context.pi)

    def sqrt_of(self, number: float) -> Any:
        return self._scalar(self.context.sqrt(number))

    def _like(self, x: Any) -> Any:
        return self.context.mpf(x) if isinstance(x, (int, float)) else x

    def _wrap(self, x: Any) -> Array:
        # Arithmetic on 0-d object arrays decays to bare mpf, and an empty sum to int 0.
        array = np.asarray(x, dtype=object)
        if array.ndim == 0 and isinstance(array[()], int):
            return np.asarray(self.context.mpf(array[()]), dtype=object)
        return array

    def _scalar(self, number: Any) -> Any:
        # A 0-d array: a bare mpf times an array first formats the whole array for the message of
        # an exception that mpmath catches itself.
        return np.asarray(self.context.mpf(number), dtype=object)

    def to_float64(self, x: Any) -> NDArray[np.float64]:
        """Round to float64."""
        x = np.asarray(x, dtype=object)
        try:
            flat = rounded_floats(x.ravel().tolist())
        except NoCommonExponent:
            return np.asarray(x.astype(np.float64))
        return np.array(flat, dtype=np.float64).reshape(x.shape)


def _refusing(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap mpmath's conversion of NumPy's numbers, so that it refuses arrays at once.

    mpmath tries it for a number times an array; its own exception would format the whole array.
    """

    def refusing(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            raise TypeError("an array is not a number")
        return convert(x)

    return refusing


@cache
def mp50() -> BigArithmetic:
    """The 50-digit arithmetic; imports mpmath on first use."""
    return BigArithmetic()
