"""Arrays of big numbers that answer NumPy's ufuncs, functions and methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from gradcheck.numerics.arrays import Array
from gradcheck.numerics.fifty_digit_arithmetic import reduced_rows
from gradcheck.numerics.highprecision import functions, ufuncs
from gradcheck.numerics.highprecision.fourier import Fourier
from gradcheck.numerics.highprecision.linear import Linear
from gradcheck.numerics.highprecision.numbers import (
    Numbers,
    Unsupported,
    leak,
    numbers,
    unsupported,
)


class FloatDtype:
    """The value of `x.dtype`: forward's floating dtype in comparisons, `object` for new arrays.

    `np.zeros(n, x.dtype)` can hold big numbers, and `np.finfo(x.dtype)` describes forward's dtype.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        """Stand for `dtype`."""
        self.dtype = np.dtype(object)  # read by np.dtype(…)
        self._shown = dtype
        np.finfo(dtype.type)  # fills its cache, which is then searched by equality

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._shown, name)

    def __hash__(self) -> int:
        return hash(self._shown.type)  # the key of np.finfo's cache

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FloatDtype):
            return self._shown == other._shown
        try:
            return bool(self._shown == np.dtype(other))  # type: ignore[call-overload]
        except TypeError:
            return False

    def __repr__(self) -> str:
        return repr(self._shown)

    def __str__(self) -> str:
        return str(self._shown)


