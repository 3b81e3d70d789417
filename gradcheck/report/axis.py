"""A logarithmic axis: where a value stands on it in pixels, and which powers of ten are named."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
EVERY: Final = (1, 2, 3, 4, 5, 10, 20, 50, 100, 200)
"""Decades from one label to the next."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A power of ten on an axis: `at` so many pixels, and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Powers of ten from `low` to `high`, whole decades, spread from pixel `start` to `end`."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float) -> Axis:
        """An axis on which all `values` that are positive and finite have a place."""
        decades = [math.log10(v) for v in values if 0 < v < math.inf]
        low = math.floor(min(decades, default=0.0))
        return cls(low, max(low + 1, math.ceil(max(decades, default=0.0))), start, end)

    def at(self, value: float) -> float:
        """The pixel of a value; what lies beyond an end, and 0, is at that end."""
        return self._place(math.log10(value) if value > 0 else -math.inf)

    def ticks(self, most: int) -> tuple[Tick, ...]:
        """At most so many powers of ten, evenly spaced."""
        span = self.high - self.low
        every = next((e for e in EVERY if span // e < most), span)
        first = -(-self.low // every) * every
        return tuple(Tick(self._place(k), power(k)) for k in range(first, self.high + 1, every))

    def _place(self, decade: float) -> float:
        share = (min(max(decade, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def power(exponent: int) -> str:
    """A power of ten as it is written.

    >>> power(-6), power(0), power(1)
    ('10⁻⁶', '1', '10')
    """
    if exponent in (0, 1):
        return str(10**exponent)
    return f"10{str(exponent).translate(RAISED)}"


def path(points: Sequence[tuple[float, float]]) -> str:
    """A line through points in pixels, as SVG writes it.

    >>> path([(1.0, 2.5), (3.0, 4.0)])
    'M1 2.5L3 4'
    """
    return "".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(points))
