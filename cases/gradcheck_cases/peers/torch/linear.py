"""PyTorch's linear maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def multi_head_matmul(x, w):
    """PyTorch has no such operator: its einsum."""
    return torch.einsum("...thm,hnm->...tn", x, w)


def mul_mat(a, b):
    """torch.matmul, which repeats matrices of size-1 axes only."""
    a = a.repeat_interleave(b.shape[-4] // a.shape[-4], dim=-4)
    a = a.repeat_interleave(b.shape[-3] // a.shape[-3], dim=-3)
    return b @ a.mT


def outer_product(a, b):
    return b.mT @ a


def batched_matmul(x, y, *, transpose_x, transpose_y):
    return torch.matmul(x.mT if transpose_x else x, y.mT if transpose_y else y)


def low_rank_linear(x, a, b, *, merged):
    return F.linear(x, a @ b) if merged else F.linear(F.linear(x, b), a)


def lora_linear(x, w, a, b, *, s, per):
    rank = a.shape[-1]
    strength = s / {"one": 1, "rank": rank, "root": math.sqrt(rank)}[per]
    return F.linear(x, w) + strength * F.linear(F.linear(x, b), a)


OTHERS: dict[str, Callable[..., Any]] = {
    "matmul": F.linear,
}
