"""PyTorch functions in big numbers: tensors that hold them, and the dispatch of operators.

Operators are intercepted below autograd, autocast and `torch.func`, where only PyTorch's core set
arrives: views share memory, in-place operators write into it, and PyTorch decomposes operators
that `torch_operators` does not list. PyTorch computes what does not depend on the primals.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from gradcheck.numerics.arrays import Array
from gradcheck.numerics.highprecision import torch_operators
from gradcheck.numerics.highprecision.array import BigArray, big, raw, wrapped
from gradcheck.numerics.highprecision.numbers import (
    leak,
    numbers,
    unsupported,
)

aten = torch.ops.aten
_from_numpy, _as_tensor = torch.from_numpy, torch.as_tensor

FACTORIES: Final = frozenset({
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros",
    "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like",
    "new_full", "_new_zeros_with_same_feature_meta",
})  # fmt: skip
"""Operators that allocate tensors, into which big numbers may be written later."""

RANDOM: Final = frozenset({
    "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_",
    "random_", "uniform_",
})  # fmt: skip
"""Operators that fill a tensor with random numbers."""


class BigTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor of big numbers, in an object array that its views share."""

    holds_big = True
    memory: Array

    @staticmethod
    def __new__(
        cls, memory: Array, size: Any, stride: Any, offset: int, dtype: torch.dtype
    ) -> BigTensor:
        out = torch.Tensor._make_wrapper_subclass(
            cls, size, strides=stride, storage_offset=offset, dtype=dtype, device="cpu"
        )
        out.memory = memory
        return out  # type: ignore[no-any-return]

    @property
    def value(self) -> BigArray:
        """The numbers, in the memory that they share with views."""
        if self.storage_offset() + _reach(self) > self.memory.size:
            raise unsupported("forward views a tensor as another dtype")
        width = self.memory.itemsize
        strides = [step * width for step in self.stride()]
        start = self.memory[self.storage_offset() :]
        return wrapped(as_strided(start, tuple(self.shape), strides))  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            return args[0].value
        if func is torch.Tensor.__bool__ and isinstance(args[0], BigTensor):
            return bool((args[0].value != 0).item())
        if func is torch.Tensor.tolist:
            raise leak("forward makes floats of numbers (tolist)")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatched(func, args, kwargs or {})

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return getattr(ufunc, method)(*map(held, inputs), **keywords)

    def __repr__(self, **_: Any) -> str:
        return f"<big numbers {tuple(self.shape)}>"


class Everything(TorchDispatchMode):  # type: ignore[misc]
    """Intercepts every operator, including allocations."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import dynamo, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatched(func, args, kwargs or {})


def tensor_of(values: Any, dtype: torch.dtype) -> BigTensor:
    """A new tensor of the numbers in an array."""
    array = np.array(raw(big(values)), order="C")
    steps = [step // array.itemsize for step in array.strides]
    return BigTensor(array.reshape(-1), array.shape, steps, 0, dtype)


def dispatched(func: Any, args: Any, kwargs: Any) -> Any:
    """An operator's results."""
    name = func._schema.name.partition("::")[2]
    if name in FACTORIES:
        out = func(*tree_map(_blank, args), **tree_map(_blank, kwargs))
        return tensor_of(_numbers_of(out), out.dtype) if _inexact(out.dtype) else out
    if not any(isinstance(x, BigTensor) for x in tree_flatten((args, kwargs))[0]):
        return func(*args, **kwargs)
    if name == "_local_scalar_dense":
        raise leak("forward makes a float of a number (item)")
    named = _named(func, args, kwargs)
    if name in torch_operators.TABLE:
        return _computed(func, name, named)
    if name in torch_operators.MOVES and not named.get("accumulate"):
        return _moved(func, named)
    if name in torch_operators.SCATTERS:
        return _scattered(name, named)
    if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return func.decompose(*args, **kwargs)
    if torch.Tag.inplace_view in func.tags:
        with no_dispatch():  # its sizes and strides change, not its memory
            return func(*args, **kwargs)
    if func.is_view:
        return _viewed(func, args, kwargs)
    if func._schema.is_mutable:
        return _written(func, name, args, kwargs)
    return _decomposed(func, name, args, kwargs)


