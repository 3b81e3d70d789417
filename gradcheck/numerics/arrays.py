"""Arrays and dtypes, bfloat16 among them, as numerics and specs share them."""

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


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """Half the distance from 1 to the next number of a floating dtype."""
    return float(np.finfo(dtype).eps) / 2


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype called `name`; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes  # deferred: most runs need none of it

        name = ml_dtypes.bfloat16
    return np.dtype(name)


def dtype_limits(name: str) -> Any:
    """`np.finfo` of a floating dtype, bfloat16 included."""
    if name == "bfloat16":
        import ml_dtypes  # deferred: most runs need none of it

        return ml_dtypes.finfo(dtype_named(name))
    return np.finfo(name)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype holds floating numbers (NumPy takes bfloat16 for void)."""
    return dtype.kind == "f" or dtype.name == "bfloat16"
