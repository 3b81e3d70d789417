"""How a function of tensors, a module, or an autograd Function is called with tensors."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradcheck.implementations.returned import overwrites
from gradcheck.implementations.tensors import array_of
from gradcheck.numerics.arrays import Attrs


@dataclass(slots=True)
class Plain:
    """Any function of tensors."""

    function: Callable[..., Any]

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
        plain = self.original.setup_context is self.torch.autograd.Function.setup_context
        parameters = list(inspect.signature(self.original.forward).parameters.values())
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        rest = [p for p in parameters[plain:] if p.kind in positional][primals:]
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
    """Whether two tensors hold the same bits."""
    return array_of(a).tobytes() == array_of(b).tobytes()
