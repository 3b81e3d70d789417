"""Normalisations from JAX's mean, var and rsqrt; its only own one is standardize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def rms_norm(x, w=None, *, eps, unit_offset):
    y = x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)
    return y if w is None else y * (1 + w if unit_offset else w)


def layer_norm(x, w=None, b=None, *, eps):
    y = _standardised(x, -1, eps)
    return y if w is None else y * w + b


def _standardised(x, axis, eps):
    """With the variance given: jax.nn.standardize's own is mean(x²) - mean(x)²."""
    variance = jnp.var(x, axis=axis, keepdims=True)
    mean = jnp.mean(x, axis=axis, keepdims=True)
    return jax.nn.standardize(x, axis=axis, mean=mean, variance=variance, epsilon=eps)


def rms_norm_back(g, x, *, eps):
    """The backward of rms_norm; its own backward is JAX's of that."""
    return jax.vjp(lambda x: rms_norm(x, eps=eps, unit_offset=False), x)[1](g)[0]


def group_norm(x, w=None, b=None, *, groups, eps):
    c, s = x.shape[-2:]
    parts = x.reshape(*x.shape[:-2], groups, c // groups * s)
    y = _standardised(parts, -1, eps).reshape(x.shape)
    return y if w is None else y * w[:, None] + b[:, None]


def batch_norm(x, w=None, b=None, *, eps):
    y = _standardised(x, (-3, -1), eps)
    return y if w is None else y * w[:, None] + b[:, None]


def l2_normalize(x, *, eps, inside):
    """Over the norm, or over eps where that is larger; the square root must not see a zero."""
    squares = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    if inside:
        return x * lax.rsqrt(squares + eps)
    zero = squares == 0
    norm = jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, squares)))
    return x / jnp.maximum(norm, eps)


def qk_norm(q, k, wq, wk, *, eps, unit_offset):
    return (
        rms_norm(q, wq, eps=eps, unit_offset=unit_offset),
        rms_norm(k, wk, eps=eps, unit_offset=unit_offset),
    )


OTHERS: dict[str, Callable[..., Any]] = {
    "norm": layer_norm,
}
