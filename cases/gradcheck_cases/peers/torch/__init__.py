"""The operators in PyTorch: its own where it has them, composed of its own where it has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradcheck_cases.peers.torch import (
    attention,
    elementwise,
    indexing,
    linear,
    loss,
    norm,
    position,
)

OPERATORS: dict[str, Callable[..., Any]] = {
    **attention.OPERATORS,
    **elementwise.OPERATORS,
    **indexing.OPERATORS,
    **linear.OPERATORS,
    **loss.OPERATORS,
    **norm.OPERATORS,
    **position.OPERATORS,
}
