"""A copy of a forward's code whose names support big numbers: buffers, `math`, SciPy.

NumPy's protocols do not see `np.zeros(n)`, `np.asarray(x, dtype=float)`, `float(x)`, `math.exp(x)`
or a function of SciPy. So forward is copied: equal code, but in the copy's globals `np`, `math`,
`float` and others are stand-ins that treat big numbers here and pass anything else to the original.
Modules, the user's functions, objects and their state remain unchanged.
"""

from __future__ import annotations

import functools
import math
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from gradcheck.numerics.highprecision import scipy
from gradcheck.numerics.highprecision.array import (
    BigArray,
    FloatDtype,
    big,
    by_name,
    cast,
    wrapped,
)
from gradcheck.numerics.highprecision.numbers import numbers
from gradcheck.numerics.highprecision.ufuncs import ELEMENTWISE

LIBRARIES: Final = frozenset(
    {"numpy", "scipy", "mpmath", "torch", "jax", "gradcheck", *sys.stdlib_module_names}
    - {"__main__"}
)
"""Packages whose functions are not copied."""


class Rebound:
    """Makes copies of functions and objects, each once."""

    def __init__(self) -> None:
        """Register the stand-ins."""
        self._copies: dict[int, tuple[Any, Any]] = {}  # keeping the original keeps its id unique
        later = {f: _of_big(f, ours) for f, ours in scipy.table().items()}  # SciPy may load late
        for original, ours in (*(_stand_ins() | later).items(), *scipy.objects()):
            self._copies[id(original)] = original, ours

    def __call__(self, x: Any) -> Any:
        """The copy of a function, module, object or container; anything else unchanged."""
        known = self._copies.get(id(x))
        if known is not None:
            return known[1]
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            return self._keep(x, types.MethodType(self(x.__func__), self(x.__self__)))
        if isinstance(x, types.ModuleType):
            return self._module(x)
        if isinstance(x, functools.partial):
            again = functools.partial(self(x.func), *map(self, x.args))
            again.keywords.update({key: self(v) for key, v in x.keywords.items()})
            return self._keep(x, again)
        if type(x) is tuple:
            return x if _has_numbers_alone(x) else tuple([self(v) for v in x])
        if type(x) is list:
            items: list[Any] = self._keep(x, [])
            items.extend(x if _has_numbers_alone(x) else map(self, x))
            return items
        if type(x) is dict:
            values: dict[Any, Any] = self._keep(x, {})
            alone = _has_numbers_alone(x.values())
            values.update(x if alone else {key: self(v) for key, v in x.items()})
            return values
        return self._object(x) if _is_plain(type(x)) else x

    def _keep(self, x: Any, copy: Any) -> Any:
        self._copies[id(x)] = x, copy
        return copy

    def _function(self, f: types.FunctionType) -> Any:
        if f.__globals__.get("__name__", "").partition(".")[0] in LIBRARIES:
            return f
        copy = types.FunctionType(
            f.__code__,
            self._globals(f.__globals__),
            f.__name__,
            f.__defaults__,
            tuple(map(self._cell, f.__closure__)) if f.__closure__ else None,
        )
        copy.__kwdefaults__ = f.__kwdefaults__
        copy.__dict__.update(f.__dict__)
        self._keep(f, copy)
        for cell, own in zip(copy.__closure__ or (), f.__closure__ or (), strict=True):
            if cell is not own:
                cell.cell_contents = self(own.cell_contents)
        return copy

    def _cell(self, cell: types.CellType) -> types.CellType:
        """A new cell for contents with copies; others are shared, so that `nonlocal` works."""
        try:
            held = cell.cell_contents
        except ValueError:  # still empty
            return cell
        return types.CellType() if callable(held) or _has_copy(held) else cell

    def _globals(self, names: dict[str, Any]) -> dict[str, Any]:
        known = self._copies.get(id(names))
        if known is not None:
            return known[1]  # type: ignore[no-any-return]
        return self._keep(names, _Globals(names, self))  # type: ignore[no-any-return]

    def _module(self, module: types.ModuleType) -> Any:
        top = module.__name__.partition(".")[0]
        if top in LIBRARIES - {"numpy", "scipy", "math"}:
            return module
        return self._keep(module, _Namespace(module, self))

    def _object(self, x: Any) -> Any:
        """A copy of an object with copies of its methods; a forward's writes stay in the copy."""
        methods = {}
        for owner in reversed(type(x).__mro__):
            if not _is_users(owner):
                continue
            for name, value in vars(owner).items():
                if isinstance(value, types.FunctionType) and name != "__init__":
                    methods[name] = self(value)
        copy = self._keep(x, object.__new__(type(type(x).__name__, (type(x),), methods)))
        for name, value in vars(x).items():
            copy.__dict__[name] = self(value)
        return copy


class _Globals(dict[str, Any]):
    """The globals of copied functions: a name is copied at its first use."""

    def __init__(self, names: dict[str, Any], copies: Rebound) -> None:
        super().__init__(float=Float)
        self._names, self._copies = names, copies

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._copies(self._names[name])
        return value


class _Namespace(types.ModuleType):
    """A module whose members are the copies."""

    def __init__(self, module: types.ModuleType, copies: Rebound) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, _copies=copies)

    def __getattr__(self, name: str) -> Any:
        return self._copies(getattr(self._module, name))


