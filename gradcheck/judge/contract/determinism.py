"""The same arguments give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PADDED: Final = "g"
"""A long double: of its 16 bytes only 10 are written, the others hold anything."""


def differs(first: Sequence[NDArray[Any] | None], second: Sequence[NDArray[Any] | None]) -> bool:
    """Whether two calls gave other bits anywhere (NaN equals NaN, −0 is not 0)."""
    for a, b in zip(first, second, strict=True):
        if (a is None) != (b is None):
            return True
        if a is None or b is None:
            continue
        if a.shape != b.shape or not _same(a, b):
            return True
    return False


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether arrays of one shape hold the same bits, but for those that hold no number."""
    if a.dtype.char == b.dtype.char == PADDED:
        signs = np.array_equal(np.signbit(a), np.signbit(b))
        return signs and np.array_equal(a, b, equal_nan=True)
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
