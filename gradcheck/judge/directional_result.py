"""What one random direction says of a gradient, and what several say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.judge.compare import KAPPA
from gradcheck.numerics.adaptive_slope import Sides, Slope
from gradcheck.numerics.ray import Heading

ZERO: Final = 16.0
"""Deviations of the loss's noise below which a gradient is zero but for rounding: nothing can be
relative to it."""
MIXED: Final = 32.0
"""Kinks whose slopes partly cancel may allow so many times more than what is left of them."""


@dataclass(frozen=True, slots=True)
class DirectionalResult:
    """What one direction says: ⟨g, d⟩, ‖g∘d‖₂ and the error along d, all times the unit.

    `noise` is one standard deviation of the loss; `sides` are the errors on both sides of a kink.
    `alarm` is what a few steps tolerated, where they saw more.
    """

    heading: Heading
    product: float
    norm: float
    slope: Slope
    allowed: float
    noise: float
    sides: Sides | None = None
    alarm: float = np.inf

    @property
    def error(self) -> float:
        """Of the gradient along d; on a kink, to the nearest slope between both sides."""
        if self.sides is None:
            return self.slope.value
        return max(self.sides.low, 0.0) + min(self.sides.high, 0.0)

    @property
    def bar(self) -> float:
        """The error bar of the slope along d."""
        return self.slope.bar if self.sides is None else self.sides.bar

    @property
    def tolerance(self) -> float:
        """U + B."""
        return KAPPA * self.bar + self.allowed

    @property
    def ok(self) -> bool:
        """Whether the gradient is right as far as this direction can tell."""
        return abs(self.error) <= self.tolerance

    @property
    def wrong(self) -> bool:
        """Whether nothing but a wrong gradient explains the error."""
        mixed = 0.0 if self.sides is None else MIXED * (self.sides.high - self.sides.low)
        return abs(self.error) > self.tolerance + mixed

    @property
    def visible(self) -> float:
        """What another error along d would have to be to be seen for certain."""
        between = 0.0 if self.sides is None else self.sides.high - self.sides.low
        return self.tolerance + abs(self.error) + between

    @property
    def zero(self) -> bool:
        """Whether the gradient is zero but for rounding."""
        return self.norm <= ZERO * self.noise


def common_factor(strikes: Sequence[DirectionalResult]) -> float | None:
    """By what the whole gradient is multiplied, if all directions agree on one factor."""
    if not all(s.sides is None and s.product and s.product + s.error for s in strikes):
        return None
    ratios = [s.product / (s.product + s.error) for s in strikes]
    blur = sum(s.tolerance / abs(s.product + s.error) for s in strikes)
    same = max(ratios) - min(ratios) <= blur * max(1.0, *map(abs, ratios))
    return ratios[0] if same and abs(ratios[0] - 1) > 8 * blur else None
