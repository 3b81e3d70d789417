"""The forward and the VJP of one object, for `check(op, x)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gradcheck.errors import UsageError
from gradcheck.implementations.python import WRAPPERS, differentiated
from gradcheck.implementations.user_functions import method

Functions = tuple[Callable[..., Any], Callable[..., Any], str]
"""forward, vjp, and the name of the object."""


def functions_of(op: Any, primals: int) -> Functions:
    """The functions of an object (a class, a mapping) that has both, or that a framework has made.

    A `torch.autograd.Function`, a module, a `jax.custom_vjp` and a function of PyTorch's or JAX's
    own are differentiated by their framework. A `backward` that takes the cotangent alone is called
    right after `forward`, which has saved what it needs.

    Raises:
        UsageError: it lacks a forward or a backward.
        LoadError: it is a class of modules.
    """
    kind = type(op).__name__
    name = str(getattr(op, "__name__", kind))
    made = differentiated(op)
    if made is not None:
        return made.forward, made.vjp, made.name
    forward, vjp, backward = (method(op, role) for role in ("forward", "vjp", "backward"))
    if forward is None or (vjp is None and backward is None):
        raise UsageError(
            f"{name if name == kind else f'{name}, a {kind},'} does not have both `forward` and "
            "`vjp` (or `backward`): pass check(forward, vjp, *primals), or an object that has "
            f"both; {WRAPPERS}"
        )
    if vjp is None and backward is not None:
        vjp = backward if _takes(backward, 1 + primals) else _after(forward, backward)
    assert vjp is not None
    return forward, vjp, name


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function takes so many positional arguments."""
    try:
        inspect.signature(function).bind_partial(*range(count))
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def _after(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """`backward(ct)` of an object whose forward saves, as a VJP."""

    def vjp(ct: Any, *primals: Any, **attrs: Any) -> Any:
        forward(*primals, **attrs)
        return backward(ct)

    return vjp
