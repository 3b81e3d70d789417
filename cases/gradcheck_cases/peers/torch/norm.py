"""PyTorch's normalisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def rms_norm(x, w=None, *, eps, unit_offset):
    """F.rms_norm; it takes the whole gain as its weight."""
    weight = 1 + w if unit_offset else w
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def layer_norm(x, w=None, b=None, *, eps):
    """F.layer_norm over the last axis."""
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


def rms_norm_back(g, x, *, eps):
    """PyTorch has no such operator: the formula, so that autograd takes its derivative."""
    r = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    n = x * r
    return r * (g - n * (g * n).mean(dim=-1, keepdim=True))


def group_norm(x, w=None, b=None, *, groups, eps):
    """F.group_norm."""
    return F.group_norm(x, groups, w, b, eps)


def batch_norm(x, w=None, b=None, *, eps):
    """F.batch_norm in training mode."""
    return F.batch_norm(x, None, None, w, b, training=True, eps=eps)


def l2_normalize(x, *, eps, inside):
    """F.normalize; with eps in the root, composed."""
    if inside:
        return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + eps)
    return F.normalize(x, dim=-1, eps=eps)


def qk_norm(q, k, wq, wk, *, eps, unit_offset):
    """F.rms_norm over the features of each head."""
    return (
        rms_norm(q, wq, eps=eps, unit_offset=unit_offset),
        rms_norm(k, wk, eps=eps, unit_offset=unit_offset),
    )


OTHERS: dict[str, Callable[..., Any]] = {
    "norm": layer_norm,
}
