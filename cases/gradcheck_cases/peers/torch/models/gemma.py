"""Gemma of PyTorch's own functions; one key and one value serve all query heads."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


def _empty(*shape):
    return nn.Parameter(torch.empty(*shape))


class Layer(nn.Module):
    def __init__(self, c, heads, d, hidden):
        super().__init__()
        self.heads = heads
        self.pre_attention_norm_scale, self.pre_ffw_norm_scale = _empty(c), _empty(c)
        self.qkv_einsum_w = _empty((heads + 2) * d, c)
        self.attn_vec_einsum_w = _empty(heads, c, d)
        self.gating_einsum_w = _empty(2 * hidden, c)
        self.linear_w = _empty(c, hidden)

    def forward(self, x):
        y = F.linear(_rms_norm(x, self.pre_attention_norm_scale), self.qkv_einsum_w)
        heads = y.unflatten(-1, (self.heads + 2, -1)).transpose(0, 1)
        q, k, v = heads.split([self.heads, 1, 1])
        y = F.scaled_dot_product_attention(_turn(q), _turn(k), v, is_causal=True, enable_gqa=True)
        x = x + torch.einsum("htd,hcd->tc", y, self.attn_vec_einsum_w)
        y = F.linear(_rms_norm(x, self.pre_ffw_norm_scale), self.gating_einsum_w)
        gate, up = y.chunk(2, dim=-1)
        return x + F.linear(_gelu(gate) * up, self.linear_w)


class Gemma(nn.Module):
    def __init__(self, *, vocab, c, heads, d, hidden, layers, context, **_):
        super().__init__()
        self.context = context
        self.embedder_input_embedding = _empty(vocab, c)
        self.layers = nn.ModuleList(Layer(c, heads, d, hidden) for _ in range(layers))
        self.final_norm_scale = _empty(c)
        self.scale = torch.tensor(c**0.5).to(torch.bfloat16).item()

    def forward(self, tokens, **_):
        """The loss of a prompt; its own next tokens and scale of queries follow from it."""
        x = F.embedding(tokens[:-1], self.embedder_input_embedding) * self.scale
        for layer in self.layers:
            x = layer(x)
        x = F.linear(_rms_norm(x, self.final_norm_scale), self.embedder_input_embedding)
        logits = 30 * torch.tanh(x / 30)
        first = max(self.context - 1, 0)
        nats = F.cross_entropy(logits[first:], tokens[1 + first :], reduction="sum")
        return nats / math.log(2)


def _rms_norm(x, w):
    return F.rms_norm(x, w.shape, 1 + w, eps=1e-6)


def _gelu(x):
    """The tanh form with gemma.cpp's √(2/π), which is 1.4e-12 larger than PyTorch's."""
    return x / 2 * (1 + torch.tanh(0.797884560804236 * (x + 0.044715 * x**3)))


def _turn(x):
    """Feature i of x [h, t, d] turned against feature i + d/2."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    positions = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)
    angles = torch.outer(positions, frequencies).repeat(1, 2)
    a, b = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-b, a], dim=-1) * angles.sin()
