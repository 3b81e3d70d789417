"""How the tensors of the models are drawn: weights that keep values near 1, gains, token ids."""

from __future__ import annotations

import math
from typing import Any

from gradcheck.model import Drawn


def weight(*shape: int, fan_in: int = 0) -> Drawn:
    """Normal values times the power of two next to 1/√fan_in (0: the last axis).

    A product with it keeps the size of what it is fed.
    """
    scale = 2.0 ** -round(math.log2(fan_in or shape[-1]) / 2)
    return lambda draw: draw.normal(*shape, scale=scale)


def spread(*shape: int, scale: float = 0.5) -> Drawn:
    """Normal values times `scale`: biases, and gains to which the model adds 1."""
    return lambda draw: draw.normal(*shape, scale=scale)


def gain(*shape: int) -> Drawn:
    """Values in [1/2, 3/2]: norm weights."""
    return lambda draw: draw.uniform(0.5, 1.5, *shape)


def tokens(vocab: int, *shape: int) -> Drawn:
    """Token ids of sequences (the last axis): each repeats its first one; `vocab` − 1 is unused."""

    def drawn(draw: Any) -> Any:
        ids = draw.integers(0, vocab - 1, *shape)
        ids[..., shape[-1] // 2] = ids[..., 0]
        return ids

    return drawn


def ids(vocab: int, *shape: int) -> Drawn:
    """Any token ids: targets."""
    return lambda draw: draw.integers(0, vocab, *shape)
