"""PyTorch's activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def softcap(x, *, cap):
    """No operator of PyTorch's own, but its tanh."""
    return cap * torch.tanh(x / cap)


OPERATORS: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "clamp": torch.clamp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softcap": softcap,
}
