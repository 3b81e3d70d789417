"""PyTorch's counterparts of `gradcheck_cases.reduction`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def sum_all(x, *, axis, keepdims):
    """torch.sum over some axes, or over all."""
    return torch.sum(x, dim=axis, keepdim=keepdims)


def sum_rows(x):
    """torch.sum over the last axis, which stays."""
    return torch.sum(x, dim=-1, keepdim=True)


def mean(x, *, axis):
    """torch.mean over some axes."""
    return torch.mean(x, dim=axis)


def repeat(x, *, counts, interleave):
    """torch.tile, or torch.repeat_interleave axis by axis."""
    if not interleave:
        return torch.tile(x, counts)
    for axis, count in enumerate(reversed(counts), start=1):
        x = torch.repeat_interleave(x, count, dim=-axis)
    return x


def max_rows(x):
    """torch.max, whose gradient goes to the position that it returns."""
    return torch.max(x, dim=-1).values


def cumsum(x, *, exclusive, reverse):
    """torch.cumsum, which knows one direction and no exclusion."""
    x = torch.flip(x, (-1,)) if reverse else x
    if exclusive:
        x = torch.cat([torch.zeros_like(x[..., :1]), x[..., :-1]], dim=-1)
    y = torch.cumsum(x, dim=-1)
    return torch.flip(y, (-1,)) if reverse else y


def sort(x, *, descending):
    """torch.sort, values only."""
    return torch.sort(x, dim=-1, descending=descending, stable=True).values


def top_k(x, *, k, largest):
    """torch.topk, values only."""
    return torch.topk(x, k, dim=-1, largest=largest).values


def variance(x, *, ddof):
    """torch.var with its correction."""
    if 0 in x.shape[:-1]:  # of no elements it would warn, once per process
        return torch.sum(x, dim=-1)
    return torch.var(x, dim=-1, correction=ddof)


OTHERS: dict[str, Callable[..., Any]] = {
    "sum": sum_all,
    "max": max_rows,
    "prod": lambda x: torch.prod(x, dim=-1),
    "logsumexp": lambda x: torch.logsumexp(x, dim=-1),
    "cumprod": lambda x: torch.cumprod(x, dim=-1),
    "l2_norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
}
