"""Which entries of a table a framework is to differentiate: wrapped, or not to be mistaken."""

from __future__ import annotations

import sys
from typing import Any

from gradcheck.implementations.jax_op import JaxOp, jax_op
from gradcheck.implementations.keywords import method
from gradcheck.implementations.torch_op import TorchOp, torch_op


def differentiated(entry: Any) -> TorchOp | JaxOp | None:
    """The operator that an entry of a table stands for, if a framework has to differentiate it.

    That is one that was wrapped; a `torch.autograd.Function` or a module; a `jax.custom_vjp` or
    what `jax.jit` made; or a function of PyTorch's or JAX's own. No framework is imported for the
    question: who made such an entry has imported it.

    Raises:
        LoadError: it is a class of modules.
    """
    if isinstance(entry, (TorchOp, JaxOp)):
        return entry
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None:
        whole = (torch.autograd.Function, torch.nn.Module)
        if isinstance(entry, type) and issubclass(entry, whole):
            return torch_op(entry)
        if isinstance(entry, torch.nn.Module) or _made_by(("torch",), entry):
            return torch_op(entry)
    if jax is not None and _made_by(("jax", "jaxlib"), entry):
        return jax_op(entry)
    return None


def _made_by(packages: tuple[str, ...], entry: Any) -> bool:
    """Whether an entry is a framework's own function, or a kind of callable that only it makes."""
    if not callable(entry) or isinstance(entry, type) or _says_how(entry):
        return False
    homes = (getattr(entry, "__module__", None), type(entry).__module__)
    return any(str(home).partition(".")[0] in packages for home in homes)


def _says_how(entry: Any) -> bool:
    return any(method(entry, role) for role in ("vjp", "forward", "update"))
