"""The slope of a scalar function along a ray, from as many steps as it takes.

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
from gradcheck.numerics.multiscale import RESOLVED, SMOOTH_ORDER
from gradcheck.numerics.noise import RELATIVE
from gradcheck.numerics.ray import Given, Heading, Line, Pair, Place, Ray, Scalar
from gradcheck.numerics.richardson import RATIO, SIGMAS

Float = NDArray[np.float64]

EVEN_VARIANCE: Final = 6.0
"""Variance of φ(t) − 2φ(0) + φ(−t) where each value has variance 1."""
NOISE_LEVELS: Final = 4
"""Even parts, those of the shortest steps, that show the noise."""
KINK_FALL: Final = 2.0
"""What kinks do to a residual falls at least so fast per level."""
SMOOTH_FALL: Final = 128.0
"""What is left of a smooth even part (t⁶, so t⁵ of the residual) falls faster: 1024 times."""
CANCELLATION: Final = 1e3
"""Kinks do not cancel to less than a thousandth at two levels by chance."""
STEPS_FIRST: Final = 3
LINE_UNITS: Final = 192.0
"""Half the length of the line on which noise is measured, in units of u of the tensor's size."""

NOISY: Final = 0.5
TRUNCATED: Final = 0.125
"""Parts of a bar that are noise: above the one longer steps help, below the other shorter ones."""


@dataclass(frozen=True, slots=True)
class Slope:
    """What is known of e: its value and error bar.

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
    `modelled` the least noise that φ can have (one standard deviation), `line` what a line of
    points close to x showed of it.
    """

    base: float
    u: float
    modelled: float
    line: float = 0.0
    pairs: dict[int, Pair] = field(default_factory=dict)

    def slope(self, finest: bool = False) -> Slope:
        """What the steps say; with `finest`, the shortest ones are so short that all is noise."""
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
        # What kinks make of even parts is no noise yet.
        noise = float(SIGMAS * self.modelled / t[best + 2] / bar) if bar else 1.0
        if finest:
            found = richardson.best(residuals, scale, spread, t, self.u, rough)
            value, bar = float(found[0][0]), float(found[1][0])
        return Slope(value, bar if np.isfinite(value) else np.inf, noise, levels[best])

    def noise(self) -> float:
        """One standard deviation of φ: a model, what even parts show, what a line showed."""
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

        Its even part falls 4 times per level down to where it is lost in rounding. One that is
        lost from higher up at once had its kink between two steps.
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
        """What t² and t⁴ do not explain of the even parts, from the third level on: [s − 2]."""
        even = self._even(pairs)
        with np.errstate(all="ignore"):
            quartic = even[1:] - even[:-1] / RATIO**2
            return np.asarray(quartic[1:] - quartic[:-1] / RATIO**4)

    def _rough(self, t: Float) -> Float:
        """What kinks between x − t·d and x + t·d may do to each residual, [s, 1].

        One that is crossed on one side only does to the odd part what it does to the even one.
        Measured on relu networks in float32, where no step is short enough to cross none.
        """
        _, pairs = self._taken()
        rest = np.abs(self._rest(pairs))
        even = np.abs(self._even(pairs))
        own = np.concatenate([np.zeros(2), np.fmin(rest, even[2:])]) / t
        own[~np.isfinite(own)] = 0.0
        rough = own.copy()
        for k in range(1, rough.size):  # by chance kinks may cancel: longer steps tell of them
            if own[k] * SMOOTH_FALL > own[k - 1]:
                rough[k] = max(own[k], rough[k - 1] / KINK_FALL)
        # But not so well, at two levels: there are no more kinks so close to x.
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
    Plain numbers: the arrays of the general form cost as much as a small forward.
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
    """Where a ladder begins and how far down it may go, as exponents j of t = 4⁻ʲ."""

    first: int
    bottom: int


STEP_RANGES: Final = {
    "float64": StepRange(first=4, bottom=14),
    "float32": StepRange(first=1, bottom=8),
}
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
        return Ray(self.tensor, self.given, heading, self.unit, start, end, value=self.value)


def slope_search(place: Place, ray: Line) -> SlopeSearch:
    """The ladder on `ray`, which must be open."""
    return SlopeSearch(ray, place.base, STEP_RANGES[place.dtype.name])


@dataclass(slots=True)
class SlopeSearch:
    """The ladder of one ray; `base` is φ at the point."""

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
        """One step below level `first`, with nothing known of its error."""
        level = self._below(first)
        self._measure(level)
        p, t = self.pairs[level], RATIO ** -float(level)
        return Slope((p.above - p.below - p.given) / (2 * t), np.inf, 1.0, first)

    def _below(self, first: int) -> int:
        """The step after `first`, within the steps."""
        return min(max(first, self.top), self.steps.bottom - STEPS_FIRST) + 1

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
        for level in range(self.top, self.steps.bottom + 1):
            self._measure(level)
        if not self._line:
            self._line = self._noise_on_a_line()
        return self.slope()

    def slope(self) -> Slope:
        """What the steps taken so far say."""
        return self._residuals().slope(self.steps.bottom in self.pairs)

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
        if slope.noise > NOISY and slope.level == taken[0] and longer >= self.top:
            self._measure(longer)
            return True
        if slope.noise < TRUNCATED and shorter <= self.steps.bottom:
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
