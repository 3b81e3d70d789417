"""JAX's element-wise arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def divide(x, y):
    """Not of x and y themselves: JAX's slope by y squares y, which float32 may not hold."""
    scale = lax.stop_gradient(jnp.exp2(-jnp.round(jnp.log2(jnp.abs(y)))))
    return (x * scale) / (y * scale)


def step(x, *, at_zero):
    return jnp.heaviside(x, at_zero)


def power(x, y=None, *, exponent):
    """jnp.power, whose slope for the number 0.0 is NaN at 0, and for the number 0 is not."""
    number = int(exponent) if exponent == int(exponent) else exponent
    return jnp.power(x, number if y is None else y)


def map_unary(x, *, function):
    """The three functions, from JAX's own."""
    functions: dict[str, Callable[..., Any]] = {
        "bell": lambda x: jnp.exp(-jnp.square(x)),
        "sine": jnp.sin,
        "swish": jax.nn.swish,
    }
    return functions[function](x)


def map_binary(x, y, *, function):
    """The three functions, from JAX's own."""
    functions: dict[str, Callable[..., Any]] = {
        "hypot": jnp.hypot,
        "wave": lambda x, y: jnp.sin(x) * y,
        "growth": lambda x, y: x * jnp.exp(y),
    }
    return functions[function](x, y)


OTHERS: dict[str, Callable[..., Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": divide,
    "add1": jnp.add,
    "scale": jnp.multiply,
    "neg": jnp.negative,
    "sqr": jnp.square,
    "exp": jnp.exp,
    "sqrt": jnp.sqrt,
    "log": jnp.log,
    "abs": jnp.abs,
    "sgn": jnp.sign,
    "pow": power,
}
