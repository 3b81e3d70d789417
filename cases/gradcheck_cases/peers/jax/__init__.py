"""Operators in JAX: its own, or composed of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradcheck_cases.peers.jax import (
    activation,
    attention,
    convolution,
    elementwise,
    gated,
    indexing,
    linear,
    loss,
    moe,
    norm,
    position,
    recurrent,
    reduction,
    shape,
)

OPERATORS: dict[str, Callable[..., Any]] = {
    **activation.OPERATORS,
    **attention.OPERATORS,
    **convolution.OPERATORS,
    **elementwise.OPERATORS,
    **gated.OPERATORS,
    **indexing.OPERATORS,
    **linear.OPERATORS,
    **loss.OPERATORS,
    **moe.OPERATORS,
    **norm.OPERATORS,
    **position.OPERATORS,
    **recurrent.OPERATORS,
    **reduction.OPERATORS,
    **shape.OPERATORS,
}
