"""PyTorch's autograd over the same operators: real code that nobody here wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradcheck.arithmetic import dtype_named
from gradcheck.binding import Bound, BoundModel
from gradcheck.errors import LoadError
from gradcheck.model import ModelCase
from gradcheck.suite import Case, resolve


class Torch:
    """`--impl torch`: tables of functions of tensors, differentiated by torch.autograd.

    Raises:
        LoadError: PyTorch is not installed, or no suite has a table for it.
    """

    name = "torch"

    def __init__(self, references: Sequence[str]) -> None:
        """Import PyTorch and the tables at "module:NAME"."""
        try:
            import torch  # deferred: an optional peer that takes two seconds
        except ImportError as error:
            raise LoadError(
                "--impl torch: PyTorch is not installed; run `pip install torch` "
                "(CPU only: add --index-url https://download.pytorch.org/whl/cpu)"
            ) from error
        if not references:
            raise LoadError("--impl torch: the suite has no PyTorch counterparts")
        self.torch = torch
        torch.set_num_threads(1)  # small tensors: more threads are slower, and less repeatable
        self.table: dict[str, Callable[..., Any]] = {}
        for reference in references:
            self.table.update(resolve(reference))

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The counterpart of `op/dialect`, else of `op`."""
        name = case.spec.name
        function = self.table.get(f"{name}/{case.dialect.name}") or self.table.get(name)
        if function is None:
            return None

        def forward(*primals: Any, **attrs: Any) -> Any:
            with self.torch.no_grad():
                out = function(*(self._tensor(p) for p in primals), **attrs)
            return tuple(_array(o) for o in out) if isinstance(out, tuple) else _array(out)

        def vjp(ct: Any, *primals: Any, **attrs: Any) -> Any:
            tensors = [self._tensor(p) for p in primals]
            leaves = [t.requires_grad_() for t in tensors if t.is_floating_point()]
            out = function(*tensors, **attrs)
            outputs = out if isinstance(out, tuple) else (out,)
            cts = ct if isinstance(ct, tuple) else (ct,)
            found = self.torch.autograd.grad(
                outputs, leaves, [self._tensor(c) for c in cts], allow_unused=True
            )
            by_leaf = iter(found)
            gradients = tuple(
                _numpy(next(by_leaf), t) if t.is_floating_point() else None for t in tensors
            )
            return gradients if len(gradients) > 1 else gradients[0]

        return Bound(vjp=vjp, forward=forward, attrs=case.attrs)

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """Nothing yet."""
        return None

    def _tensor(self, array: Any) -> Any:
        if array.dtype.name == "bfloat16":  # PyTorch does not know NumPy's
            return self.torch.from_numpy(array.astype(np.float32)).bfloat16()
        return self.torch.from_numpy(np.array(array, copy=True))


def _numpy(gradient: Any, leaf: Any) -> Any:
    """A gradient as an array; autograd's None says that the leaf is unused: exactly zero."""
    return _array(leaf.detach().new_zeros(leaf.shape) if gradient is None else gradient)


def _array(tensor: Any) -> Any:
    """A tensor as an array; autograd may return one that only says zero, hence the force."""
    if str(tensor.dtype) == "torch.bfloat16":
        wide = tensor.float().numpy(force=True)  # exact: float32 holds every bfloat16
        return wide.astype(dtype_named("bfloat16"))
    return tensor.numpy(force=True)
