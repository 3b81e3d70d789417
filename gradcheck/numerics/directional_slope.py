"""The slope of a scalar function along one direction, from as many steps as it takes.

Slopes of single elements are in `richardson.py`.

Steps are t = 4⁻ʲ in units of the ray. At each of them the residual is

    rⱼ = (φ(t) − φ(−t) − ⟨g, x₊ − x₋⟩) / 2t = e + a·t² + b·t⁴ + … + noise/t,

where e = ⟨g* − g, d⟩ is the error of the gradient g along d. The even part φ(t) − 2φ(0) + φ(−t)
shows the noise of φ and a kink at the point itself.

Three steps and Richardson's extrapolation usually settle e. Otherwise more steps follow: longer
ones while noise dominates the error bar, shorter ones while truncation does (a crossed kink, a
saturating value).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics import noise, richardson
from gradcheck.numerics.arrays import Float, unit_roundoff
from gradcheck.numerics.kinks_and_slopes import RESOLVED, SMOOTH_ORDER
from gradcheck.numerics.line_function import Given, Heading, Line, Pair, Place, Ray, Scalar
from gradcheck.numerics.noise import RELATIVE
from gradcheck.numerics.richardson import RATIO, SIGMAS

EVEN_VARIANCE: Final = 6.0
"""Variance of φ(t) − 2φ(0) + φ(−t) where each value has variance 1."""
NOISE_LEVELS: Final = 4
"""Even parts, those of the shortest steps, that show the noise."""
KINK_FALL: Final = 2.0
"""The least factor per level by which the effect of kinks on a residual falls."""
SMOOTH_FALL: Final = 128.0
"""The rest of a smooth even part (t⁶, so t⁵ of the residual) falls by 1024."""
CANCELLATION: Final = 1e3
"""The strongest accidental cancellation of kinks at two levels."""
STEPS_FIRST: Final = 3
LINE_UNITS: Final = 192.0
"""Half the length of the line on which noise is measured, in units of u of the tensor's size."""

NOISY: Final = 0.5
TRUNCATED: Final = 0.125
"""Parts of a bar that are noise: above the one longer steps help, below the other shorter ones."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The error e along the ray: its value and error bar.

    `level` is the longest step of the best triple, `noise` the part of its bar that is the least
    noise φ can have.
    """

    value: float
    bar: float
    noise: float
    level: int


@dataclass(frozen=True, slots=True)
class Sides:
    """One-sided residuals (e₋, e₊) at a kink of φ at the point itself, and their error bar."""

    low: float
    high: float
    bar: float


