"""A Llama of PyTorch's own functions, positions as complex rotations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def _empty(*shape):
    return nn.Parameter(torch.empty(*shape))


class Layer(nn.Module):
    def __init__(self, c, heads, hidden):
        super().__init__()
        self.heads = heads
        self.rms_att_w, self.rms_ffn_w = _empty(c), _empty(c)
        self.wq, self.wk, self.wv, self.wo = (_empty(c, c) for _ in range(4))
        self.w1, self.w2, self.w3 = _empty(hidden, c), _empty(c, hidden), _empty(hidden, c)

    def forward(self, x):
        y = _rms_norm(x, self.rms_att_w)
        q, k, v = (
            F.linear(y, w).unflatten(-1, (self.heads, -1)).transpose(0, 1)
            for w in (self.wq, self.wk, self.wv)
        )
        y = F.scaled_dot_product_attention(_turn(q), _turn(k), v, is_causal=True)
        x = x + F.linear(y.transpose(0, 1).flatten(-2), self.wo)
        y = _rms_norm(x, self.rms_ffn_w)
        return x + F.linear(F.silu(F.linear(y, self.w1)) * F.linear(y, self.w3), self.w2)


class Llama(nn.Module):
    def __init__(self, *, vocab, c, heads, hidden, layers, **_):
        super().__init__()
        self.token_embedding = _empty(vocab, c)
        self.layers = nn.ModuleList(Layer(c, heads, hidden) for _ in range(layers))
        self.rms_final_w = _empty(c)
        self.wcls = _empty(vocab, c)

    def forward(self, tokens):
        x = F.embedding(tokens, self.token_embedding)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(_rms_norm(x, self.rms_final_w), self.wcls)
        return F.cross_entropy(logits[:-1], tokens[1:])


def _rms_norm(x, w):
    return F.rms_norm(x, w.shape, w, eps=1e-5)


def _turn(x):
    """Features 2i and 2i + 1 of x [h, t, d] as one complex number, times e^(i·angle)."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    size = pairs.shape[-1]
    frequencies = 10000.0 ** (-torch.arange(size, dtype=x.dtype, device=x.device) / size)
    positions = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)
    angles = torch.outer(positions, frequencies)
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
