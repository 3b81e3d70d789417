"""Two answers to one question: the element that is furthest off, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def difference(
    got: Mapping[str, Array], want: Mapping[str, Array], allowed: Mapping[str, Array]
) -> str:
    """The element that is furthest outside of what is allowed, in words; "" if none is."""
    for name in got:
        a, b = (np.asarray(g[name], dtype=np.float64) for g in (got, want))
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            error = np.where(same, 0.0, np.abs(a - b))
            ok = error <= allowed[name]  # never `error > allowed`: a NaN would pass
            if ok.all():
                continue
            excess = np.where(ok, -1.0, np.nan_to_num(error / allowed[name], nan=np.inf))
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        where = place(tuple(int(i) for i in worst))
        return f"d{name}{where} is {told(a[worst], b[worst])}"
    return ""


def told(got: float, want: float) -> str:
    """What is, and what it is not, in as many digits as tell them apart."""
    digits = next((d for d in range(6, 17) if f"{got:.{d}g}" != f"{want:.{d}g}"), 17)
    return f"{got:.{digits}g}, not {want:.{digits}g}"


def place(index: tuple[int, ...]) -> str:
    """An index in brackets; empty for a scalar."""
    return f"[{', '.join(map(str, index))}]" if index else ""


def finite(gradient: Array) -> NDArray[np.float64]:
    """Magnitudes in float64; 0 for what is not finite."""
    size = np.abs(np.asarray(gradient, dtype=np.float64))
    return np.where(np.isfinite(size), size, 0.0)
