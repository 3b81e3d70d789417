"""PyTorch has no rotary embedding; these are the two ways in which its users write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def rope_interleaved(x, *, base, offset, n_dims, half_split):
    """Llama: pairs as complex numbers, times a unit number of the angle."""
    size = n_dims or x.shape[-1]
    pairs = torch.view_as_complex(x[..., :size].unflatten(-1, (-1, 2)).contiguous())
    angles = _angles(x, base, offset, size)
    turned = pairs * torch.polar(torch.ones_like(angles), angles).unsqueeze(-2)
    return torch.cat([torch.view_as_real(turned).flatten(-2), x[..., size:]], dim=-1)


def rope_half_split(x, *, base, offset, n_dims, half_split):
    """GPT-NeoX: x cos + rotate_half(x) sin."""
    size = n_dims or x.shape[-1]
    rotated, rest = x[..., :size], x[..., size:]
    angles = _angles(x, base, offset, size).repeat(1, 2).unsqueeze(-2)
    first, second = rotated.chunk(2, dim=-1)
    turned = rotated * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()
    return torch.cat([turned, rest], dim=-1)


def _angles(x, base, offset, size):
    exponents = torch.arange(0, size, 2, dtype=x.dtype, device=x.device) / size
    positions = torch.arange(offset, offset + x.shape[-3], dtype=x.dtype, device=x.device)
    return torch.outer(positions, 1.0 / base**exponents)


OPERATORS: dict[str, Callable[..., Any]] = {
    "rope/interleaved": rope_interleaved,
    "rope/half-split": rope_half_split,
}
