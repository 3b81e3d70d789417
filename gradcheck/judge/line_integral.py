"""A straight way that parameters took: the loss's change along it, held against its slopes.

Along a step Δ the loss changes by ∫⟨g(p + sΔ), Δ⟩ds for any gradient that is right, whatever rule
made the step. The error bar of the integral is the difference between two quadratures (Boole's
rule and Simpson's) panel by panel, times 4: that covers a jump of the slope at a kink too, wherever
it is in its panel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import KAPPA, Rules
from gradcheck.spec.operator import Array

Float = NDArray[np.float64]
Tensors = dict[str, Array]

SHARP, SHARP_KINKED = 5e-3, 5e-2
"""Of Σ|g·Δ| along a leg: a wider bound could hide a wrong gradient."""
SHARE: Final = 1e-4
"""Of the largest step's Σ|g·Δ|: what moves the loss by less need not be resolved."""
HIDDEN: Final = 4.0
"""Pairs of jumps that may hide between neighbouring nodes."""
BOOLE: Final = np.array([7.0, 32.0, 12.0, 32.0, 7.0]) / 90
SIMPSON: Final = np.array([1.0, 0.0, 4.0, 0.0, 1.0]) / 6
SPREAD: Final = 4.0
"""Of the difference between both: a jump of the slope costs Boole's rule less than twice that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCheck:
    """A straight way that the parameters took: the loss's change, and what was predicted.

    `tensor` is the parameter that moved alone; "" where all of them did. `size` is Σ|g·Δ|, what
    `bound` is measured against; `bar` is how uncertain the prediction is. `kinked`: the model has
    operators with kinks. Units: the loss's.
    """

    step: int
    tensor: str
    observed: float
    predicted: float
    bar: float
    bound: float
    size: float
    kinked: bool = False

    @property
    def error(self) -> float:
        """|predicted − observed|."""
        return abs(self.predicted - self.observed)

    @property
    def right(self) -> bool:
        """Whether the prediction holds; NaN does not."""
        return self.error <= self.bound

    def resolved(self, whole: float) -> bool:
        """Whether the bound is narrow enough to say so, or the tensor moves next to nothing."""
        sharp = SHARP_KINKED if self.kinked else SHARP
        return self.bound <= max(sharp * self.size, SHARE * whole)


@dataclass(slots=True)
class PathIntegral:
    """Slopes along a straight way, each taken once; `cuts` are the ends of its panels."""

    gradients: Callable[[float], Tensors]
    change: dict[str, Float]
    kinked: bool
    cuts: list[float] = field(default_factory=lambda: [0.0, 1.0])
    known: dict[float, tuple[float, float]] = field(default_factory=dict)

    def leg(self, observed: float, noise: float, rules: Rules, step: int, tensor: str) -> PathCheck:
        """The leg, with its slopes integrated over the panels."""
        predicted, size, bars = self._panels
        bar = float(np.sum(bars))
        bound = rules.rtol * float(np.sum(size)) + noise + KAPPA * bar
        return PathCheck(
            step=step, tensor=tensor, observed=observed, predicted=float(np.sum(predicted)),
            bar=bar, bound=bound, size=float(np.sum(size)), kinked=self.kinked,
        )  # fmt: skip

    def split(self) -> None:
        """Halve the panels that are most uncertain."""
        _, _, bars = self._panels
        worst = float(np.max(bars, initial=0.0))
        pairs = list(itertools.pairwise(self.cuts))
        least = 0.0 if self.kinked else worst / 2  # what hides may hide anywhere
        halves = [(a + b) / 2 for (a, b), bar in zip(pairs, bars, strict=True) if bar >= least]
        self.cuts = sorted([*self.cuts, *(halves or [(a + b) / 2 for a, b in pairs])])

    @property
    def _panels(self) -> tuple[Float, Float, Float]:
        """Per panel: ∫⟨g, Δ⟩, ∫Σ|g·Δ|, and how uncertain the first one is."""
        ends = np.array(self.cuts)
        lengths = np.diff(ends)[:, None]
        places = ends[:-1, None] + lengths * np.arange(5) / 4
        found = np.array([[self._slope(float(s)) for s in nodes] for nodes in places])
        slopes, sizes = found[..., 0], found[..., 1]
        boole, simpson = ((lengths * slopes) @ weights for weights in (BOOLE, SIMPSON))
        bars = SPREAD * np.abs(boole - simpson)
        if self.kinked:  # two jumps between the same nodes are not seen: as large as those seen
            gap = float(np.max(lengths)) / 4
            bars[0] += HIDDEN * gap * float(np.max(np.abs(np.diff(slopes, axis=1))))
        return boole, (lengths * sizes) @ BOOLE, bars

    def _slope(self, s: float) -> tuple[float, float]:
        """⟨g, Δ⟩ and Σ|g·Δ| at one place."""
        if s not in self.known:
            gradients = self.gradients(s)
            parts = [wide(gradients[n]) * d for n, d in self.change.items()]
            signed = float(sum(p.sum() for p in parts))
            self.known[s] = signed, float(sum(np.abs(p).sum() for p in parts))
        return self.known[s]


def wide(values: Array) -> Float:
    """The same in float64."""
    return values.astype(np.float64)
