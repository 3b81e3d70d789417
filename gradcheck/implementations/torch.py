"""`--impl torch`: PyTorch's autograd over the suite's operators and models."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Bound, BoundModel, BoundRule
from gradcheck.implementations.returned import broken
from gradcheck.implementations.torch_op import array_of, counterpart, imported_torch, tensor_of
from gradcheck.implementations.user_functions import dimensions, entry_of, peers
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Values
from gradcheck.spec.rule import RuleCase, State, Tensors
from gradcheck.spec.suite import Case


class Torch:
    """`--impl torch`: tables of functions of tensors and of modules, differentiated by autograd.

    Raises:
        LoadError: PyTorch is not installed, or no suite has a table for it.
    """

    name = "torch"

    def __init__(self, references: Sequence[str]) -> None:
        """Import PyTorch and the tables at "module:NAME"."""
        try:
            self.torch = _torch()
        except ImportError as error:
            raise LoadError(
                "--impl torch: PyTorch is not installed; run `pip install torch` "
                "(CPU only: add --index-url https://download.pytorch.org/whl/cpu)"
            ) from error
        self.table = peers("torch", "PyTorch", references)

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The counterpart of `op/dialect`, else of `op`."""
        function, _ = entry_of(self.table, case)
        if function is None:
            return None

        op = counterpart(function)
        return Bound(
            vjp=op.vjp, forward=op.forward, attrs=case.attrs, asked=op.asked, strided=True,
            callee=op.callee(case.attrs, len(case.primal_names), None),
        )  # fmt: skip

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """The module of `model/dialect`, else of `model`."""
        build, fixed = entry_of(self.table, case)
        return None if build is None else bound_module(build, case, dtype, fixed)

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule | None:
        """The counterpart of a rule, from tensors to tensors."""
        function, _ = entry_of(self.table, case)
        if function is None:
            return None

        def update(params: Tensors, grads: Tensors, state: State, t: int, **attrs: Any) -> Any:
            def tensors(arrays: Tensors) -> dict[str, Any]:
                return {n: tensor_of(self.torch, np.array(a)) for n, a in arrays.items()}

            remembered = {slot: tensors(old) for slot, old in state.items()}
            new, kept = function(tensors(params), tensors(grads), remembered, t, **attrs)
            return _arrays(new), {slot: _arrays(old) for slot, old in kept.items()}

        return BoundRule(update=update, init=None, attrs=case.attrs)


def bound_module(
    build: Callable[..., Any], case: ModelCase, dtype: str, fixed: Attrs
) -> BoundModel:
    """A model as a module: `build(**dims)` makes it, `module(**inputs)` gives the loss.

    `fixed` are the dimensions that `build` may have fixed. An attribute `names` of the module maps
    a parameter of the model to those of the module that share it; without it, names must agree.

    Raises:
        Unsupported: the case wants another value of a dimension, or another dtype.
    """
    if dtype not in FLOATS:
        raise Unsupported("models are judged in float64 and float32")
    role = getattr(build, "__name__", type(build).__name__)
    module = _Module(build, role, dimensions(build, role, case, fixed), case, dtype)
    return BoundModel(gradients=module.gradients, loss=module.loss)


class _Module:
    """A module that is made on first use, and used again as a trainer would."""

    def __init__(
        self, build: Callable[..., Any], role: str, dims: Attrs, case: ModelCase, dtype: str
    ) -> None:
        self.build, self.role, self.dims, self.dtype = build, role, dims, dtype
        self.params = case.params

    def gradients(self, params: Values, inputs: Values) -> dict[str, Any]:
        """`.grad` of the tensors that each parameter stands for; None where there is none."""
        self._set(params)
        self.module.zero_grad(set_to_none=True)
        self._loss(inputs).backward()
        return {
            name: {
                own: None if tensor.grad is None else array_of(tensor.grad)
                for own, tensor in tensors.items()
            }
            for name, tensors in self.tensors.items()
        }

    def loss(self, params: Values, inputs: Values) -> Any:
        """The loss, without a graph."""
        self._set(params)
        with self.torch.no_grad():
            return array_of(self._loss(inputs))

    def _loss(self, inputs: Values) -> Any:
        device = next(self.module.parameters()).device
        given = {n: tensor_of(self.torch, np.array(v), device) for n, v in inputs.items()}
        loss = self.module(**given)
        if not isinstance(loss, self.torch.Tensor) or loss.numel() != 1:
            shape = getattr(loss, "shape", None)
            what = type(loss).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
            raise broken("loss", f"{self.role} returned a {what}; return the loss, a scalar")
        return loss

    def _set(self, params: Values) -> None:
        with self.torch.no_grad():
            for name, tensors in self.tensors.items():
                for tensor in tensors.values():
                    tensor.copy_(tensor_of(self.torch, params[name]))

    @cached_property
    def torch(self) -> Any:
        """PyTorch, imported where a failure is the code's that is judged."""
        return _torch()

    @cached_property
    def module(self) -> Any:
        """The module in the working dtype."""
        module = self.build(**self.dims)
        if not callable(getattr(module, "named_parameters", None)):
            what = type(module).__name__
            raise broken("gradients", f"{self.role} made a {what}; make a torch.nn.Module")
        return module.to(getattr(self.torch, self.dtype))

    @cached_property
    def tensors(self) -> Mapping[str, Mapping[str, Any]]:
        """Per parameter of the model, the module's tensors; one with two names appears once.

        Raises:
            Broken: a name has no counterpart, or a tensor has another shape.
        """
        own = dict(self.module.named_parameters(remove_duplicate=False))
        names: Mapping[str, Any] = getattr(self.module, "names", {})
        for name in names:
            if name not in self.params:
                near = _near(name, self.params)
                raise self._broken(f"has `names` for {name!r}, which the model has not{near}")
        found: dict[str, dict[str, Any]] = {}
        bound: set[int] = set()
        for name, value in self.params.items():
            if value.dtype.kind != "f":
                continue
            theirs = names.get(name, (name,))
            found[name] = {}
            for their, tensor in self._counterparts(name, theirs, own):
                shape = tuple(tensor.shape)
                if shape != value.shape:
                    raise self._broken(f"gives {their!r} shape {shape}, {name} has {value.shape}")
                if not any(tensor is other for other in found[name].values()):
                    found[name][their] = tensor
                bound.add(id(tensor))
        for their, tensor in own.items():
            if id(tensor) not in bound:
                raise self._broken(
                    f"has a parameter {their!r} that stands for none of the model's; add it to its "
                    "`names`, or take it out"
                )
        return found

    def _counterparts(
        self, name: str, theirs: Any, own: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        for their in (theirs,) if isinstance(theirs, str) else theirs:
            if their not in own:
                near = _near(their, own)
                raise self._broken(f"has no parameter {their!r} for {name!r}{near}")
            yield their, own[their]

    def _broken(self, reason: str) -> Exception:
        return broken("gradients", f"{self.role} {reason}")


def _near(name: object, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _torch() -> Any:
    torch = imported_torch()
    torch.set_num_threads(1)  # small tensors: more threads are slower, and less repeatable
    return torch


def _arrays(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array_of(tensor) for name, tensor in tensors.items()}
