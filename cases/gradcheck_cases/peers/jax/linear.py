"""JAX's linear maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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


OPERATORS: dict[str, Callable[..., Any]] = {
    "matmul": matmul,
    "multi_head_matmul": multi_head_matmul,
    "mul_mat": mul_mat,
    "outer_product": outer_product,
    "batched_matmul": batched_matmul,
    "low_rank_linear": low_rank_linear,
    "lora_linear": lora_linear,
}
