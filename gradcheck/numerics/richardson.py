"""Central differences at several steps, Richardson extrapolation, and the error bar of each.

A central difference is D(h) = J + a·h² + b·h⁴ + …, plus noise/h. One Richardson level at ratio 4
removes a·h²: R = (16·D(h/4) − D(h)) / 15. The bar of R is how far R moved from the level above
(truncation) plus three times the noise over the smallest step (rounding). Steps are realised:
the divisor is (x + h) − (x − h) as the machine rounded it.

`choose_three_steps` first tries many steps on a few elements (the *pilot*), picks one for the whole
primal, and takes it and two smaller ones on every element. The *ladder* takes all steps for the
elements on which three steps and the analytic gradient disagree; `best_of_all_steps` picks the best
level for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Float
from gradcheck.numerics.evaluate import Array, Evaluator
from gradcheck.numerics.noise import LOSES, RELATIVE
from gradcheck.numerics.sparsity import Structure

RATIO: Final = 4.0
PILOT_LEVELS: Final = 13
LADDER_LEVELS: Final = 20
OWN: Final = 4.0**5
"""A primal whose largest element is below this many of the pilot's finest steps has own steps."""
TRIPLE: Final = 3
PILOT_COLOURS: Final = 8
SIGMAS: Final = 3.0
HIDDEN: Final = 128.0
"""An even part below this many units of u of forward's values is rounding."""
KINK: Final = 8.0
"""An even part that falls by less per step shows a kink."""
FINE: Final = 4
"""One of this many finest levels must show a kink."""
FINER: Final = 16.0
COARSER: Final = 64.0
"""Finer and coarser levels contradict the chosen one if they are this many bars away from it."""


def top_step(x: Array) -> float:
    """The largest step: half of the primal's magnitude, at least 1/2, in units of the primal."""
    return 0.5 * max(1.0, float(np.max(np.abs(x), initial=0.0)))


def steps(x: Array, levels: int) -> Float:
    """`levels` steps from the top, each a quarter of the last."""
    return np.asarray(top_step(x) / RATIO ** np.arange(levels), dtype=np.float64)


def step_ranges(x: Array, levels: int) -> list[Float]:
    """`steps`; if most of a pilot's are longer than the primal, also steps of its own size.

    A cube at 1e-15 has other slopes 1e-8 away, and a square vanishes in rounding there.
    """
    usual = steps(x, levels)
    largest = float(np.max(np.abs(x), initial=0.0))
    own_size = 0 < largest < OWN * usual[0] / RATIO**PILOT_LEVELS
    return [usual, usual * (largest / (2 * usual[0]))] if own_size else [usual]


def central(
    evaluator: Evaluator,
    structure: Structure,
    cts: Float,
    colours: NDArray[np.int64],
    h: Float,
) -> tuple[Float, Float, Float, Float]:
    """Central differences of Σ ct·f, and of Σ |ct·f| (the scale), at each step, and their rounding.

    The rounding covers values that are far larger at x ± h than at x, where noise is measured:
    three times u·Σ |ct·f(x ± h)|/h, 0 elsewhere. The last result are the even parts,
    Σ |ct|·|f(x + h) − 2 f(x) + f(x − h)|, 0 where rounding hides them.

    Shapes:
        `cts` [q, m], `colours` [c], `h` [s]; results [s, q, c, blocks], in units of the gradient,
        and even parts [s, 1, c, blocks]. Elements whose step vanishes in rounding are NaN.
    """
    cells = structure.grid[colours]  # [c, blocks]
    realised, values_of = pairs(evaluator, cells, h)
    gaps = realised[:, cells].reshape(-1, structure.blocks)
    slopes = np.empty((len(cts), h.size * colours.size, structure.blocks))
    scales, rough = np.empty_like(slopes), np.zeros_like(slopes)
    even, weights = np.empty((1, *slopes.shape[1:])), np.abs(cts).max(axis=0)
    u = evaluator.u
    base, sizes = np.abs(evaluator.base), np.abs(cts)[:, None, :]
    usual = LOSES * base
    for rows, above, below in values_of:
        with np.errstate(all="ignore"):  # steps beyond the domain, and beyond the largest number
            weighted = cts[:, None, :] * _difference(above, below)  # [q, rows, m]
            slopes[:, rows] = structure.by_block(weighted) / gaps[rows]
            scales[:, rows] = structure.by_block(np.abs(weighted)) / gaps[rows]
            far = np.maximum(np.abs(above), np.abs(below))
            bent = np.abs(above + below - 2 * evaluator.base)
            sums = structure.by_block(weights * np.stack([bent, np.fmax(far, base)]))
            even[0, rows] = np.where(sums[0] > HIDDEN * u * sums[1], sums[0], 0.0)
            grown = np.isfinite(far) & (far > usual)
            if grown.any():
                lost = sizes * np.where(grown, 2 * SIGMAS * u * far, 0.0)
                rough[:, rows] = structure.by_block(lost) / gaps[rows]
    shape = (-1, h.size, colours.size, structure.blocks)
    by_step = (np.moveaxis(a.reshape(shape), 1, 0) for a in (slopes, scales, rough, even))
    return next(by_step), next(by_step), next(by_step), next(by_step)


