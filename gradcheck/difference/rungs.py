"""The slope of a scalar function along a ray, as what a given gradient leaves unexplained.

Steps are t = 4⁻ʲ in units of the tensor. At each of them the residual is

    rⱼ = (φ(t) − φ(−t) − ⟨g, x₊ − x₋⟩) / 2t = e + a·t² + b·t⁴ + … + noise/t,

where e = ⟨g* − g, d⟩ is the error of the gradient along d. Three steps and Richardson's
extrapolation usually settle e; more are taken where they do not, towards longer steps while noise
makes up the error bar, towards shorter ones while it is truncation (a kink that is crossed, a
value that saturates). The even part φ(t) − 2φ(0) + φ(−t) shows how noisy φ is, and whether it has
a kink at the point itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference import ladder, noise
from gradcheck.difference.kinks import RESOLVED, SMOOTH_ORDER
from gradcheck.difference.ladder import RATIO, SIGMAS
from gradcheck.difference.projection import Given, Heading, Pair, Ray, Scalar

Float = NDArray[np.float64]

TRIPLE: Final = 3
EVEN: Final = 6.0
"""Variance of φ(t) − 2φ(0) + φ(−t) where each value has variance 1."""
LINE_UNITS: Final = 192.0
"""Half the length of the line on which noise is measured, in units of u of the tensor's size."""
FINEST: Final = 4
"""Even parts, those of the shortest steps, that show the noise."""

MOSTLY: Final = 0.5
HARDLY: Final = 0.125
"""Parts of a bar that are noise: above the one longer steps help, below the other shorter ones."""
CALMING: Final = 2.0
"""What kinks do to a residual falls at least so fast per level."""
SMOOTHLY: Final = 128.0
"""What is left of a smooth even part (t⁶, so t⁵ of the residual) falls faster: 1024 times."""
CHANCE: Final = 1e3
"""Kinks do not cancel to less than a thousandth at two levels by chance."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a ladder begins and how far down it may go, as exponents j of t = 4⁻ʲ."""

    first: int
    bottom: int


PLANS: Final = {"float64": Plan(first=4, bottom=14), "float32": Plan(first=1, bottom=8)}
"""By the dtype of the tensor: three steps from 4⁻⁴ leave 1e-11 of a smooth function's slope."""


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


@dataclass(frozen=True, slots=True)
class Site:
    """One tensor of a scalar function at the point x, `base` the function's value there.

    `given` is the gradient that is judged; `unit` is how far t = 1 moves the tensor.
    """

    value: Scalar
    base: float
    tensor: NDArray[Any]
    given: Given
    unit: float

    def ray(self, heading: Heading, start: int = 0, stop: int | None = None) -> Ray:
        """The line through elements start … stop."""
        end = self.tensor.size if stop is None else stop
        return Ray(self.value, self.tensor, self.given, heading, self.unit, start, end)

    def rungs(self, ray: Ray) -> Rungs:
        """The ladder on `ray`, which must be open."""
        return Rungs(ray, self.base, PLANS[self.tensor.dtype.name])


@dataclass(slots=True)
class Rungs:
    """The ladder of one ray; `base` is φ at the point."""

    ray: Ray
    base: float
    plan: Plan
    pairs: dict[int, Pair] = field(default_factory=dict, init=False)
    _line: float = field(default=0.0, init=False)

    @property
    def top(self) -> int:
        """The longest step: half of the larger of the unit and 1."""
        longest = 0.5 * max(1.0, self.ray.unit) / self.ray.unit
        return int(np.ceil(-np.log(longest) / np.log(RATIO)))

    def settle(self, target: float, first: int | None = None) -> Slope:
        """Three steps, and more as long as the bar is wider than `target` and more may help."""
        start = self.plan.first if first is None else first
        start = min(max(start, self.top), self.plan.bottom - TRIPLE + 1)
        for level in range(start, start + TRIPLE):
            self._measure(level)
        while True:
            slope = self.slope()
            if slope.bar <= target or not self._extend(slope):
                return slope

    def exhaust(self) -> Slope:
        """Every step there is, and the noise on a line of its own."""
        for level in range(self.top, self.plan.bottom + 1):
            self._measure(level)
        if not self._line:
            self._line = self._noise_on_a_line()
        return self.slope()

    def slope(self) -> Slope:
        """What the steps taken so far say."""
        levels, pairs = self._taken()
        t = RATIO ** -np.array(levels, dtype=np.float64)
        change = np.array([p.above - p.below for p in pairs])
        given = np.array([p.given for p in pairs])
        sigma = self.noise()
        with np.errstate(all="ignore"):
            residuals = ((change - given) / (2 * t))[:, None]
            scale = (np.abs(change) / (2 * t))[:, None]
        spread = np.array([sigma])
        values, bars = ladder.bars(residuals, scale, spread, t, self._u, self._rough(t))
        best = int(np.argmin(bars[:, 0]))
        value, bar = float(values[best, 0]), float(bars[best, 0])
        modelled = self._u * abs(self.base)  # what kinks make of even parts is no noise yet
        noise = float(SIGMAS * modelled / t[best + 2] / bar) if bar else 1.0
        if levels[-1] == self.plan.bottom:  # the finest ones are all noise, as it expects
            found = ladder.climb(residuals, scale, spread, t, self._u, self._rough(t))
            value, bar = float(found[0][0]), float(found[1][0])
        return Slope(value, bar if np.isfinite(value) else np.inf, noise, levels[best])

    def noise(self) -> float:
        """One standard deviation of φ: a model, what even parts show, what a line showed."""
        _, pairs = self._taken()
        rest = self._rest(pairs)
        rest = rest[np.isfinite(rest)][-FINEST:]
        seen = float(np.sqrt(np.mean(rest**2) / EVEN)) if rest.size else 0.0
        return max(self.ray.value.u * abs(self.base), seen, self._line)

    def sides(self) -> Sides | None:
        """One-sided residuals if φ has a kink at the point itself, else None.

        The even part falls 16 times per level where φ is smooth, and 4 times at a kink; the two
        shortest steps at which it is more than rounding decide.
        """
        levels, pairs = self._taken()
        t = RATIO ** -np.array(levels, dtype=np.float64)
        sigma = max(self._u * abs(self.base), self._line)  # even parts show the kink here
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

    @property
    def _u(self) -> float:
        """The unit roundoff of the arithmetic in which φ is evaluated, as far as values show."""
        return self.ray.value.u

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
            if own[k] * SMOOTHLY > own[k - 1]:
                rough[k] = max(own[k], rough[k - 1] / CALMING)
        # But not so well, at two levels: there are no more kinks so close to x.
        both = np.maximum(own[:-1], own[1:]) + self._u * abs(self.base) / t[:-1]
        rough[:-1] = np.minimum(rough[:-1], np.maximum(own[:-1], CHANCE * both))
        return rough[:, None]

    def _measure(self, level: int) -> None:
        if level not in self.pairs:
            self.pairs[level] = self.ray.pair(RATIO**-level)

    def _taken(self) -> tuple[list[int], list[Pair]]:
        levels = sorted(self.pairs)
        return levels, [self.pairs[level] for level in levels]

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
        u = float(np.finfo(self.ray.tensor.dtype).eps) / 2
        positions = noise.LINE / noise.LINE[-1] * LINE_UNITS * u
        return noise.scatter(np.array([self.ray.at(t) for t in positions]))
