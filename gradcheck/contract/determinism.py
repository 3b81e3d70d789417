"""The same arguments give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def differs(first: Sequence[NDArray[Any] | None], second: Sequence[NDArray[Any] | None]) -> bool:
    """Whether two calls gave other bits anywhere (NaN equals NaN, −0 is not 0)."""
    for a, b in zip(first, second, strict=True):
        if (a is None) != (b is None):
            return True
        if a is None or b is None:
            continue
        if (
            a.shape != b.shape
            or np.ascontiguousarray(a).tobytes() != np.ascontiguousarray(b).tobytes()
        ):
            return True
    return False
