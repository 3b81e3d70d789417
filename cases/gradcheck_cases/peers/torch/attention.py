"""Softmax and attention by PyTorch's own operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def softmax(x):
    return F.softmax(x, dim=-1)


def masked_softmax(att):
    seen = _seen(att)
    return att.masked_fill(~seen, float("-inf")).softmax(dim=-1)


def masked_attention(qkv):
    q, k = qkv[..., :-2, :], qkv[..., -2, :]
    scores = torch.einsum("...thd,...sd->...ths", q, k)
    return scores.masked_fill(~_seen(scores), 0.0)


def mix_by_attention(qkv, attention):
    weights = attention.masked_fill(~_seen(attention), 0.0)
    return torch.einsum("...ths,...sd->...thd", weights, qkv[..., -1, :])


def attention(q, k, v, *, heads, causal):
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(-2, -3) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return y.transpose(-2, -3).flatten(-2)


def packed_attention(x, *, heads):
    return attention(*x.chunk(3, dim=-1), heads=heads, causal=True)


def _seen(att):
    """Booleans [t, 1, s] for `att` [t, h, s]."""
    ones = torch.ones(att.shape[-3], att.shape[-1], dtype=torch.bool, device=att.device)
    return ones.tril().unsqueeze(-2)


OPERATORS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "masked_softmax": masked_softmax,
    "masked_attention": masked_attention,
    "mix_by_attention": mix_by_attention,
    "attention": attention,
    "packed_attention": packed_attention,
}
