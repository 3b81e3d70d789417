"""The true gradient of one primal, as an estimate that is refined where the comparison asks.

Tiers, each with its own error bar: the coarse pass (one pair of steps per element of a large
primal), three steps (all elements, or those that the coarse pass leaves open), the ladder of all
steps (elements that three steps leave open), and a certain source of the caller's, such as the
50-digit oracle, through `settle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics import noise, richardson, sparsity
from gradcheck.numerics.arrays import Float, Mask, unit_roundoff
from gradcheck.numerics.coarse_pass import SMALLEST, screen
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.evaluate import Array, Evaluator, Point, flatten
from gradcheck.numerics.sparsity import Structure


@dataclass(slots=True)
class Estimate:
    """The gradient of Σ ct·f with respect to the n elements of one primal, for q cotangents.

    Shapes: all [q, n]; `terms` is [n]. Units: the gradient's. `bar` is the error bar of `value`
    (infinite: unknown), `scale` is Σ |ct·J|, what absolute errors are measured against, and
    `terms` counts the outputs that the element can move. `screened` [n] marks the elements known
    from one pair of steps only.
    """

    value: Float
    bar: Float
    scale: Float
    terms: NDArray[np.int64]
    settled: Mask
    screened: Mask = field(default_factory=lambda: np.zeros(1, dtype=bool))

    @property
    def size(self) -> int:
        """Number of elements of the primal."""
        return int(self.value.shape[1])


def certain(value: Float, bar: Float | None = None) -> Estimate:
    """Gradients [q, n] of one output from a certain source: known to the last digit.

    `bar`, where it is wider, is their error bar.
    """
    return Estimate(
        value=value,
        bar=np.abs(value) * np.finfo(np.float64).eps if bar is None else bar,
        scale=np.abs(value),
        terms=np.ones(value.shape[1], dtype=np.int64),
        settled=np.ones(value.shape, dtype=bool),
    )


class NoiseProbe:
    """Forward's values at a point, and the rounding of those near it; computed on demand."""

    def __init__(self, point: Point, outputs: Sequence[Array] | None = None) -> None:
        """Evaluate nothing; `outputs` at the point may be known."""
        self._point = point
        if outputs is not None:
            self.outputs = outputs

    @cached_property
    def outputs(self) -> Sequence[Array]:
        """Forward's values at the point."""
        return self._point.outputs()

    @cached_property
    def lines(self) -> Float:
        """Values of forward on lines near the point."""
        return noise_lines(self._point)

    @cached_property
    def stairs(self) -> Float:
        """Rounding that each output has collected, in units of u."""
        return noise_stairs(self._point)


def noise_lines(point: Point) -> Float:
    """Values of forward near the point, for the noise of all its primals; see `noise.lines`."""
    return noise.lines(point, np.random.Generator(np.random.Philox(key=key_of("noise"))))


def noise_stairs(point: Point) -> Float:
    """Rounding of forward's values, [m], in units of u; see `noise.staircase`."""
    rng = np.random.Generator(np.random.Philox(key=key_of("stairs")))
    with np.errstate(all="ignore"):
        return noise.staircase(point, flatten(point.outputs()), rng)


