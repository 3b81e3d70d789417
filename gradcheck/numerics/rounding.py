"""An arithmetic that carries with every number the rounding it has collected.

A spec's text that runs in it yields its result in float64 and, beside it, a first-order estimate
of the rounding error of any sensible evaluation of that text, in units of u (running error
analysis: Higham, Accuracy and Stability of Numerical Algorithms, §3.3). So the judgement knows
the cancellation inside (1 − y of a saturated softmax, x − mean at 1000, the tail of a tanh), in
every dtype, without any implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike

from gradcheck.numerics.arithmetic import FloatArithmetic
from gradcheck.numerics.arrays import Float

LIBRARY: Final = 4.0
"""Units of u that a library's exp, tanh, … may be off."""
_SUMS_COST: Final = ContextVar("_SUMS_COST", default=1.0)
_total: Final[Any] = np.add.reduce
"""The loop behind `np.sum`, whose dispatch takes longer than a small sum."""


class Rounded(NDArrayOperatorsMixin):
    """Values and the rounding error that each has collected, in units of u (same shape)."""

    __slots__ = ("error", "value")

    def __init__(self, value: ArrayLike, error: ArrayLike = 0.0) -> None:
        """Pair `value` with `error`, which is broadcast to its shape."""
        self.value = np.asarray(value, dtype=np.float64)
        error = np.asarray(error, dtype=np.float64)
        if error.shape != self.value.shape:  # broadcasting costs as much as an operation
            error = np.broadcast_to(error, self.value.shape)
        self.error = error

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.ndim

    @property
    def size(self) -> int:
        """Number of values."""
        return self.value.size

    def __getitem__(self, key: Any) -> Rounded:
        return Rounded(self.value[key], self.error[key])

    # Direct operators: on small arrays, NumPy's dispatch to `__array_ufunc__` takes as long.

    def __add__(self, other: Any) -> Rounded:
        return _add(self, other)

    def __radd__(self, other: Any) -> Rounded:
        return _add(other, self)

    def __sub__(self, other: Any) -> Rounded:
        return _subtract(self, other)

    def __rsub__(self, other: Any) -> Rounded:
        return _subtract(other, self)

    def __mul__(self, other: Any) -> Rounded:
        return _multiply(self, other)

    def __rmul__(self, other: Any) -> Rounded:
        return _multiply(other, self)

    def __truediv__(self, other: Any) -> Rounded:
        return _divide(self, other)

    def __rtruediv__(self, other: Any) -> Rounded:
        return _divide(other, self)

    def __neg__(self) -> Rounded:
        return Rounded(-self.value, self.error)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.add and method == "at":
            target, index, rows = inputs
            value, error = target.value.copy(), target.error.copy()
            size, count = np.abs(value), np.zeros(value.shape)
            for array, added in (
                (value, _value(rows)),
                (error, _error(rows)),
                (size, np.abs(_value(rows))),
                (count, 1.0),
            ):
                np.add.at(array, index, added)
            target.value, target.error = value, error + _summed(value, _grown(size, count))
            return None
        if method != "__call__" or kwargs:
            return NotImplemented
        if ufunc in _COMPARISONS:
            return ufunc(*map(_value, inputs))
        rule = _RULES.get(ufunc)
        return NotImplemented if rule is None else rule(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.shape, np.ndim):
            return function(self.value)
        if function in _RANK:
            return function(_value(args[0]), *args[1:], **kwargs)
        if function in _SUMS:
            return _SUMS[function](*args, **kwargs)
        if function in _STRUCTURAL:
            value = function(*_map(_value, args), **kwargs)
            return Rounded(value, function(*_map(_structure_error, args), **kwargs))
        return NotImplemented


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Rounded) else x


def _error(x: Any) -> Any:
    """Errors of a number: a Python float is rounded on entry, an integer is exact."""
    if isinstance(x, Rounded):
        return x.error
    if isinstance(x, float):
        return abs(x) if math.isfinite(x) else 0.0
    return np.zeros(np.shape(x))


def _last_place(value: Any) -> Any:
    """The cost of one rounding of `value`; an infinity (a masked score) is exact."""
    size = np.abs(value)
    return np.where(size < np.inf, size, 0.0)


def _structure_error(x: Any) -> Any:
    """The error that moves with a value under structural functions; indices stay."""
    return _error(x) if isinstance(x, (Rounded, float)) else x


