"""The slope of a scalar function along a ray, from as many steps as it takes.

Three steps and Richardson's extrapolation usually settle the residual (see `residuals`); more are
taken where they do not, towards longer steps while noise makes up the error bar, towards shorter
ones while it is truncation (a kink that is crossed, a value that saturates).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics import noise
from gradcheck.numerics.line import Line, Place
from gradcheck.numerics.projection import Given, Heading, Pair, Ray, Scalar, Segment
from gradcheck.numerics.residuals import Residuals, Sides, Slope
from gradcheck.numerics.richardson import RATIO, SIGMAS

TRIPLE: Final = 3
LINE_UNITS: Final = 192.0
"""Half the length of the line on which noise is measured, in units of u of the tensor's size."""

MOSTLY: Final = 0.5
HARDLY: Final = 0.125
"""Parts of a bar that are noise: above the one longer steps help, below the other shorter ones."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a ladder begins and how far down it may go, as exponents j of t = 4⁻ʲ."""

    first: int
    bottom: int


PLANS: Final = {"float64": Plan(first=4, bottom=14), "float32": Plan(first=1, bottom=8)}
"""By the dtype of the tensor: three steps from 4⁻⁴ leave 1e-11 of a smooth function's slope."""


@dataclass(frozen=True, slots=True)
class TensorView:
    """A place in this process: `tensor` is what the function reads, and is moved in place.

    `given` is the gradient that is judged; `unit` is how far t = 1 moves the tensor.
    """

    value: Scalar
    base: float
    tensor: NDArray[Any]
    given: Given
    unit: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's."""
        return self.tensor.shape

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return self.tensor.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tensor's."""
        return self.tensor.dtype

    @property
    def u(self) -> float:
        """The unit roundoff of the gradient that is judged."""
        return self.given.u

    def got(self, index: int) -> float:
        """One element of that gradient, by its flat index."""
        return float(self.given.part(index, index + 1)[0])

    def ray(self, heading: Heading, start: int = 0, stop: int | None = None) -> Ray:
        """The line through elements start … stop."""
        end = self.tensor.size if stop is None else stop
        return Ray(self.value, Segment(self.tensor, self.given, heading, self.unit, start, end))


def rungs_of(place: Place, ray: Line) -> SlopeSearch:
    """The ladder on `ray`, which must be open."""
    return SlopeSearch(ray, place.base, PLANS[place.dtype.name])


@dataclass(slots=True)
class SlopeSearch:
    """The ladder of one ray; `base` is φ at the point."""

    ray: Line
    base: float
    plan: Plan
    pairs: dict[int, Pair] = field(default_factory=dict, init=False)
    _line: float = field(default=0.0, init=False)

    @property
    def top(self) -> int:
        """The longest step: half of the larger of the unit and 1."""
        return top_of(self.ray.unit)

    def settle(self, target: float, first: int | None = None) -> Slope:
        """Three steps, and more as long as the bar is wider than `target` and more may help."""
        start = self.plan.first if first is None else first
        start = min(max(start, self.top), self.plan.bottom - TRIPLE)  # a climb needs four
        for level in range(start, start + TRIPLE):
            self._measure(level)
        while True:
            slope = self.slope()
            if slope.bar <= target or not self._extend(slope):
                return slope

    def peek(self, first: int) -> Slope:
        """One step below level `first`, with nothing known of its error."""
        level = self._below(first)
        self._measure(level)
        p, t = self.pairs[level], RATIO ** -float(level)
        return Slope((p.above - p.below - p.given) / (2 * t), np.inf, 1.0, first)

    def _below(self, first: int) -> int:
        """The step after `first`, within the plan."""
        return min(max(first, self.top), self.plan.bottom - TRIPLE) + 1

    def glance(self, target: float, first: int) -> Slope | None:
        """Two steps below level `first`, where they agree to within `target`."""
        level = self._below(first)
        pairs = []
        for k in (level, level + 1):
            self._measure(k)
            pairs.append(self.pairs[k])
        t = RATIO ** -float(level)
        longer, shorter = (
            (p.above - p.below - p.given) / (2 * step)
            for p, step in zip(pairs, (t, t / RATIO), strict=True)
        )
        noise = SIGMAS * self.ray.value.rounding(self.base) * RATIO / t
        bar = abs(shorter - longer) + noise
        return Slope(shorter, bar, noise / bar if bar else 1.0, first) if bar <= target else None

    def exhaust(self) -> Slope:
        """Every step there is, and the noise on a line of its own."""
        for level in range(self.top, self.plan.bottom + 1):
            self._measure(level)
        if not self._line:
            self._line = self._noise_on_a_line()
        return self.slope()

    def slope(self) -> Slope:
        """What the steps taken so far say."""
        return self._residuals().slope(self.plan.bottom in self.pairs)

    def noise(self) -> float:
        """One standard deviation of φ: a model, what even parts show, what a line showed."""
        return self._residuals().noise()

    def sides(self) -> Sides | None:
        """One-sided residuals if φ has a kink at the point itself, else None."""
        return self._residuals().sides()

    def _residuals(self) -> Residuals:
        """What there is by now; u shows only in the values."""
        value = self.ray.value
        return Residuals(self.base, value.u, value.rounding(self.base), self._line, self.pairs)

    def _measure(self, level: int) -> None:
        if level not in self.pairs:
            self.pairs[level] = self.ray.pair(RATIO**-level)

    def _extend(self, slope: Slope) -> bool:
        """One more step where it may help; says whether there was one."""
        taken = sorted(self.pairs)
        longer, shorter = taken[0] - 1, taken[-1] + 1
        if slope.noise > MOSTLY and slope.level == taken[0] and longer >= self.top:
            self._measure(longer)
            return True
        if slope.noise < HARDLY and shorter <= self.plan.bottom:
            self._measure(shorter)
            return True
        return False

    def _noise_on_a_line(self) -> float:
        """What no quintic explains of φ at twelve points close to x."""
        u = float(np.finfo(self.ray.dtype).eps) / 2
        positions = noise.LINE / noise.LINE[-1] * LINE_UNITS * u
        return noise.scatter(np.array([self.ray.at(t) for t in positions]))


def top_of(unit: float) -> int:
    """The exponent j of the longest step 4⁻ʲ: half of the larger of the `unit` and 1."""
    longest = 0.5 * max(1.0, unit) / unit
    return int(np.ceil(-np.log(longest) / np.log(RATIO)))