def _blank(x: Any) -> Any:
    """A plain tensor of equal shape and dtype with arbitrary values."""
    if not isinstance(x, BigTensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)


def _named(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by name, with defaults for missing ones."""
    arguments = func._schema.arguments
    named = {a.name: a.default_value for a in arguments if a.has_default_value()}
    named.update(zip((a.name for a in arguments), args, strict=False))
    return {**named, **kwargs}


# ── rules ────────────────────────────────────────────────────────────────────────────────────


def _computed(func: Any, name: str, named: Mapping[str, Any]) -> Any:
    """The results by `torch_operators.TABLE`."""
    dtype = _dtype_of(name, named)
    values = tree_map(_value, dict(named))
    try:
        results = torch_operators.TABLE[name](**values)
    except NotImplementedError as why:
        raise unsupported(f"PyTorch's {name} {why} is not known in big numbers") from None
    if isinstance(results, tuple):
        return tuple(_held(r, dtype) for r in results)
    out = _held(results, dtype)
    if func.is_view and isinstance(out, BigTensor):
        out.memory.flags.writeable = False  # writes into a view would not reach its base
    return out


def _held(result: Any, dtype: torch.dtype) -> torch.Tensor:
    """A rule's result as a tensor, of big numbers or of PyTorch's integers."""
    if isinstance(result, np.ndarray) and not _holds_objects(result):
        return _from_numpy(np.array(result))
    if not isinstance(result, np.ndarray):
        return _as_tensor(result) if isinstance(result, (bool, np.generic)) else result
    return tensor_of(result, dtype)


def _holds_objects(x: Array) -> bool:
    """Whether NumPy's own dtype is object, also for a `BigArray`."""
    return bool(np.ndarray.view(x, np.ndarray).dtype.kind == "O")


def _viewed(func: Any, args: Any, kwargs: Any) -> Any:
    """Views of shared memory, with PyTorch's sizes and strides."""
    base = next(x for x in tree_flatten((args, kwargs))[0] if isinstance(x, BigTensor))

    def outline(x: Any) -> Any:
        if not isinstance(x, BigTensor):
            return x
        size = x.storage_offset() + _reach(x)
        whole = torch.empty(size, dtype=x.dtype, device="meta")
        return whole.as_strided(x.shape, x.stride(), x.storage_offset())

    with _disable_current_modes():
        found = func(*tree_map(outline, args), **tree_map(outline, kwargs))

    def laid(x: Any) -> Any:
        if x.dtype != base.dtype:
            raise unsupported("forward views a tensor as another dtype")
        return BigTensor(base.memory, x.shape, x.stride(), x.storage_offset(), x.dtype)

    return [laid(x) for x in found] if isinstance(found, (list, tuple)) else laid(found)


def _reach(x: torch.Tensor) -> int:
    sizes = zip(x.shape, x.stride(), strict=True)
    return int(1 + sum((n - 1) * step for n, step in sizes if n))


def _moved(func: Any, named: Mapping[str, Any]) -> Any:
    """Results that consist of the arguments' elements: PyTorch moves their numbers."""
    pool: list[Array] = [raw(big(np.zeros(1)))]
    filled = 1

    def numbered(x: Any) -> Any:
        nonlocal filled
        if not isinstance(x, torch.Tensor) or not _inexact(x.dtype):
            return x
        values = raw(big(_value(x))).reshape(-1)
        pool.append(values)
        filled += len(values)
        at = np.arange(filled - len(values), filled, dtype=np.float64)
        return _from_numpy(at.reshape(tuple(x.shape)))

    places = tree_map(numbered, dict(named))
    dtype = _promoted(named.values())
    if isinstance(places.get("value"), (int, float)):
        pool.append(raw(big(np.array([places["value"]]))))
        places["value"] = float(filled)
    with _disable_current_modes():
        found = func(**places)
    numbers().spend(found.numel())
    flat = np.concatenate(pool)
    return tensor_of(flat[found.numpy().astype(np.int64)], dtype)


def _scattered(name: str, named: Mapping[str, Any]) -> BigTensor:
    """Sums (or products, …) of elements with a common place."""
    base = named["self"]
    at = torch.arange(base.numel()).reshape(base.shape)
    with _disable_current_modes():
        places, updates = torch_operators.SCATTERS[name](at, named)
    out = raw(big(_value(base))).reshape(-1).copy()
    mixed = torch_operators.mixed(out, places.numpy().reshape(-1), _value(updates), named)
    return tensor_of(mixed.reshape(tuple(base.shape)), _promoted(named.values()))


def _written(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """In place: the result of the operator without the underscore, in the first argument."""
    target, *rest = args
    if name in RANDOM:
        with _disable_current_modes():
            drawn = func(torch.empty(target.shape, dtype=target.dtype), *rest, **kwargs)
        target.value[...] = _numbers_of(drawn)
        return target
    packet = getattr(aten, name.removesuffix("_"), None)
    overload = func._overloadname
    if not name.endswith("_") or packet is None or overload not in packet.overloads():
        raise unsupported(f"PyTorch's {name} is not known in big numbers")
    copied = name == "copy_"
    result = rest[0] if copied else dispatched(getattr(packet, overload), args, kwargs)
    if not isinstance(target, BigTensor):
        if not isinstance(result, BigTensor):
            target.copy_(result)
            return target
        raise leak(f"forward writes into a tensor of its own, of {_short(target)} ({name})")
    _refuse_narrowing(name, [result], target.dtype)
    target.value[...] = _value(result)
    return target


def _decomposed(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """The results by PyTorch's own decomposition."""
    rule = _decompositions().get(func)
    out = NotImplemented if rule is None else rule(*args, **kwargs)
    if out is not NotImplemented:
        return out
    raise unsupported(f"PyTorch's {name} is not known in big numbers")


@cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    from torch._decomp import decomposition_table  # deferred: few operators need it

    return decomposition_table  # type: ignore[no-any-return]


# ── dtypes ───────────────────────────────────────────────────────────────────────────────────


def _dtype_of(name: str, named: Mapping[str, Any]) -> torch.dtype:
    """The dtype to which PyTorch rounds an operator's results.

    Raises:
        Leak: it is narrower than the arguments and forward's own dtype.
    """
    asked = named.get("dtype")
    found = asked if isinstance(asked, torch.dtype) else _promoted(named.values())
    found = torch_operators.shown(name, found)
    _refuse_narrowing(name, tree_flatten(dict(named))[0], found)
    return found


def _refuse_narrowing(name: str, given: Any, dtype: torch.dtype) -> None:
    if not _inexact(dtype):
        return
    widest = max((_bits(x.dtype) for x in given if isinstance(x, BigTensor)), default=0)
    own = _bits(_from_numpy(np.empty(0, numbers().dtype64)).dtype)
    if _bits(dtype) < min(widest, own):
        text = f"forward rounds to {str(dtype).removeprefix('torch.')} ({name.strip('_')})"
        raise leak(text)


def _promoted(given: Any) -> torch.dtype:
    """The common dtype of tensors; 0-d ones count only if there are no others, as in PyTorch."""
    tensors = [x for x in tree_flatten(list(given))[0] if isinstance(x, torch.Tensor)]
    inexact = [x for x in tensors if _inexact(x.dtype)]
    first = [x for x in inexact if x.ndim] or inexact
    dtype = first[0].dtype
    for x in first[1:]:
        dtype = torch.promote_types(dtype, x.dtype)
    if any(x.dtype.is_complex for x in inexact):
        dtype = torch.promote_types(dtype, torch.complex32)
    return dtype


def _inexact(dtype: torch.dtype) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)


def _bits(dtype: torch.dtype) -> float:
    return -float(np.log2(torch.finfo(dtype).eps))


def _short(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


# ── to and from ──────────────────────────────────────────────────────────────────────────────


def _value(x: Any) -> Any:
    """A tensor's numbers as an array for NumPy's functions."""
    if isinstance(x, BigTensor):
        return x.value
    return _numbers_of(x) if isinstance(x, torch.Tensor) else x


def _numbers_of(x: torch.Tensor) -> Array:
    with _disable_current_modes():
        plain = x.detach().resolve_conj().resolve_neg()
        if not _inexact(x.dtype):
            return np.asarray(plain.numpy())
        wide = torch.complex128 if x.dtype.is_complex else torch.float64
        return big(plain.to(wide).numpy())


def held(x: Any) -> Any:
    """The values of any tensor as big numbers; anything else unchanged."""
    return big(_value(x)) if isinstance(x, torch.Tensor) else x


def _lifted(x: BigArray) -> BigTensor:
    """NumPy's big numbers as a tensor that shares them."""
    base = raw(x)
    complex_ = numbers().complex in set(map(type, base.ravel().tolist()))
    own = np.result_type(numbers().dtype64, np.complex64) if complex_ else numbers().dtype64
    dtype = _from_numpy(np.empty(0, own)).dtype
    if not base.flags.c_contiguous:
        return tensor_of(x, dtype)
    flat = base.reshape(-1)
    steps = [step // base.itemsize for step in base.strides]
    return BigTensor(flat, base.shape, steps, 0, dtype)


def _taking(original: Callable[..., Any]) -> Callable[..., Any]:
    """A constructor of tensors that accepts big numbers, too."""

    def taken(x: Any, dtype: Any = None, **keywords: Any) -> Any:
        if isinstance(x, (list, tuple)) and any(isinstance(v, (BigArray, BigTensor)) for v in x):
            x = np.stack([held(v) if isinstance(v, torch.Tensor) else big(v) for v in x])
        if type(x) in numbers().kinds:
            x = big(x)
        if not isinstance(x, (BigArray, BigTensor)) and not _bare(x):
            return original(x, dtype=dtype, **keywords) if dtype else original(x, **keywords)
        out = _lifted(wrapped(x)) if isinstance(x, np.ndarray) else x
        if original is torch.tensor:
            out = out.clone()
        out = out if dtype is None else out.to(dtype)
        return out.requires_grad_() if keywords.get("requires_grad") else out

    return taken


def _bare(x: Any) -> bool:
    """Whether `x` is an object array of big numbers."""
    kinds = numbers().kinds
    return (
        isinstance(x, np.ndarray)
        and _holds_objects(x)
        and any(type(v) in kinds for v in x.ravel().tolist())
    )


def _eagerly() -> Any:
    """A context in which compiled functions run operator by operator."""
    known = hasattr(torch.compiler, "set_stance")  # since PyTorch 2.6
    there = known and "torch._dynamo" in sys.modules
    return torch.compiler.set_stance("force_eager") if there else nullcontext()


@contextmanager
def takes_big_numbers() -> Iterator[None]:
    """Within the context PyTorch accepts `BigArray`s and computes in big numbers.

    Within a session of `numbers()`, whose dtype is forward's own.
    """
    originals = {n: getattr(torch, n) for n in ("from_numpy", "tensor", "as_tensor", "asarray")}
    fused = torch._C._get_mkldnn_enabled()
    try:
        for name, original in originals.items():
            setattr(torch, name, _taking(original))
        torch._C._set_mkldnn_enabled(False)  # it fuses recurrent layers into one operator
        with warnings.catch_warnings(), _eagerly(), Everything():
            warnings.simplefilter("ignore")  # PyTorch's decompositions call deprecated functions
            yield
    finally:
        torch._C._set_mkldnn_enabled(fused)
        for name, original in originals.items():
            setattr(torch, name, original)
