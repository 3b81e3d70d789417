"""How a cost grows with size: the exponent with its spread, and a straight line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

GROWN: Final = 0.2
"""A cost that has grown by less than that part of the smallest size's is mere start-up."""
LEAST: Final = 3
"""Points that an exponent needs."""
LINEAR: Final = 1.15
"""An exponent up to which growth is called linear: n·log n has 1.1 over these sizes."""


@dataclass(frozen=True, slots=True)
class Power:
    """cost = start + c · n^slope; `spread` is the slope's standard error, of so many points."""

    slope: float
    spread: float
    points: int

    @property
    def linear(self) -> bool:
        """Whether it grows no faster than linearly, as far as the points can tell."""
        return self.slope - 2 * self.spread <= LINEAR

    def __str__(self) -> str:
        return f"{self.slope:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True, slots=True)
class Line:
    """cost = start + each · n."""

    start: float
    each: float


def power(sizes: Sequence[float], costs: Sequence[float]) -> Power | None:
    """The exponent of what the cost has grown by since the smallest size, which comes first.

    None: there are fewer than three sizes at which it has grown to speak of.
    """
    pairs = [*zip(sizes, costs, strict=True)]
    (least, start), *larger = pairs
    kept = [(n - least, c - start) for n, c in larger if c - start >= GROWN * start]
    if len(kept) < LEAST:
        return None
    x, y = np.log(np.array(kept, dtype=np.float64)).T
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    rest = y - y.mean() - slope * x
    spread = float(np.sqrt(rest @ rest / (len(kept) - 2) / (x @ x)))
    return Power(slope, spread, len(kept))


def line(sizes: Sequence[float], costs: Sequence[float]) -> Line:
    """Least squares of relative errors, so that small sizes count as much as large ones."""
    n, c = np.array(sizes, dtype=np.float64), np.array(costs, dtype=np.float64)
    rows = np.stack([1 / c, n / c], axis=1)
    (start, each), *_ = np.linalg.lstsq(rows, np.ones(len(c)), rcond=None)
    return Line(float(start), float(each))
