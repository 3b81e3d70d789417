"""PyTorch's activations, and its formulas of the backwards from a saved output."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def softcap(x, *, cap):
    """PyTorch has no such operator: its tanh."""
    return cap * torch.tanh(x / cap)


def tanh_back(g, y):
    """The function that autograd calls for tanh."""
    return torch.ops.aten.tanh_backward(g, y)


def sigmoid_back(g, y):
    """The function that autograd calls for sigmoid."""
    return torch.ops.aten.sigmoid_backward(g, y)


def softcap_back(g, y, *, cap):
    """The backward of tanh from y / cap; the factors cap and 1 / cap cancel."""
    return torch.ops.aten.tanh_backward(g, y / cap)


def softplus(x, *, beta, threshold):
    """F.softplus divides infinities without its threshold; logaddexp does not need one."""
    if math.isinf(threshold):
        return torch.logaddexp(beta * x, torch.zeros_like(x)) / beta
    return F.softplus(x, beta, threshold)


def hardsigmoid(x):
    """From relu6: the backward of F.hardsigmoid rounds 1/6 to float32 for float64 too."""
    return F.relu6(x + 3) / 6


def relu_squared(x):
    """PyTorch has no such operator: its relu."""
    return torch.square(F.relu(x))


def dropout(x, mask, *, p, inverted):
    """F.dropout draws a mask of its own; with a stored one it is a masked product."""
    scale = 1.0 if not inverted else 0.0 if p == 1 else 1 / (1 - p)
    return torch.masked_fill(x, mask == 0, 0.0) * scale


OTHERS: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "clamp": torch.clamp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "mish": F.mish,
    "hardswish": F.hardswish,
}