def _is_users(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in LIBRARIES | {"builtins"}


class _Plain:
    """A plain Python class without slots, for comparison."""


def _is_plain(kind: type) -> bool:
    """Whether objects of a user's class consist of their `__dict__` only, without C state."""
    return (
        _is_users(kind)
        and type(kind) is type
        and vars(object)["__new__"] is getattr(kind, "__new__", None)
        and (kind.__basicsize__, kind.__dictoffset__)
        == (_Plain.__basicsize__, _Plain.__dictoffset__)
    )


def _has_numbers_alone(values: Iterable[Any]) -> bool:
    """Whether a container holds nothing to copy."""
    return {type(v) for v in values} <= {int, float, complex, bool, str, bytes, type(None)}


def _has_copy(x: Any) -> bool:
    return isinstance(x, (types.ModuleType, list, tuple, dict)) or _is_users(type(x))


# ── stand-ins ────────────────────────────────────────────────────────────────────────────────


def holds_big(x: Any) -> bool:
    """Whether `x` is, or holds somewhere, big numbers."""
    if isinstance(x, BigArray) or type(x) in numbers().kinds:
        return True
    if getattr(x, "holds_big", False) is True:  # of JAX or PyTorch
        return True
    if isinstance(x, np.ndarray):
        return x.dtype == object and any(type(v) in numbers().kinds for v in x.flat)
    return isinstance(x, (list, tuple)) and any(map(holds_big, x))


class _IsFloat(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, float)


class Float(float, metaclass=_IsFloat):
    """`float`, which leaves a big number one."""

    dtype = np.dtype(np.float64)  # read by np.dtype(float)

    def __new__(cls, x: Any = 0.0) -> Any:
        if holds_big(x):
            return big(x).item()
        return float(x)


class _IsFloat64(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, np.float64)


class Float64(np.float64, metaclass=_IsFloat64):
    """`np.float64`, which leaves big numbers as they are."""

    def __new__(cls, x: Any = 0.0) -> Any:
        return cast(big(x), np.float64, "float64") if holds_big(x) else np.float64(x)


def _maker(original: Callable[..., Any]) -> Callable[..., Any]:
    """A constructor whose floating arrays as wide as forward's own hold big numbers."""

    @functools.wraps(original)
    def made(*args: Any, **keywords: Any) -> Any:
        array = original(*args, **keywords)
        if array.dtype == object and original is np.empty:
            array = np.zeros(array.shape)
        wide = array.dtype.kind in "fc" and array.real.dtype.itemsize >= numbers().dtype64.itemsize
        return big(array) if wide or array.dtype == object else array

    return made


def _converter(original: Callable[..., Any], copies: bool) -> Callable[..., Any]:
    """A stand-in for `np.asarray` and its relatives."""
    made = _maker(original)

    @functools.wraps(original)
    def converted(x: Any, dtype: Any = None, *args: Any, **keywords: Any) -> Any:
        if not holds_big(x):
            return made(x, dtype, *args, **keywords)
        copy = keywords.get("copy", copies)
        array = wrapped(x) if isinstance(x, np.ndarray) else big(_stacked(x))
        if dtype is not None and array.dtype != dtype:
            return cast(array, dtype, original.__name__)
        missing = (
            keywords.get("ndmin", 1 if original in (np.ascontiguousarray,) else 0) - array.ndim
        )
        array = array.copy() if copy and array is x else array
        return array[(None,) * missing] if missing > 0 else array

    return converted


def _stacked(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        parts = [_stacked(v) for v in x]
        shapes = {np.shape(p) for p in parts}
        if len(shapes) == 1 and parts:
            return np.stack([numbers().lifted(p) for p in parts])
        raise ValueError("setting an array element with a sequence")
    return x


def _of_big(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `ours` if an argument holds big numbers, else the original."""

    @functools.wraps(original)
    def either(*args: Any, **keywords: Any) -> Any:
        if any(map(holds_big, (*args, *keywords.values()))):
            return ours(*args, **keywords)
        return original(*args, **keywords)

    return either


def _issubdtype(a: Any, b: Any) -> bool:
    return bool(np.issubdtype(a._shown if isinstance(a, FloatDtype) else a, b))


@functools.cache
def _stand_ins() -> dict[Any, Any]:
    found: dict[Any, Any] = {float: Float, np.float64: Float64, np.issubdtype: _issubdtype}
    for maker in (np.zeros, np.ones, np.empty, np.full, np.eye, np.identity):
        found[maker] = _maker(maker)
    for converter in (np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray):
        found[converter] = _converter(converter, copies=False)
    found[np.array] = _converter(np.array, copies=True)
    for name in ELEMENTWISE["math"]:
        original = getattr(math, name)
        found[original] = _of_big(original, _bare(by_name(name)))
    found[math.log] = _of_big(math.log, _log)
    found[math.prod] = _of_big(
        math.prod, lambda x, start=1: np.prod(big(_stacked(list(x)))) * start
    )
    found[math.fsum] = _of_big(math.fsum, lambda x: np.sum(big(_stacked(list(x)))))
    found[math.dist] = _of_big(
        math.dist, lambda p, q: np.linalg.norm(big(_stacked(p)) - big(_stacked(q)))
    )
    return found


def _bare(ufunc: Any) -> Callable[..., Any]:
    return lambda *args: ufunc(*(big(a) if holds_big(a) else a for a in args))


def _log(x: Any, base: Any = None) -> Any:
    return np.log(big(x)) if base is None else np.log(big(x)) / np.log(big(base))
