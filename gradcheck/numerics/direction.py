"""Slopes and mixed second derivatives along directions, with error bars.

Along a direction all primals move at once, so that a slope costs a handful of evaluations whatever
their size. The mixed derivative of F along a and b is one stencil of four points,

    (F(t(a + b)) + F(−t(a + b)) − F(t(a − b)) − F(−t(a − b))) / 4t² = bᵀHa + c·t² + …,

even in t like a central difference, so one ladder serves both; its noise grows as 1/t².
Directions are in units of each primal's own magnitude; t has no unit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradcheck.numerics import noise, richardson, sparsity
from gradcheck.numerics.arrays import Float
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import noise_lines, noise_stairs
from gradcheck.numerics.evaluate import Array, Point, flatten

Direction = tuple[Float | None, ...]
"""Per primal its displacement at t = 1, shaped like it; None: fixed."""

LEVELS: Final = 13
FINER: Final = (2, 3, 4, 6, 8)
"""Levels to leave out at the top, where long steps may agree by accident: across a bend they show
the mean of both slopes, to many digits. Shorter ones show the derivative."""
CONFIRMING_LEVELS: Final = 3
"""The least number of levels to leave out for a second estimate to confirm the first."""
TOP: Final = 0.5
"""The longest step t: half of each primal's magnitude, or half a unit if that is more."""
HIGHER: Final = 12
"""Levels that may be added on top for primals far below one unit."""
NARROW: Final = 2.0**-12
"""Elements whose spread is a smaller part of them count as equal."""
GLANCE: Final = 2.0**-10
"""The step that shows a slope's order of magnitude."""
ARGUMENTS: Final = 4.0
"""Roundings of the arguments themselves (x + t·a), in units of u·|x|."""


def draw_direction(draw: Draw, primals: Sequence[Array], only: Collection[int]) -> Direction:
    """A random dense direction through the primals `only`, ±[1/2, 3/2] of each one's magnitude."""
    return tuple(
        draw.signed(*p.shape) * magnitude(p) if i in only else None for i, p in enumerate(primals)
    )


def magnitude(x: Array) -> float:
    """The spread of a primal's elements (1000 ± 3: 3); their size if they are equal.

    Root mean squares, in the primal's units; 1 where all elements are zero.
    """
    size = _size(x)
    if not 0 < size < np.inf:
        return 1.0
    spread = float(np.std(np.asarray(x, dtype=np.float64) / size))
    return size * (spread if spread > NARROW else 1.0)


def _size(x: Array) -> float:
    """Root mean square, without underflow on the way."""
    largest = float(np.max(np.abs(x), initial=0.0))
    if not 0 < largest < np.inf:
        return largest
    return largest * float(np.sqrt(np.mean((np.asarray(x, dtype=np.float64) / largest) ** 2)))


@dataclass(frozen=True, slots=True)
class Slopes:
    """Derivatives along one direction: value, error bar and scale Σ|w·Δ|, [q] each.

    `reach` [q] is the largest scale at any step: where a function saturates, the terms that cancel
    in its derivative show only at long steps. `seen`: values exist at the shortest step. A bar is
    infinite if no step settles.
    """

    value: Float
    bar: Float
    scale: Float
    reach: Float
    seen: bool


