"""What numerics and specs share of arrays: attributes, and outputs as a tuple."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
Attrs = Mapping[str, Any]


def as_tuple(values: Any) -> tuple[Any, ...]:
    """A tuple of outputs or gradients, where a function may return one bare."""
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)