def pairs(
    evaluator: Evaluator, cells: NDArray[np.int64], h: Float
) -> tuple[Float, Iterator[tuple[slice, Float, Float]]]:
    """Forward's values a step above and below x, for each step of `h` [s] and row of `cells`.

    Elements of one row of `cells` [c, blocks] (flat indices) move together.

    Returns:
        The realised widths (x + h) − (x − h), [s, n], NaN where rounding absorbs the step; and an
        iterator over chunks of the s·c pairs, steps outermost: (rows, above [k, m], below [k, m]).
    """
    x = evaluator.x.reshape(-1)
    ends = (x + np.array([1.0, -1.0])[:, None, None] * h[:, None]).astype(x.dtype)  # [2, s, n]
    widths = ends[0].astype(np.float64) - ends[1].astype(np.float64)

    def fill(rows: slice, copies: Array) -> None:
        # Copies come in pairs: step s and colour c upwards, then downwards.
        flat = copies.reshape(len(copies), -1)
        pair, side = np.divmod(np.arange(rows.start, rows.stop), 2)
        s, c = np.divmod(pair, len(cells))
        at = cells[c]  # [k, blocks]
        flat[np.arange(len(flat))[:, None], at] = ends[side[:, None], s[:, None], at]

    chunks = evaluator.sweep(2 * h.size * len(cells), fill, group=2)
    return np.where(widths > 0, widths, np.nan), (
        (slice(both.start // 2, both.stop // 2), values[0::2], values[1::2])
        for both, values in chunks
    )


def _difference(above: Float, below: Float) -> Float:
    """`above` − `below`; 0 for two equal infinities."""
    with np.errstate(invalid="ignore"):
        return np.where(above == below, 0.0, above - below)


def bent(even: Float) -> NDArray[np.bool_]:
    """Whether even parts [s, …] fall as at a kink within the steps.

    The finest three above rounding decide: they fall by 16 per step if f is smooth, by 4 at a kink,
    where every central difference is the mean of both slopes. A kink that only longer steps cross
    leaves the shorter ones intact.
    """
    stands = even > 0
    last = len(even) - 1 - np.argmax(stands[::-1], axis=0)[None]
    finest = [np.take_along_axis(even, np.maximum(last - k, 0), 0)[0] for k in range(4)]
    slow = np.zeros(even.shape[1:], dtype=bool)
    # A kink about one finest step away reduces the even part of that step.
    for first in (0, 1):
        a, b, c = finest[first : first + 3]
        slow |= (last[0] >= first + 2) & (a > 0) & (c < KINK * b) & (b < KINK * a)
    return np.asarray(slow & (last[0] >= len(even) - FINE))


def extrapolate(slopes: Float) -> Float:
    """Richardson values [s − 1, …] of slopes [s, …] at ratio 4."""
    with np.errstate(all="ignore"):
        return (RATIO**2 * slopes[1:] - slopes[:-1]) / (RATIO**2 - 1)


def bars(
    slopes: Float, scale: Float, noise: Float, h: Float, u: float, rough: Float | None = None
) -> tuple[Float, Float]:
    """Richardson values and their error bars, both [s − 2, …]; infinite where unknown.

    Level k uses steps k, k + 1, k + 2. `noise` is [q, c, blocks], one standard deviation of
    Σ ct·f; `scale` is Σ |ct·J|, whose own rounding counts where f(x) = 0. A level whose
    differences do not shrink has not reached the regime of the extrapolation (a saturated value,
    D ∝ 1/h): its bar is infinite, however small its numbers are. `rough` [s, …] is an additional
    error of each slope.
    """
    values = extrapolate(slopes)
    with np.errstate(all="ignore"):
        moved = np.abs(values[1:] - values[:-1])
        floor = rounding_bar(noise, scale[2:], h[2:], u)
        if rough is not None:
            floor = floor + rough[2:]
        bar = moved + floor
        change = np.abs(np.diff(slopes, axis=0))
        settling = change[1:] <= change[:-1] / 2 + 2 * floor
    return values[1:], np.where(np.isfinite(bar) & settling, bar, np.inf)


def choose_three_steps(
    evaluator: Evaluator,
    structure: Structure,
    cts: Float,
    noise: Float,
    u: float,
    every: NDArray[np.int64],
) -> tuple[Float, Float, Float]:
    """Choose the step on a few elements; then values, error bars and scales [q, c, blocks].

    `every` [c] are the colours, `noise` is [q, c, blocks]. The pilot takes a few colours only, and
    chooses the three steps whose largest bar is least; if there are no other colours, its
    differences are the result.
    """
    count = min(PILOT_COLOURS, every.size)
    some = np.linspace(0, every.size - 1, count).astype(np.int64)
    found: tuple[Float, Float, Float] | None = None
    for h in step_ranges(evaluator.x, PILOT_LEVELS):
        slopes, scale, rough, even = central(evaluator, structure, cts, every[some], h)
        values, bar = bars(slopes, scale, noise[:, some], h, u, rough)
        bar = np.where(bent(even), np.inf, bar)
        finite = np.isfinite(bar)
        worst = np.where(finite, bar, 0.0).reshape(len(bar), -1).max(axis=1)
        lost = (~finite).reshape(len(bar), -1).sum(axis=1)
        best = int(np.lexsort((worst, lost))[0])  # fewest elements without a bar first
        if count < every.size:
            chosen = h[best : best + TRIPLE]
            slopes, scale, rough, even = central(evaluator, structure, cts, every, chosen)
            values, bar = bars(slopes, scale, noise, chosen, u, rough)
            bar, best = np.where(bent(even), np.inf, bar), 0
        one = values[best], bar[best], scale[best + 1]
        found = one if found is None else finer(found, one)
    assert found is not None
    return found


def finer(
    far: tuple[Float, Float, Float], near: tuple[Float, Float, Float]
) -> tuple[Float, Float, Float]:
    """Values, bars and scales from steps `far` off, and from those of the primal's own size.

    Of two slopes the one with the smaller bar is taken; neither if they contradict each other.
    """
    better = near[1] < far[1]
    with np.errstate(invalid="ignore"):
        apart = np.abs(near[0] - far[0]) > FINER * (near[1] + far[1])
    value, bar, scale = (np.where(better, n, f) for n, f in zip(near, far, strict=True))
    return value, np.where(apart, np.inf, bar), scale


def best_of_all_steps(
    slopes: Float, scale: Float, noise: Float, h: Float, u: float, rough: Float | None = None
) -> tuple[Float, Float]:
    """The ladder: for each element the value with the least bar. Returns values and bars.

    Candidates are the Richardson values of order 4, as in `bars`, and of order 6, which hold at
    longer steps, where noise is smaller. Two guards against levels that agree by accident: the
    level above must not have moved more than 16 times as far, and noise in the finest differences
    replaces the measured noise where it is larger.
    """
    noise = np.maximum(noise, _noise_seen(slopes, h))
    fourth = extrapolate(slopes)
    values, bar = bars(slopes, scale, noise, h, u, rough)
    with np.errstate(all="ignore"):
        sixth = (RATIO**4 * fourth[1:] - fourth[:-1]) / (RATIO**4 - 1)
        moved4, moved6 = (np.abs(np.diff(v, axis=0)) for v in (fourth, sixth))
        bar6 = moved6 + rounding_bar(noise, scale[3:], h[3:], u)
        if rough is not None:
            bar6 = bar6 + rough[3:]
    bar6[~np.isfinite(bar[1:]) | ~np.isfinite(bar[:-1]) | ~np.isfinite(bar6)] = np.inf
    for candidate, change in ((bar, moved4), (bar6, moved6)):
        above = np.where(np.isfinite(change[:-1]), change[:-1], np.inf) / RATIO**2
        candidate[1:] = np.maximum(candidate[1:], above)
        candidate[0] = np.inf  # no level above it confirms it
    every, its_bar = np.concatenate([values, sixth[1:]]), np.concatenate([bar, bar6])
    best = np.argmin(its_bar, axis=0)[None]
    value, least = np.take_along_axis(every, best, 0)[0], np.take_along_axis(its_bar, best, 0)[0]
    level = np.where(best < len(bar), best, best - len(bar) + 1)[0]
    return value, np.maximum(least, _contradiction(values, bar, value, least, level))


def _contradiction(
    values: Float, bar: Float, value: Float, least: Float, level: NDArray[np.int64]
) -> Float:
    """The distance of two adjacent levels that agree, and exclude the chosen value, from it.

    A forward that cancels inside (1 + tanh far out) is a staircase: steps within one stair show
    another slope, to many digits, than longer ones, which are right. A slight kink close beside x
    shows only at steps shorter than the chosen one. Neither slope is trusted then. Bars of finer
    levels are noise, those of coarser ones an estimate of truncation.
    """
    finer = np.arange(len(bar)).reshape(-1, *(1,) * level.ndim) > level
    with np.errstate(all="ignore"):
        apart = np.abs(values - value)
        excluded = apart > np.where(finer, FINER, COARSER) * (bar + least)
        agree = np.abs(values[1:] - values[:-1]) <= bar[1:] + bar[:-1]
    both = excluded[1:] & excluded[:-1] & agree
    return np.asarray(np.max(np.where(both, apart[1:] + bar[1:], 0.0), axis=0, initial=0.0))


def _noise_seen(slopes: Float, h: Float) -> Float:
    """Noise of Σ ct·f in the finest differences: the part that does not shrink with h."""
    with np.errstate(all="ignore"):
        tail = np.abs(np.diff(slopes[-4:], axis=0)) * h[-3:].reshape(-1, *(1,) * (slopes.ndim - 1))
        least = np.min(np.where(np.isfinite(tail), tail, np.inf), axis=0)
    return np.where(np.isfinite(least), 4 * least, 0.0)


def rounding_bar(noise: Float, scale: Float, h: Float, u: float) -> Float:
    """The rounding part of a bar, for each smallest step `h`: three deviations."""
    return SIGMAS * (noise / h.reshape(-1, *(1,) * noise.ndim) + RELATIVE * u * scale)
