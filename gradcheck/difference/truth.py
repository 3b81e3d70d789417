"""The true gradient of one primal, as an estimate that can be made better where that matters.

Three tiers, each with its own error bar: the triple (every element, cheap), the ladder (elements
on which the triple does not settle the matter), and whatever certain source the caller has (the
50-digit oracle, through `settle`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference import ladder, noise, structure
from gradcheck.difference.evaluate import Evaluator, Point, flatten
from gradcheck.draw import key_of

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Estimate:
    """The gradient of Σ ct·f with respect to the n elements of one primal, for q cotangents.

    Shapes: all [q, n]; `terms` is [n]. Units: the gradient's. `bar` is the error bar of `value`
    (infinite: unknown), `scale` is Σ |ct·J|, what absolute errors are measured against, and
    `terms` counts the outputs that the element can move.
    """

    value: Float
    bar: Float
    scale: Float
    terms: NDArray[np.int64]
    settled: Mask

    @property
    def size(self) -> int:
        """Number of elements of the primal."""
        return int(self.value.shape[1])


def certain(value: Float, bar: Float | None = None) -> Estimate:
    """Gradients [q, n] of one output that a certain source gives: known to their last digit.

    `bar`, where it is wider, is their error bar.
    """
    return Estimate(
        value=value,
        bar=np.abs(value) * np.finfo(np.float64).eps if bar is None else bar,
        scale=np.abs(value),
        terms=np.ones(value.shape[1], dtype=np.int64),
        settled=np.ones(value.shape, dtype=bool),
    )


def noise_lines(point: Point) -> Float:
    """Values of forward near the point, for the noise of all its primals; see `noise.lines`."""
    return noise.lines(point, np.random.Generator(np.random.Philox(key=key_of("noise"))))


def noise_stairs(point: Point) -> Float:
    """Rounding that forward's values show of themselves, [m], in units of u: `noise.staircase`."""
    rng = np.random.Generator(np.random.Philox(key=key_of("stairs")))
    with np.errstate(all="ignore"):
        outputs = flatten(point.forward(*(p.copy() for p in point.primals)))
        return noise.staircase(point, outputs, rng)


