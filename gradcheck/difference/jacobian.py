"""A whole Jacobian by differences: the slope of every output in every element of one primal."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference import ladder, noise, structure
from gradcheck.difference.evaluate import Evaluator, Point
from gradcheck.draw import key_of

Float = NDArray[np.float64]

LEVELS: Final = 13
"""Steps of each element, each a quarter of the last: down to 3e-8 of the primal's magnitude."""
BENT: Final = 0.01
"""What the slopes of both sides may differ by, as a part of the steepest, where there is none."""
EVALUATIONS: Final = 2 * LEVELS
"""Of forward, for each element that shares an output with another."""


def jacobian(point: Point, index: int, lines: Float) -> tuple[Float, Float]:
    """∂(outputs)/∂(primal `index`) and its error bars, both [m, n].

    `lines` show forward's noise (see `difference.truth.noise_lines`). A bar is infinite where
    nothing is known: at a kink, at the end of forward's domain. Elements that share no output are
    moved together. Cost: `EVALUATIONS` of forward for each of the others.
    """
    rng = np.random.Generator(np.random.Philox(key=key_of("jacobian", index)))
    evaluator = Evaluator(point, index)
    size, outputs = evaluator.x.size, evaluator.base.size
    value, bar = np.zeros((outputs, size)), np.zeros((outputs, size))
    if not size or not outputs:
        return value, bar
    found = structure.find(evaluator, rng)
    moved = np.flatnonzero(found.owner >= 0)
    places = found.grid[:, found.owner[moved]]  # [c, moved]: which element each output answers for
    h = ladder.steps(evaluator.x, LEVELS)
    slopes, bent = _slopes(evaluator, found, moved, places, h)
    blur = noise.per_output(lines, evaluator.base)[moved]
    u = float(np.finfo(evaluator.x.dtype).eps) / 2
    with np.errstate(all="ignore"):
        found_value, found_bar = ladder.climb(
            slopes, np.abs(slopes), np.broadcast_to(blur, places.shape), h, u
        )
    value[moved, places] = found_value
    bar[moved, places] = np.where(bent, np.inf, found_bar)
    return value, bar


def _slopes(
    evaluator: Evaluator,
    found: structure.Structure,
    moved: NDArray[np.int64],
    places: NDArray[np.int64],
    h: Float,
) -> tuple[Float, NDArray[np.bool_]]:
    """Central differences [s, c, moved], NaN where a step vanishes in rounding; and kinks.

    A kink [c, moved] is where the slopes of both sides differ however small the step: a symmetric
    difference does not show it.
    """
    x = evaluator.x.reshape(-1)
    ends = (x + np.array([1.0, -1.0])[:, None, None] * h[:, None]).astype(x.dtype)  # [2, s, n]
    gaps = ends[0].astype(np.float64) - ends[1].astype(np.float64)
    gaps = np.where(gaps > 0, gaps, np.nan)
    out = np.empty((h.size * found.colours, moved.size))
    bends = np.empty_like(out)
    base = evaluator.base[moved]

    def fill(rows: slice, copies: NDArray[Any]) -> None:
        # Copies come in pairs: step s and colour c upwards, then downwards.
        flat = copies.reshape(len(copies), -1)
        for k, row in enumerate(range(rows.start, rows.stop)):
            pair, side = divmod(row, 2)
            s, c = divmod(pair, found.colours)
            cells = found.grid[c]
            flat[k, cells] = ends[side, s, cells]

    for both, values in evaluator.sweep(2 * len(out), fill, group=2):
        rows = np.arange(both.start // 2, both.stop // 2)
        s, c = np.divmod(rows, found.colours)
        with np.errstate(all="ignore"):
            above, below = values[0::2][:, moved], values[1::2][:, moved]
            gap = gaps[s[:, None], places[c]]
            out[rows] = (above - below) / gap
            bends[rows] = np.abs((above - base) + (below - base)) / gap
    shape = (h.size, found.colours, moved.size)
    slopes, bends = out.reshape(shape), np.nan_to_num(bends.reshape(shape), nan=np.inf)
    steepest = np.max(np.where(np.isfinite(slopes), np.abs(slopes), 0.0), axis=0)
    return slopes, np.min(bends, axis=0) > BENT * steepest
