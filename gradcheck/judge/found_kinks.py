"""Elements that have no one slope, as forward's values or 50 digits show them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import Interval

Float = NDArray[np.float64]

SHARED: Final = 1e-3
"""How well slopes beside a kink are known, as a part of their terms."""


class Kinks:
    """What was found of elements that have no one slope: intervals [q, n], and lists of the rest.

    `lost` have no slope at all, `vague` a kink that may lie beside them, `split` a slope of each of
    two scales, `stairs` stairs on both sides and a gradient of zero.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        """Nothing found, for gradients of `shape` [q, n]."""
        self._which = np.zeros(shape, dtype=bool)
        self._low, self._high = np.zeros(shape), np.zeros(shape)
        self.lost: list[int] = []
        self.vague: list[int] = []
        self.split: list[int] = []
        self.stairs: list[int] = []

    def add(self, elements: NDArray[np.int64], low: Float, high: Float) -> None:
        """Between `low` and `high` [q, k] the `elements` [k] may be."""
        self._which[:, elements] = True
        self._low[:, elements], self._high[:, elements] = low, high

    def widen(self, element: int, low: Float, high: Float) -> None:
        """Slopes from `low` to `high` [q] are those of `element`, too."""
        self._low[:, element] = np.minimum(self._low[:, element], low - SHARED * np.abs(low))
        self._high[:, element] = np.maximum(self._high[:, element], high + SHARED * np.abs(high))

    def lose(self, elements: NDArray[np.int64]) -> None:
        """`elements` [k] have no slope."""
        self.lost += [int(e) for e in elements]

    @property
    def elements(self) -> list[int]:
        """Those that lie on a kink."""
        return [int(e) for e in np.flatnonzero(self._which.any(axis=0))]

    def intervals(self) -> list[Interval]:
        """What a comparison reads."""
        return [Interval(self._which, self._low, self._high)] if self._which.any() else []