class Along:
    """A forward along directions through its primals.

    Raises:
        Exception: any exception of forward at the point itself.
    """

    def __init__(self, point: Point) -> None:
        """Evaluate `point` once, and measure its noise."""
        self.point = point
        self.base = flatten(point.outputs())
        self._lines = noise_lines(point)
        self._stairs = noise_stairs(point)
        self._u = point.u

    def slopes(self, direction: Direction, weights: Float | None = None, finer: int = 0) -> Slopes:
        """Slopes of Σ w·f for rows w of `weights` [q, m]; of each output, [m], without.

        `finer` is the number of longest steps to leave out.
        """
        t = self.steps(direction)[finer:]
        ends = [self.values(direction, sign * t) for sign in (1.0, -1.0)]
        with np.errstate(all="ignore"):
            slopes, scale = _weighted(ends[0] - ends[1], weights, 2 * t)
            blur = scale * self._coarseness(direction)
            return self._climb(slopes, scale, blur, self.noise(weights), t, ends[0])

    def spread(self, direction: Direction, draw: Draw, flips: int) -> Float:
        """Root mean square of each output's slope, [m], over random signs of `direction`: √Σ(J·d)².

        It is roughly the size of a slope's terms before they cancel.
        """
        total = np.zeros(self.base.size)
        for _ in range(flips):
            flipped = tuple(None if d is None else d * draw.signs(*d.shape) for d in direction)
            ends = [self.values(flipped, np.array([sign * GLANCE]))[0] for sign in (1.0, -1.0)]
            with np.errstate(all="ignore"):
                square = ((ends[0] - ends[1]) / (2 * GLANCE)) ** 2
            total += np.where(np.isfinite(square), square, 0.0)
        return np.asarray(np.sqrt(total / flips))

    def mixed(self, a: Direction, b: Direction, weights: Float, finer: int = 0) -> Slopes:
        """Mixed second derivatives of Σ w·f along `a` and `b`, for rows w of `weights` [q, m]."""
        along, across = _combined(a, b, 1.0), _combined(a, b, -1.0)
        t = self.steps(along)[finer:]
        far = [self.values(d, sign * t) for d in (along, across) for sign in (1.0, -1.0)]
        with np.errstate(all="ignore"):
            curved, scale = _weighted((far[0] - far[2]) - (far[3] - far[1]), weights, 4 * t**2)
            straight = [_weighted(far[k] - far[k + 1], weights, 2 * t)[1] for k in (0, 2)]
            blur = np.fmax(straight[0], straight[1]) * self._coarseness(along)
            return self._climb(curved, scale, blur, self.noise(weights), t**2, far[0])

    def _coarseness(self, direction: Direction) -> float:
        """The largest ratio of a moving primal to its displacement, by which x + t·a is rounded."""
        pairs = zip(self.point.primals, direction, strict=True)
        ratios = [_size(p) / magnitude(p) for p, d in pairs if d is not None]
        return max(1.0, *ratios)

    def steps(self, direction: Direction) -> Float:
        """Steps t, a quarter each: from half a unit of the smallest primal that moves, or more."""
        pairs = zip(self.point.primals, direction, strict=True)
        sizes = [magnitude(p) for p, d in pairs if d is not None]
        units = np.log(1 / min(1.0, *sizes)) / np.log(richardson.RATIO)
        higher = min(int(np.ceil(units)), HIGHER)
        return np.asarray(TOP * richardson.RATIO ** np.arange(higher, -LEVELS, -1.0))

    def _climb(
        self, slopes: Float, scale: Float, blur: Float, noise: Float, h: Float, values: Float
    ) -> Slopes:
        """The ladder over all steps; `blur` [s, q], in units of u, is the rounding of x + t·a."""
        value, _ = richardson.best_of_all_steps(slopes, scale, noise, h, self._u)
        rounding = ARGUMENTS * self._u * _beside(blur, slopes, value)
        value, bar = richardson.best_of_all_steps(slopes, scale, noise + rounding, h, self._u)
        seen = bool(np.isfinite(values[-1]).all())
        reach = np.max(np.where(np.isfinite(scale), scale, 0.0), axis=0)
        return Slopes(value, bar, _beside(scale, slopes, value), reach, seen)

    def values(self, direction: Direction, offsets: Float) -> Float:
        """Outputs [s, m] at each offset along `direction`; NaN where forward refuses the point."""
        rows = np.full((offsets.size, self.base.size), np.nan)
        for k, t in enumerate(offsets):
            moved = [
                p if d is None else np.asarray(p + t * d).astype(p.dtype)
                for p, d in zip(self.point.primals, direction, strict=True)
            ]
            out = self.point.values(moved)
            if out is not None and out.shape == self.base.shape:
                rows[k] = out
        return rows

    def noise(self, weights: Float | None) -> Float:
        """One standard deviation of Σ w·f, [q]; of each output, [m], without weights."""
        if weights is None:
            ones = np.ones((1, self.base.size))
            modelled = noise.modelled(self.base, ones, self._u, self._stairs)[0]
            return np.asarray(np.maximum(modelled, noise.per_output(self._lines, self.base)))
        modelled = noise.modelled(self.base, weights, self._u, self._stairs)
        unit = noise.unit_of(modelled)
        together = unit * np.sqrt(((modelled / unit) ** 2).sum(axis=1))
        whole = sparsity.whole(np.zeros(1), self.base.size)
        return np.asarray(np.maximum(together, noise.measured(self._lines, whole, weights)[:, 0]))


def _weighted(change: Float, weights: Float | None, width: Float) -> tuple[Float, Float]:
    """Σ w·change / width and Σ |w·change| / width, [s, q], of a change [s, m]."""
    change = change / width[:, None]
    if weights is None:
        return change, np.abs(change)
    return change @ weights.T, np.abs(change) @ np.abs(weights).T


def _beside(scale: Float, slopes: Float, value: Float) -> Float:
    """The scale [q] at the step whose slope is closest to the final value."""
    apart = np.abs(slopes - value)
    level = np.argmin(np.where(np.isfinite(apart), apart, np.inf), axis=0)[None]
    found = np.take_along_axis(scale, level, 0)[0]
    return np.where(np.isfinite(found), found, 0.0)


def _combined(a: Direction, b: Direction, sign: float) -> Direction:
    """The direction a ± b."""

    def total(x: Float | None, y: Float | None) -> Any:
        if x is None or y is None:
            return x if y is None else sign * y
        return x + sign * y

    return tuple(total(x, y) for x, y in zip(a, b, strict=True))
