"""Softmax and attention by JAX's own operators."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp


def softmax(x):
    return jax.nn.softmax(x, axis=-1)


def masked_softmax(att):
    return _softmax(att, _seen(att))


def masked_attention(qkv):
    q, k = qkv[..., :-2, :], qkv[..., -2, :]
    scores = jnp.einsum("...thd,...sd->...ths", q, k)
    return jnp.where(_seen(scores), scores, 0)


def mix_by_attention(qkv, attention):
    weights = jnp.where(_seen(attention), attention, 0)
    return jnp.einsum("...ths,...sd->...thd", weights, qkv[..., -1, :])


def attention(q, k, v, *, heads, causal):
    """Not jax.nn.dot_product_attention: its softmax is float32 for float64 too (JAX 0.10)."""
    q, k, v = (
        jnp.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -2, -3)
        for x in (q, k, v)
    )
    y = jnp.swapaxes(_weights(q, k, _band(q, k, None, 0 if causal else None, True)) @ v, -2, -3)
    return y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1])


def packed_attention(x, *, heads):
    return attention(*jnp.split(x, 3, axis=-1), heads=heads, causal=True)


def flash_attn(q, k, v, *, masked):
    return _weights(q, k, _band(q, k, None, 0 if masked else None)) @ jnp.swapaxes(v, -1, -2)


def flash_ff(a, b0, b1, c0, c1):
    hidden = jax.nn.gelu(a @ jnp.swapaxes(b0, -1, -2) + b1[..., None, :], approximate=True)
    return hidden @ jnp.swapaxes(c0, -1, -2) + c1[..., None, :]


def grouped_query_attention(q, k, v, *, causal, top_left):
    k, v = (jnp.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    return _weights(q, k, _band(q, k, None, 0 if causal else None, top_left)) @ v


def sliding_window_attention(q, k, v, *, left, right):
    return _weights(q, k, _band(q, k, left, right)) @ v


def sink_attention(q, k, v, sink=None):
    """The sink as one more slot, dropped after the softmax."""
    seen = _band(q, k, None, 0)
    scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if sink is None:
        sink = jnp.zeros(scores.shape[-3], scores.dtype)
    column = jnp.broadcast_to(sink[..., None, None], (*scores.shape[:-1], 1))
    whole = jnp.concatenate([jnp.where(seen, scores, -jnp.inf), column], axis=-1)
    return jax.nn.softmax(whole, axis=-1)[..., :-1] @ v


def softcapped_attention(q, k, v, *, cap, causal):
    scores = cap * jnp.tanh(q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]) / cap)
    return _softmax(scores, _band(q, k, None, 0 if causal else None)) @ v


def _weights(q, k, seen):
    return _softmax(q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]), seen)


def _softmax(scores, seen):
    """With `where`: a row that sees no slot weighs nothing, and is not NaN."""
    return jax.nn.softmax(scores, axis=-1, where=seen)


def _band(q, k, left, right, top_left=False):
    """Booleans [t, s]: slots from `left` before the query's own to `right` after it."""
    queries, slots = q.shape[-2], k.shape[-2]
    own = jnp.arange(queries) + (0 if top_left else slots - queries)
    distance = jnp.arange(slots) - own[:, None]
    seen = jnp.ones_like(distance, dtype=bool)
    if left is not None:
        seen &= distance >= -left
    if right is not None:
        seen &= distance <= right
    return seen


def _seen(att):
    """Booleans [t, 1, s] for `att` [t, h, s]."""
    return jnp.tri(att.shape[-3], att.shape[-1], dtype=bool)[:, None, :]
