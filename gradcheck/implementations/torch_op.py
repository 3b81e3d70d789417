"""A function of tensors as an operator: its value, and the gradients that autograd gives."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Bound, Callee
from gradcheck.implementations.returned import Missing, broken, overwrites
from gradcheck.implementations.user_functions import (
    Differentiated,
    accepted,
    address_of,
    argument_names,
    public_name,
)
from gradcheck.numerics.arrays import Attrs, dtype_named, is_float
from gradcheck.results.words import plural

Array = NDArray[Any]


def imported_torch() -> Any:
    """PyTorch. It is an optional peer that takes two seconds to import."""
    import torch

    return torch


def lent(array: Array) -> Array:
    """`array` itself where a framework may have its memory, else a copy with the same strides.

    PyTorch takes no notice of NumPy's read-only flag, and JAX refuses what has it: both get a
    writable copy, in which a write is seen by who compares. Gaps between its elements hold NaN, so
    that code that ignores strides shows. Negative strides, which DLPack allows and PyTorch 2.13
    ends the process on, become C order; so does whatever is not a multiple of the item's size.
    """
    forward = all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    if not forward:
        return np.array(array, order="C")
    if array.flags.writeable:
        return array
    if not array.size:
        return np.array(array)
    pairs = zip(array.shape, array.strides, strict=True)
    span = sum((n - 1) * step for n, step in pairs) // array.itemsize + 1
    floating = is_float(array.dtype)
    room = np.full(span, np.nan if floating else 0).astype(array.dtype)
    copy = as_strided(room, array.shape, array.strides)
    copy[...] = array
    return copy


def tensor_of(torch: Any, array: Any, device: str | None = None) -> Any:
    """A tensor with the memory of `lent(array)`; on another device, a copy of it."""
    given = lent(np.asarray(array))
    if given.dtype.name == "bfloat16":  # DLPack knows it, NumPy's side of DLPack does not
        tensor = torch.from_dlpack(given.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_dlpack(given)
    return tensor if device is None else tensor.to(device)


def array_of(tensor: Any) -> Array:
    """An array with the memory of a tensor on the CPU; from another device, a copy of it."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_sparse or tensor._is_zerotensor():  # autograd may return what only says zero
        tensor = tensor.to_dense().clone()
    if str(tensor.dtype) == "torch.bfloat16":
        return np.from_dlpack(tensor.view(imported_torch().int16)).view(dtype_named("bfloat16"))
    return np.from_dlpack(tensor)


@dataclass(slots=True)
class Plain:
    """Any function of tensors."""

    function: Callable[..., Any]
    leading: ClassVar[int] = 0
    style: ClassVar[str] = "function"

    @property
    def given(self) -> Any:
        return self.function

    @property
    def signature(self) -> Callable[..., Any]:
        return self.function

    @property
    def code(self) -> Callable[..., Any]:
        return self.function

    def __call__(self, tensors: Sequence[Any], attrs: Attrs) -> Any:
        return self.function(*tensors, **attrs)

    def own(self, index: int, gradient: Any) -> Any:
        """The gradient that autograd gives is all there is."""
        return gradient


@dataclass(slots=True)
class Module:
    """A module, in the dtype and on the device of the tensors that it is called with."""

    module: Any
    made: dict[Any, Any] = field(default_factory=dict)
    leading: ClassVar[int] = 0
    style: ClassVar[str] = "module"

    @property
    def given(self) -> Any:
        return self.module

    @property
    def signature(self) -> Callable[..., Any]:
        found: Callable[..., Any] = self.module.forward
        return found

    @property
    def code(self) -> Callable[..., Any]:
        return self.signature

    def __call__(self, tensors: Sequence[Any], attrs: Attrs) -> Any:
        like = next((t for t in tensors if t.is_floating_point()), None)
        key = None if like is None else (like.dtype, like.device)
        if key not in self.made:
            own = copy.deepcopy(self.module)  # the user's keeps its dtype
            self.made[key] = own if like is None else own.to(like.device, like.dtype)
        return self.made[key](*tensors, **attrs)

    def own(self, index: int, gradient: Any) -> Any:
        """The gradient that autograd gives is all there is."""
        return gradient


