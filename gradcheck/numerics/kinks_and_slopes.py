"""Slopes and kinks of forward at elements of one primal, from its values at every scale.

The longest step is the tensor's size. Each next one is a quarter of the last; from half of an
element's own size on, each element has steps of its own, down to two units in its last place. The
finest steps decide: a kink counts only if they show it, a slope only if no finer step has another.

Values of forward are off by their rounding. Where neighbouring values are equal bit by bit, forward
is a staircase, and its values are also off by half of the next visible change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Float, Mask
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.evaluate import Array, Evaluator
from gradcheck.numerics.richardson import RATIO, top_step
from gradcheck.numerics.sparsity import Structure

FAR: Final = 17
"""Steps from the tensor's size downwards; the others follow each element's own."""
NEAR: Final = 27
"""From half an element to its last two bits, 2^-52 of it."""
RESOLVED: Final = 32.0
"""An even part counts where it exceeds this many times its rounding error."""
SMOOTH_ORDER: Final = 1.5
"""log4 of the fall per level below which f is not smooth (2 smooth, 1 kink, 0 jump)."""
JUMP_ORDER: Final = SMOOTH_ORDER / 3
ROUNDED: Final = 2.0**-36
"""A jump of less than this part of an output is the rounding of one value."""
AT: Final = 2.0**-40
"""A kink lies on an element if it shows at steps of this part of the element."""
SIGMAS: Final = 3.0
KAPPA: Final = 2.0
SHARP: Final = 0.1
"""The largest bar of a conclusive slope, as a part of it."""
FINEST: Final = 8
"""Steps of a few bits, whose even parts are a kink or pure rounding."""
BESIDE: Final = 32
"""Points beside a kink: among six equal elements each is the largest of all in some of them."""
ASIDE: Final = 2.0**-20
"""Their distance, as a part of each element."""
NEARBY: Final = 2.0**-30
"""The step for slopes there: within it elements hardly ever change their order."""
UNEVEN: Final = 0.8908987181403393
"""Factor of all steps: powers of two would hit the edges of stairs."""
WIDE: Final = 2.0**-5
"""A stair of at least this part of the element counts as a flat function."""
LONGER: Final = 2.0**-18
"""A step that is longer by this part stays on the same stair."""
GUARD: Final = RATIO**2
"""A level may agree with one above it by accident, but hardly with two."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The interval between both one-sided slopes [q, b], and its error bar [q, b].

    `kinked`, `jumps` [b]: whether some output that the element moves has a kink there, or is not
    even continuous. `vague` [b] is the shortest step that shows a kink which may lie beside the
    element; infinite if there is none.
    """

    low: Float
    high: Float
    bar: Float
    kinked: Mask
    jumps: Mask
    vague: Float


@dataclass(frozen=True, slots=True)
class Reading:
    """Slopes [q, b] over all scales, and their bars; infinite where the scales disagree.

    `step` [q, b] is the longer one of the two that the slope was taken with. `split` [q, b]: two
    scales have different slopes, and the tried gradient fits the coarser.
    """

    value: Float
    bar: Float
    step: Float
    split: Mask


class Fall(NamedTuple):
    """How a part of each output falls with the step, [m] each.

    `order` is the power: 2 smooth, 1 kink, 0 jump, infinite where rounding hides it; `finest` the
    shortest step that shows it, and `size` its size there; `stays`: it may go on so at the next
    step, where rounding hides it.
    """

    order: Float
    finest: Float
    stays: Mask
    size: Float


class Scales:
    """Values of forward at x ± h for all steps h, for the elements `cells` [b] of one colour."""

    def __init__(
        self,
        evaluator: Evaluator,
        structure: Structure,
        colour: int,
    ) -> None:
        """Evaluate forward 89 times, and 88 times again where it stands on stairs.

        `stairs` and `narrow` [b]: elements between two stairs, and those of them whose stair is
        much shorter than the element is large.
        """
        x = evaluator.x.reshape(-1)
        size = _smallest(evaluator.point.primals)
        self.cells = structure.grid[colour]
        self._structure = structure
        self.h = _steps(evaluator.x, x[self.cells], size)  # [k, b]
        levels = len(self.h)
        at = x[self.cells]
        ends = np.concatenate([at + self.h, at - self.h]).astype(x.dtype)
        # The primal itself among its copies: a stack of many may round otherwise than one call.
        every = self._values(evaluator, np.concatenate([ends, at[None]]))
        values, base = every[:-1], every[-1]
        own_noise = np.abs(base - evaluator.base)
        owner = structure.owner
        self._owned = owner >= 0
        # Outputs that no element moves get the first element's steps, and are flat.
        block = np.maximum(owner, 0)
        realised = np.abs(ends.astype(np.float64) - at.astype(np.float64))
        realised[realised == 0] = np.nan
        with np.errstate(all="ignore"):
            above, below = values[:levels], values[levels:]
            right, left = realised[:levels, block], realised[levels:, block]
            rise, fall = above - base, base - below
            self.ahead, self.behind = rise / right, fall / left
            self._width = right + left
            self.central = (above - below) / self._width  # [k, m]
            self._even = rise - fall
            u = evaluator.u
            extent = np.fmax(np.abs(base), np.fmax(np.abs(above), np.abs(below)))
            self._extent = np.fmin.reduce(extent, axis=0)
            noise = np.fmax(u * extent, _scatter(self._even, self._width))
            noise = np.fmax(noise, own_noise)
            inside = u * np.fmax(extent, (np.abs(at) + self.h)[:, block])
            self._near = np.where(at == 0, size, np.abs(at))
            stairs = _stairs(rise, fall)
            self.stairs = self.narrow = np.zeros(self.cells.size, dtype=bool)
            if stairs.any():
                longer = at + (ends.astype(np.float64) - at) * (1 + LONGER)
                again = self._values(evaluator, longer.astype(x.dtype))
                change = np.concatenate([rise, -fall])
                quantum = _quantum(change, again == values, inside)
                still = (rise == 0) & (fall == 0) & (self._width >= WIDE * self._near[block])
                wide = still.any(axis=0)
                high = stairs & (quantum > inside).all(axis=0)
                both = np.stack([high, high & ~wide]).astype(np.float64)
                self.stairs, self.narrow = structure.by_block(both) > 0
                flat = np.where(wide, inside, quantum)
                self._calm = np.fmax(noise, np.where(stairs, flat, 0.0))
                self._noise = np.fmax(noise, np.where(stairs, quantum, 0.0))
            else:
                self._noise = self._calm = noise

    def _values(self, evaluator: Evaluator, ends: Array) -> Float:
        """Outputs [k, m] where the elements are `ends` [k, b]."""

        def fill(rows: slice, copies: Array) -> None:
            copies.reshape(len(copies), -1)[:, self.cells] = ends[rows]

        return np.concatenate([v for _, v in evaluator.sweep(len(ends), fill)])

    def sides(self, cts: Float) -> Sides:
        """One-sided slopes and kinks for the cotangents [q, m]."""
        noise = 4 * self._noise
        fall = self._falls(noise)
        broken = fall.order < SMOOTH_ORDER
        near = self._near[np.maximum(self._structure.owner, 0)]
        seen = fall.stays & (fall.finest <= AT * near)
        kinked, jumps = broken & seen, broken & seen & (fall.order < JUMP_ORDER)
        values, bars = zip(
            *(self._settled(side, noise) for side in (self.behind, self.ahead)), strict=True
        )
        products = cts * np.stack(values)[:, None, :]
        by_block = self._structure.by_block
        with np.errstate(all="ignore"):
            low, high = by_block(products.min(axis=0)), by_block(products.max(axis=0))
            bar = by_block(np.abs(cts) * np.fmax(*bars))
        on, apart = by_block(np.stack([kinked, jumps]).astype(np.float64)) > 0
        vague = np.full(low.shape[1], np.inf)
        which = np.flatnonzero(broken & ~seen)
        np.minimum.at(vague, self._structure.owner[which], fall.finest[which])
        return Sides(low, high, np.where(np.isfinite(bar), bar, np.inf), on, apart, vague)

    def better_side(self, cts: Float) -> tuple[Float, Float]:
        """Slopes of Σ ct·f and their bars, [q, b] each, from the sharper side of each output.

        Where forward is smooth at an element, both sides have its slope; where a kink lies close
        beside it, only the side away from it allows long steps. The caller must know that no kink
        lies on the element.
        """
        sides = [self._settled(side, 4 * self._noise) for side in (self.behind, self.ahead)]
        left_is_sharper = sides[0][1] <= sides[1][1]
        slope, bar = (np.where(left_is_sharper, a, b) for a, b in zip(*sides, strict=True))
        by_block, owned = self._structure.by_block, self._owned
        with np.errstate(all="ignore"):
            value = by_block(cts * np.where(owned, slope, 0.0))
            total = by_block(np.abs(cts) * np.where(owned, bar, 0.0))
        return value, np.where(np.isfinite(value) & np.isfinite(total), total, np.inf)

    def reading(self, cts: Float, got: Float, column: NDArray[np.int64] | None = None) -> Reading:
        """The slope of Σ ct·f [q, b], where `got` [q, b] is a hypothesis at every scale.

        Of the elements `column` alone, where given: the others have no value then.

        The finest conclusive scale decides. A gradient that fits only a coarser one is neither
        right nor wrong. A wide stair has slope 0, if `got` is 0.
        """
        by_block = self._structure.by_block
        with np.errstate(all="ignore"):
            weighted = cts[:, None, :] * np.where(self._owned, self.central, 0.0)
            slopes = by_block(weighted).transpose(1, 0, 2)  # [k, q, b]
        rough = self._rough(cts, self._noise)
        if self._calm is not self._noise:
            rough = np.where(got == 0, self._rough(cts, self._calm), rough)
        value, bar, step = (np.full(got.shape, start) for start in (np.nan, np.inf, np.inf))
        split = np.zeros(got.shape, dtype=bool)
        values, bars = _extrapolated(slopes, rough, self.h)
        for q, b in product(range(len(got)), range(got.shape[1]) if column is None else column):
            level, split[q, b] = _decide(values[:, q, b], bars[:, q, b], float(got[q, b]))
            if level is not None:
                value[q, b], bar[q, b] = values[level, q, b], bars[level, q, b]
                step[q, b] = self.h[level + 1, b]
        return Reading(value, np.where(split, np.inf, bar), step, split)

    def _rough(self, cts: Float, noise: Float) -> Float:
        """The error of slopes, [k, q, b], by `noise` [k, m] of the outputs."""
        with np.errstate(all="ignore"):
            each = np.abs(cts[:, None, :]) * (2 * noise / self._width)
        each = np.where(self._owned, each, 0.0)
        return np.asarray(SIGMAS * self._structure.norms(each).transpose(1, 0, 2))

    def _falls(self, noise: Float) -> Fall:
        """The fall of each output's even part with the step; of its odd part at a jump."""
        with np.errstate(all="ignore"):
            half = self._width / 2
            odd = np.fmax(np.abs(self.ahead), np.abs(self.behind)) * half
        even, jump = _fall(np.abs(self._even), noise, half), _fall(odd, noise, half)
        # The sign function jumps without an even part. Rounding of the value at the element alone
        # is not a jump.
        one = jump.order < JUMP_ORDER
        near = self._near[np.maximum(self._structure.owner, 0)]
        slopes = np.sort(np.where(np.isfinite(self.central), np.abs(self.central), np.inf), axis=0)
        usual = slopes[np.isfinite(slopes).sum(axis=0) // 2, np.arange(slopes.shape[1])]
        size = np.fmax(ROUNDED * self._extent, AT * np.where(usual < np.inf, usual, 0.0) * near)
        tiny = (even.order < JUMP_ORDER) & (even.size <= size)
        lost = ~self._owned | (tiny & ~one)
        order = np.where(one, jump.order, even.order)
        return Fall(
            np.where(lost, np.inf, order),
            np.where(one, jump.finest, even.finest),
            np.where(one, jump.stays, even.stays),
            np.where(one, jump.size, even.size),
        )

    def _settled(self, slopes: Float, noise: Float) -> tuple[Float, Float]:
        """The best one-sided slope per output and its bar: least change plus rounding."""
        with np.errstate(all="ignore"):
            h = self._width / 2
            ratio = h[:-1] / h[1:]
            values = (ratio * slopes[1:] - slopes[:-1]) / (ratio - 1)
            bar = np.abs(values[1:] - values[:-1]) + SIGMAS * noise[2:] / h[2:]
        bar = np.where(np.isfinite(bar), bar, np.inf)
        best = np.argmin(bar, axis=0)[None]
        return np.take_along_axis(values[1:], best, 0)[0], np.take_along_axis(bar, best, 0)[0]


class KinkNeighbours:
    """Points where forward is smooth, beside a kink on which several elements lie."""

    def __init__(self, evaluator: Evaluator, elements: NDArray[np.int64]) -> None:
        """Move the `elements` [k] (flat) of the evaluator's primal at random, each by its size."""
        x = evaluator.x.reshape(-1)
        own = np.abs(x[elements])
        self._size = np.where(own == 0, _smallest(evaluator.point.primals), own)
        rng = np.random.Generator(np.random.Philox(key=key_of("beside a kink")))
        self._moved = np.repeat(x[None], BESIDE, axis=0)
        self._moved[:, elements] += ASIDE * self._size * rng.normal(size=(BESIDE, elements.size))
        self._evaluator, self._elements = evaluator, elements

    def slopes(self, along: NDArray[np.int64]) -> Float:
        """Slopes [points, m] of every output as the elements `along` move by equal amounts."""
        which = np.isin(self._elements, along)
        h = NEARBY * float(self._size[which].min())
        ends = np.repeat(self._moved[None], 2, axis=0)
        ends[0][:, self._elements[which]] += h
        ends[1][:, self._elements[which]] -= h
        gap = ends[0] - ends[1]
        gap = gap[:, self._elements[which]].mean(axis=1)
        copies = ends.reshape(-1, *self._evaluator.x.shape)
        above, below = np.split(self._evaluator.values(copies), 2)
        return np.asarray((above - below) / gap[:, None])


class DirectionThroughAll:
    """Forward along one direction through all elements of a primal, each moved by its own size."""

    def __init__(self, evaluator: Evaluator) -> None:
        """Evaluate nothing yet."""
        x = np.abs(evaluator.x.reshape(-1).astype(np.float64))
        size = np.where(x == 0, _smallest(evaluator.point.primals), x)
        rng = np.random.Generator(np.random.Philox(key=key_of("along all")))
        self.direction = size * rng.uniform(0.5, 1.0, x.size) * rng.choice([-1.0, 1.0], x.size)
        self._evaluator = evaluator

    def is_flat(self) -> bool:
        """Whether every value equals, bit by bit, that at the point itself."""
        x = self._evaluator.x
        t = UNEVEN * RATIO ** -np.arange(NEAR, dtype=np.float64)
        ends = x.reshape(-1) + np.concatenate([t, -t])[:, None] * self.direction

        def fill(rows: slice, copies: Array) -> None:
            copies[...] = ends[rows].reshape(copies.shape)

        base = self._evaluator.base
        return all(bool((v == base).all()) for _, v in self._evaluator.sweep(len(ends), fill))


def _smallest(primals: Sequence[Array]) -> float:
    """The smallest nonzero number of all floating primals: the size of an element 0."""
    sizes = [np.abs(p[p != 0]) for p in primals if p.dtype.kind == "f"]
    return min((float(s.min()) for s in sizes if s.size), default=1.0)


def _steps(x: Array, at: Array, size: float) -> Float:
    """Steps [k, b] from the tensor's size downwards, then from each element's own."""
    top = top_step(x)
    spacing = 2 * np.spacing(np.abs(at)).astype(np.float64)
    own = np.where(at == 0, size, np.abs(at)).astype(np.float64) / 2
    far = np.repeat((top / RATIO ** np.arange(FAR))[:, None], at.size, axis=1)
    start = np.minimum(top / RATIO**FAR, np.where(own > 0, own, np.inf))
    near = start / (RATIO ** np.arange(NEAR))[:, None]
    steps = UNEVEN * np.concatenate([far, near])
    far = np.abs(at) + np.where(steps >= spacing, steps, np.nan)
    return np.asarray(far.astype(x.dtype) - np.abs(at), dtype=np.float64)  # both ends are exact


def _fall(size: Float, noise: Float, half: Float) -> Fall:
    """The fall of `size` [k, m] with the steps `half` [k, m] at its finest levels.

    Three neighbouring levels must stand above their `noise`.
    """
    levels, count = size.shape
    if levels < 3:
        unknown = np.full(count, np.inf)
        return Fall(unknown, unknown, np.ones(count, dtype=bool), np.zeros(count))
    stands = np.isfinite(size) & (size > RESOLVED * noise)
    every = np.arange(count)
    last = levels - 1 - np.argmax(stands[::-1], axis=0)
    above = np.maximum(last - 2, 0)
    with np.errstate(all="ignore"):
        ok = stands[last, every] & stands[last - 1, every] & stands[above, every] & (last >= 2)
        logs = [np.log(part) for part in (size, half)]
        falls = [
            (logs[0][k, every] - logs[0][k + 1, every])
            / (logs[1][k, every] - logs[1][k + 1, every])
            for k in (above, np.maximum(last - 1, 0))
        ]
        order = np.maximum(*falls)
        below = np.minimum(last + 1, levels - 1)
        expected = size[last, every] * half[below, every] / half[last, every]
        missing = (size[below, every] < expected / 4) & (expected > 4 * noise[below, every])
        # Beside the element, four levels: a wave as short as the longest steps falls anyhow.
        first = np.maximum(last - 3, 0)
        fourth = (logs[0][first, every] - logs[0][above, every]) / (
            logs[1][first, every] - logs[1][above, every]
        )
        ok &= ~missing | (stands[first, every] & (last >= 3))
        spread = np.maximum(order, fourth) - np.minimum(np.minimum(*falls), fourth)
        ok &= ~missing | (spread < JUMP_ORDER)
    known = ok & ~np.isnan(order)
    finest = np.where(known, half[last, every], np.inf)
    return Fall(np.where(known, order, np.inf), finest, ~missing, size[last, every])


def _scatter(even: Float, width: Float) -> Float:
    """Noise of each output, [m], from the even parts [k, m] of the finest steps.

    A kink's even part falls with the step, a jump's is constant; the residual is rounding.
    """
    known = np.isfinite(width)
    finest = known & (np.cumsum(known[::-1], axis=0)[::-1] <= FINEST)
    size = np.abs(even)
    least = np.min(np.where(finest, size, np.inf), axis=0, initial=np.inf)
    most = np.max(np.where(finest, size, 0.0), axis=0, initial=0.0)
    jumps = (least >= most / 2) & (most > 0)
    with np.errstate(all="ignore"):
        left = np.abs(even[1:] - even[:-1] * (width[1:] / width[:-1]))
        left = np.where(jumps, np.minimum(left, np.abs(np.diff(even, axis=0))), left)
    pairs = finest[1:] & finest[:-1] & np.isfinite(left)
    return np.asarray(np.max(np.where(pairs, left, 0.0), axis=0, initial=0.0))


def _stairs(rise: Float, fall: Float) -> Mask:
    """Outputs [m] that do not change at two steps one after the other."""
    still = (rise == 0) & (fall == 0)
    return np.asarray((still[1:] & still[:-1]).any(axis=0))


def _quantum(change: Float, level: Mask, inside: Float) -> Float:
    """The error of values on stairs, against a smooth function: [k, m].

    `change` [2k, m] is the change from the value at the element, upwards and downwards; `level`
    marks values that a slightly longer step repeats bit by bit. A plateau whose next value lies on
    a plateau too is a stair: values may be off by the difference of the two. Any other plateau is a
    flat function. If no value changes, the error is `inside` [k, m], the rounding of the largest
    number that forward may have added.
    """
    size = np.abs(change)
    size = np.where(np.isfinite(size) & (size > 0), size, np.inf)
    halves = np.split(size, 2)
    changed = np.isfinite(np.minimum(*halves))
    last = len(changed) - 1 - np.argmax(changed[::-1], axis=0)
    every = np.arange(size.shape[1])
    stair = np.zeros(size.shape[1], dtype=bool)
    for half, same in zip(halves, np.split(level, 2), strict=True):
        stair |= np.isfinite(half[last, every]) & same[last, every]
    least = np.min(size, axis=0, initial=np.inf)
    return np.where(stair & changed.any(axis=0), least / 2, inside)


def _extrapolated(slopes: Float, rough: Float, h: Float) -> tuple[Float, Float]:
    """Richardson values [k − 2, q, b] and their bars; infinite if steps are missing."""
    with np.errstate(all="ignore"):
        squares = ((h[:-1] / h[1:]) ** 2)[:, None, :]
        values = (squares * slopes[1:] - slopes[:-1]) / (squares - 1)
        moved = np.abs(np.diff(values, axis=0))
        even = np.abs(h[:-1] / h[1:] - RATIO) <= RATIO / 8
        regular = (even[1:] & even[:-1])[:, None, :]
        bar = moved + rough[2:]
        above = np.concatenate([np.full_like(moved[:1], np.inf), moved[:-1]]) / GUARD
        bar = np.fmax(bar, np.where(np.isnan(above), np.inf, above))
        # One that forward's own bits carry exactly has nothing above it to move from.
        known = regular & np.isfinite(bar) & np.isfinite(values[1:])
    return values[1:], np.where(known, bar, np.inf)


def _decide(values: Float, bars: Float, got: float) -> tuple[int | None, bool]:
    """The level that no finer one contradicts, and whether `got` fits a coarser one only."""
    known = np.flatnonzero(np.isfinite(bars))
    allowed = known
    while allowed.size:
        best = int(allowed[np.argmin(bars[allowed])])
        finer = known[known > best]
        apart = np.abs(values[finer] - values[best])
        against = finer[apart > KAPPA * (bars[finer] + bars[best])]
        # One level alone may be chance; two neighbours that agree are a scale of their own.
        pairs = [
            k
            for k in against
            for n in (k - 1, k + 1)
            if n in against and abs(values[k] - values[n]) <= bars[k] + bars[n]
        ]
        if not pairs:
            if abs(got - values[best]) <= KAPPA * bars[best]:
                return best, False
            fits = np.abs(values[known] - got) <= KAPPA * bars[known]
            sharp = bars[known] <= SHARP * np.maximum(abs(got), np.abs(values[known]))
            against_best = np.abs(values[known] - values[best]) > KAPPA * (bars[known] + bars[best])
            return best, bool(np.any(fits & sharp & against_best))
        allowed = allowed[allowed >= min(pairs)]
    return None, False
