"""Dtypes by name, bfloat16 among them, which NumPy alone does not know."""

from __future__ import annotations

from typing import Any

import numpy as np


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype called `name`; NumPy alone knows no bfloat16."""
    if name == "bfloat16":
        import ml_dtypes  # deferred: most runs need none of it

        name = ml_dtypes.bfloat16
    return np.dtype(name)


def dtype_limits(name: str) -> Any:
    """What `np.finfo` says of a floating dtype, bfloat16 included."""
    if name == "bfloat16":
        import ml_dtypes  # deferred, as above

        return ml_dtypes.finfo(dtype_named(name))
    return np.finfo(name)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype holds floating numbers (NumPy takes bfloat16 for void)."""
    return dtype.kind == "f" or dtype.name == "bfloat16"