class Applied:
    """A `torch.autograd.Function`, with its own backward watched.

    Autograd sums a gradient of too large a shape, casts one of another dtype, and lets a backward
    write into the cotangent, all without a word (pytorch#78355); here each is seen.
    """

    style: ClassVar[str] = "apply"

    def __init__(self, torch: Any, function: Any) -> None:
        """Subclass `function`, so that what its backward is given and returns is kept."""
        self.original, self.torch = function, torch
        self.raw: tuple[Any, ...] = ()
        base = torch.autograd.Function
        which = "backward" if function.vjp is base.vjp else "vjp"
        backward = getattr(function, which)
        self.code: Callable[..., Any] = backward

        def watched(ctx: Any, *cts: Any) -> Any:
            before = [None if c is None else c.clone() for c in cts]
            found = backward(ctx, *cts)
            for k, (old, new) in enumerate(zip(before, cts, strict=True)):
                if old is not None and not _same(old, new):
                    what = "grad_output" if len(cts) == 1 else f"grad_outputs[{k}]"
                    raise overwrites(
                        "vjp",
                        f"{function.__name__}.{which} writes into {what}, which other nodes of "
                        "the graph may read; clone it first",
                    )
            self.raw = found if isinstance(found, tuple) else (found,)
            return found

        body = {which: staticmethod(watched), "__module__": function.__module__}
        self.function: Any = type(function.__name__, (function,), body)
        self.leading = int(function.setup_context is base.setup_context)  # ctx

    @property
    def given(self) -> Any:
        return self.original

    @property
    def signature(self) -> Callable[..., Any]:
        found: Callable[..., Any] = self.original.forward
        return found

    def __call__(self, tensors: Sequence[Any], attrs: Attrs) -> Any:
        """`apply`, with the attributes where forward has parameters of their names.

        Positional: `apply` takes keywords only in newer versions.
        """
        self.raw = ()
        return self.function.apply(*tensors, *self.behind(len(tensors), attrs))

    def behind(self, primals: int, attrs: Attrs) -> list[Any]:
        """The values of forward's parameters behind the primals: attributes, or their defaults."""
        parameters = list(inspect.signature(self.original.forward).parameters.values())
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        rest = [p for p in parameters[self.leading :] if p.kind in positional][primals:]
        last = max((k for k, p in enumerate(rest) if p.name in attrs), default=-1)
        values = []
        for parameter in rest[: last + 1]:
            value = attrs.get(parameter.name, parameter.default)
            if value is parameter.empty:
                raise TypeError(
                    f"forward of {self.original.__name__} wants {parameter.name!r} behind "
                    f"{primals} primals; give it a default, or the name of an attribute"
                )
            values.append(value)
        return values

    def own(self, index: int, gradient: Any) -> Any:
        """What backward itself returned, where autograd has made something else of it."""
        raw = self.raw[index] if index < len(self.raw) else None
        if raw is None or gradient is None:
            return gradient
        narrower = raw.is_floating_point() and raw.element_size() < gradient.element_size()
        return raw if raw.shape != gradient.shape or narrower else gradient


def _same(a: Any, b: Any) -> bool:
    return array_of(a).tobytes() == array_of(b).tobytes()


