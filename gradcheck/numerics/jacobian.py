"""A whole Jacobian by differences: the slope of every output in every element of one primal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics import richardson, sparsity
from gradcheck.numerics.arrays import Float
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.evaluate import Evaluator, Point
from gradcheck.numerics.sparsity import Structure

FIRST: Final = 1
LEVELS: Final = 11
"""Steps of each element, each a quarter of the last: from an eighth of the primal's magnitude down
to 1e-7 of it."""
BENT: Final = 0.01
"""Difference of both sides' slopes, as a part of the steepest, above which there is a kink."""
EVALUATIONS: Final = 2 * LEVELS
"""Evaluations of forward for each element that shares an output with another."""


@dataclass(frozen=True, slots=True)
class Jacobian:
    """∂(all outputs)/∂(one primal) and its error bars, both [m, n]; how the elements mix.

    A bar is infinite where the slope is unknown: at a kink, at the end of forward's domain.
    """

    value: Float
    bar: Float
    mixing: Structure


def jacobian(point: Point, index: int, blur: Float, mixing: Structure | None = None) -> Jacobian:
    """The slopes of all outputs in the elements of primal `index`.

    `blur` [m] is the noise of each output, one standard deviation (see `noise.per_output`);
    `mixing` its structure, if another point of the same forward has shown it. Elements that share
    no output are moved together. Cost: `EVALUATIONS` of forward for each of the others.
    """
    evaluator = Evaluator(point, index)
    size, outputs = evaluator.x.size, evaluator.base.size
    value, bar = np.zeros((outputs, size)), np.zeros((outputs, size))
    if mixing is None or mixing.grid.size != size or mixing.owner.size != outputs:
        rng = np.random.Generator(np.random.Philox(key=key_of("jacobian", index)))
        mixing = sparsity.find(evaluator, rng)
    if not size or not outputs:
        return Jacobian(value, bar, mixing)
    moved = np.flatnonzero(mixing.owner >= 0)
    places = mixing.grid[:, mixing.owner[moved]]  # [c, moved]: the element each output answers for
    h = richardson.steps(evaluator.x, FIRST + LEVELS)[FIRST:]
    slopes, bent = _slopes(evaluator, mixing, moved, places, h)
    with np.errstate(all="ignore"):
        found, its_bar = richardson.best_of_all_steps(
            slopes, np.abs(slopes), np.broadcast_to(blur[moved], places.shape), h, evaluator.u
        )
    value[moved, places] = found
    bar[moved, places] = np.where(bent, np.inf, its_bar)
    return Jacobian(value, bar, mixing)


def _slopes(
    evaluator: Evaluator,
    mixing: Structure,
    moved: NDArray[np.int64],
    places: NDArray[np.int64],
    h: Float,
) -> tuple[Float, NDArray[np.bool_]]:
    """Central differences [s, c, moved], NaN where a step vanishes in rounding; and kinks.

    A kink [c, moved] is where the slopes of both sides differ however small the step; a symmetric
    difference hides it.
    """
    widths, values_of = richardson.pairs(evaluator, mixing.grid, h)
    out = np.empty((h.size * mixing.colours, moved.size))
    bends = np.empty_like(out)
    base = evaluator.base[moved]
    for rows, *ends in values_of:
        s, c = np.divmod(np.arange(rows.start, rows.stop), mixing.colours)
        width = widths[s[:, None], places[c]]
        with np.errstate(all="ignore"):
            above, below = (values[:, moved] for values in ends)
            out[rows] = (above - below) / width
            bends[rows] = np.abs((above - base) + (below - base)) / width
    shape = (h.size, mixing.colours, moved.size)
    slopes, bends = out.reshape(shape), np.nan_to_num(bends.reshape(shape), nan=np.inf)
    steepest = np.max(np.where(np.isfinite(slopes), np.abs(slopes), 0.0), axis=0)
    return slopes, np.min(bends, axis=0) > BENT * steepest