class Differences:
    """Differences of one forward with respect to one primal, for several cotangents.

    `cts` is [q, m]: one row per cotangent over all outputs, flattened. The estimate starts with
    the triple; `refine` improves elements by the ladder, `settle` overrules them. `reach` [q, n]
    is the largest Σ |ct·Δf|/h that the ladder saw at any step: where forward saturates, J says
    nothing of the numbers that cancel in it, but the slopes from afar do.
    """

    def __init__(
        self, point: Point, index: int, cts: Float, lines: Float, rounding: Float | None = None
    ) -> None:
        """Probe the structure, choose a step, and run the triple.

        `lines` show the noise (see `noise_lines`); `rounding` [m], where it is known, is the
        error that forward's values have collected, in units of u.
        """
        self._rng = np.random.Generator(np.random.Philox(key=key_of("difference", index)))
        self.evaluator = Evaluator(point, index)
        self.structure = structure.find(self.evaluator, self._rng)
        self.cts = cts
        self._u = float(np.finfo(self.evaluator.x.dtype).eps) / 2
        self._noise, self._terms = self._measure_noise(lines, rounding)
        self._laddered = np.zeros(self.evaluator.x.size, dtype=bool)
        self.reach = np.zeros((len(cts), self.evaluator.x.size))
        self.estimate = self._triple()

    def refine(self, elements: NDArray[np.int64]) -> bool:
        """Run the ladder for `elements`; says whether there was anything new to learn."""
        fresh = elements[~self._laddered[elements]]
        if fresh.size == 0:
            return False
        grid = self.structure.grid
        colours = np.flatnonzero(np.isin(grid, fresh).any(axis=1))
        h = ladder.steps(self.evaluator.x, ladder.LADDER_LEVELS)
        slopes, scales = ladder.central(self.evaluator, self.structure, self.cts, colours, h)
        value, bar = ladder.climb(slopes, scales, self._noise[:, colours], h, self._u)
        cells = grid[colours].reshape(-1)
        new_value, new_bar = value.reshape(len(self.cts), -1), bar.reshape(len(self.cts), -1)
        old = self.estimate
        better = np.isfinite(new_bar) & ~old.settled[:, cells]  # all steps know more than three
        old.value[:, cells] = np.where(better, new_value, old.value[:, cells])
        old.bar[:, cells] = np.where(better, new_bar, old.bar[:, cells])
        known = np.max(np.where(np.isfinite(scales), scales, 0.0), axis=0)
        self.reach[:, cells] = known.reshape(len(self.cts), -1)
        lost = ~np.isfinite(old.scale[:, cells])
        old.scale[:, cells] = np.where(lost, self.reach[:, cells], old.scale[:, cells])
        self._laddered[cells] = True
        return True

    def seen_at(self, row: int, element: int, h: Float) -> tuple[Float, Float]:
        """Plain central differences [s] of one element for one cotangent, at steps `h` [s].

        With them what rounding explains of each, [s]; both nan where there is no difference.
        """
        (place,) = np.argwhere(self.structure.grid == element)[:1]
        colours = place[:1]
        at = (slice(None), row, 0, place[1])
        slopes, scales = ladder.central(self.evaluator, self.structure, self.cts, colours, h)
        with np.errstate(all="ignore"):
            floor = ladder.floor_of(self._noise[:, colours], scales, h, self._u)
        return slopes[at], np.where(np.isfinite(slopes[at]), floor[at], np.nan)

    def settle(self, values: Float, which: Mask) -> None:
        """Overrule the elements `which` [q, n] by certain `values` [q, n]."""
        estimate = self.estimate
        estimate.value[which] = values[which]
        estimate.bar[which] = np.abs(values[which]) * np.finfo(np.float64).eps
        estimate.settled[which] = True
        # One output: Σ|ct·J| is the gradient itself. From afar it may look larger than it is.
        alone = which & (estimate.terms == 1)
        estimate.scale[alone] = np.abs(values[alone])

    def _triple(self) -> Estimate:
        size, count = self.evaluator.x.size, len(self.cts)
        shape = (count, size)
        estimate = Estimate(
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape),
            self._to_elements(self._terms),
            np.zeros(shape, dtype=bool),
        )
        if size == 0:
            return estimate
        value, bar, scale = ladder.triple(
            self.evaluator, self.structure, self.cts, self._noise, self._u
        )
        estimate.value = self._to_elements(value)
        estimate.bar = self._to_elements(bar)
        estimate.scale = self._to_elements(scale)
        return estimate

    def _measure_noise(
        self, lines: Float, rounding: Float | None
    ) -> tuple[Float, NDArray[np.int64]]:
        """Noise [q, c, blocks] and number of outputs that can move [c, blocks]."""
        shape = self.structure
        measured = noise.measured(lines, shape, self.cts)
        squares = noise.modelled(self.evaluator.base, self.cts, self._u, rounding)
        out = np.empty((len(self.cts), shape.colours, shape.blocks))
        terms = np.empty((shape.colours, shape.blocks), dtype=np.int64)

        def poison(rows: slice, copies: NDArray[Any]) -> None:
            flat = copies.reshape(len(copies), -1)
            for k, colour in enumerate(range(rows.start, rows.stop)):
                flat[k, shape.grid[colour]] = np.nan

        finite = np.isfinite(self.evaluator.base)
        for rows, values in self.evaluator.sweep(shape.colours, poison):
            # NaN finds the outputs that an element can move, saturated ones included. Where
            # forward swallows NaN (a comparison, a refusal) every output is assumed to move.
            moves = np.isnan(values) & finite
            blind = ~moves.any(axis=1) | ~np.isfinite(values).any(axis=1)
            moves[blind] = finite
            terms[rows] = shape.by_block(moves.astype(np.int64))
            total = shape.by_block(moves[None] * np.where(finite, squares, 0.0)[:, None, :])
            out[:, rows] = np.maximum(
                np.sqrt(total), np.where(terms[rows] > 0, measured[:, None], 0.0)
            )
        return out, terms

    def _to_elements(self, values: NDArray[Any]) -> NDArray[Any]:
        """[…, c, blocks] as […, n]."""
        out = np.empty((*values.shape[:-2], self.structure.grid.size), dtype=values.dtype)
        out[..., self.structure.grid.reshape(-1)] = values.reshape(*values.shape[:-2], -1)
        return out
