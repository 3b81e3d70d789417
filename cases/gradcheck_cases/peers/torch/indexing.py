"""PyTorch's look-ups: embedding, index_add, gather, scatter_add."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def encoder(wte, wpe, tokens):
    positions = torch.arange(tokens.shape[-1], device=tokens.device)
    return F.embedding(tokens, wte) + F.embedding(positions, wpe)


def input_embedding(w, tokens, *, bf16_scale):
    kept = torch.bfloat16 if bf16_scale else torch.float64
    scale = torch.tensor(w.shape[-1], dtype=torch.float64).sqrt().to(kept).item()
    return F.embedding(tokens[..., :-1], w) * scale


def get_rows(x, rows):
    return F.embedding(rows, x)


def get_rows_back(g, rows, *, n_rows):
    return g.new_zeros(n_rows, g.shape[-1]).index_add(0, rows, g)


def gather(x, index, *, axis):
    return torch.gather(x, axis, index)


def scatter_add(x, index, src, *, axis):
    return torch.scatter_add(x, axis, index, src)