class BigArray(np.ndarray[Any, Any]):
    """An array of big numbers that answers NumPy's functions, methods and operators."""

    __array_priority__ = 1e6

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return _called(ufunc, method, inputs, keywords)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        return _function(func, args, kwargs)

    @property
    def dtype(self) -> Any:
        return float_dtype()

    def __getitem__(self, key: Any) -> Any:
        return wrapped(raw(self)[raw_all(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        raw(self)[raw_all(key)] = numbers().lifted(value)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    @property  # type: ignore[misc]  # read-only: a write to a part would be lost
    def real(self) -> Any:
        return wrapped(numbers().real_part(raw(self)))

    @property  # type: ignore[misc]
    def imag(self) -> Any:
        return wrapped(numbers().imag_part(raw(self)))

    def astype(self, dtype: Any, *rest: Any, **keywords: Any) -> Any:
        """A copy; a narrower floating dtype would round, and is refused."""
        return cast(self, dtype, "astype")

    def item(self, *args: Any) -> Any:
        if args or self.size == 1:
            return wrapped(np.ndarray.item(self, *args))
        raise ValueError("can only convert an array of size 1 to a scalar")

    def tolist(self) -> Any:
        return _listed(self)

    def __float__(self) -> float:
        return float(raw(self).item())

    def __round__(self, digits: int | None = None) -> Any:
        return np.round(self, digits or 0)

    def __array_finalize__(self, other: Any) -> None:
        return None

    def __reduce__(self) -> Any:
        raise leak("forward copies numbers by pickle")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __copy__(self) -> Any:
        return self.copy()

    def copy(self, order: Any = "C") -> Any:
        return wrapped(raw(self).copy(order))

    def view(self, *args: Any, **keywords: Any) -> Any:
        for dtype in (*args, *keywords.values()):
            if not (isinstance(dtype, type) and issubclass(dtype, np.ndarray)):
                if float_dtype() == dtype:
                    return self
                raise leak("forward views a number's bits")
        return np.ndarray.view(self, *args)

    def __repr__(self) -> str:
        return f"<big numbers {self.shape}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        raise leak("forward writes a number as text")

    def fill(self, value: Any) -> None:
        self[...] = value

    def flatten(self, order: Any = "C") -> Any:
        return wrapped(raw(self).flatten(order))

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None) -> None:  # type: ignore[override]
        raw(self)[...] = np.sort(raw(self), axis=axis, kind="stable")


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def method(self: BigArray, *args: Any, **keywords: Any) -> Any:
        return function(self, *args, **keywords)

    method.__name__ = name
    return method


for _name in (
    "sum", "mean", "var", "std", "max", "min", "prod", "cumsum", "cumprod", "argmax", "argmin",
    "argsort", "clip", "round", "dot", "trace", "ptp", "all", "any", "nonzero", "take", "repeat",
    "compress", "choose", "searchsorted", "diagonal", "argpartition",
):  # fmt: skip
    setattr(BigArray, _name, _method(_name))


def _refused(name: str) -> Any:
    def refused(self: BigArray, *args: Any, **keywords: Any) -> Any:
        raise leak(f"forward reads a number's memory: {name}")

    return refused


for _name in ("tobytes", "tofile", "dump", "dumps", "byteswap", "setfield", "getfield"):
    setattr(BigArray, _name, _refused(_name))
for _name in ("ctypes", "__array_interface__", "__array_struct__"):
    setattr(BigArray, _name, property(_refused(_name)))


# ── to and from ──────────────────────────────────────────────────────────────────────────────


def raw(x: BigArray) -> Array:
    """The underlying object array, which shares the numbers."""
    return np.ndarray.view(x, np.ndarray)


def raw_all(x: Any) -> Any:
    """`raw` for every array in lists, tuples and dictionaries."""
    if isinstance(x, BigArray):
        return raw(x)
    if type(x) in numbers().kinds:  # a bare number would dispatch to this module again
        return np.asarray(x, dtype=object)
    if type(x) is list:
        return [raw_all(v) for v in x]
    if isinstance(x, tuple):
        parts = [raw_all(v) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if type(x) is dict:
        return {key: raw_all(v) for key, v in x.items()}
    return x


def wrapped(x: Any) -> Any:
    """Object arrays and bare numbers as `BigArray`; anything else unchanged."""
    if isinstance(x, BigArray):
        return x
    kinds = numbers().kinds
    if type(x) in kinds:
        out = np.empty((), dtype=object)
        out[()] = x
        return out.view(BigArray)
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x.view(BigArray)
    if type(x) is list:
        return [wrapped(v) for v in x]
    if isinstance(x, tuple):
        parts = [wrapped(v) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    return x


def big(x: Any) -> BigArray:
    """Any array or number as a `BigArray`."""
    return wrapped(numbers().lifted(x))  # type: ignore[no-any-return]


def _listed(x: BigArray) -> Any:
    return [_listed(v) for v in x] if x.ndim else x


def float_dtype() -> FloatDtype:
    """The dtype that arrays of the current session show."""
    return _float_dtype(numbers().dtype64)


@cache
def _float_dtype(dtype: np.dtype[Any]) -> FloatDtype:
    return FloatDtype(dtype)


def cast(x: BigArray, dtype: Any, how: str) -> Any:
    """`x` in `dtype`; unchanged if that is at least as wide as forward's own.

    Raises:
        Leak: `dtype` is narrower.
    """
    work = numbers()
    if isinstance(dtype, FloatDtype) or dtype is object:
        return x.copy()
    dtype = np.dtype(dtype)
    if dtype.kind == "O":
        return x.copy()
    if dtype.kind == "f" and dtype.itemsize >= work.dtype64.itemsize:
        return x.copy()
    if dtype.kind == "c" and dtype.itemsize >= 2 * work.dtype64.itemsize:
        return wrapped(np.asarray(np.frompyfunc(work.complex, 1, 1)(raw(x)), dtype=object))
    if dtype.kind == "b":
        return raw(x).astype(bool)
    if dtype.kind in "iu":
        return _integers(x, dtype)
    raise leak(f"forward rounds to {dtype.name} by {how}")


def _integers(x: BigArray, dtype: np.dtype[Any]) -> Array:
    """Truncated exactly: a step function, whose slope is 0 between its steps."""
    flat = [numbers().whole(number) for number in raw(x).ravel().tolist()]
    return np.array(flat, dtype=dtype).reshape(x.shape)


# ── ufuncs ───────────────────────────────────────────────────────────────────────────────────


@cache
def _lifted(name: str, inputs: int, outputs: int) -> Any:
    scalar = _table().get(name)
    return None if scalar is None else np.frompyfunc(scalar, inputs, outputs)


@cache
def _table() -> dict[str, Callable[..., Any]]:
    return ufuncs.table(numbers())


def _loop(ufunc: np.ufunc) -> Any:
    name = ufunc.__name__
    if name in ufuncs.NATIVE or all(set(types) <= set("O->") for types in ufunc.types):
        return ufunc  # of np.frompyfunc: objects only
    if name in ufuncs.SPACING:
        raise leak(f"forward asks for the spacing of floats: {name}")
    loop = _lifted(name, ufunc.nin, ufunc.nout)
    if loop is None:
        raise unsupported(f"{name} is not known in big numbers")
    return loop


def _called(ufunc: np.ufunc, method: str, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
    out = keywords.pop("out", None)
    dtype = keywords.pop("dtype", None)
    for gone in ("casting", "order", "subok", "signature"):
        keywords.pop(gone, None)
    if isinstance(out, tuple) and len(out) == 1:
        out = out[0]
    if out is not None:
        for one in out if isinstance(out, tuple) else (out,):
            if one is not None and np.ndarray.view(one, np.ndarray).dtype.kind not in "Ob":
                text = f"forward writes into a {one.dtype} array by {ufunc.__name__}"
                raise leak(text)
    result = _METHODS[method](ufunc, inputs, raw_all(keywords))
    if dtype is not None:
        result = cast(big(result), dtype, f"{ufunc.__name__}(dtype=…)")
    if out is not None:
        pairs = zip(out, result, strict=True) if isinstance(out, tuple) else ((out, result),)
        for target, value in pairs:
            if target is not None:
                where = keywords.get("where", True)
                np.copyto(np.ndarray.view(target, np.ndarray), raw_all(value), where=where)
        return out
    return result


def elementwise(name: str, *inputs: Any) -> BigArray:
    """A function of NumPy or scipy.special by its name; SciPy need not be installed.

    Raises:
        Unsupported: it is not implemented.
    """
    work = numbers()
    loop = _lifted(name, len(inputs), 1)
    if loop is None:
        raise unsupported(f"{name} is not known in big numbers")
    result = loop(*map(work.lifted, inputs))
    work.spend(np.size(result))
    return wrapped(np.asarray(result, dtype=object))  # type: ignore[no-any-return]


def by_name(name: str) -> Callable[..., Any]:
    """The elementwise function that NumPy, SciPy, JAX, PyTorch or `math` call `name`."""
    name = ufuncs.ALIASES.get(name, name)
    ufunc = getattr(np, name, None)
    return ufunc if isinstance(ufunc, np.ufunc) else partial(elementwise, name)


def _finished(ufunc: np.ufunc, result: Any) -> Any:
    if ufunc.__name__ in ufuncs.COMPARISONS:
        return np.asarray(result).astype(bool)[()]
    if isinstance(result, tuple):
        return tuple(_finished(ufunc, part) for part in result)
    numbers().spend(np.size(result))
    return wrapped(np.asarray(result, dtype=object))


def _call(ufunc: np.ufunc, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
    work = numbers()
    summed = _products().get(ufunc.__name__)
    if summed is not None:
        return wrapped(summed(*map(work.lifted, inputs), **keywords))
    if ufunc.__name__.startswith(("bitwise", "invert", "left_", "right_")):
        raise unsupported(f"{ufunc.__name__} is not known in big numbers")
    loop = _loop(ufunc)
    values = [work.lifted(x) for x in inputs]
    where = keywords.pop("where", True)
    if where is not True:  # zeros where NumPy leaves the result undefined
        shape = np.broadcast_shapes(*(v.shape for v in values), np.shape(where))
        result = work.zeros(shape)
        where = np.broadcast_to(where, shape)
        picked = [np.broadcast_to(v, shape)[where] for v in values]
        result[where] = loop(*picked)
        return _finished(ufunc, result)
    return _finished(ufunc, loop(*values, **keywords))


def _reduce(ufunc: np.ufunc, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
    work = numbers()
    x = work.lifted(inputs[0])
    axis = keywords.get("axis", 0) if len(inputs) < 2 else inputs[1]
    keep = keywords.get("keepdims", False)
    where, initial = keywords.get("where", True), keywords.get("initial")
    if initial is np._NoValue:
        initial = None
    axis = axis if axis is None else tuple(np.atleast_1d(axis).tolist())
    work.spend(x.size)
    identity = _IDENTITIES.get(ufunc.__name__)
    if where is not True:
        neutral = initial if initial is not None else identity
        if neutral is None:
            raise ValueError(f"reduction operation '{ufunc.__name__}' needs an initial value")
        x = np.where(where, x, work.number(neutral))
    if ufunc.__name__ == "add" and initial is None and x.ndim and axis != ():
        return wrapped(work.sum(x, axis=axis, keepdims=keep))
    rows, shape, kept = reduced_rows(x, axis)
    loop = _loop(ufunc)
    start = initial if initial is not None else identity if not rows.shape[-1] else None
    result: Any
    if not x.ndim or axis == ():
        result = rows[..., 0]
    elif start is None and rows.shape[-1] == 0:
        raise ValueError(f"zero-size array to reduction operation {ufunc.__name__}")
    else:
        result = loop.reduce(rows, axis=-1) if rows.shape[-1] else None
        if start is not None:
            first = np.asarray(work.number(start), dtype=object)
            result = first if result is None else loop(first, result)
            result = np.broadcast_to(np.asarray(result, dtype=object), rows.shape[:-1]).copy()
    result = np.asarray(result, dtype=object).reshape(kept if keep else shape)
    return _finished(ufunc, result)


def _accumulate(ufunc: np.ufunc, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
    x = numbers().lifted(inputs[0])
    axis = keywords.get("axis", 0) if len(inputs) < 2 else inputs[1]
    return _finished(ufunc, _loop(ufunc).accumulate(x, axis=axis))


def _reduceat(ufunc: np.ufunc, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
    x = numbers().lifted(inputs[0])
    places = inputs[1]
    return _finished(ufunc, _loop(ufunc).reduceat(x, places, axis=keywords.get("axis", 0)))


def _outer(ufunc: np.ufunc, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
    x, y = (numbers().lifted(v) for v in inputs)
    return _call(ufunc, (x.reshape(x.shape + (1,) * y.ndim), y), keywords)


def _at(ufunc: np.ufunc, inputs: Sequence[Any], keywords: dict[str, Any]) -> None:
    target, places, *values = inputs
    if np.ndarray.view(target, np.ndarray).dtype != object:
        raise leak(f"forward writes into a {target.dtype} array by {ufunc.__name__}.at")
    into = np.ndarray.view(target, np.ndarray)
    into[...] = numbers().lifted(into)
    _loop(ufunc).at(into, raw_all(places), *map(numbers().lifted, values))


_METHODS = {
    "__call__": _call,
    "reduce": _reduce,
    "accumulate": _accumulate,
    "reduceat": _reduceat,
    "outer": _outer,
    "at": _at,
}
_IDENTITIES = {
    "add": 0,
    "multiply": 1,
    "logical_and": True,
    "logical_or": False,
    "logaddexp": -np.inf,
    "maximum": None,
}


# ── functions ────────────────────────────────────────────────────────────────────────────────


@cache
def _products() -> dict[str, Callable[..., Any]]:
    return functions.products(numbers())


@cache
def _functions() -> dict[Any, Callable[..., Any]]:
    work = numbers()

    def ufunc(name: str, *arrays: Any) -> Any:
        return raw_all(_called(getattr(np, name), "__call__", arrays, {}))

    return {
        **functions.table(work, ufunc),
        np.astype: lambda x, dtype, **_: raw_all(cast(wrapped(x), dtype, "astype")),
        **Linear(work).table(),
        **Fourier(work).table(),
    }


def _function(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    work = numbers()
    out = kwargs.pop("out", None) if func is not np.einsum else kwargs.get("out")
    dtype = kwargs.get("dtype")
    own = _functions().get(func)
    if dtype is not None and func not in _MAKERS:
        kwargs = {key: value for key, value in kwargs.items() if key != "dtype"}
    for target in (out, *_targets(func, args)):
        if (
            isinstance(target, np.ndarray)
            and np.ndarray.view(target, np.ndarray).dtype.kind in "fc"
        ):
            text = f"forward writes into a {target.dtype} array by {func.__name__}"
            raise leak(text)
    arguments, keywords = raw_all(_calling(args)), raw_all(_calling(kwargs))
    try:
        result = wrapped((own or func)(*arguments, **keywords))
    except Unsupported as error:
        raise unsupported(str(error)) from None
    except TypeError as error:
        if own is None and not _known(error):
            text = f"{_path(func)} is not known in big numbers"
            raise unsupported(text) from error
        raise
    work.spend(np.size(result) if isinstance(result, np.ndarray) else 1)
    result = _normal(result)
    if dtype is not None and func not in _MAKERS and isinstance(result, BigArray):
        result = cast(result, dtype, func.__name__)
    if out is None:
        return result
    raw_out = np.ndarray.view(out, np.ndarray)
    raw_out[...] = raw_all(result)
    return out


_MAKERS = frozenset((np.zeros_like, np.ones_like, np.empty_like, np.full_like))


def _targets(func: Callable[..., Any], args: Any) -> Any:
    return args[:1] if func in (np.copyto, np.put, np.place, np.putmask, np.put_along_axis) else ()


def _known(error: TypeError) -> bool:
    """Whether NumPy rejects the arguments, as it would for floats."""
    return "argument" in str(error) and "object" not in str(error)


def _calling(x: Any) -> Any:
    """Wrap callables among the arguments, so that they receive `BigArray`s."""
    if isinstance(x, tuple) and not hasattr(x, "_fields"):
        return tuple(_calling(v) for v in x)
    if type(x) is list:
        return [_calling(v) for v in x]
    if type(x) is dict:
        return {key: _calling(v) for key, v in x.items()}
    if callable(x) and not isinstance(x, (type, np.ndarray)) and not hasattr(x, "dtype"):
        return lambda *args, **keywords: raw_all(x(*map(wrapped, args), **keywords))
    return x


def _normal(result: Any) -> Any:
    """Convert foreign elements of a result (zeros of a padding) to big numbers."""
    if isinstance(result, BigArray):
        base = raw(result)
        normal = numbers().normal(base)
        if normal is not base:
            base[...] = normal
    elif isinstance(result, (tuple, list)):
        for part in result:
            _normal(part)
    return result


def _path(func: Callable[..., Any]) -> str:
    return f"{getattr(func, '__module__', 'numpy')}.{func.__name__}"


def _bare(x: Any) -> Any:
    """A result without `BigArray`, for calls on bare numbers."""
    x = raw_all(x)
    return x.item() if isinstance(x, np.ndarray) and x.dtype == object and not x.ndim else x


METHODS = (
    "exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh", "arcsin", "arccos", "arctan",
    "arctan2", "expm1", "log1p", "log2", "log10", "exp2", "cbrt", "rint", "fabs", "hypot",
    "arcsinh", "arccosh", "arctanh",
)  # fmt: skip
"""Methods of elements that NumPy's object loops call."""


def number_protocol(work: Numbers) -> None:
    """Give bare numbers, the elements of object arrays, NumPy's protocols and methods."""

    def ufunc_of(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return _bare(_called(ufunc, method, inputs, keywords))

    def function_of(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _bare(_function(func, args, kwargs))

    for kind in work.kinds:
        kind.__array_ufunc__ = ufunc_of
        kind.__array_function__ = function_of
        for name in METHODS:
            setattr(kind, name, _table()[name])
