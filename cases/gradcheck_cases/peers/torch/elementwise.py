"""PyTorch's element-wise arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def step(x, *, at_zero):
    """torch.heaviside, which has no gradient, outside the graph; zeros inside."""
    return torch.heaviside(x.detach(), x.new_tensor(at_zero)) + 0 * x


def power(x, y=None, *, exponent):
    """torch.pow, of a tensor or of a number."""
    return torch.pow(x, exponent if y is None else y)


def map_unary(x, *, function):
    """The three functions, from PyTorch's own."""
    functions: dict[str, Callable[..., Any]] = {
        "bell": lambda x: torch.exp(-torch.square(x)),
        "sine": torch.sin,
        "swish": torch.nn.functional.silu,
    }
    return functions[function](x)


def map_binary(x, y, *, function):
    """The three functions, from PyTorch's own."""
    functions: dict[str, Callable[..., Any]] = {
        "hypot": torch.hypot,
        "wave": lambda x, y: torch.sin(x) * y,
        "growth": lambda x, y: x * torch.exp(y),
    }
    return functions[function](x, y)


OTHERS: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "add1": torch.add,
    "scale": torch.mul,
    "neg": torch.neg,
    "sqr": torch.square,
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "log": torch.log,
    "abs": torch.abs,
    "sgn": torch.sign,
    "pow": power,
}
