"""The 50-digit arithmetic: the closed namespace over object arrays of mpmath numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradcheck.numerics import exact
from gradcheck.numerics.arithmetic import DIGITS, Arithmetic, Array, Axis

FEW: Final = 16
"""Numbers that are converted one by one sooner than together."""


class BigArithmetic(Arithmetic):
    """Object arrays of mpmath numbers with 50 significant digits."""

    def __init__(self) -> None:
        """Set up a private mpmath context, so that nobody's global precision matters."""
        import mpmath  # deferred: it costs 80 ms, and most runs never need the oracle

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
        self._total = np.frompyfunc(lambda x: context.mpf(exact.total(x)), 1, 1)
        self._product = np.frompyfunc(lambda x, y: context.mpf(exact.product(x, y)), 2, 1)
        self._constants: dict[tuple[str, int], Any] = {}

    def _lifted(self, function: Callable[[Any], Any]) -> Callable[[Array], Array]:
        ufunc = np.frompyfunc(function, 1, 1)
        return lambda x: self._wrap(ufunc(x))

    def asarray(self, values: ArrayLike) -> Array:
        values = np.asarray(values)
        if values.dtype != object:
            values = values.astype(np.float64)
        if values.dtype == object or values.size < FEW or not np.isfinite(values).all():
            return self._wrap(self._number(values))
        out = np.empty(values.size, dtype=object)
        make, whole = self.context.make_mpf, type(self.context.one.man)  # int, or gmpy2's
        out[:] = [make((s, whole(m), e, b)) for s, m, e, b in exact.parts(values.reshape(-1))]
        return out.reshape(values.shape)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self.context.zero, dtype=object)

    def full(self, shape: tuple[int, ...], text: str) -> Array:
        return np.full(shape, self.const(text)[()], dtype=object)

    def sum(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        x = np.asarray(x)  # NumPy turns 0-d results into scalars
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        gone = sorted(a % x.ndim for a in axes)
        left = [a for a in range(x.ndim) if a not in gone]
        shape = [x.shape[a] for a in left]
        if x.dtype != object or not (gone and x.size):
            return super().sum(x, axis, keepdims)
        try:
            rows = exact.rows(x.transpose(*left, *gone).reshape(*shape, -1))
        except exact.Unfit:
            return super().sum(x, axis, keepdims)
        kept = [1 if a in gone else n for a, n in enumerate(x.shape)]
        return self._wrap(self._total(rows)).reshape(kept if keepdims else shape)

    def matmul(self, x: Array, y: Array) -> Array:
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype != object or y.dtype != object or min(x.ndim, y.ndim) < 2 or not x.shape[-1]:
            return super().matmul(x, y)
        try:
            left, right = exact.rows(x), exact.rows(np.swapaxes(y, -1, -2))
        except exact.Unfit:
            return super().matmul(x, y)
        if x.shape[-1] != y.shape[-2]:
            return super().matmul(x, y)  # it says what does not fit
        return self._wrap(self._product(left[..., :, None], right[..., None, :]))

    def inner(self, x: Array, y: Array) -> Any:
        """The sum of x·y over all elements of two arrays of one shape: a number."""
        try:
            pair = [exact.aligned(np.ravel(part).tolist()) for part in (x, y)]
        except exact.Unfit:
            return np.sum(x * y)
        return self.context.mpf(exact.product(*pair))

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
        # A 0-d array: a bare mpf times an array first formats the whole array for an error
        # message that nobody sees.
        return np.asarray(self.context.mpf(number), dtype=object)

    def to_float64(self, x: Any) -> NDArray[np.float64]:
        """Round to float64."""
        x = np.asarray(x, dtype=object)
        try:
            flat = exact.floats(x.ravel().tolist())
        except exact.Unfit:
            return np.asarray(x.astype(np.float64))
        return np.array(flat, dtype=np.float64).reshape(x.shape)


def _refusing(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Mpmath's conversion of NumPy's numbers, which takes no array.

    Of a number times an array it asks first whether the array is a number: its own error would
    hold the whole array as text, for nobody to see.
    """

    def refusing(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            raise TypeError("an array is no number")
        return convert(x)

    return refusing


@cache
def mp50() -> BigArithmetic:
    """The 50-digit arithmetic; imports mpmath on first use."""
    return BigArithmetic()
