"""Central differences at several steps, Richardson extrapolation, and the error bar of each.

A central difference is D(h) = J + a·h² + b·h⁴ + …, plus noise/h. One Richardson level at ratio 4
removes a·h²: R = (16·D(h/4) − D(h)) / 15. The bar of R is how far R moved from the level above
(truncation) plus three times the noise over the smallest step (rounding). Steps are realised:
the divisor is (x + h) − (x − h) as the machine rounded it.

The *pilot* tries many steps on a few elements and picks one step per primal; the *triple* uses
it with two smaller ones on every element; the *ladder* takes all steps for the elements on which
the triple and the analytic gradient disagree, and picks the best for each.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference.evaluate import Array, Evaluator
from gradcheck.difference.noise import RELATIVE
from gradcheck.difference.structure import Structure

Float = NDArray[np.float64]

RATIO: Final = 4.0
PILOT_LEVELS: Final = 13
LADDER_LEVELS: Final = 20
TRIPLE: Final = 3
PILOT_COLOURS: Final = 4
SIGMAS: Final = 3.0


def top_step(x: Array) -> float:
    """The largest step: half of the primal's magnitude, at least 1/2, in units of the primal."""
    return 0.5 * max(1.0, float(np.max(np.abs(x), initial=0.0)))


def down(top: float, levels: int) -> Float:
    """`levels` steps from `top`, each a quarter of the last."""
    return np.asarray(top / RATIO ** np.arange(levels), dtype=np.float64)


def steps(x: Array, levels: int) -> Float:
    """`levels` steps from the top, each a quarter of the last."""
    return down(top_step(x), levels)


def central(
    evaluator: Evaluator,
    structure: Structure,
    cts: Float,
    colours: NDArray[np.int64],
    h: Float,
) -> tuple[Float, Float]:
    """Central differences of Σ ct·f, and of Σ |ct·f| (the scale), at each step.

    Shapes:
        `cts` [q, m], `colours` [c], `h` [s]; both results [s, q, c, blocks], in units of
        the gradient. Elements whose step vanishes in rounding are NaN.
    """
    cells = structure.grid[colours]  # [c, blocks]
    x = evaluator.x.reshape(-1)
    above, below = ((x + sign * h[:, None]).astype(x.dtype) for sign in (1, -1))  # [s, n]
    realised = above.astype(np.float64) - below.astype(np.float64)
    gaps = np.where(realised > 0, realised, np.nan)[:, cells].reshape(-1, structure.blocks)

    def fill(rows: slice, copies: Array) -> None:
        # Copies come in pairs: step s and colour c upwards, then downwards.
        flat = copies.reshape(len(copies), -1)
        for k, row in enumerate(range(rows.start, rows.stop)):
            s, c = divmod(row // 2, colours.size)
            flat[k, cells[c]] = (below if row % 2 else above)[s, cells[c]]

    slopes = np.empty((len(cts), h.size * colours.size, structure.blocks))
    scales = np.empty_like(slopes)
    for both, values in evaluator.sweep(2 * h.size * colours.size, fill, group=2):
        rows = slice(both.start // 2, both.stop // 2)
        with np.errstate(all="ignore"):  # steps beyond the domain, and beyond the largest number
            weighted = cts[:, None, :] * _difference(values[0::2], values[1::2])  # [q, rows, m]
            slopes[:, rows] = structure.by_block(weighted) / gaps[rows]
            scales[:, rows] = structure.by_block(np.abs(weighted)) / gaps[rows]
    shape = (len(cts), h.size, colours.size, structure.blocks)
    return np.moveaxis(slopes.reshape(shape), 1, 0), np.moveaxis(scales.reshape(shape), 1, 0)


def _difference(above: Float, below: Float) -> Float:
    """Above − below, where two equal infinities differ by nothing."""
    with np.errstate(invalid="ignore"):
        return np.where(above == below, 0.0, above - below)


def extrapolate(slopes: Float) -> Float:
    """Richardson values [s − 1, …] of slopes [s, …] at ratio 4."""
    with np.errstate(all="ignore"):
        return (RATIO**2 * slopes[1:] - slopes[:-1]) / (RATIO**2 - 1)


def bars(slopes: Float, scale: Float, noise: Float, h: Float, u: float) -> tuple[Float, Float]:
    """Richardson values and their error bars, both [s − 2, …]; infinite where unknown.

    Level k uses steps k, k + 1, k + 2. `noise` is [q, c, blocks], one standard deviation of
    Σ ct·f; `scale` is Σ |ct·J|, whose own rounding counts where f(x) = 0. A level whose
    differences do not shrink has not reached the regime in which the extrapolation is meant
    (a saturated value, D ∝ 1/h): its bar is infinite, however small its numbers are.
    """
    values = extrapolate(slopes)
    with np.errstate(all="ignore"):
        moved = np.abs(values[1:] - values[:-1])
        floor = noise / h[2:].reshape(-1, *(1,) * noise.ndim) + RELATIVE * u * scale[2:]
        bar = moved + SIGMAS * floor
        change = np.abs(np.diff(slopes, axis=0))
        settling = change[1:] <= change[:-1] / 2 + 2 * SIGMAS * floor
    return values[1:], np.where(np.isfinite(bar) & settling, bar, np.inf)


def choose_step(
    evaluator: Evaluator, structure: Structure, cts: Float, noise: Float, u: float
) -> float:
    """The pilot: the top step of the triple whose largest bar is least, over a few elements."""
    h = steps(evaluator.x, PILOT_LEVELS)
    count = min(PILOT_COLOURS, structure.colours)
    colours = np.linspace(0, structure.colours - 1, count).astype(np.int64)
    slopes, scale = central(evaluator, structure, cts, colours, h)
    _, bar = bars(slopes, scale, noise[:, colours], h, u)
    finite = np.isfinite(bar)
    worst = np.where(finite, bar, 0.0).reshape(len(bar), -1).max(axis=1)
    lost = (~finite).reshape(len(bar), -1).sum(axis=1)
    best = np.lexsort((worst, lost))[0]  # fewest elements without a bar first
    return float(h[best])


def climb(slopes: Float, scale: Float, noise: Float, h: Float, u: float) -> tuple[Float, Float]:
    """The ladder: for each element the level with the least bar. Returns values and bars.

    Two guards against levels that agree by accident: the level above must not have moved more
    than 16 times as far, and noise seen in the finest differences counts where it exceeds
    the measured one.
    """
    with np.errstate(all="ignore"):
        tail = np.abs(np.diff(slopes[-4:], axis=0)) * h[-3:].reshape(-1, *(1,) * noise.ndim)
        # Noise stays as h shrinks, truncation does not: the least of three, times 4, is noise.
        seen = 4 * np.min(np.where(np.isfinite(tail), tail, np.inf), axis=0)
        seen = np.where(np.isfinite(seen), seen, 0.0)
        above = np.abs(np.diff(extrapolate(slopes), axis=0))[:-1] / RATIO**2
    values, bar = bars(slopes, scale, np.maximum(noise, seen), h, u)
    bar[1:] = np.maximum(bar[1:], np.where(np.isfinite(above), above, np.inf))
    bar[0] = np.inf  # nothing above it vouches for it
    best = np.argmin(bar, axis=0)[None]
    return np.take_along_axis(values, best, 0)[0], np.take_along_axis(bar, best, 0)[0]