@dataclass(slots=True)
class Residuals:
    """Pairs of one ray by level j of their step 4⁻ʲ.

    `base` is φ at the point, `u` the unit roundoff of the arithmetic in which φ is evaluated,
    `modelled` the least noise that φ can have (one standard deviation), `line` the noise on a line
    of points close to x.
    """

    base: float
    u: float
    modelled: float
    line: float = 0.0
    pairs: dict[int, Pair] = field(default_factory=dict)

    def slope(self, finest: bool = False) -> Slope:
        """The error e from the steps so far; with `finest`, the shortest ones are pure noise."""
        levels, pairs = self._taken()
        t = RATIO ** -np.array(levels, dtype=np.float64)
        change = np.array([p.above - p.below for p in pairs])
        given = np.array([p.given for p in pairs])
        sigma = self.noise()
        with np.errstate(all="ignore"):
            residuals = ((change - given) / (2 * t))[:, None]
            scale = (np.abs(change) / (2 * t))[:, None]
        spread, rough = np.array([sigma]), self._rough(t)
        values, bars = richardson.bars(residuals, scale, spread, t, self.u, rough)
        best = int(np.argmin(bars[:, 0]))
        value, bar = float(values[best, 0]), float(bars[best, 0])
        # The effect of kinks on even parts does not count as noise here.
        noise = float(SIGMAS * self.modelled / t[best + 2] / bar) if bar else 1.0
        if finest:
            found = richardson.best_of_all_steps(residuals, scale, spread, t, self.u, rough)
            value, bar = float(found[0][0]), float(found[1][0])
        return Slope(value, bar if np.isfinite(value) else np.inf, noise, levels[best])

    def noise(self) -> float:
        """One standard deviation of φ: the largest of model, even parts and line."""
        rest = self._rest(self._taken()[1])
        rest = rest[np.isfinite(rest)][-NOISE_LEVELS:]
        seen = float(np.sqrt(np.mean(rest**2) / EVEN_VARIANCE)) if rest.size else 0.0
        return max(self.modelled, seen, self.line)

    def sides(self) -> Sides | None:
        """One-sided residuals if φ has a kink at the point itself, else None.

        The even part falls 16 times per level where φ is smooth, and 4 times at a kink; the two
        shortest steps at which it is more than rounding decide.
        """
        levels, pairs = self._taken()
        t = RATIO ** -np.array(levels, dtype=np.float64)
        sigma = max(self.modelled, self.line)  # even parts show the kink here
        even = self._even(pairs)
        seen = np.flatnonzero(np.abs(even) > RESOLVED * sigma)
        pairs_seen = [k for k in seen[1:] if k - 1 in seen][-2:]
        if len(pairs_seen) < 2:
            return None
        orders = [np.log(abs(even[k - 1] / even[k])) / np.log(RATIO) for k in pairs_seen]
        if not max(orders) < SMOOTH_ORDER:
            return None
        k = pairs_seen[-1]
        given = pairs[k].given / (2 * t[k])
        ahead = (pairs[k].above - self.base) / t[k] - given
        behind = (self.base - pairs[k].below) / t[k] - given
        before = pairs[k - 1].given / (2 * t[k - 1])
        moved = max(
            abs((pairs[k - 1].above - self.base) / t[k - 1] - before - ahead),
            abs((self.base - pairs[k - 1].below) / t[k - 1] - before - behind),
        )
        bar = moved + SIGMAS * sigma / t[k]
        return Sides(min(ahead, behind), max(ahead, behind), float(bar))

    def kinked(self) -> bool:
        """Whether φ has a kink at the point itself, and not beside it.

        Its even part falls 4 times per level until rounding hides it. One that vanishes at a
        higher level had its kink between two steps.
        """
        even = np.abs(self._even(self._taken()[1]))
        least = RESOLVED * max(self.modelled, self.line)
        seen = np.flatnonzero(even > least)
        if self.sides() is None or not seen.size:
            return False
        last = int(seen[-1])
        return last == even.size - 1 or bool(even[last] <= 2 * RATIO * least)

    def _even(self, pairs: list[Pair]) -> Float:
        """φ(t) − 2φ(0) + φ(−t), [s]."""
        return np.array([p.above - 2 * self.base + p.below for p in pairs])

    def _rest(self, pairs: list[Pair]) -> Float:
        """The even parts without their t² and t⁴ terms, from the third level on: [s − 2]."""
        even = self._even(pairs)
        with np.errstate(all="ignore"):
            quartic = even[1:] - even[:-1] / RATIO**2
            return np.asarray(quartic[1:] - quartic[:-1] / RATIO**4)

    def _rough(self, t: Float) -> Float:
        """The effect that kinks between x − t·d and x + t·d may have on each residual, [s, 1].

        A kink crossed on one side only changes the odd part as much as the even one.
        Measured on relu networks in float32, where no step is short enough to cross none.
        """
        _, pairs = self._taken()
        rest = np.abs(self._rest(pairs))
        even = np.abs(self._even(pairs))
        own = np.concatenate([np.zeros(2), np.fmin(rest, even[2:])]) / t
        own[~np.isfinite(own)] = 0.0
        rough = own.copy()
        for k in range(1, rough.size):  # kinks may cancel by chance; longer steps show them
            if own[k] * SMOOTH_FALL > own[k - 1]:
                rough[k] = max(own[k], rough[k - 1] / KINK_FALL)
        # Cancellation at two levels means that there are no kinks so close to x.
        both = np.maximum(own[:-1], own[1:]) + self.modelled / t[:-1]
        rough[:-1] = np.minimum(rough[:-1], np.maximum(own[:-1], CANCELLATION * both))
        return rough[:, None]

    def _taken(self) -> tuple[list[int], list[Pair]]:
        levels = sorted(self.pairs)
        return levels, [self.pairs[level] for level in levels]


def richardson3(
    change: list[float], given: list[float], even: list[float], t: float, u: float, modelled: float
) -> tuple[float, float, float]:
    """(value, error bar, noise) of e from steps t, t/4, t/16, as `Residuals.slope` finds them.

    `change` are φ(t) − φ(−t), `given` ⟨g, x₊ − x₋⟩, `even` the even parts, longest step first.
    Plain numbers, because small arrays would cost as much as a small forward.
    """
    first, second = t / RATIO, t / RATIO**2
    r0 = (change[0] - given[0]) / (2 * t)
    r1 = (change[1] - given[1]) / (2 * first)
    r2 = (change[2] - given[2]) / (2 * second)
    weight = RATIO**2
    value = (weight * r2 - r1) / (weight - 1)
    before = (weight * r1 - r0) / (weight - 1)
    rest = (even[2] - even[1] / weight) - (even[1] - even[0] / weight) / RATIO**4
    noise = max(modelled, abs(rest) / math.sqrt(EVEN_VARIANCE))
    scale = abs(change[2]) / (2 * second)
    floor = SIGMAS * (noise / second + RELATIVE * u * scale)
    floor += min(abs(rest), abs(even[2])) / second
    bar = abs(value - before) + floor
    settling = abs(r2 - r1) <= abs(r1 - r0) / 2 + 2 * floor
    return value, bar if settling and bar < math.inf else math.inf, noise


