"""JAX's look-ups: indexing, take_along_axis, and scattered additions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np


def encoder(wte, wpe, tokens):
    return jnp.take(wte, tokens, axis=0) + wpe[: tokens.shape[-1]]


def input_embedding(w, tokens, *, bf16_scale):
    kept = jnp.bfloat16 if bf16_scale else np.float64
    scale = float(np.sqrt(np.float64(w.shape[-1])).astype(kept))
    return jnp.take(w, tokens[..., :-1], axis=0) * scale


def get_rows(x, rows):
    return x[rows]


def get_rows_back(g, rows, *, n_rows):
    return jnp.zeros((n_rows, g.shape[-1]), g.dtype).at[rows].add(g)


def gather(x, index, *, axis):
    """jnp.take_along_axis, which wants the other axes as long as the index's."""
    other = -1 if axis == -2 else -2
    x = x[..., : index.shape[-1]] if other == -1 else x[..., : index.shape[-2], :]
    return jnp.take_along_axis(x, index, axis=axis)


def scatter_add(x, index, src, *, axis):
    places = list(jnp.indices(index.shape, sparse=True))
    places[axis] = index
    return x.at[tuple(places)].add(src[tuple(slice(n) for n in index.shape)])
