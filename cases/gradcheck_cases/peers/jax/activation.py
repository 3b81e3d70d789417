"""JAX's activations, and the formulas of their backwards from a saved output."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def elu(x, *, alpha):
    """Not jax.nn.elu: JAX's slope of expm1 is expm1 + 1, which is 0 far below 0 (JAX 0.10)."""
    near, far = (x > -1) & (x <= 0), x <= -1
    below = jnp.where(near, jnp.expm1(jnp.where(near, x, 0)), jnp.exp(jnp.where(far, x, 0)) - 1)
    return jnp.where(x > 0, x, alpha * below)


def clamp(x, *, min, max):
    return jnp.clip(x, min, max)


def tanh_back(g, y):
    return g * (1 - y * y)


def sigmoid_back(g, y):
    return g * y * (1 - y)


def softcap(x, *, cap):
    return cap * jnp.tanh(x / cap)


def softcap_back(g, y, *, cap):
    return tanh_back(g, y / cap)


def softplus(x, *, beta, threshold):
    """jax.nn.softplus has neither beta nor threshold; the branch not taken must stay finite."""
    if math.isinf(threshold):
        return jax.nn.softplus(beta * x) / beta
    linear = beta * x > threshold
    return jnp.where(linear, x, jax.nn.softplus(beta * jnp.where(linear, 0, x)) / beta)


def relu_squared(x):
    return jnp.square(jax.nn.relu(x))


def dropout(x, mask, *, p, inverted):
    scale = 1.0 if not inverted else 0.0 if p == 1 else 1 / (1 - p)
    return jnp.where(mask == 0, 0, x) * scale


OTHERS: dict[str, Callable[..., Any]] = {
    "relu": jax.nn.relu,
    "leaky_relu": jax.nn.leaky_relu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "mish": jax.nn.mish,
    "hardswish": jax.nn.hard_swish,
    "hardsigmoid": jax.nn.hard_sigmoid,
}
