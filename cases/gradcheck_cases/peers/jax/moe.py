"""A mixture of experts with static shapes: all experts answer, lax.top_k says who counts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def moe(x, w_router, w_up, w_gate=None, w_down=None, *, top_k, score, renormalise, scale):
    logits = x @ w_router.T
    scores = jax.nn.softmax(logits, axis=-1) if score == "softmax" else jax.nn.sigmoid(logits)
    _, chosen = lax.top_k(logits, top_k)
    shares = jnp.take_along_axis(scores, chosen, axis=-1)
    if renormalise:
        shares = shares / shares.sum(-1, keepdims=True)
    y = jnp.einsum("efd,...d->...ef", w_up, x)
    if w_gate is not None:
        y = jax.nn.silu(jnp.einsum("efd,...d->...ef", w_gate, x)) * y
        y = jnp.einsum("eof,...ef->...eo", w_down, y)
    answers = jnp.take_along_axis(y, chosen[..., None], axis=-2)
    return scale * (shares[..., None] * answers).sum(-2)
