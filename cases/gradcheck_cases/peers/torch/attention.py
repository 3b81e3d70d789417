"""Softmax and attention by PyTorch's own operators."""

from __future__ import annotations

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


def flash_attn(q, k, v, *, masked):
    seen = _band(q, k, None, 0 if masked else None)
    return F.scaled_dot_product_attention(q, k, v.mT, attn_mask=seen)


def flash_ff(a, b0, b1, c0, c1):
    return F.linear(F.gelu(F.linear(a, b0, b1), approximate="tanh"), c0, c1)


def grouped_query_attention(q, k, v, *, causal, top_left):
    seen = _band(q, k, None, 0 if causal else None, top_left)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)


def sliding_window_attention(q, k, v, *, left, right):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_band(q, k, left, right))


def sink_attention(q, k, v, sink=None):
    """gpt-oss: the sink as one more slot, dropped after the softmax."""
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~_band(q, k, None, 0), float("-inf"))
    if sink is None:
        sink = scores.new_zeros(scores.shape[-3])
    column = sink[..., None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1] @ v


def softcapped_attention(q, k, v, *, cap, causal):
    scores = cap * torch.tanh(q @ k.mT / q.shape[-1] ** 0.5 / cap)
    seen = _band(q, k, None, 0 if causal else None)
    return scores.masked_fill(~seen, float("-inf")).softmax(dim=-1) @ v


def _band(q, k, left, right, top_left=False):
    """Booleans [t, s]: slots from `left` before the query's own to `right` after it."""
    queries, slots = q.shape[-2], k.shape[-2]
    own = torch.arange(queries, device=q.device) + (0 if top_left else slots - queries)
    distance = torch.arange(slots, device=q.device) - own[:, None]
    seen = torch.ones_like(distance, dtype=torch.bool)
    if left is not None:
        seen &= distance >= -left
    if right is not None:
        seen &= distance <= right
    return seen


def _seen(att):
    """Booleans [t, 1, s] for `att` [t, h, s]."""
    ones = torch.ones(att.shape[-3], att.shape[-1], dtype=torch.bool, device=att.device)
    return ones.tril().unsqueeze(-2)