def torch_op(function: Any, *, device: str | None = None) -> TorchOp:
    """An entry of a table from a function of tensors, differentiated by PyTorch's autograd.

    `function` is a `torch.autograd.Function` subclass, whose own backward is then what is judged; a
    `torch.nn.Module` that is called with tensors; or any function of tensors. It is called as
    `function(*primals, **attrs)` with tensors that share memory, and strides, with copies of the
    arrays, on `device` (None: the CPU), and returns a tensor or a tuple of them. Of a Function
    subclass, arguments of `forward` behind the primals take attributes by their names.

    What it returns has `forward(*primals, **attrs)` and `vjp(ct, *primals, **attrs)`, from NumPy
    arrays to NumPy arrays, as `gradcheck.check` and the tables of `--impl` take them.

    Raises:
        LoadError: PyTorch is not installed, or `function` is a class of modules, or no function.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> import numpy as np, gradcheck
    >>> op = torch_op(torch.sigmoid)
    >>> gradcheck.check(op.forward, op.vjp, np.linspace(-2.0, 2.0, 5)).ok
    True
    """
    try:
        torch = imported_torch()
    except ImportError as error:
        raise LoadError(
            "torch_op: PyTorch is not installed; run `pip install torch` "
            "(CPU only: add --index-url https://download.pytorch.org/whl/cpu)"
        ) from error
    name = str(getattr(function, "__name__", type(function).__name__))
    if isinstance(function, type):
        if issubclass(function, torch.autograd.Function):
            return TorchOp(name=name, call=Applied(torch, function), device=device)
        if issubclass(function, torch.nn.Module):
            raise LoadError(
                f"torch_op: {name} is a class of modules; give it an instance, or "
                "torch_op(lambda x, w: torch.func.functional_call(module, {'weight': w}, (x,))) "
                "where its parameters are primals"
            )
    if not callable(function):
        raise LoadError(f"torch_op: a {type(function).__name__} is no function of tensors")
    if isinstance(function, torch.nn.Module):
        return TorchOp(name=name, call=Module(function), device=device)
    return TorchOp(name=name, call=Plain(function), device=device)


