"""Losses by PyTorch's nll_loss and cross_entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

IGNORED = -100


def cross_entropy(p, targets, *, bits, total, context_size):
    predicted = torch.arange(1, targets.shape[-1] + 1, device=targets.device)  # token i + 1
    targets = targets.masked_fill(predicted < context_size, IGNORED)
    losses = F.nll_loss(
        p.log().flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(targets.shape)
    losses = losses / math.log(2) if bits else losses
    return losses.sum(dim=-1) if total else losses


def softmax_cross_entropy(logits, targets, *, next_token):
    if next_token:
        logits, targets = logits[..., :-1, :], targets[..., 1:]
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    losses = losses.view(targets.shape)
    return losses.mean(dim=-1) if next_token else losses


OPERATORS: dict[str, Callable[..., Any]] = {
    "cross_entropy": cross_entropy,
    "softmax_cross_entropy": softmax_cross_entropy,
}