def _map(pick: Callable[[Any], Any], args: Sequence[Any]) -> list[Any]:
    return [[pick(a) for a in arg] if isinstance(arg, (list, tuple)) else pick(arg) for arg in args]


def _grown(size: Any, count: Any) -> Any:
    """The cost of a sum of `count` terms of total `size`.

    It grows as √count in the summation orders that implementations use.
    """
    return 2 * np.sqrt(count) * size


def _sum(x: Rounded, axis: Any = None, keepdims: bool = False) -> Rounded:
    value = _total(x.value, axis=axis, keepdims=keepdims)
    count = x.value.size / max(value.size, 1)
    carried = _total(x.error, axis=axis, keepdims=keepdims)
    grown = _grown(_total(np.abs(x.value), axis=axis, keepdims=keepdims), count)
    return Rounded(value, carried + _summed(value, grown))


@contextmanager
def sums_kept_wide(cost: float) -> Iterator[None]:
    """Within the context, sums accumulate in a wider type, whose unit roundoff is `cost` units.

    Only the rounding of the result is then in units of the dtype.
    """
    before = _SUMS_COST.set(cost)
    try:
        yield
    finally:
        _SUMS_COST.reset(before)


def _summed(value: Any, grown: Any) -> Any:
    """The cost of a sum: `grown`, or if kept wide, a part of it and the last rounding."""
    cost = _SUMS_COST.get()
    return grown if cost == 1.0 else cost * grown + 2 * _last_place(value)


def _einsum(subscripts: str, *arrays: Any) -> Rounded:
    values = [_value(a) for a in arrays]
    sizes = [np.abs(v) for v in values]
    value = np.einsum(subscripts, *values)
    carried = np.zeros(value.shape)
    for k, array in enumerate(arrays):
        swapped = [*sizes[:k], np.broadcast_to(_error(array), sizes[k].shape), *sizes[k + 1 :]]
        carried = carried + np.einsum(subscripts, *swapped)
    ones = [np.broadcast_to(1.0, v.shape) for v in values]
    terms = np.max(np.einsum(subscripts, *ones), initial=1.0)
    grown = 2 * np.sqrt(terms) * np.einsum(subscripts, *sizes)
    return Rounded(value, carried + _summed(value, grown))


def _running(rule: Callable[[Any, Any], Rounded]) -> Callable[..., Rounded]:
    """A running sum or product along one axis: the rule of two operands, one after another."""

    def run(x: Rounded, axis: int) -> Rounded:
        parts = [x[(slice(None),) * (axis % x.ndim) + (k,)] for k in range(x.shape[axis])]
        out = parts[:1]
        for part in parts[1:]:
            out.append(rule(out[-1], part))
        if not out:
            return x
        pairs = ([r.value for r in out], [r.error for r in out])
        return Rounded(*(np.stack(pair, axis=axis) for pair in pairs))

    return run


def _prod(x: Rounded, axis: int, keepdims: bool = False) -> Rounded:
    if x.shape[axis] == 0:
        return Rounded(np.prod(x.value, axis=axis, keepdims=keepdims))
    last = _running(_multiply)(x, axis)[(slice(None),) * (axis % x.ndim) + (slice(-1, None),)]
    if keepdims:
        return last
    return Rounded(np.squeeze(last.value, axis), np.squeeze(last.error, axis))


def _add(a: Any, b: Any) -> Rounded:
    value = _value(a) + _value(b)
    return Rounded(value, _error(a) + _error(b) + _last_place(value))


def _subtract(a: Any, b: Any) -> Rounded:
    value = _value(a) - _value(b)
    return Rounded(value, _error(a) + _error(b) + _last_place(value))


def _multiply(a: Any, b: Any) -> Rounded:
    x, y = _value(a), _value(b)
    value = x * y
    return Rounded(value, np.abs(y) * _error(a) + np.abs(x) * _error(b) + np.abs(value))


def _divide(a: Any, b: Any) -> Rounded:
    x, y = _value(a), _value(b)
    value = np.divide(x, y)
    carried = (_error(a) + np.abs(value) * _error(b)) / np.abs(y)
    return Rounded(value, carried + np.abs(value))


def _power(a: Any, b: Any) -> Rounded:
    x, k = _value(a), _value(b)
    value = np.power(x, k)
    logs = np.log(np.where(x == 0, 1.0, np.abs(x)))
    carried = np.abs(k * np.power(x, k - 1.0)) * _error(a) + np.abs(value * logs) * _error(b)
    own = np.abs(k) if isinstance(b, int) else np.maximum(np.abs(k), LIBRARY)
    return Rounded(value, carried + own * np.abs(value))


