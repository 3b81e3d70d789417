"""PyTorch's losses, without their reduction: it is over everything there, over one axis here."""

from __future__ import annotations

import math

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


def reduced(losses, reduction):
    """Losses along the last axis."""
    if reduction == "none":
        return losses
    return losses.mean(dim=-1) if reduction == "mean" else losses.sum(dim=-1)


def per_position(logits, targets, **attrs):
    """F.cross_entropy, which wants positions in one axis."""
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none", **attrs)
    return losses.view(targets.shape)


def softmax_cross_entropy(logits, targets, *, next_token):
    if next_token:
        return per_position(logits[..., :-1, :], targets[..., 1:]).mean(dim=-1)
    return per_position(logits, targets)


def label_smoothing_cross_entropy(logits, targets, *, smoothing, others, reduction):
    """PyTorch's own smooths over all classes; over the others it is fairseq's composition."""
    if not others:
        losses = per_position(logits, targets, label_smoothing=smoothing)
        return reduced(losses, reduction)
    log_p = F.log_softmax(logits, dim=-1)
    share = smoothing / (logits.shape[-1] - 1)
    at_target = log_p.gather(-1, targets[..., None])[..., 0]
    losses = -(1 - smoothing - share) * at_target - share * log_p.sum(dim=-1)
    return reduced(losses, reduction)


def masked_cross_entropy(logits, targets, *, ignore_index, reduction):
    losses = per_position(logits, targets, ignore_index=ignore_index)
    if reduction == "mean":
        return losses.sum(dim=-1) / (targets != ignore_index).sum(dim=-1)
    return reduced(losses, reduction)


def z_loss(logits, targets, *, weight, reduction):
    """PyTorch has no such operator: its logsumexp."""
    squares = torch.logsumexp(logits, dim=-1) ** 2
    return reduced(per_position(logits, targets) + weight * squares, reduction)


def square_error(x, y, *, reduction):
    x, y = torch.broadcast_tensors(x, y)
    return reduced(F.mse_loss(x, y, reduction="none"), reduction)


def huber(x, y, *, delta, scaled, reduction):
    if scaled:
        return reduced(F.smooth_l1_loss(x, y, reduction="none", beta=delta), reduction)
    return reduced(F.huber_loss(x, y, reduction="none", delta=delta), reduction)


def hinge(x, labels, *, margin, squared, reduction):
    """PyTorch has no hinge with binary labels and a margin for both."""
    losses = torch.relu(margin - labels * x)
    return reduced(losses**2 if squared else losses, reduction)


def binary_cross_entropy(x, y, *, logits, pos_weight, reduction):
    x, y = torch.broadcast_tensors(x, y)
    if logits:
        weight = torch.tensor(pos_weight, dtype=x.dtype, device=x.device)
        losses = F.binary_cross_entropy_with_logits(x, y, reduction="none", pos_weight=weight)
    elif pos_weight == 1:
        losses = F.binary_cross_entropy(x, y, reduction="none")
    else:  # its weight would be on both terms
        losses = -pos_weight * torch.xlogy(y, x) - torch.xlogy(1 - y, 1 - x)
    return reduced(losses, reduction)


def kl_divergence(q, p, *, log_q, log_p, reduction):
    q, p = torch.broadcast_tensors(q if log_q else q.log(), p)
    return reduced(F.kl_div(q, p, reduction="none", log_target=log_p), reduction)
