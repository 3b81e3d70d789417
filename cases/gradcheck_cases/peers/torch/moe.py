"""A mixture of experts composed of PyTorch's functions, token by token."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def moe(x, w_router, w_up, w_gate=None, w_down=None, *, top_k, score, renormalise, scale):
    """As in Mixtral: only the experts that torch.topk names are evaluated."""
    rows = x.reshape(-1, x.shape[-1])
    out = []
    for token in rows:
        logits = w_router @ token
        scores = torch.softmax(logits, -1) if score == "softmax" else torch.sigmoid(logits)
        index = torch.topk(logits, top_k).indices
        shares = scores[index]
        if renormalise:
            shares = shares / shares.sum()
        total = 0
        for share, e in zip(shares, index.tolist(), strict=True):
            y = w_up[e] @ token
            if w_gate is not None:
                y = w_down[e] @ (F.silu(w_gate[e] @ token) * y)
            total = total + scale * share * y
        out.append(total)
    if not out:
        return (
            x.new_zeros((*x.shape[:-1], (w_up if w_down is None else w_down).shape[-2])) * x.sum()
        )
    return torch.stack(out).reshape(*x.shape[:-1], -1)
