"""The closed `xp` namespace: one list of functions in every arithmetic, and the floats' own.

A spec's `forward(xp, …)` and `vjp(xp, ct, …)` may call these functions and Python's arithmetic
operators only; so one text serves as a float32 implementation, as a float64 forward that can be
differenced, and as the 50-digit oracle. Structural functions are NumPy's own, which work
on object arrays; transcendental ones come from mpmath in the 50-digit arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
Axis = int | tuple[int, ...] | None

DIGITS: Final = 50
"""Significant digits of the widest arithmetic, the oracle's."""


class Arithmetic:
    """One arithmetic: a name, an array dtype, and the functions that a spec may call.

    Subclasses supply the numbers (`asarray`, `const`) and the transcendental functions; structural
    functions (reshape, sum, matmul, where, …) are written once, here.
    """

    name: str
    dtype: np.dtype[Any]

    exp: Callable[[Array], Array]
    expm1: Callable[[Array], Array]
    log: Callable[[Array], Array]
    log1p: Callable[[Array], Array]
    sqrt: Callable[[Array], Array]
    tanh: Callable[[Array], Array]
    sin: Callable[[Array], Array]
    cos: Callable[[Array], Array]
    erf: Callable[[Array], Array]
    power: Callable[[Any, Any], Array]

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse names outside the list; the message says where to add them."""
        if name.startswith("__"):  # copy and pickle expect a plain AttributeError
            raise AttributeError(name)
        raise AttributeError(
            f"`xp.{name}` is not in the namespace; "
            "add it to all three arithmetics: gradcheck/numerics/{arithmetic,fifty_digits}.py"
        )

    def __repr__(self) -> str:
        return f"<arithmetic {self.name}>"

    # ── numbers ──────────────────────────────────────────────────────────────────────────────

    def asarray(self, values: ArrayLike) -> Array:
        """`values` in this arithmetic; float64 values enter the 50-digit arithmetic exactly."""
        raise NotImplementedError

    def const(self, text: str) -> Any:
        """The number written in `text`, to the precision of this arithmetic.

        Always write constants so: `np.sqrt(2 / np.pi) * x` would turn float32 into float64,
        and a Python float would be wrong after 16 digits in the 50-digit arithmetic.
        """
        raise NotImplementedError

    @property
    def pi(self) -> Any:
        """π, to the precision of this arithmetic."""
        raise NotImplementedError

    def sqrt_of(self, number: float) -> Any:
        """The square root of one exact number (a dimension, say), as a scalar."""
        raise NotImplementedError

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Zeros of this arithmetic (an object array of NumPy's zeros would hold int 0)."""
        return self.asarray(np.zeros(shape))

    def zeros_like(self, x: Array) -> Array:
        """Zeros in the shape of `x`."""
        return self.zeros(np.shape(x))

    def full(self, shape: tuple[int, ...], text: str) -> Array:
        """The number written in `text`, everywhere."""
        return self._wrap(np.broadcast_to(self.asarray(0.0) + self.const(text), shape))

    # ── element by element ───────────────────────────────────────────────────────────────────

    def abs(self, x: Array) -> Array:
        """|x|."""
        return self._wrap(np.abs(x))

    def maximum(self, x: Array, y: Any) -> Array:
        """The larger of the two, element by element."""
        return self._wrap(np.maximum(x, self._like(y)))

    def minimum(self, x: Array, y: Any) -> Array:
        """The smaller of the two, element by element."""
        return self._wrap(np.minimum(x, self._like(y)))

    def sign(self, x: Array) -> Array:
        """−1, 0 or 1."""
        return self.where(x > 0, 1.0, self.where(x < 0, -1.0, self.zeros_like(x)))

    def where(self, condition: Array, x: Any, y: Any) -> Array:
        """`x` where `condition` holds, else `y`; a bare number takes the arithmetic's dtype."""
        return self._wrap(np.where(condition, self._like(x), self._like(y)))

    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + exp(−x)), without overflow on either side."""
        e = self.exp(-self.abs(x))
        return self.where(x >= 0, 1 / (1 + e), e / (1 + e))

    # ── reductions ───────────────────────────────────────────────────────────────────────────

    def sum(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        """Sum over `axis`."""
        return self._wrap(np.sum(x, axis=axis, keepdims=keepdims))

    def mean(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        """Mean over `axis`."""
        if isinstance(axis, int):
            count = x.shape[axis]
        else:
            count = math.prod(x.shape[a] for a in (range(np.ndim(x)) if axis is None else axis))
        return self._wrap(self.sum(x, axis=axis, keepdims=keepdims) / count)

    def max(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        """Largest element over `axis`."""
        return self._wrap(np.max(x, axis=axis, keepdims=keepdims))

    def min(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        """Smallest element over `axis`."""
        return self._wrap(np.min(x, axis=axis, keepdims=keepdims))

    def prod(self, x: Array, axis: int, keepdims: bool = False) -> Array:
        """Product over one axis."""
        return self._wrap(np.prod(x, axis=axis, keepdims=keepdims))

    def cumsum(self, x: Array, axis: int) -> Array:
        """Running sum along one axis."""
        return self._wrap(np.cumsum(x, axis=axis))

    def cumprod(self, x: Array, axis: int) -> Array:
        """Running product along one axis."""
        return self._wrap(np.cumprod(x, axis=axis))

    # ── order (integers: not differentiated) ─────────────────────────────────────────────────

    def argmax(self, x: Array, axis: int) -> NDArray[np.int64]:
        """Position of the first largest element along one axis."""
        return np.asarray(np.argmax(x, axis=axis), dtype=np.int64)

    def argsort(self, x: Array, axis: int) -> NDArray[np.int64]:
        """Positions in ascending order along one axis; ties keep their order."""
        return np.asarray(np.argsort(x, axis=axis, kind="stable"), dtype=np.int64)

    # ── structure ────────────────────────────────────────────────────────────────────────────

    def einsum(self, subscripts: str, *arrays: Array) -> Array:
        """Sums of products, in NumPy's notation with an explicit `->`."""
        return self._wrap(np.einsum(subscripts, *arrays))

    def matmul(self, x: Array, y: Array) -> Array:
        """Matrix product over the last two axes; leading axes broadcast."""
        return self._wrap(np.matmul(x, y))

    def swapaxes(self, x: Array, a: int, b: int) -> Array:
        """Exchange two axes."""
        return np.swapaxes(x, a, b)

    def moveaxis(self, x: Array, source: int, destination: int) -> Array:
        """Move one axis."""
        return np.moveaxis(x, source, destination)

    def transpose(self, x: Array, axes: Sequence[int]) -> Array:
        """Rearrange all axes: axis k of the result is axis `axes[k]` of `x`."""
        return np.transpose(x, tuple(axes))

    def flip(self, x: Array, axis: int) -> Array:
        """Reverse the order along one axis."""
        return np.flip(x, axis)

    def expand_dims(self, x: Array, axis: int) -> Array:
        """Insert an axis of size 1."""
        return np.expand_dims(x, axis)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        """Same elements in row-major order, another shape."""
        return np.reshape(x, tuple(shape))

    def broadcast_to(self, x: Array, shape: Sequence[int]) -> Array:
        """Repeat `x` along new or size-1 axes."""
        return np.broadcast_to(x, tuple(shape))

    def concatenate(self, arrays: Sequence[Array], axis: int) -> Array:
        """Join along an axis that exists."""
        return np.concatenate(arrays, axis=axis)

    def stack(self, arrays: Sequence[Array], axis: int) -> Array:
        """Join along a new axis."""
        return np.stack(arrays, axis=axis)

    def pad(self, x: Array, axis: int, before: int, after: int, text: str = "0") -> Array:
        """Put `before` and `after` slices of the number in `text` around one axis."""
        shape = list(np.shape(x))
        parts = []
        for count in (before, after):
            shape[axis] = count
            parts.append(self.full(tuple(shape), text))
        return np.concatenate([parts[0], x, parts[1]], axis=axis)

    def gather(self, x: Array, index: NDArray[np.int64]) -> Array:
        """Elements `index[*k]` of the last axis of `x[…, n]`, as `[…, *k]`.

        With indices computed from shapes and attributes this is any view: strides, windows,
        im2col.
        """
        return x[..., index]

    def scatter_add(self, values: Array, index: NDArray[np.int64], size: int) -> Array:
        """Adjoint of `gather`: add `values[…, *k]` into zeros `[…, size]`; repeats accumulate."""
        out = self.zeros((*values.shape[: values.ndim - index.ndim], size))
        places: Any = (..., index)
        np.add.at(out, places, values)
        return out

    def take_along(self, x: Array, index: NDArray[np.int64], axis: int) -> Array:
        """`x` at `index` along one axis, as `np.take_along_axis`."""
        return np.take_along_axis(x, index, axis=axis)

    def add_along(self, values: Array, index: NDArray[np.int64], like: Array, axis: int) -> Array:
        """Adjoint of `take_along`: add `values` into zeros like `like`; repeats accumulate."""
        out = self.zeros_like(like)
        places: list[Any] = list(np.ogrid[tuple(slice(n) for n in index.shape)])
        places[axis] = index
        np.add.at(out, tuple(places), values)
        return out

    def take_rows(self, table: Array, index: Array) -> Array:
        """Row `index[…, t]` of `table[…, v, c]`, as `[…, t, c]`; leading axes broadcast."""
        return np.take_along_axis(*_same_rank(table, np.expand_dims(index, -1)), axis=-2)

    def add_rows(self, rows: Array, index: Array, like: Array) -> Array:
        """Adjoint of `take_rows`: add `rows[…, t, c]` into zeros like `like[v, c]`.

        Repeated indices accumulate. Leading axes of `rows` and `index` are summed over.
        """
        out = self.zeros_like(like)
        flat = np.reshape(rows, (-1, like.shape[-1]))
        np.add.at(out, np.broadcast_to(index, rows.shape[:-1]).reshape(-1), flat)
        return out

    def pick(self, x: Array, index: Array) -> Array:
        """Element `index[…]` of the last axis of `x[…, v]`, as `[…]`."""
        x, index = _same_rank(x, np.expand_dims(index, -1))
        return np.take_along_axis(x, index, axis=-1)[..., 0]

    def is_index(self, index: Array, size: int) -> Array:
        """Booleans `[…, size]`: true where the last axis's position equals `index[…]`."""
        return np.asarray(np.expand_dims(index, -1) == np.arange(size))

    def causal(self, queries: int, keys: int) -> Array:
        """Booleans `[queries, keys]`: true where query t may see key s (s ≤ t)."""
        return np.tri(queries, keys, dtype=bool)

    def positions(self, count: int) -> Array:
        """0, 1, …, count − 1 in this arithmetic."""
        return self.asarray(np.arange(count, dtype=np.float64))

    def reduce_to(self, x: Array, like: Array) -> Array:
        """Sum `x` over the axes that broadcasting added to, or stretched in, `like`'s shape."""
        extra = np.ndim(x) - np.ndim(like)
        stretched = tuple(
            axis + extra
            for axis, size in enumerate(np.shape(like))
            if size == 1 and x.shape[axis + extra] != 1
        )
        axes = (*range(extra), *stretched)
        if not axes:
            return x
        return np.reshape(self.sum(x, axis=axes), np.shape(like))

    # ── helpers of the subclasses ────────────────────────────────────────────────────────────

    def _like(self, x: Any) -> Any:
        """A bare Python number as a scalar of this arithmetic; arrays pass through."""
        return x

    def _wrap(self, x: Any) -> Array:
        """A 0-d array where NumPy returned a bare scalar."""
        return np.asarray(x)


