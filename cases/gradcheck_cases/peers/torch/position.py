"""Rotary embeddings as PyTorch's users write them, in two layouts; linear positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def rope_interleaved(x, *, base, offset, n_dims, half_split, skip_past):
    """Llama: pairs as complex numbers, times a unit number of the angle."""
    return _times_unit(x, _angles(x, base, offset, n_dims, skip_past))


def rope_half_split(x, *, base, offset, n_dims, half_split, skip_past):
    """GPT-NeoX: x cos + rotate_half(x) sin."""
    return _with_rotated_half(x, _angles(x, base, offset, n_dims, skip_past))


def rope_back_interleaved(g, *, base, offset, n_dims, half_split, skip_past):
    return _times_unit(g, -_angles(g, base, offset, n_dims, skip_past))


def rope_back_half_split(g, *, base, offset, n_dims, half_split, skip_past):
    return _with_rotated_half(g, -_angles(g, base, offset, n_dims, skip_past))


def _times_unit(x, angles):
    kind = x.dtype
    if kind.itemsize < 4:  # complex numbers begin at float32; Llama's own code widens, too
        x, angles = x.float(), angles.float()
    size = 2 * angles.shape[-1]
    pairs = torch.view_as_complex(x[..., :size].unflatten(-1, (-1, 2)).contiguous())
    turned = pairs * torch.polar(torch.ones_like(angles), angles).unsqueeze(-2)
    return torch.cat([torch.view_as_real(turned).flatten(-2), x[..., size:]], dim=-1).to(kind)


def _with_rotated_half(x, angles):
    size = 2 * angles.shape[-1]
    rotated, rest = x[..., :size], x[..., size:]
    angles = angles.repeat(1, 2).unsqueeze(-2)
    first, second = rotated.chunk(2, dim=-1)
    turned = rotated * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()
    return torch.cat([turned, rest], dim=-1)


def _angles(x, base, offset, n_dims, skip_past):
    size = n_dims or x.shape[-1]
    exponents = torch.arange(0, size, 2, dtype=x.dtype, device=x.device) / size
    positions = torch.arange(x.shape[-3], dtype=x.dtype, device=x.device)
    positions = positions * (positions >= offset) if skip_past else positions + offset
    return torch.outer(positions, 1.0 / base**exponents)


def alibi(x, *, n_past, n_head, bias_max):
    """BLOOM: slopes of the nearest power of two, then every other one of twice as many."""
    heads = n_head or x.shape[-3]
    n = 2 ** (heads.bit_length() - 1)
    first = torch.arange(1, n + 1, dtype=x.dtype, device=x.device) * (-bias_max / n)
    between = torch.arange(heads - n, dtype=x.dtype, device=x.device) * 2 + 1
    slopes = torch.cat([first, between * (-bias_max / (2 * n))]).exp2()[: x.shape[-3]]
    slots = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) - n_past
    return x + slopes[:, None, None] * slots


def diag_mask_inf(x, *, n_past):
    return x.masked_fill(_above_diagonal(x, n_past), float("-inf"))


def diag_mask_zero(x, *, n_past):
    return x.tril(n_past)


def _above_diagonal(x, n_past):
    ones = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device)
    return ones.triu(n_past + 1)


OTHERS: dict[str, Callable[..., Any]] = {
    "rope/interleaved": rope_interleaved,
    "rope/half-split": rope_half_split,
    "rope_back/interleaved": rope_back_interleaved,
    "rope_back/half-split": rope_back_half_split,
}
