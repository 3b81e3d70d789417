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

from gradcheck.numerics.evaluate import Array, Evaluator
from gradcheck.numerics.noise import LOSES, RELATIVE
from gradcheck.numerics.sparsity import Structure

Float = NDArray[np.float64]

RATIO: Final = 4.0
PILOT_LEVELS: Final = 13
LADDER_LEVELS: Final = 20
OWN: Final = 4.0**5
"""A primal whose largest element is less than so many of the pilot's finest steps has its own."""
TRIPLE: Final = 3
PILOT_COLOURS: Final = 8
SIGMAS: Final = 3.0
HIDDEN: Final = 128.0
"""Units of u of forward's values below which an even part is rounding."""
KINK: Final = 8.0
"""An even part that falls less per step is a kink's."""
FINE: Final = 4
"""The finest levels, one of which must show a kink."""
FINER: Final = 16.0
COARSER: Final = 64.0
"""Levels so many of their bars from the one chosen contradict it (a few, and it was bad luck)."""


def top_step(x: Array) -> float:
    """The largest step: half of the primal's magnitude, at least 1/2, in units of the primal."""
    return 0.5 * max(1.0, float(np.max(np.abs(x), initial=0.0)))


def steps(x: Array, levels: int) -> Float:
    """`levels` steps from the top, each a quarter of the last."""
    return np.asarray(top_step(x) / RATIO ** np.arange(levels), dtype=np.float64)


def step_ranges(x: Array, levels: int) -> list[Float]:
    """`steps`, and where most of a pilot's are longer than the primal, steps of its own size.

    A cube at 1e-15 has other slopes a step of 1e-8 away, and a square hides in its rounding.
    """
    usual = steps(x, levels)
    largest = float(np.max(np.abs(x), initial=0.0))
    own = 0 < largest < OWN * usual[0] / RATIO**PILOT_LEVELS
    return [usual, usual * (largest / (2 * usual[0]))] if own else [usual]


