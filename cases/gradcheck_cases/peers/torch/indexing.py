"""Look-ups by PyTorch's embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def encoder(wte, wpe, tokens):
    positions = torch.arange(tokens.shape[-1], device=tokens.device)
    return F.embedding(tokens, wte) + F.embedding(positions, wpe)


def input_embedding(w, tokens, *, bf16_scale):
    kept = torch.bfloat16 if bf16_scale else torch.float64
    scale = torch.tensor(w.shape[-1], dtype=torch.float64).sqrt().to(kept).item()
    return F.embedding(tokens[..., :-1], w) * scale


OPERATORS: dict[str, Callable[..., Any]] = {
    "encoder": encoder,
    "input_embedding": input_embedding,
}