class Differences:
    """Differences of one forward with respect to one primal, for several cotangents.

    `cts` is [q, m]: one row per cotangent over all outputs, flattened. The estimate starts with
    the triple; `refine` improves elements by the ladder, `settle` overrules them. `reach` [q, n]
    is the largest Σ |ct·Δf|/h of the ladder at any step: where forward saturates, J does not show
    the size of the numbers that cancel in it, but slopes at long steps do.
    """

    def __init__(
        self,
        point: Point,
        index: int,
        cts: Float,
        lines: Float | NoiseProbe,
        rounding: Float | None = None,
        known: Estimate | None = None,
    ) -> None:
        """Probe the structure, choose a step, and take three steps of every element.

        `lines` show the noise (see `noise_lines`); `rounding` [m], where it is known, is the
        error that forward's values have collected, in units of u. A `NoiseProbe` stands for both:
        then a large primal gets the coarse pass first, and noise is measured only if that leaves
        elements open. If the gradient is `known`, it is the estimate, and forward is differenced
        only by `seen_at`.
        """
        self._index = index
        x = point.primals[index]
        outputs = None
        if isinstance(lines, NoiseProbe) and x.size >= SMALLEST and x.dtype == np.float64:
            outputs = lines.outputs
        self._point = point
        self.cts = cts
        self._lines, self._rounding = lines, rounding
        self._u = unit_roundoff(x.dtype)
        self._faint = _faint(x, cts)
        self._laddered = np.full(x.size, known is not None)
        self.reach = np.zeros((len(cts), x.size))
        if known is not None:
            self.estimate = known
            return
        if outputs is not None:
            self.evaluator = Evaluator(point, index, outputs)
            found = screen(self.evaluator, cts)
            settled, every = np.zeros(found.value.shape, bool), np.ones(x.size, bool)
            self.estimate = Estimate(
                found.value, found.bar, found.scale, found.terms, settled, every
            )
        else:
            self.estimate = self._triple()
        self.estimate.bar += self._faint

    @cached_property
    def evaluator(self) -> Evaluator:
        """Forward as a function of the primal."""
        return Evaluator(self._point, self._index)

    @cached_property
    def structure(self) -> Structure:
        """Which outputs move with which elements, by every kind of probe."""
        self.evaluator.be_sure()
        rng = np.random.Generator(np.random.Philox(key=key_of("difference", self._index)))
        return sparsity.find(self.evaluator, rng)

    def sharpen(self, elements: NDArray[np.int64]) -> bool:
        """Take three steps of those `elements` that were only screened; True if there were any."""
        estimate = self.estimate
        asked = np.zeros(estimate.size, dtype=bool)
        asked[elements] = True
        asked &= estimate.screened
        if not asked.any():
            return False
        shape = self.structure
        colours = np.flatnonzero(asked[shape.grid].any(axis=1))
        cells = shape.grid[colours].reshape(-1)
        noise, terms = self._noise_of(colours)
        value, bar, scale = (
            found.reshape(len(self.cts), -1)
            for found in richardson.choose_three_steps(
                self.evaluator, shape, self.cts, noise, self._u, colours
            )
        )
        mine = asked[cells]  # elements that the screen settled keep their values
        cells = cells[mine]
        estimate.value[:, cells], estimate.bar[:, cells] = (
            value[:, mine],
            bar[:, mine] + self._faint,
        )
        estimate.scale[:, cells] = scale[:, mine]
        estimate.terms[cells] = terms.reshape(-1)[mine]
        estimate.screened[asked] = False
        return True

    def refine(self, elements: NDArray[np.int64]) -> bool:
        """Run the ladder for `elements`; False if it has run for all of them."""
        fresh = elements[~self._laddered[elements]]
        if fresh.size == 0:
            return False
        grid = self.structure.grid
        colours = np.flatnonzero(np.isin(grid, fresh).any(axis=1))
        value, bar, known = self._climbed(colours)
        cells = grid[colours].reshape(-1)
        new_value, new_bar = value.reshape(len(self.cts), -1), bar.reshape(len(self.cts), -1)
        new_bar = new_bar + self._faint
        old = self.estimate
        screened = (np.zeros(old.size, dtype=bool) | old.screened)[cells]
        # All steps know more than three. Elements that the screen settled keep their values.
        better = np.isfinite(new_bar) & ~old.settled[:, cells] & ~screened
        old.value[:, cells] = np.where(better, new_value, old.value[:, cells])
        old.bar[:, cells] = np.where(better, new_bar, old.bar[:, cells])
        self.reach[:, cells] = known.reshape(len(self.cts), -1)
        lost = ~np.isfinite(old.scale[:, cells]) & ~screened
        old.scale[:, cells] = np.where(lost, self.reach[:, cells], old.scale[:, cells])
        self._laddered[cells] = True
        return True

    def _climbed(self, colours: NDArray[np.int64]) -> tuple[Float, Float, Float]:
        """Values, bars and the largest scales [q, c, blocks] of `colours`, from all steps."""
        noise, _ = self._noise_of(colours)
        best: tuple[Float, Float, Float] | None = None
        known = np.zeros(noise.shape)
        for h in richardson.step_ranges(self.evaluator.x, richardson.LADDER_LEVELS):
            found = richardson.central(self.evaluator, self.structure, self.cts, colours, h)
            slopes, scales, rough, even = found
            value, bar = richardson.best_of_all_steps(slopes, scales, noise, h, self._u, rough)
            bar = np.where(richardson.bent(even), np.inf, bar)
            seen = np.max(np.where(np.isfinite(scales), scales, 0.0), axis=0)
            known = np.maximum(known, seen)
            one = value, bar, seen
            best = one if best is None else richardson.finer(best, one)
        assert best is not None
        return best[0], best[1], known

    def seen_at(self, row: int, element: int, h: Float) -> tuple[Float, Float]:
        """Plain central differences [s] of one element for one cotangent, at steps `h` [s].

        With the rounding error of each, [s]; both NaN where there is no difference.
        """
        (place,) = np.argwhere(self.structure.grid == element)[:1]
        colours = place[:1]
        at = (slice(None), row, 0, place[1])
        found = richardson.central(self.evaluator, self.structure, self.cts, colours, h)
        slopes, scales, rough, _ = found
        with np.errstate(all="ignore"):
            floor = richardson.rounding_bar(self._noise_of(colours)[0], scales, h, self._u) + rough
        return slopes[at], np.where(np.isfinite(slopes[at]), floor[at], np.nan)

    def settle(self, values: Float, which: Mask) -> None:
        """Replace the elements `which` [q, n] by certain `values` [q, n]."""
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
        every = np.arange(self.structure.colours)
        noise, terms = self._noise_of(every)
        estimate = Estimate(
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape),
            self.structure.by_element(terms),
            np.zeros(shape, dtype=bool),
            np.zeros(size, dtype=bool),
        )
        if size == 0:
            return estimate
        value, bar, scale = richardson.choose_three_steps(
            self.evaluator, self.structure, self.cts, noise, self._u, every
        )
        estimate.value = self.structure.by_element(value)
        estimate.bar = self.structure.by_element(bar)
        estimate.scale = self.structure.by_element(scale)
        return estimate

    def _noise_of(self, colours: NDArray[np.int64]) -> tuple[Float, NDArray[np.int64]]:
        """Noise [q, c, blocks] of `colours` and number of outputs that can move [c, blocks]."""
        out, terms, known = self._noise
        fresh = colours[~known[colours]]
        if fresh.size:
            out[:, fresh], terms[fresh] = self._measure_noise(fresh)
            known[fresh] = True
        return out[:, colours], terms[colours]

    @cached_property
    def _noise(self) -> tuple[Float, NDArray[np.int64], Mask]:
        """Storage for `_noise_of`, and which colours it holds."""
        shape = self.structure
        out = np.empty((len(self.cts), shape.colours, shape.blocks))
        terms = np.empty((shape.colours, shape.blocks), dtype=np.int64)
        return out, terms, np.zeros(shape.colours, dtype=bool)

    def _measure_noise(self, colours: NDArray[np.int64]) -> tuple[Float, NDArray[np.int64]]:
        shape = self.structure
        lines, rounding = self._lines, self._rounding
        if isinstance(lines, NoiseProbe):
            rounding, lines = lines.stairs, lines.lines
        measured = noise.measured(lines, shape, self.cts)
        modelled = noise.modelled(self.evaluator.base, self.cts, self._u, rounding)
        out = np.empty((len(self.cts), colours.size, shape.blocks))
        terms = np.empty((colours.size, shape.blocks), dtype=np.int64)

        def poison(rows: slice, copies: NDArray[Any]) -> None:
            flat = copies.reshape(len(copies), -1)
            for k, colour in enumerate(colours[rows]):
                flat[k, shape.grid[colour]] = np.nan

        finite = np.isfinite(self.evaluator.base)
        modelled = np.where(finite, modelled, 0.0)
        unit = noise.unit_of(modelled)
        squares = (modelled / unit)[:, None, :] ** 2
        for rows, values in self.evaluator.sweep(colours.size, poison):
            # NaN reaches the outputs that an element can move, saturated ones included. If forward
            # drops NaN (a comparison, an exception), every output is assumed to move.
            moves = np.isnan(values) & finite
            unreached = ~moves.any(axis=1) | ~np.isfinite(values).any(axis=1)
            moves[unreached] = finite
            terms[rows] = shape.by_block(moves.astype(np.int64))
            total = shape.by_block(moves[None] * squares)
            out[:, rows] = np.maximum(
                unit * np.sqrt(total), np.where(terms[rows] > 0, measured[:, None], 0.0)
            )
        return out, terms


def _faint(x: Array, cts: Float) -> Float:
    """Slopes [q, 1] below which forward's values underflow; 0 unless the primal is tiny.

    The square of 1e-200 is 0, and so are the squares of its neighbours.
    """
    tiny = float(np.finfo(x.dtype).tiny)
    largest = float(np.max(np.abs(x), initial=0.0))
    part = tiny / largest if 0 < largest < tiny**0.25 else 0.0
    return np.asarray(part * np.abs(cts).sum(axis=1, keepdims=True))