def _reduced(ufunc: Any, x: Array, axis: Axis, keepdims: bool) -> Array:
    return np.asarray(ufunc.reduce(x, axis=axis, keepdims=keepdims))


def _same_rank(x: Array, y: Array) -> tuple[Array, Array]:
    """Both with leading axes of size 1 up to the larger rank."""
    rank = max(np.ndim(x), np.ndim(y))
    return x[(None,) * (rank - np.ndim(x))], y[(None,) * (rank - np.ndim(y))]


class FloatArithmetic(Arithmetic):
    """NumPy floats of one dtype."""

    def __init__(self, dtype: str) -> None:
        """Set up the arithmetic called `dtype` ("float32" or "float64")."""
        self.name = dtype
        self.dtype = np.dtype(dtype)
        self.exp, self.log, self.sqrt, self.power = np.exp, np.log, np.sqrt, np.power
        self.expm1, self.log1p = np.expm1, np.log1p
        self.tanh, self.sin, self.cos = np.tanh, np.sin, np.cos
        self._erf = np.frompyfunc(math.erf, 1, 1)  # NumPy has none
        self.erf = lambda x: np.asarray(self._erf(x)).astype(self.dtype)

    def asarray(self, values: ArrayLike) -> Array:
        return np.asarray(values, dtype=self.dtype)

    def const(self, text: str) -> Any:
        return float(text)  # a Python float is weak: it does not promote a float32 array

    @property
    def pi(self) -> Any:
        return math.pi

    def sqrt_of(self, number: float) -> Any:
        return math.sqrt(number)

    # The loops behind np.sum, np.max and np.min, whose dispatch takes longer than small arrays.

    def sum(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        if type(x) is not np.ndarray:
            return super().sum(x, axis, keepdims)
        return _reduced(np.add, x, axis, keepdims)

    def max(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        if type(x) is not np.ndarray:
            return super().max(x, axis, keepdims)
        return _reduced(np.maximum, x, axis, keepdims)

    def min(self, x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        if type(x) is not np.ndarray:
            return super().min(x, axis, keepdims)
        return _reduced(np.minimum, x, axis, keepdims)

    def _like(self, x: Any) -> Any:
        return self.dtype.type(x) if isinstance(x, (int, float)) else x


F32: Final = FloatArithmetic("float32")
F64: Final = FloatArithmetic("float64")
FLOATS: Final = {"float64": F64, "float32": F32}
