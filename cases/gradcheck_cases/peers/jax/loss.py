"""Losses of JAX's log_softmax, logsumexp and xlogy, as its users write them."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy


def cross_entropy(p, targets, *, bits, total, context_size):
    at_target = jnp.take_along_axis(p, targets[..., None], axis=-1)[..., 0]
    counted = jnp.arange(1, targets.shape[-1] + 1) >= context_size  # token i + 1 is predicted
    losses = jnp.where(counted, -jnp.log(jnp.where(counted, at_target, 1)), 0)
    losses = losses / math.log(2) if bits else losses
    return losses.sum(-1) if total else losses


def _reduced(losses, reduction):
    """Losses along the last axis."""
    if reduction == "none":
        return losses
    return losses.mean(-1) if reduction == "mean" else losses.sum(-1)


def _per_position(logits, targets):
    log_p = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]


def softmax_cross_entropy(logits, targets, *, next_token):
    if next_token:
        return _per_position(logits[..., :-1, :], targets[..., 1:]).mean(-1)
    return _per_position(logits, targets)


def label_smoothing_cross_entropy(logits, targets, *, smoothing, others, reduction):
    """Against labels smoothed with jax.nn.one_hot."""
    n = logits.shape[-1]
    label = jax.nn.one_hot(targets, n, dtype=logits.dtype)
    rest = (1 - label) / (n - 1) if others else jnp.full_like(label, 1 / n)
    target = (1 - smoothing) * label + smoothing * rest
    return _reduced(-(target * jax.nn.log_softmax(logits, axis=-1)).sum(-1), reduction)


def masked_cross_entropy(logits, targets, *, ignore_index, reduction):
    counted = targets != ignore_index
    losses = _per_position(logits, jnp.where(counted, targets, 0))
    losses = jnp.where(counted, losses, 0)
    if reduction == "mean":
        return losses.sum(-1) / counted.sum(-1).astype(logits.dtype)
    return _reduced(losses, reduction)


def z_loss(logits, targets, *, weight, reduction):
    squares = jax.nn.logsumexp(logits, axis=-1) ** 2
    return _reduced(_per_position(logits, targets) + weight * squares, reduction)


def square_error(x, y, *, reduction):
    return _reduced(jnp.square(x - y), reduction)


def huber(x, y, *, delta, scaled, reduction):
    """Its two pieces by jnp.where; scaled, over delta."""
    size = jnp.abs(x - y)
    losses = jnp.where(size < delta, 0.5 * size**2, delta * (size - 0.5 * delta))
    return _reduced(losses / delta if scaled else losses, reduction)


def hinge(x, labels, *, margin, squared, reduction):
    losses = jax.nn.relu(margin - labels * x)
    return _reduced(losses**2 if squared else losses, reduction)


def binary_cross_entropy(x, y, *, logits, pos_weight, reduction):
    if logits:
        losses = -pos_weight * y * jax.nn.log_sigmoid(x) - (1 - y) * jax.nn.log_sigmoid(-x)
    else:
        losses = -pos_weight * xlogy(y, x) - xlogy(1 - y, 1 - x)
    return _reduced(losses, reduction)


def kl_divergence(q, p, *, log_q, log_p, reduction):
    log = q if log_q else jnp.log(q)
    terms = jnp.exp(p) * (p - log) if log_p else xlogy(p, p) - p * log
    return _reduced(terms, reduction)