def _matmul(a: Any, b: Any) -> Rounded:
    x, y = _value(a), _value(b)
    value = np.matmul(x, y)
    grown = 2 * math.sqrt(np.shape(x)[-1]) * np.matmul(np.abs(x), np.abs(y))
    carried = np.matmul(_error(a), np.abs(y)) + np.matmul(np.abs(x), _error(b))
    return Rounded(value, carried + _summed(value, grown))


def _chosen(first: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Rounded]:
    def rule(a: Any, b: Any) -> Rounded:
        x, y = _value(a), _value(b)
        take = first(x, y)
        return Rounded(np.where(take, x, y), np.where(take, _error(a), _error(b)))

    return rule


def _smooth(
    function: Callable[[Any], Any], slope: Callable[[Any, Any], Any]
) -> Callable[[Any], Rounded]:
    """A library function: its argument's error times |slope(x, f(x))|, plus its own."""

    def rule(a: Any) -> Rounded:
        x = _value(a)
        value = function(x)
        error = _error(a)
        # An exact argument contributes no error, even if the slope is infinite: √0.
        carried = np.where(error == 0, 0.0, np.abs(slope(x, value)) * error)
        return Rounded(value, carried + LIBRARY * np.abs(value))

    return rule


_COMPARISONS: Final = frozenset(
    {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
)
_STRUCTURAL: Final = frozenset(
    {
        np.broadcast_to, np.concatenate, np.expand_dims, np.flip, np.max, np.min, np.moveaxis,
        np.reshape, np.stack, np.swapaxes, np.take_along_axis, np.transpose, np.where,
    }
)  # fmt: skip
_RANK: Final = frozenset({np.argmax, np.argsort})
_SUMS: Final[dict[Any, Callable[..., Rounded]]] = {
    np.sum: _sum,
    np.einsum: _einsum,
    np.cumsum: _running(_add),
    np.cumprod: _running(_multiply),
    np.prod: _prod,
}
_RULES: Final[dict[Any, Callable[..., Rounded]]] = {
    np.add: _add,
    np.subtract: _subtract,
    np.multiply: _multiply,
    np.divide: _divide,
    np.power: _power,
    np.matmul: _matmul,
    np.negative: lambda a: Rounded(-a.value, a.error),
    np.absolute: lambda a: Rounded(np.abs(a.value), a.error),
    np.maximum: _chosen(np.greater_equal),
    np.minimum: _chosen(np.less_equal),
    np.exp: _smooth(np.exp, lambda _, y: y),
    np.expm1: _smooth(np.expm1, lambda _, y: y + 1),
    np.log1p: _smooth(np.log1p, lambda x, _: 1 / (1 + x)),
    np.log: _smooth(np.log, lambda x, _: 1 / x),
    np.sqrt: _smooth(np.sqrt, lambda _, y: 0.5 / y),
    np.tanh: _smooth(np.tanh, lambda _, y: 1 - y * y),
    np.sin: _smooth(np.sin, lambda x, _: np.cos(x)),
    np.cos: _smooth(np.cos, lambda x, _: np.sin(x)),
}


class RoundingArithmetic(FloatArithmetic):
    """float64 values that remember their rounding."""

    def __init__(self) -> None:
        """Set up the arithmetic."""
        super().__init__("float64")
        self.name = "rounding"
        bell = 2 / math.sqrt(math.pi)
        rule: Any = _smooth(self.erf, lambda x, _: bell * np.exp(-x * x))
        self.erf = rule

    def asarray(self, values: ArrayLike) -> Any:
        return values if isinstance(values, Rounded) else Rounded(values)

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if isinstance(x, Rounded):
            return _sum(x, axis, keepdims)
        return super().sum(x, axis, keepdims)

    def _like(self, x: Any) -> Any:
        return x

    def _wrap(self, x: Any) -> Any:
        return x


ROUNDING: Final = RoundingArithmetic()


def allowance(result: Any) -> Float | None:
    """The collected error of one result, in units of u; None for the gradient of an index.

    Elements that are not finite (an infinite slope at 0) get 0.
    """
    if result is None:
        return None
    error = result.error if isinstance(result, Rounded) else np.zeros(np.shape(result))
    return np.where(np.isfinite(error), error, 0.0)