def counterpart(function: Callable[..., Any]) -> TorchOp:
    """A function of a suite's own table: what autograd leaves out is zero there."""
    return TorchOp(name="torch", call=Plain(function), unused_is_zero=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOp(Differentiated):
    """A function of tensors, called with arrays.

    Where autograd gives no gradient for an input, it is missing; with `unused_is_zero` it is zero.
    """

    name: str
    call: Any
    device: str | None = None
    unused_is_zero: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """Those of the function, or of forward."""
        return argument_names(self.call.signature)

    @property
    def code(self) -> Callable[..., Any]:
        """The Function's own backward; else the function, or forward of the module."""
        found: Callable[..., Any] = self.call.code
        return found

    def callee(self, attrs: Attrs, primals: int, item: tuple[str, str] | None) -> Callee | None:
        """How the function, or the module's instance, is called."""
        function = self.call.given
        name = public_name(function)
        place = ("", name) if name else address_of(function) or item
        if place is None:
            return None
        style, behind = self.call.style, ()
        if style == "apply":
            try:
                attrs, behind = {}, tuple(self.call.behind(primals, attrs))
            except TypeError:  # it cannot be called at all; asked for gradients, it says why
                return None
        return Callee(
            framework="torch", module=place[0], name=place[1], style=style, attrs=attrs,
            behind=behind, device=self.device or "",
        )  # fmt: skip

    @property
    def signature(self) -> tuple[Callable[..., Any], int]:
        """The function, the module's forward, or that of a Function, which may begin with ctx."""
        return self.call.signature, self.call.leading

    def bound(self, attrs: Attrs, fixed: Attrs) -> Bound:
        """The operator for `attrs`; `fixed` are the values that its code may have fixed.

        Raises:
            Unsupported: `attrs` want another value of what the code does not take.
        """
        imported_torch().set_num_threads(1)  # small tensors: more are slower, and less repeatable
        return Bound(
            vjp=self.vjp,
            forward=self.forward,
            attrs=accepted(self.call.signature, self.name, attrs, fixed),
            asked=self.asked,
            strided=True,
        )

    def forward(self, *primals: Any, **attrs: Any) -> Any:
        """The value: an array, or a tuple of arrays.

        Raises:
            Broken: the function wrote into an argument, or returned no tensors.
            Unsupported: its device is not here.
        """
        torch = self._torch()
        tensors = [tensor_of(torch, p, self.device) for p in primals]
        with torch.no_grad():
            out = self.call(tensors, attrs)
        values = tuple(array_of(o) for o in self._outputs("forward", out))
        self._refuse_writes("forward", primals, tensors)
        return values if isinstance(out, (tuple, list)) else values[0]

    def asked(
        self, needs: tuple[bool, ...], ct: Any, *primals: Any, **attrs: Any
    ) -> tuple[Any, ...]:
        """The gradients of those primals for which `needs` has True; the others need no grad."""
        torch = self._torch()
        tensors = [tensor_of(torch, p, self.device) for p in primals]
        leaves = {
            i: tensor.requires_grad_()
            for i, (need, tensor) in enumerate(zip(needs, tensors, strict=True))
            if need and tensor.is_floating_point()
        }
        outputs = self._outputs("vjp", self.call(tensors, attrs))
        found = self._gradients(torch, outputs, leaves, ct)
        self._refuse_writes("vjp", primals, tensors)
        return tuple(found.get(i) for i in range(len(primals)))

    def _gradients(
        self, torch: Any, outputs: Sequence[Any], leaves: Mapping[int, Any], ct: Any
    ) -> dict[int, Any]:
        """By primal, an array or what says why there is none."""
        cts = ct if isinstance(ct, tuple) else (ct,)
        if len(cts) != len(outputs):
            raise broken(
                "vjp", f"{self.name} returned {plural(len(outputs), 'output')}, not {len(cts)}"
            )
        given = [tensor_of(torch, c, self.device) for c in cts]
        pairs = [(o, c) for o, c in zip(outputs, given, strict=True) if o.requires_grad]
        found: Sequence[Any] = [None] * len(leaves)
        if pairs and leaves:
            found = torch.autograd.grad(
                [o for o, _ in pairs],
                list(leaves.values()),
                [c for _, c in pairs],
                allow_unused=True,
            )
        empty = not any(o.numel() for o in outputs)
        gradients: dict[int, Any] = {}
        for (i, leaf), gradient in zip(leaves.items(), found, strict=True):
            if gradient is not None:
                gradients[i] = array_of(self.call.own(i, gradient))
            elif self.unused_is_zero or empty or not leaf.numel():
                gradients[i] = array_of(torch.zeros_like(leaf))
            else:
                gradients[i] = Missing(self._why(i, bool(pairs)))
        return gradients

    def _why(self, index: int, carrying: bool) -> str:
        raw = getattr(self.call, "raw", ())
        if index < len(raw):
            return (
                f"the backward of {self.name} returned None for it; return zeros where it is zero"
            )
        if not carrying:
            return (
                f"no output of {self.name} requires grad: it was detached, marked as not "
                "differentiable, or computed outside PyTorch"
            )
        return (
            f"autograd finds no path to it from an output of {self.name}: it is not used, or was "
            "detached on the way"
        )

    def _outputs(self, role: str, out: Any) -> tuple[Any, ...]:
        torch = imported_torch()
        outputs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        for one in outputs:
            if not isinstance(one, torch.Tensor):
                raise broken(
                    role,
                    f"{self.name} returned a {type(one).__name__}; return a tensor, or a tuple "
                    "of them",
                )
        return outputs

    def _refuse_writes(self, role: str, primals: Sequence[Any], tensors: Sequence[Any]) -> None:
        """A write lands in the copy that was lent, where the judge would not see it."""
        for i, (array, tensor) in enumerate(zip(primals, tensors, strict=True)):
            if array_of(tensor).tobytes() != array.tobytes():
                name = self._name(i)
                why = f"{self.name} writes into its argument {name}; clone it first"
                raise overwrites(role, why)

    def _name(self, index: int) -> str:
        names = self.arguments
        return names[index] if index < len(names) else str(index)

    def _torch(self) -> Any:
        torch = imported_torch()
        wanted = self.device is not None and torch.device(self.device).type == "cuda"
        if wanted and not torch.cuda.is_available():
            raise Unsupported(f"{self.name} is to run on {self.device}; there is no such device")
        return torch
