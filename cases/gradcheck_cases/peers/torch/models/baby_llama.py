"""Baby Llama in PyTorch: fused attention, and a low-rank matrix multiplied out before its use."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from gradcheck_cases.peers.torch.position import rope_interleaved


class Matrices(nn.Module):
    """A module some of whose matrices may be products of two factors, `name` + "a" and "b"."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def add(self, name, out, features):
        if self.rank:
            self.register_parameter(f"{name}a", _empty(out, self.rank))
            self.register_parameter(f"{name}b", _empty(self.rank, features))
        else:
            self.register_parameter(name, _empty(out, features))

    def linear(self, name, x):
        if self.rank:
            return F.linear(x, getattr(self, f"{name}a") @ getattr(self, f"{name}b"))
        return F.linear(x, getattr(self, name))


class Layer(Matrices):
    def __init__(self, c, heads, hidden, rank):
        super().__init__(rank)
        self.heads = heads
        self.attention_norm, self.ffn_norm = _empty(c), _empty(c)
        for name in ("wq", "wk", "wv", "wo"):
            self.add(name, c, c)
        self.add("w1", hidden, c)
        self.add("w2", c, hidden)
        self.add("w3", hidden, c)

    def forward(self, x, scale):
        y = _rms_norm(x, self.attention_norm)
        q, k, v = (self.linear(f"w{n}", y).unflatten(-1, (self.heads, -1)) for n in "qkv")
        q, k, v = (z.transpose(1, 2) for z in (_turn(q), _turn(k), v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale.item())
        x = x + self.linear("wo", y.transpose(1, 2).flatten(2))
        y = _rms_norm(x, self.ffn_norm)
        return x + self.linear("w2", F.silu(self.linear("w1", y)) * self.linear("w3", y))


class BabyLlama(Matrices):
    def __init__(self, *, vocab, c, heads, hidden, layers, cross_entropy, rank=0, **_):
        super().__init__(rank)
        self.cross_entropy = cross_entropy
        self.tok_embeddings = _empty(vocab, c)
        self.layers = nn.ModuleList(Layer(c, heads, hidden, rank) for _ in range(layers))
        self.norm = _empty(c)
        self.add("output", vocab, c)

    def forward(self, tokens, targets, kq_scale, log_eps=None):
        x = F.embedding(tokens, self.tok_embeddings)
        for layer in self.layers:
            x = layer(x, kq_scale)
        logits = self.linear("output", _rms_norm(x, self.norm))
        if not self.cross_entropy:
            return F.mse_loss(logits, targets, reduction="sum")
        return -(targets.softmax(-1) * (logits.softmax(-1) + log_eps).log()).sum()


def _empty(*shape):
    return nn.Parameter(torch.empty(*shape))


def _rms_norm(x, w):
    return F.rms_norm(x, w.shape, w, eps=1e-6)


def _turn(x):
    return rope_interleaved(x, base=10000.0, offset=0, n_dims=0, half_split=False, skip_past=False)
