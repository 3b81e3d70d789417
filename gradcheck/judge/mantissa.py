"""Whether the numbers of an array fit in a type narrower than their dtype."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LOW: Final = {"float64": (1 << 29) - 1, "float32": (1 << 42) - 1}
"""Bits of float64 beyond the widest type that is narrower than each dtype: float32, and TF32."""


def fits_narrow(values: NDArray[Any], dtype: str) -> bool:
    """Whether most of `values` of a dtype that are not zero fit in a narrower type."""
    full = np.count_nonzero(values.astype(np.float64, copy=False).view(np.uint64) & LOW[dtype])
    if 2 * full >= values.size:
        return False
    return bool(2 * full < np.count_nonzero(values))
