"""Generators of the models' tensors: weights that keep values near 1, gains, token ids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradcheck.spec.program import Drawn


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
    """Token ids of sequences (the last axis): the first one comes twice, `vocab` − 1 never.

    All others of a sequence differ, as far as there are tokens: where all are alike, attention
    has nothing to choose from, and queries have no gradient.
    """
    *lead, t = shape

    def drawn(draw: Any) -> Any:
        order = np.stack([draw.permutation(vocab - 1) for _ in range(math.prod(lead))])
        found = order[:, np.arange(t) % (vocab - 1)]
        found[:, t // 2] = found[:, 0]
        return found.reshape(shape)

    return drawn


def ids(vocab: int, *shape: int) -> Drawn:
    """Any token ids: targets."""
    return lambda draw: draw.integers(0, vocab, *shape)