def central(
    evaluator: Evaluator,
    structure: Structure,
    cts: Float,
    colours: NDArray[np.int64],
    h: Float,
) -> tuple[Float, Float, Float, Float]:
    """Central differences of Σ ct·f, and of Σ |ct·f| (the scale), at each step, and their rounding.

    The rounding is that of values which the step makes far larger than they are at x, for the
    noise at x knows nothing of it: three times u·Σ |ct·f(x ± h)|/h, 0 elsewhere. Last come the even
    parts, Σ |ct|·|f(x + h) − 2 f(x) + f(x − h)|, 0 where rounding hides them.

    Shapes:
        `cts` [q, m], `colours` [c], `h` [s]; results [s, q, c, blocks], in units of the gradient,
        and even parts [s, 1, c, blocks]. Elements whose step vanishes in rounding are NaN.
    """
    cells = structure.grid[colours]  # [c, blocks]
    x = evaluator.x.reshape(-1)
    ends = (x + np.array([1.0, -1.0])[:, None, None] * h[:, None]).astype(x.dtype)  # [2, s, n]
    realised = ends[0].astype(np.float64) - ends[1].astype(np.float64)
    gaps = np.where(realised > 0, realised, np.nan)[:, cells].reshape(-1, structure.blocks)

    def fill(rows: slice, copies: Array) -> None:
        # Copies come in pairs: step s and colour c upwards, then downwards.
        flat = copies.reshape(len(copies), -1)
        pairs, side = np.divmod(np.arange(rows.start, rows.stop), 2)
        s, c = np.divmod(pairs, colours.size)
        at = cells[c]  # [k, blocks]
        flat[np.arange(len(flat))[:, None], at] = ends[side[:, None], s[:, None], at]

    slopes = np.empty((len(cts), h.size * colours.size, structure.blocks))
    scales, rough = np.empty_like(slopes), np.zeros_like(slopes)
    even, weights = np.empty((1, *slopes.shape[1:])), np.abs(cts).max(axis=0)
    u = float(np.finfo(evaluator.x.dtype).eps) / 2
    base, sizes = np.abs(evaluator.base), np.abs(cts)[:, None, :]
    usual = LOSES * base
    for both, values in evaluator.sweep(2 * h.size * colours.size, fill, group=2):
        rows = slice(both.start // 2, both.stop // 2)
        with np.errstate(all="ignore"):  # steps beyond the domain, and beyond the largest number
            weighted = cts[:, None, :] * _difference(values[0::2], values[1::2])  # [q, rows, m]
            slopes[:, rows] = structure.by_block(weighted) / gaps[rows]
            scales[:, rows] = structure.by_block(np.abs(weighted)) / gaps[rows]
            far = np.maximum(np.abs(values[0::2]), np.abs(values[1::2]))
            bent = np.abs(values[0::2] + values[1::2] - 2 * evaluator.base)
            sums = structure.by_block(weights * np.stack([bent, np.fmax(far, base)]))
            even[0, rows] = np.where(sums[0] > HIDDEN * u * sums[1], sums[0], 0.0)
            grown = np.isfinite(far) & (far > usual)
            if grown.any():
                lost = sizes * np.where(grown, 2 * SIGMAS * u * far, 0.0)
                rough[:, rows] = structure.by_block(lost) / gaps[rows]
    shape = (-1, h.size, colours.size, structure.blocks)
    by_step = (np.moveaxis(a.reshape(shape), 1, 0) for a in (slopes, scales, rough, even))
    return next(by_step), next(by_step), next(by_step), next(by_step)


def _difference(above: Float, below: Float) -> Float:
    """Above − below, where two equal infinities differ by nothing."""
    with np.errstate(invalid="ignore"):
        return np.where(above == below, 0.0, above - below)


def bent(even: Float) -> NDArray[np.bool_]:
    """Whether even parts [s, …] fall as at a kink within the steps, not as a smooth function's.

    The finest three that rounding leaves decide: they fall 16 times per step where f is smooth, 4
    times at a kink. A central difference is the mean of both slopes there, at every step alike.
    A kink that only longer steps see leaves shorter ones the slope.
    """
    stands = even > 0
    last = len(even) - 1 - np.argmax(stands[::-1], axis=0)[None]
    finest = [np.take_along_axis(even, np.maximum(last - k, 0), 0)[0] for k in range(4)]
    slow = np.zeros(even.shape[1:], dtype=bool)
    # A kink about as far away as the finest step is long takes from that one's even part.
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
    differences do not shrink has not reached the regime in which the extrapolation is meant
    (a saturated value, D ∝ 1/h): its bar is infinite, however small its numbers are. `rough`
    [s, …] is what each slope may be off for another reason.
    """
    values = extrapolate(slopes)
    with np.errstate(all="ignore"):
        moved = np.abs(values[1:] - values[:-1])
        floor = floor_of(noise, scale[2:], h[2:], u)
        if rough is not None:
            floor = floor + rough[2:]
        bar = moved + floor
        change = np.abs(np.diff(slopes, axis=0))
        settling = change[1:] <= change[:-1] / 2 + 2 * floor
    return values[1:], np.where(np.isfinite(bar) & settling, bar, np.inf)


def three_step(
    evaluator: Evaluator,
    structure: Structure,
    cts: Float,
    noise: Float,
    u: float,
    every: NDArray[np.int64],
) -> tuple[Float, Float, Float]:
    """Values, error bars and scales [q, c, blocks] of the colours `every` [c].

    They are taken at the step that the pilot chooses; `noise` is [q, c, blocks].

    The pilot looks at a few colours only, and at the triple whose largest bar is least; where
    these are all the colours there are, its differences are the triple's.
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

    The better known of two slopes is taken, and neither where they contradict each other.
    """
    better = near[1] < far[1]
    with np.errstate(invalid="ignore"):
        apart = np.abs(near[0] - far[0]) > FINER * (near[1] + far[1])
    value, bar, scale = (np.where(better, n, f) for n, f in zip(near, far, strict=True))
    return value, np.where(apart, np.inf, bar), scale


def best(
    slopes: Float, scale: Float, noise: Float, h: Float, u: float, rough: Float | None = None
) -> tuple[Float, Float]:
    """The ladder: for each element the value with the least bar. Returns values and bars.

    Candidates are the Richardson values of order 4, as in `bars`, and of order 6, which reach
    further up, where noise counts less. Two guards against levels that agree by accident: the
    level above must not have moved more than 16 times as far, and noise seen in the finest
    differences counts where it exceeds the measured one.
    """
    noise = np.maximum(noise, _noise_seen(slopes, h))
    fourth = extrapolate(slopes)
    values, bar = bars(slopes, scale, noise, h, u, rough)
    with np.errstate(all="ignore"):
        sixth = (RATIO**4 * fourth[1:] - fourth[:-1]) / (RATIO**4 - 1)
        moved4, moved6 = (np.abs(np.diff(v, axis=0)) for v in (fourth, sixth))
        bar6 = moved6 + floor_of(noise, scale[3:], h[3:], u)
        if rough is not None:
            bar6 = bar6 + rough[3:]
    bar6[~np.isfinite(bar[1:]) | ~np.isfinite(bar[:-1]) | ~np.isfinite(bar6)] = np.inf
    for candidate, change in ((bar, moved4), (bar6, moved6)):
        above = np.where(np.isfinite(change[:-1]), change[:-1], np.inf) / RATIO**2
        candidate[1:] = np.maximum(candidate[1:], above)
        candidate[0] = np.inf  # nothing above it vouches for it
    every, its_bar = np.concatenate([values, sixth[1:]]), np.concatenate([bar, bar6])
    best = np.argmin(its_bar, axis=0)[None]
    value, least = np.take_along_axis(every, best, 0)[0], np.take_along_axis(its_bar, best, 0)[0]
    level = np.where(best < len(bar), best, best - len(bar) + 1)[0]
    return value, np.maximum(least, _contradiction(values, bar, value, least, level))


def _contradiction(
    values: Float, bar: Float, value: Float, least: Float, level: NDArray[np.int64]
) -> Float:
    """How far two adjacent levels that vouch for each other are from the value chosen.

    Only where their bars exclude it. A forward that cancels inside (1 + tanh far out) is a
    staircase: below the height of a step it has a slope of its own, to many digits, and above it
    the right one. A slight kink close beside x shows only below the step that is chosen. Neither
    is believed then. Bars of finer levels are noise, those of coarser ones a guess at truncation.
    """
    finer = np.arange(len(bar)).reshape(-1, *(1,) * level.ndim) > level
    with np.errstate(all="ignore"):
        apart = np.abs(values - value)
        excluded = apart > np.where(finer, FINER, COARSER) * (bar + least)
        agree = np.abs(values[1:] - values[:-1]) <= bar[1:] + bar[:-1]
    both = excluded[1:] & excluded[:-1] & agree
    return np.asarray(np.max(np.where(both, apart[1:] + bar[1:], 0.0), axis=0, initial=0.0))


def _noise_seen(slopes: Float, h: Float) -> Float:
    """Noise of Σ ct·f in the finest differences: what stays as h shrinks (truncation does not)."""
    with np.errstate(all="ignore"):
        tail = np.abs(np.diff(slopes[-4:], axis=0)) * h[-3:].reshape(-1, *(1,) * (slopes.ndim - 1))
        least = np.min(np.where(np.isfinite(tail), tail, np.inf), axis=0)
    return np.where(np.isfinite(least), 4 * least, 0.0)


def floor_of(noise: Float, scale: Float, h: Float, u: float) -> Float:
    """What rounding adds to a bar, for each smallest step `h`: three deviations."""
    return SIGMAS * (noise / h.reshape(-1, *(1,) * noise.ndim) + RELATIVE * u * scale)
