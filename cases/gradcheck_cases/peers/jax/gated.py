"""JAX's gelu and silu, and gates made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def gelu(x, *, form, root):
    """The three forms; JAX knows √(2/π) only exactly, and the quick form not at all."""
    if form == "quick":
        return x * jax.nn.sigmoid(1.702 * x)
    if root:
        return 0.5 * x * (1 + jnp.tanh(float(root) * (x + 0.044715 * x * x * x)))
    return jax.nn.gelu(x, approximate=form == "tanh")


def silu_back(g, x):
    """The backward of jax.nn.silu; its own backward is JAX's of that."""
    return jax.vjp(jax.nn.silu, x)[1](g)[0]


def geglu(gate, up, *, form, root):
    """GELU of the gate times up."""
    return gelu(gate, form=form, root=root) * up


def packed_geglu(x, *, form, root):
    """Gate and up packed along the last axis."""
    return geglu(*jnp.split(x, 2, axis=-1), form=form, root=root)


def swiglu(gate, up):
    """SiLU of the gate times up."""
    return jax.nn.silu(gate) * up


def packed_swiglu(x):
    """Gate and up packed along the last axis."""
    return swiglu(*jnp.split(x, 2, axis=-1))


OTHERS: dict[str, Callable[..., Any]] = {
    "silu": jax.nn.silu,
}
