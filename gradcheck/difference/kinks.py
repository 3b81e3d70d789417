"""Kinks that nobody declared, found from values alone, and the slopes on both sides.

The even part S(h) = f(x + h) − 2 f(x) + f(x − h) falls 16 times per quartered step where f is
smooth, 4 times at a kink, not at all at a jump. It is looked at per output, before anything is
summed: two kinks that cancel in a sum are still two kinks, each with a convention of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference.evaluate import Array, Evaluator
from gradcheck.difference.ladder import RATIO, steps

Float = NDArray[np.float64]

LEVELS: Final = 17
RESOLVED: Final = 32.0
"""An even part counts where it exceeds this many times its rounding error."""
BESIDE: Final = 2
"""Levels that must lie between a kink and x before x counts as smooth: the ladder needs them (and
its own, which go on from there) to settle on the slope beside the kink."""
SMOOTH_ORDER: Final = 1.5
"""log4 of the fall per level below half of which f is not smooth (2 smooth, 1 kink, 0 jump)."""


@dataclass(frozen=True, slots=True)
class OneSided:
    """What both sides of one element allow: an interval [q] and its error bar [q].

    `jumps` says that some output is not even continuous: the interval is then unbounded.
    """

    low: Float
    high: Float
    bar: Float
    jumps: bool


def examine(evaluator: Evaluator, element: int, cts: Float, measured: Float) -> OneSided | None:
    """The one-sided slopes at `element` if forward has a kink there, else None.

    `cts` is [q, m]; `measured` [m] is the noise of each output (one standard deviation).
    """
    behind, ahead, noise, h = _both_sides(evaluator, element, measured)
    with np.errstate(all="ignore"):
        order = _order(ahead - behind, noise, h)
        rise = np.maximum(np.abs(ahead), np.abs(behind))[-2:] * h[-2:, None]
        still = (rise[1] > RESOLVED * noise) & (rise[1] > rise[0] / np.sqrt(RATIO))
    order[still] = 0.0  # an odd jump, as of the sign, has no even part
    kinked = order < SMOOTH_ORDER
    if not kinked.any():
        return None
    jumps = bool((order < SMOOTH_ORDER / 3).any())
    side_values, side_bars = zip(*(_settle(s, noise, h) for s in (behind, ahead)), strict=True)
    products = cts * np.stack(side_values)[:, None, :]  # [2, q, m]
    low, high = products.min(axis=0).sum(axis=-1), products.max(axis=0).sum(axis=-1)
    bar = (np.abs(cts) * np.maximum(*side_bars)).sum(axis=-1)
    return OneSided(low, high, np.where(np.isfinite(bar), bar, np.inf), jumps)


def better_sides(
    evaluator: Evaluator, element: int, cts: Float, measured: Float
) -> tuple[Float, Float]:
    """Slope of Σ ct·f and its bar, [q] each, from the sharper side of each output.

    Where forward is smooth at x, both sides have the slope; where a kink lies close beside x, only
    the side away from it can be seen with a long step. The caller must know that x is no kink.
    """
    behind, ahead, noise, h = _both_sides(evaluator, element, measured)
    sides = [_settle(s, noise, h) for s in (behind, ahead)]
    left_is_sharper = sides[0][1] <= sides[1][1]
    slope, bar = (np.where(left_is_sharper, a, b) for a, b in zip(*sides, strict=True))
    with np.errstate(invalid="ignore"):
        total = (np.abs(cts) * bar).sum(axis=-1)
    return (cts * slope).sum(axis=-1), np.where(np.isfinite(total), total, np.inf)


def _both_sides(
    evaluator: Evaluator, element: int, measured: Float
) -> tuple[Float, Float, Float, Float]:
    """Slopes behind and ahead of x at each step [s, m], the noise of forward [m], and the steps."""
    h = steps(evaluator.x, LEVELS)
    x = evaluator.x.reshape(-1)[element]
    offsets = np.concatenate([h, -h])

    def fill(rows: slice, copies: Array) -> None:
        flat = copies.reshape(len(copies), -1)
        for k, row in enumerate(range(rows.start, rows.stop)):
            flat[k, element] = x + offsets[row]

    values = np.concatenate([v for _, v in evaluator.sweep(offsets.size, fill)])
    base = evaluator.base
    # The realised steps: x + h as the machine rounded it.
    right = (x + h).astype(evaluator.x.dtype).astype(np.float64) - float(x)
    left = float(x) - (x - h).astype(evaluator.x.dtype).astype(np.float64)
    u = float(np.finfo(evaluator.x.dtype).eps) / 2
    size = np.maximum(np.abs(base), np.nanmax(np.abs(values), axis=0, initial=0.0))
    noise = 4 * np.maximum(u * size, measured)
    with np.errstate(all="ignore"):
        ahead = (values[:LEVELS] - base) / right[:, None]
        behind = (base - values[LEVELS:]) / left[:, None]
    return behind, ahead, noise, h


def _order(jump: Float, noise: Float, h: Float) -> Float:
    """Order of the even part per output: 2 smooth, 1 kink, 0 jump; infinite where unresolved.

    `jump` is the difference of the one-sided slopes, S(h)/h: it falls 4 times per level where f
    is smooth, stays at a kink, and grows 4 times at a jump. The finest levels that rounding leaves
    resolvable decide.
    """
    size = np.abs(jump)
    resolved = np.isfinite(size) & (size * h[:, None] > RESOLVED * noise)
    order = np.full(size.shape[1], np.inf)
    for j in range(size.shape[1]):
        levels = np.flatnonzero(resolved[:, j])
        pairs = [k for k in levels[:-1] if k + 1 in levels]
        if len(pairs) >= 2:
            falls = [np.log(size[k, j] / size[k + 1, j]) / np.log(RATIO) for k in pairs[-3:]]
            last = levels[-1]
            if last + BESIDE >= len(size):
                # S of a smooth function is long lost in rounding here. A kink between x and the
                # finest steps makes the last falls large, not all of them.
                order[j] = 1 + min(falls)
            else:
                # Below the last level S is lost in rounding. From a kink at x it would not fall
                # so far at once: this one lies beside x, between two steps.
                fall = size[last, j] * h[last] / (RESOLVED * noise[j])
                order[j] = max(1 + max(falls[-2:]), np.log(fall) / np.log(RATIO))
    return order


def _settle(slopes: Float, noise: Float, h: Float) -> tuple[Float, Float]:
    """The best one-sided slope per output and its bar: least change plus rounding."""
    with np.errstate(all="ignore"):
        values = (RATIO * slopes[1:] - slopes[:-1]) / (RATIO - 1)
        bar = np.abs(values[1:] - values[:-1]) + 3 * noise / h[2:, None]
    bar = np.where(np.isfinite(bar), bar, np.inf)
    best = np.argmin(bar, axis=0)[None]
    return np.take_along_axis(values[1:], best, 0)[0], np.take_along_axis(bar, best, 0)[0]
