"""Rotary and linear positions of JAX's functions, as its users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax


def rope_interleaved(x, *, base, offset, n_dims, half_split, skip_past):
    """Neighbours as complex numbers, times a unit number of the angle."""
    return _times_unit(x, _angles(x, base, offset, n_dims, skip_past))


def rope_half_split(x, *, base, offset, n_dims, half_split, skip_past):
    """Halves as the two coordinates."""
    return _halves_turned(x, _angles(x, base, offset, n_dims, skip_past))


def rope_back_interleaved(g, *, base, offset, n_dims, half_split, skip_past):
    return _times_unit(g, -_angles(g, base, offset, n_dims, skip_past))


def rope_back_half_split(g, *, base, offset, n_dims, half_split, skip_past):
    return _halves_turned(g, -_angles(g, base, offset, n_dims, skip_past))


def _times_unit(x, angles):
    size = 2 * angles.shape[-1]
    pairs = lax.complex(x[..., 0:size:2], x[..., 1:size:2])
    turned = pairs * jnp.exp(1j * angles)[:, None]
    both = jnp.stack([turned.real, turned.imag], axis=-1).reshape(*x.shape[:-1], size)
    return jnp.concatenate([both, x[..., size:]], axis=-1)


def _halves_turned(x, angles):
    half = angles.shape[-1]
    a, b, rest = jnp.split(x, [half, 2 * half], axis=-1)
    c, s = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    return jnp.concatenate([a * c - b * s, a * s + b * c, rest], axis=-1)


def _angles(x, base, offset, n_dims, skip_past):
    size = n_dims or x.shape[-1]
    exponents = jnp.arange(0, size, 2, dtype=x.dtype) / size
    positions = jnp.arange(x.shape[-3], dtype=x.dtype)
    positions = positions * (positions >= offset) if skip_past else positions + offset
    return jnp.outer(positions, 1.0 / base**exponents)


def alibi(x, *, n_past, n_head, bias_max):
    """Slopes of the nearest power of two, then every other one of twice as many."""
    heads = n_head or x.shape[-3]
    n = 2 ** (heads.bit_length() - 1)
    first = jnp.arange(1, n + 1, dtype=x.dtype) * (-bias_max / n)
    between = (jnp.arange(heads - n, dtype=x.dtype) * 2 + 1) * (-bias_max / (2 * n))
    slopes = jnp.exp2(jnp.concatenate([first, between]))[: x.shape[-3]]
    slots = jnp.arange(x.shape[-1], dtype=x.dtype) - n_past
    return x + slopes[:, None, None] * slots


def diag_mask_inf(x, *, n_past):
    seen = jnp.tri(x.shape[-2], x.shape[-1], n_past, dtype=bool)
    return jnp.where(seen, x, -jnp.inf)


def diag_mask_zero(x, *, n_past):
    return jnp.tril(x, n_past)


OTHERS: dict[str, Callable[..., Any]] = {
    "rope/interleaved": rope_interleaved,
    "rope/half-split": rope_half_split,
    "rope_back/interleaved": rope_back_interleaved,
    "rope_back/half-split": rope_back_half_split,
}
