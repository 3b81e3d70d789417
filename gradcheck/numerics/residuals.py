"""What pairs of values along a ray say of the slope that a given gradient leaves unexplained.

Steps are t = 4⁻ʲ in units of what moves. At each of them the residual is

    rⱼ = (φ(t) − φ(−t) − ⟨g, x₊ − x₋⟩) / 2t = e + a·t² + b·t⁴ + … + noise/t,

where e = ⟨g* − g, d⟩ is the error of the gradient along d. The even part φ(t) − 2φ(0) + φ(−t)
shows how noisy φ is, and whether it has a kink at the point itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics import richardson
from gradcheck.numerics.noise import RELATIVE
from gradcheck.numerics.projection import Pair
from gradcheck.numerics.richardson import RATIO, SIGMAS
from gradcheck.numerics.scales import RESOLVED, SMOOTH_ORDER

Float = NDArray[np.float64]

EVEN: Final = 6.0
"""Variance of φ(t) − 2φ(0) + φ(−t) where each value has variance 1."""
FINEST: Final = 4
"""Even parts, those of the shortest steps, that show the noise."""
CALMING: Final = 2.0
"""What kinks do to a residual falls at least so fast per level."""
SMOOTHLY: Final = 128.0
"""What is left of a smooth even part (t⁶, so t⁵ of the residual) falls faster: 1024 times."""
CHANCE: Final = 1e3
"""Kinks do not cancel to less than a thousandth at two levels by chance."""


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
            found = richardson.climb(residuals, scale, spread, t, self.u, rough)
            value, bar = float(found[0][0]), float(found[1][0])
        return Slope(value, bar if np.isfinite(value) else np.inf, noise, levels[best])

    def noise(self) -> float:
        """One standard deviation of φ: a model, what even parts show, what a line showed."""
        rest = self._rest(self._taken()[1])
        rest = rest[np.isfinite(rest)][-FINEST:]
        seen = float(np.sqrt(np.mean(rest**2) / EVEN)) if rest.size else 0.0
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
            if own[k] * SMOOTHLY > own[k - 1]:
                rough[k] = max(own[k], rough[k - 1] / CALMING)
        # But not so well, at two levels: there are no more kinks so close to x.
        both = np.maximum(own[:-1], own[1:]) + self.modelled / t[:-1]
        rough[:-1] = np.minimum(rough[:-1], np.maximum(own[:-1], CHANCE * both))
        return rough[:, None]

    def _taken(self) -> tuple[list[int], list[Pair]]:
        levels = sorted(self.pairs)
        return levels, [self.pairs[level] for level in levels]


def three(
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
    noise = max(modelled, abs(rest) / math.sqrt(EVEN))
    scale = abs(change[2]) / (2 * second)
    floor = SIGMAS * (noise / second + RELATIVE * u * scale)
    floor += min(abs(rest), abs(even[2])) / second
    bar = abs(value - before) + floor
    settling = abs(r2 - r1) <= abs(r1 - r0) / 2 + 2 * floor
    return value, bar if settling and bar < math.inf else math.inf, noise
