"""JAX's reductions, sums along an axis, and orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def sum_all(x, *, axis, keepdims):
    return jnp.sum(x, axis=axis, keepdims=keepdims)


def sum_rows(x):
    return jnp.sum(x, axis=-1, keepdims=True)


def mean(x, *, axis):
    return jnp.mean(x, axis=axis)


def repeat(x, *, counts, interleave):
    """jnp.tile, or jnp.repeat axis by axis."""
    if not interleave:
        return jnp.tile(x, counts)
    for axis, count in enumerate(reversed(counts), start=1):
        x = jnp.repeat(x, count, axis=-axis)
    return x


def cumsum(x, *, exclusive, reverse):
    """lax.cumsum, which knows both directions, but not exclusion."""
    y = lax.cumsum(x, axis=x.ndim - 1, reverse=reverse)
    return y - x if exclusive else y


def sort(x, *, descending):
    return jnp.sort(x, axis=-1, descending=descending)


def top_k(x, *, k, largest):
    """lax.top_k, which knows the largest only."""
    return lax.top_k(x, k)[0] if largest else -lax.top_k(-x, k)[0]


def variance(x, *, ddof):
    return jnp.var(x, axis=-1, ddof=ddof)


def l2_norm(x):
    """Not jnp.linalg.norm, whose slope at 0 is NaN: the square root must not see a zero."""
    squares = jnp.sum(jnp.square(x), axis=-1)
    zero = squares == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, squares)))


OTHERS: dict[str, Callable[..., Any]] = {
    "sum": sum_all,
    "max": lambda x: jnp.max(x, axis=-1),
    "prod": lambda x: jnp.prod(x, axis=-1),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1),
    "cumprod": lambda x: jnp.cumprod(x, axis=-1),
}
