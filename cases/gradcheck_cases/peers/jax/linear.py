"""JAX's linear maps."""

from __future__ import annotations

import math

import jax.numpy as jnp


def matmul(x, w, b=None):
    y = jnp.einsum("...i,oi->...o", x, w)
    return y if b is None else y + b


def multi_head_matmul(x, w):
    return jnp.einsum("...thm,hnm->...tn", x, w)


def mul_mat(a, b):
    a = jnp.repeat(a, b.shape[-4] // a.shape[-4], axis=-4)
    a = jnp.repeat(a, b.shape[-3] // a.shape[-3], axis=-3)
    return b @ jnp.matrix_transpose(a)


def outer_product(a, b):
    return jnp.matrix_transpose(b) @ a


def batched_matmul(x, y, *, transpose_x, transpose_y):
    x = jnp.matrix_transpose(x) if transpose_x else x
    return jnp.matmul(x, jnp.matrix_transpose(y) if transpose_y else y)


def low_rank_linear(x, a, b, *, merged):
    return matmul(x, a @ b) if merged else matmul(matmul(x, b), a)


def lora_linear(x, w, a, b, *, s, per):
    rank = a.shape[-1]
    strength = s / {"one": 1, "rank": rank, "root": math.sqrt(rank)}[per]
    return matmul(x, w) + strength * matmul(matmul(x, b), a)