@dataclass(frozen=True, slots=True)
class StepRange:
    """The first and the finest step of a search, as exponents j of t = 4⁻ʲ."""

    first: int
    bottom: int


STEP_RANGES: Final = {
    "float64": StepRange(first=4, bottom=14),
    "float32": StepRange(first=1, bottom=8),
}
"""By the dtype of the tensor: three steps from 4⁻⁴ leave 1e-11 of a smooth function's slope."""


@dataclass(frozen=True, slots=True)
class TensorView:
    """A `Place` in this process: the function reads `tensor`, which is moved in place.

    `given` is the gradient that is judged; `unit` is the displacement at t = 1.
    """

    value: Scalar
    base: float
    tensor: NDArray[Any]
    given: Given
    unit: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def size(self) -> int:
        return self.tensor.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    @property
    def u(self) -> float:
        return self.given.u

    def got(self, index: int) -> float:
        return float(self.given.part(index, index + 1)[0])

    def ray(self, heading: Heading, start: int = 0, stop: int | None = None) -> Ray:
        end = self.tensor.size if stop is None else stop
        return Ray(self.tensor, self.given, heading, self.unit, start, end, value=self.value)


def slope_search(place: Place, ray: Line) -> SlopeSearch:
    """The search for the slope along `ray`, which must be entered."""
    return SlopeSearch(ray, place.base, STEP_RANGES[place.dtype.name])


@dataclass(slots=True)
class SlopeSearch:
    """Pairs of one ray, taken until the slope is known; `base` is φ at the point."""

    ray: Line
    base: float
    steps: StepRange
    pairs: dict[int, Pair] = field(default_factory=dict, init=False)
    _line: float = field(default=0.0, init=False)

    @property
    def top(self) -> int:
        """The longest step: half of the larger of the unit and 1."""
        return top_of(self.ray.unit)

    def settle(self, target: float, first: int | None = None) -> Slope:
        """Three steps, and more as long as the bar is wider than `target` and more may help."""
        start = self.steps.first if first is None else first
        start = min(max(start, self.top), self.steps.bottom - STEPS_FIRST)  # a climb needs four
        for level in range(start, start + STEPS_FIRST):
            self._measure(level)
        while True:
            slope = self.slope()
            if slope.bar <= target or not self._extend(slope):
                return slope

    def peek(self, first: int) -> Slope:
        """The slope from one step below level `first`, with an infinite bar."""
        level = self._below(first)
        self._measure(level)
        p, t = self.pairs[level], RATIO ** -float(level)
        return Slope((p.above - p.below - p.given) / (2 * t), np.inf, 1.0, first)

    def _below(self, first: int) -> int:
        """The level after `first`, within the range of steps."""
        return min(max(first, self.top), self.steps.bottom - STEPS_FIRST) + 1

    def glance(self, target: float, first: int) -> Slope | None:
        """The slope from two steps below level `first`, if they agree to within `target`."""
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
        """The slope from all steps, with noise measured on a line of its own."""
        for level in range(self.top, self.steps.bottom + 1):
            self._measure(level)
        if not self._line:
            self._line = self._noise_on_a_line()
        return self.slope()

    def slope(self) -> Slope:
        return self._residuals().slope(self.steps.bottom in self.pairs)

    def noise(self) -> float:
        return self._residuals().noise()

    def sides(self) -> Sides | None:
        return self._residuals().sides()

    def _residuals(self) -> Residuals:
        value = self.ray.value
        return Residuals(self.base, value.u, value.rounding(self.base), self._line, self.pairs)

    def _measure(self, level: int) -> None:
        if level not in self.pairs:
            self.pairs[level] = self.ray.pair(RATIO**-level)

    def _extend(self, slope: Slope) -> bool:
        """Take one more step if it may help; False if none may."""
        taken = sorted(self.pairs)
        longer, shorter = taken[0] - 1, taken[-1] + 1
        if slope.noise > NOISY and slope.level == taken[0] and longer >= self.top:
            self._measure(longer)
            return True
        if slope.noise < TRUNCATED and shorter <= self.steps.bottom:
            self._measure(shorter)
            return True
        return False

    def _noise_on_a_line(self) -> float:
        """The residual of a quintic fit to φ at twelve points close to x."""
        positions = noise.LINE / noise.LINE[-1] * LINE_UNITS * unit_roundoff(self.ray.dtype)
        return noise.scatter(np.array([self.ray.at(t) for t in positions]))


def top_of(unit: float) -> int:
    """The exponent j of the longest step 4⁻ʲ: half of the larger of the `unit` and 1."""
    longest = 0.5 * max(1.0, unit) / unit
    return int(np.ceil(-np.log(longest) / np.log(RATIO)))
