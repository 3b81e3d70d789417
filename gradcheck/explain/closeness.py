"""When two gradients are the same to rounding, and when a hypothesis is what was returned."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

SAME: Final = {
    "mp50": 1e-13,
    "float64": 1e-10,
    "float32": 3e-5,
    "bfloat16": 6e-2,
    "float16": 8e-3,
}
"""Distance, relative to the largest element, that rounding alone explains."""
CLOSER: Final = 0.01
"""A hypothesis must be so many times nearer to what was returned than the right VJP is."""


def array(x: Any) -> Float:
    """Numbers in float64, whatever they were."""
    return np.asarray(x, dtype=np.float64)


def close(a: Any, b: Any, dtype: str, floor: float = 0.0) -> NDArray[np.bool_]:
    """Which elements of `a` and `b` differ by no more than rounding.

    It is measured by the largest of `b`, but by no less than `floor`.
    """
    a, b = array(a), array(b)
    with np.errstate(all="ignore"):
        size = max(float(np.max(np.abs(b), initial=0.0)), floor)
        same = (np.abs(a - b) <= SAME[dtype] * size) | (a == b)
    return np.asarray(same)


def near(a: Any, b: Any, dtype: str, floor: float = 0.0) -> bool:
    """Whether all elements are; None is near None alone."""
    if a is None or b is None or np.shape(a) != np.shape(b):
        return a is b
    return bool(close(a, b, dtype, floor).all())


def reproduces(hypothesis: Any, got: Any, right: Any, dtype: str, floor: float = 0.0) -> bool:
    """Whether it is what was returned, to rounding, and far nearer to it than the right one."""
    if hypothesis is None or np.shape(hypothesis) != np.shape(got):
        return False
    if not near(hypothesis, got, dtype, floor) or near(right, got, dtype, floor):
        return False
    a, b, c = array(hypothesis), array(got), array(right)
    with np.errstate(all="ignore"):
        mine, its = np.abs(a - b), np.abs(c - b)
    mine, its = (np.where(np.isfinite(d), d, 0.0) for d in (mine, its))
    return bool(np.max(mine, initial=0.0) <= CLOSER * np.max(its, initial=0.0))
