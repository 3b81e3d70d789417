"""PyTorch's normalisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F


def rms_norm(x, w=None, *, eps, unit_offset):
    """F.rms_norm; it takes the whole gain as its weight."""
    weight = 1 + w if unit_offset else w
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def layer_norm(x, w=None, b=None, *, eps):
    """F.layer_norm over the last axis."""
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


OPERATORS: dict[str, Callable[..., Any]] = {"rms_norm": rms_norm, "layer_norm": layer_norm}
