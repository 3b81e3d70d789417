"""Kinks that no spec declares, and slopes, of the elements that differences leave failed or open.

Forward in 50 digits gives the slopes on both sides of the point. Where that is impossible, its
values at every scale do, and the finest scale decides. An element without a single slope is on a
kink: any value between the slopes on both sides is allowed for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import ERROR_BAR_FACTOR, Comparison, Interval
from gradcheck.judge.high_precision import HighPrecisionForward
from gradcheck.numerics.arrays import Float, Mask
from gradcheck.numerics.estimator import Differences
from gradcheck.numerics.kinks_and_slopes import KinkNeighbours, Scales

Elements = NDArray[np.int64]

ENOUGH_FAILING_COLOURS: Final = 4
"""Colours with a confirmed failure after which no others are examined."""
MAX_EXAMINED: Final = 64
"""Colours, or elements, that are examined at every scale; the others stay unresolved."""
MAX_SLOPE_BLUR: Final = 0.1
"""Error bar, relative to the one-sided slopes, above which they are too vague to judge by."""
SAME_SLOPE: Final = 1e-11
"""One-sided slopes in 50 digits that differ by less, relative to their terms, are one slope."""
SLOPE_PRECISION: Final = 1e-3
"""Error of the slopes beside a kink, relative to their terms."""


class OpenElements:
    """What is found out about one primal's elements, in the estimate of `differences`.

    Elements that no single slope describes are listed here: intervals for those on a kink; `lost`
    have no slope at all, `vague` may lie beside a kink, `split` have a different slope at each of
    two scales, `stairs` have stairs on both sides and a gradient of zero. `lenient` says that only
    rounding is judged: then every pending element is settled, whatever has failed.
    """

    def __init__(
        self,
        differences: Differences,
        index: int,
        cotangents: Float,
        forward: HighPrecisionForward | None,
        compared: Callable[[Float], Comparison],
    ) -> None:
        """Settle nothing yet; `compared(got)` is a gradient [q, n] against what is known by now."""
        self._differences, self._index, self._cts = differences, index, cotangents
        self._forward, self._compared = forward, compared
        shape = differences.estimate.value.shape
        self._which = np.zeros(shape, dtype=bool)
        self._low, self._high = np.zeros(shape), np.zeros(shape)
        self._examined: set[int] = set()
        self._examined_by_scales = 0
        self._scales: dict[int, Scales] = {}
        self.lost: list[int] = []
        self.vague: list[int] = []
        self.split: list[int] = []
        self.stairs: list[int] = []
        self.lenient = False

    @property
    def kinked(self) -> list[int]:
        """The elements on a kink."""
        return _listed(np.flatnonzero(self._which.any(axis=0)))

    def intervals(self) -> list[Interval]:
        """The values allowed on kinks, for a comparison."""
        return [Interval(self._which, self._low, self._high)] if self._which.any() else []

    def settle(self, found: Comparison) -> list[Interval]:
        """Find out about the failed elements, and without a confirmed failure about the open ones.

        Returns the kinks among them.
        """
        structure = self._differences.structure
        kinks_before = len(self.kinked)
        pending = np.any(found.pending, axis=0)
        confirmed = 0
        for suspects in (found.failed, found.open):
            failing = suspects is found.failed
            if confirmed and not self.lenient:
                break  # the gradient fails, whatever the open elements are
            wanted = np.any(suspects & found.pending, axis=0)
            for colour in np.flatnonzero(wanted[structure.grid].any(axis=1)).tolist():
                if failing and confirmed == ENOUGH_FAILING_COLOURS:
                    break
                cells = structure.grid[colour]
                mine = cells[wanted[cells]]
                if colour not in self._examined:
                    # Of many failing elements a few are enough, if one of them still fails.
                    some = mine[:MAX_EXAMINED]
                    if failing and some.size < mine.size:
                        self._examine(colour, some, found, failing)
                        if self._still_fails(some, found):
                            confirmed += 1
                            continue
                    self._examined.add(colour)
                    self._examine(colour, cells[pending[cells]], found, failing)
                confirmed += failing and self._still_fails(mine, found)
        if len(self.kinked) > kinks_before:
            self._widen_intervals(found.got)
        return self.intervals()

    def _examine(self, colour: int, elements: Elements, found: Comparison, failing: bool) -> None:
        if self._settle_by_digits(colour, elements, found):
            return
        self._examined_by_scales += 1
        if self._examined_by_scales <= MAX_EXAMINED:
            self._settle_by_scales(colour, elements, found.got)
        elif failing:
            self._differences.estimate.bar[:, elements] = np.inf

    def _still_fails(self, elements: Elements, found: Comparison) -> bool:
        return bool(self._compared(found.got).failed[:, elements].any())

    # ── by forward in 50 digits ──────────────────────────────────────────────────────────────

    def _settle_by_digits(self, colour: int, elements: Elements, found: Comparison) -> bool:
        """Settle `elements` of a colour; False where forward refuses 50 digits."""
        if self._forward is None:
            return False
        structure = self._differences.structure
        cells = structure.grid[colour]
        slopes = self._forward.slopes(self._index, cells)
        if slopes is None:
            return False
        behind, ahead = (self._cts * side for side in slopes)
        sums = [structure.by_block(side) for side in (behind, ahead)]
        size = structure.by_block(np.abs(behind) + np.abs(ahead))
        apart = structure.by_block(np.abs(ahead - behind))
        smooth = apart <= SAME_SLOPE * size
        low, high = (
            structure.by_block(end)
            for end in (np.minimum(behind, ahead), np.maximum(behind, ahead))
        )
        known = np.isfinite(sums[0]) & np.isfinite(sums[1])
        column = np.flatnonzero(np.isin(cells, elements))
        mine = cells[column]
        estimate = self._differences.estimate
        if not known[:, column].all():
            self.lost += _listed(mine[~known[:, column].all(axis=0)])
            estimate.bar[:, mine] = np.where(known[:, column], estimate.bar[:, mine], np.inf)
        values, which = np.zeros(found.got.shape), np.zeros(found.got.shape, dtype=bool)
        values[:, mine] = ((sums[0] + sums[1]) / 2)[:, column]
        which[:, mine] = (smooth & known)[:, column]
        self._differences.settle(values, which)
        # A sum of products of rounded slopes that cancel is off by their rounding.
        rounding = np.zeros(found.got.shape)
        rounding[:, mine] = np.finfo(np.float64).eps * size[:, column]
        estimate.bar[which] = np.maximum(estimate.bar[which], rounding[which])
        bent = (~smooth & known).any(axis=0)[column]
        self._add_kinks(mine[bent], low[:, column[bent]], high[:, column[bent]])
        estimate.scale[:, cells] = size
        return True

    # ── by forward's values at every scale ───────────────────────────────────────────────────

    def _settle_by_scales(self, colour: int, elements: Elements, got: Float) -> None:
        scales, estimate = self._scales_of(colour), self._differences.estimate
        column = np.flatnonzero(np.isin(scales.cells, elements))
        cells = scales.cells[column]
        sides = scales.sides(self._cts)
        read = scales.reading(self._cts, got[:, scales.cells], column)
        blur = ERROR_BAR_FACTOR * sides.bar[:, column]
        low, high = sides.low[:, column], sides.high[:, column]
        steepest = np.maximum(np.abs(low), np.abs(high))
        kinked, jumps = sides.kinked[column], sides.jumps[column]
        blurred = ~np.all(blur <= MAX_SLOPE_BLUR * steepest, axis=0)
        ends = jumps | (kinked & blurred)
        self.lost += _listed(cells[ends])
        on = kinked & ~ends
        self._add_kinks(cells[on], (low - blur)[:, on], (high + blur)[:, on])
        with np.errstate(invalid="ignore"):
            unclear = (read.step[:, column] >= sides.vague[column]).any(axis=0) & ~kinked
        self.vague += _listed(cells[unclear])
        self.split += _listed(cells[read.split[:, column].any(axis=0) & ~kinked & ~unclear])
        value, bar = read.value[:, column], read.bar[:, column]
        slope, its_side = (part[:, column] for part in scales.better_side(self._cts))
        with np.errstate(invalid="ignore"):
            near = np.abs(slope - value) <= ERROR_BAR_FACTOR * bar
            sharper = (its_side < bar) & near & ~kinked
        value, bar = np.where(sharper, slope, value), np.where(sharper, its_side, bar)
        old, its_bar, given = estimate.value[:, cells], estimate.bar[:, cells], got[:, cells]
        with np.errstate(invalid="ignore"):
            # All scales together replace an estimate that they contradict or know better,
            agree = np.abs(value - old) <= ERROR_BAR_FACTOR * (bar + its_bar)
            # and one that alone would fail a gradient which all scales allow.
            accused = np.abs(given - old) > ERROR_BAR_FACTOR * its_bar
            allowed = np.abs(given - value) <= ERROR_BAR_FACTOR * bar
        new = ~agree | (bar < its_bar) | read.split[:, column] | (accused & allowed)
        # Between two stairs a slope of 0 is right, whatever the envelope's slope is.
        between = scales.narrow[column] & (given == 0).all(axis=0)
        self.stairs += _listed(cells[between])
        unknown = ends | unclear | between
        estimate.value[:, cells] = np.where(new & np.isfinite(value), value, old)
        estimate.bar[:, cells] = np.where(unknown, np.inf, np.where(new, bar, its_bar))

    def supported_by_values(self, got: Float) -> list[int]:
        """Elements of `got` that fail by 50 digits, and not by forward's own values.

        A staircase has a slope of 0 on each step, and a table its own slope between two entries;
        from afar both have another one.
        """
        estimate, structure = self._differences.estimate, self._differences.structure
        failing = self._compared(got).failed & estimate.settled & np.isfinite(got)
        found: list[int] = []
        wanted: Mask = np.asarray(failing.any(axis=0))
        for colour in np.flatnonzero(wanted[structure.grid].any(axis=1))[:MAX_EXAMINED]:
            scales = self._scales_of(int(colour))
            cells = scales.cells
            column = np.flatnonzero(failing[:, cells].any(axis=0))
            read = scales.reading(self._cts, got[:, cells], column)
            bar = ERROR_BAR_FACTOR * read.bar
            with np.errstate(invalid="ignore"):
                fits = ~(np.abs(got[:, cells] - read.value) > bar) | read.split
                other = np.abs(estimate.value[:, cells] - read.value) > bar
            flat = scales.stairs & (estimate.value[:, cells] == 0)
            fits &= other | flat | read.split
            found += _listed(cells[(failing[:, cells] & fits).any(axis=0)])
        return found

    def _scales_of(self, colour: int) -> Scales:
        if colour not in self._scales:
            evaluator, structure = self._differences.evaluator, self._differences.structure
            self._scales[colour] = Scales(evaluator, structure, colour)
        return self._scales[colour]

    # ── kinks ────────────────────────────────────────────────────────────────────────────────

    def _add_kinks(self, elements: Elements, low: Float, high: Float) -> None:
        self._which[:, elements] = True
        self._low[:, elements], self._high[:, elements] = low, high

    def _widen_intervals(self, got: Float) -> None:
        """Widen the intervals of elements on a kink by the slopes beside it.

        Where several elements tie (a sort, a maximum), each slope belongs to some order of them.
        """
        beside = self._beside
        if beside is None:
            return
        cells = np.array(self.kinked)
        for interval in self.intervals():
            outside = (got < interval.low) | (got > interval.high)
            for element in cells[outside[:, cells].any(axis=0)][:MAX_EXAMINED].tolist():
                slopes = self._cts @ beside.slopes(np.array([element])).T  # [q, points]
                low, high = slopes.min(axis=1), slopes.max(axis=1)
                low, high = (
                    low - SLOPE_PRECISION * np.abs(low),
                    high + SLOPE_PRECISION * np.abs(high),
                )
                self._low[:, element] = np.minimum(self._low[:, element], low)
                self._high[:, element] = np.maximum(self._high[:, element], high)

    @property
    def _beside(self) -> KinkNeighbours | None:
        """Points beside the kinks found; in float32 they are too near for a slope."""
        evaluator = self._differences.evaluator
        return (
            KinkNeighbours(evaluator, np.array(self.kinked))
            if evaluator.x.dtype == np.float64
            else None
        )

    def wrong_sum(self, got: Float) -> str:
        """How `got` is wrong in the sum over the elements of a block that are on kinks; or "".

        Along a direction through all of them the slope may be the same in every order of them:
        then their gradients must sum to it, whatever the convention.
        """
        beside = self._beside
        if beside is None:
            return ""
        structure, cells = self._differences.structure, np.array(self.kinked)
        owner = np.empty(got.shape[1], dtype=np.int64)
        owner[structure.grid] = np.arange(structure.blocks)
        rise = self._cts[:, None, :] * beside.slopes(cells)  # [q, points, m]
        sums, size = structure.by_block(rise), structure.by_block(np.abs(rise)).max(axis=1)
        given = np.zeros((len(got), structure.blocks))
        np.add.at(given.T, owner[cells], got[:, cells].T)
        allowed = SLOPE_PRECISION * size
        apart = sums.max(axis=1) - sums.min(axis=1)
        wrong = (apart <= allowed) & ~(np.abs(given - sums[:, 0]) <= 2 * allowed)
        wrong[:, np.bincount(owner[cells], minlength=structure.blocks) == 0] = False
        if not wrong.any():
            return ""
        q, b = (int(k) for k in np.argwhere(wrong)[0])
        return (
            f"the {int((owner[cells] == b).sum())} elements on a kink share {given[q, b]:.6g}: "
            f"whatever the convention, it must be {sums[q, 0, b]:.6g}"
        )

    def notes(self, forward: str, where: Callable[[list[int]], str]) -> list[str]:
        """Sentences about kinks, jumps and stairs; `where` names the places of elements."""
        sentences = (
            (self.kinked, "has an undeclared kink at {}: judged by the slopes on both sides"),
            (self.lost, "jumps, or ends, at {}: no slope to judge by"),
            (
                self.vague,
                "has a kink at or beside {}: its values do not show on which side; move the primal "
                "away from it",
            ),
            (
                self.stairs,
                "is a staircase at {}: zero is its slope between two stairs, and not that of its "
                "envelope",
            ),
            (
                self.split,
                "has another slope at a finer scale at {}, and its values do not tell which one "
                "holds",
            ),
        )
        return [f"{forward} {text.format(where(found))}" for found, text in sentences if found]


def _listed(elements: Elements) -> list[int]:
    return [int(e) for e in elements]
