"""A function of tensors as an operator: its value, and the gradients that autograd gives for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Bound
from gradcheck.implementations.differentiated import Differentiated
from gradcheck.implementations.keywords import accepted
from gradcheck.implementations.returned import Missing, broken, overwrites
from gradcheck.implementations.tensors import array_of, imported_torch, tensor_of
from gradcheck.implementations.torch_call import Applied, Module, Plain
from gradcheck.numerics.arrays import Attrs


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
    def code(self) -> Callable[..., Any]:
        """The Function's own backward; else the function, or forward of the module."""
        found: Callable[..., Any] = self.call.code
        return found

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
            raise broken("vjp", f"{self.name} returned {len(outputs)} outputs, not {len(cts)}")
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
        try:
            names = list(inspect.signature(self.call.signature).parameters)
        except (TypeError, ValueError):
            names = []
        names = names[1:] if names[:1] == ["ctx"] else names
        return names[index] if index < len(names) else str(index)

    def _torch(self) -> Any:
        torch = imported_torch()
        wanted = self.device is not None and torch.device(self.device).type == "cuda"
        if wanted and not torch.cuda.is_available():
            raise Unsupported(f"{self.name} is to run on {self.device}; there is no such device")
        return torch
