"""One primal of a function that no spec describes, judged element by element.

Central differences are asked first. What they leave failed or open is settled by forward in 50
digits; where those cannot be had, by forward's values at every scale. Both find kinks, which are
judged by the slopes on both sides. Before a FAIL is said, two more questions are asked: whether
VJP itself, in 50 digits, would be right, and whether forward's values bear the gradient out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.arbiter import Arbiter
from gradcheck.judge.compare import KAPPA, Comparison, Interval, Rules, rules_of
from gradcheck.judge.conditioning import Allowing
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.found_kinks import SHARED, Kinks
from gradcheck.judge.gradient import Truth
from gradcheck.judge.value import because
from gradcheck.numerics.estimator import Differences, Estimate, NoiseProbe
from gradcheck.numerics.evaluate import REFUSALS, Point, flatten
from gradcheck.numerics.multiscale import DirectionThroughAll, KinkNeighbours, Scales
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

Array = NDArray[Any]
Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

CONFIRMED: Final = 4
"""Colours of failing elements, one of them confirmed, that settle the matter."""
EXAMINED: Final = 64
"""Colours that are examined at every scale, before the others are left unresolved."""
BLURRED: Final = 0.1
"""The error bar, as a part of the one-sided slopes, above which they are no slopes to judge by."""
FLAT: Final = 16.0
"""Units of the judged dtype's u of the largest Σ|ct·J| that any element may be off: 1 − y² of a
saturated tanh is so, whatever its own scale."""
UNSEEN: Final = 1024.0
"""Units of u of the largest Σ|ct·J| below which values alone say nothing of an element."""
AGREES: Final = 1e-3
"""How closely, as part of its largest value, a float32 forward must agree with itself in float64 to
be differenced there."""
ROUNDINGS: Final = 64.0
"""Units of u of its terms that a gradient may lose whose formula is right."""
LUMPY: Final = 4.0
"""Rounding of a right formula may be so many times what neighbours show of it."""
NOTHING: Final = 1e-30
"""What is left of terms that cancel in 50 digits, as a part of what rounding leaves of them."""
STEEPEST: Final = 2.0**20
"""What 1/x counts for at most: of smaller primals, rounding that is seen alone is allowed."""
STILL: Final = 16.0
"""Units of u of terms that cancel which may be left where forward does not move at all."""
ALIKE: Final = 2.0**8
"""How many times more of its digits a vjp may lose than forward, where its formula is right."""
RIGHT: Final = 1e-9
"""How well vjp in 50 digits must agree with the truth, for what is left to be its rounding."""
SAME: Final = 1e-11
"""One-sided slopes in 50 digits that differ by less, as a part of their terms, are one slope."""


class PrimalCheck:
    """One primal of a function that no spec describes: no oracle, but kinks can be found."""

    def __init__(
        self,
        point: Point,
        index: int,
        name: str,
        cotangents: Cotangents,
        around: NoiseProbe,
        conditioning: Allowing,
        least_scale: Float | None = None,
        subject: tuple[str, str] = ("", "forward"),
        arbiter: Arbiter | None = None,
        formula: Callable[[int], Float | None] = lambda _: None,
    ) -> None:
        """Difference `point` with respect to its primal `index`.

        `around` shows forward's values and noise. `least_scale` [q, 1] is what Σ|ct·J| counts for
        at least, where a derivative that is zero everywhere is no
        surprise. `subject` is what notes call the primal (empty: `name`) and the function.
        `arbiter` is forward in 50 digits, `formula(index)` what the VJP judged gives in 50 digits,
        [q, n]; None where it refuses.
        """
        self._index, self._arbiter, self._formula = index, arbiter, formula
        self._only_rounds = False
        self._examined: set[int] = set()
        self._by_values = 0
        self._read: dict[int, Scales] = {}
        self._subject = (subject[0] or name, subject[1])
        self._rules = conditioning.rules
        self._cts = cotangents.flat
        self._differences = Differences(point, index, self._cts, around)
        if least_scale is not None:
            estimate = self._differences.estimate
            estimate.scale = np.fmax(estimate.scale, least_scale)
        self._truth = Truth(
            name=name,
            shape=point.primals[index].shape,
            cotangents=cotangents.names,
            differences=self._differences,
            settle=self._settle,
            allowance=lambda _: self._widened(self._allowed(conditioning, least_scale)),
            resolution=blindness(self._rules, point.primals[index].dtype),
        )
        self._kinks = Kinks((len(self._cts), point.primals[index].size))

    @property
    def estimate(self) -> Estimate:
        """What is known of the gradient by now."""
        return self._differences.estimate

    def judge(self, got: Float) -> Finding:
        """The verdict on `got` [q, n], with what was found out about forward."""
        finding = self._truth.judge(got, self._rules)
        if finding.verdict is Verdict.PASS and not got.any() and self._arbiter is not None:
            finding = self._zeros(got, finding, self._arbiter)
        notes = []
        if finding.verdict is Verdict.FAIL and self._is_right_formula(got):
            self._only_rounds = True
            finding = self._truth.judge_again(got, self._rules)
            if finding.verdict is not Verdict.FAIL:
                notes.append("what vjp gives in 50 digits is right: the rest is its rounding")
        stepped: list[int] = []
        while finding.verdict is Verdict.FAIL and (more := self._borne_out(got)):
            stepped += more
            self.estimate.bar[:, more] = np.inf
            finding = self._truth.judge_again(got, self._rules)
        if stepped:
            notes.append(
                f"{self._subject[1]} is a staircase or a table at {self._where(stepped)}: the "
                "gradient is the slope of its envelope, as of a straight-through estimator, and "
                "not its own; check a forward without the steps"
            )
        kinks = self._kinks
        if kinks.elements and finding.verdict is not Verdict.FAIL:
            shared = self._compare_sums(got)
            if shared:
                finding = replace(finding, verdict=Verdict.FAIL, failed=1, reason=shared)
        notes += self._told(kinks)
        if finding.verdict is Verdict.INCONCLUSIVE and self._arbiter and self._arbiter.refusal:
            notes.append(f"50 digits cannot decide: {self._arbiter.refusal}")
        return replace(finding, reason="; ".join(filter(None, (finding.reason, *notes))))

    def _zeros(self, got: Float, passed: Finding, arbiter: Arbiter) -> Finding:
        """The verdict on zeros that differences allow: are they so, or do differences see nothing?

        Forward must not move along a direction through all elements: in 50 digits or, where those
        cannot be had, in its own values at every scale. Else each element is asked for as if it had
        failed.
        """
        if self.estimate.settled.all():
            return passed
        along = DirectionThroughAll(self._differences.evaluator)
        slopes = arbiter.along(self._index, along.direction)
        flat = along.is_flat() if slopes is None else not any(side.any() for side in slopes)
        finding = passed if flat else self._doubted(got, known=slopes is not None)
        if finding.verdict is Verdict.PASS and arbiter.differs:
            reason = "the gradient is 0, and forward's own values, which do not move, are no proof"
            return replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)
        return finding

    def _doubted(self, got: Float, *, known: bool) -> Finding:
        """The verdict on `got` [q, n], where nothing that differences certify is believed.

        `known`: forward can be had in 50 digits, and a few elements that fail there are enough.
        """
        found = self._truth.compared(got, self._rules, [])
        every, none = np.ones(got.shape, dtype=bool), np.zeros(got.shape, dtype=bool)
        self.estimate.screened = none[0]
        for kink in self._settle(replace(found, certified=none, failed=every if known else none)):
            self.estimate.bar[kink.which] = np.inf  # no slope between those two is the one
        return self._truth.judge_again(got, self._rules)

    def judge_wider(self, got: Float, wider: Slack) -> Finding:
        """The verdict on a `got` [q, n] that did not pass, by the bound that its user asks for."""
        self._rules = rules_of(self._rules.dtype, wider.ulp)
        return because(self.judge(got), wider)

    def _told(self, kinks: Kinks) -> list[str]:
        """What was found out about forward, a sentence each."""
        forward = self._subject[1]
        told = []
        if kinks.elements:
            where = self._where(kinks.elements)
            told.append(
                f"{forward} has an undeclared kink at {where}: judged by the slopes on both sides"
            )
        if kinks.lost:
            where = self._where(kinks.lost)
            told.append(f"{forward} jumps, or ends, at {where}: no slope to judge by")
        if kinks.vague:
            told.append(
                f"{forward} has a kink at or beside {self._where(kinks.vague)}: its values do not "
                "show on which side; move the primal away from it"
            )
        if kinks.stairs:
            told.append(
                f"{forward} is a staircase at {self._where(kinks.stairs)}: zero is its slope "
                "between two stairs, and not that of its envelope"
            )
        if kinks.split:
            told.append(
                f"{forward} has another slope at a finer scale at {self._where(kinks.split)}, and "
                "its values do not tell which one holds"
            )
        return told

    def _widened(self, cost: Float | None) -> Float | None:
        """What rounding may cost, [q, n], and the wider bound that was asked for."""
        if not self._rules.slack:
            return cost
        slack = self._rules.slack * 2 * self._rules.u * self.estimate.scale
        return slack if cost is None else cost + slack

    def _allowed(self, conditioning: Allowing, least_scale: Float | None) -> Float | None:
        """What rounding may cost, [q, n]; None if it cannot be told.

        Where nothing but rounding is left, a vjp may lose as many digits as forward does itself.
        """
        terms, reach = self._terms(), self._reach(least_scale)
        cost = conditioning.cost(self._index, reach, terms)
        if not self._only_rounds or self._arbiter is None:
            # Where no output moves at all, every digit of the gradient is rounding.
            still = self.estimate.settled & (self.estimate.scale == 0)
            return (
                cost if cost is None else cost + np.where(still, STILL * self._rules.u * terms, 0)
            )
        base, rounding = np.max(np.abs(self._differences.evaluator.base)), self._arbiter.rounding
        largest = np.max(np.abs(self._cts), axis=1, keepdims=True)
        least = ROUNDINGS * (self._rules.u * terms + largest * rounding)
        if cost is None:
            return np.asarray(least, dtype=np.float64)
        every = conditioning.cost(self._index, reach, np.full_like(terms, np.inf))
        noise = cost if every is None else every
        size = np.max(np.abs(self.estimate.value), axis=1, keepdims=True)
        lost = ALIKE * rounding / base if base else 1.0
        alike = lost * size if lost < 1 else np.inf  # of forward itself nothing else is left
        alike = alike + ALIKE * largest * self._rules.u * base
        allowed = np.fmax(np.fmax(cost, np.fmin(LUMPY * noise, alike)), least)
        return np.asarray(allowed, dtype=np.float64)

    def _terms(self) -> Float:
        """What terms may come to that cancel in the gradient, [q, n]: ct·f/x, and Σ|ct·J|."""
        evaluator, scale = self._differences.evaluator, self.estimate.scale
        x = np.abs(evaluator.x.reshape(-1)).astype(np.float64)
        largest = np.max(np.abs(self._cts), axis=1, initial=0.0, keepdims=True)
        steepest = np.max(scale, axis=1, initial=0.0, keepdims=True, where=np.isfinite(scale))
        with np.errstate(all="ignore"):
            inverse = np.fmin(1 / np.where(x > 0, x, 1.0), STEEPEST)
            value = np.max(np.abs(evaluator.base), initial=0.0) * inverse
            return np.asarray(np.fmax(largest * value, steepest), dtype=np.float64)

    def _is_right_formula(self, got: Float) -> bool:
        """Whether vjp would be right but for rounding, wherever the truth is certain."""
        again = self._truth.compared(got, self._rules, self._kinks.intervals())
        if (again.failed & (again.kinked | ~np.isfinite(got))).any():
            return False
        rows, estimate = self._formula(self._index), self.estimate
        known = estimate.settled
        if rows is None or rows.shape != known.shape or not known.any():
            return False
        with np.errstate(invalid="ignore"):
            off = np.abs(rows - estimate.value)
            size = np.maximum(np.abs(estimate.value), np.where(known, estimate.scale, 0.0))
        least = NOTHING * np.max(np.abs(got), initial=0.0, where=known)
        # What fails by differences alone is excused where it is right by those, too.
        blur = np.where(known, 0.0, KAPPA * estimate.bar)
        return bool(np.all((off <= RIGHT * size + least + blur)[known | again.failed]))

    def _reach(self, least_scale: Float | None) -> Float:
        """Slopes from afar, [q, n]; with a least scale, one tensor's largest counts for all."""
        reach = self._differences.reach
        if least_scale is None or not reach.size:
            return reach
        largest = np.max(reach, axis=1, keepdims=True)
        return np.asarray(np.fmax(reach, np.fmax(largest, least_scale)))

    def _settle(self, found: Comparison) -> list[Interval]:
        """Learn the truth of what the differences leave failed or open; return the kinks in it.

        First from forward in 50 digits, and where that cannot be had, from forward's values at
        every scale. Of what fails, until some is confirmed.
        """
        structure = self._differences.structure
        kinked = len(self._kinks.elements)
        pending = np.any(found.pending, axis=0)
        confirmed = 0
        for suspects in (found.failed, found.open):
            failing = suspects is found.failed
            if confirmed and not self._only_rounds:
                break  # it fails, whatever the open ones are
            wanted = np.any(suspects & found.pending, axis=0)
            for colour in np.flatnonzero(wanted[structure.grid].any(axis=1)).tolist():
                if failing and confirmed == CONFIRMED:
                    break
                cells = structure.grid[colour]
                mine = cells[wanted[cells]]
                if colour not in self._examined:
                    # Of many that fail a few are enough, if one of them goes on to.
                    some = mine[:EXAMINED]
                    if failing and some.size < mine.size:
                        self._examine(colour, some, found, failing)
                        if self._still_fails(some, found):
                            confirmed += 1
                            continue
                    self._examined.add(colour)
                    self._examine(colour, cells[pending[cells]], found, failing)
                confirmed += failing and self._still_fails(mine, found)
        if len(self._kinks.elements) > kinked:
            self._widen(found.got)
        return self._kinks.intervals()

    def _examine(
        self, colour: int, elements: NDArray[np.int64], found: Comparison, failing: bool
    ) -> None:
        """What `elements` of a colour really have, as far as that can be known."""
        if self._by_digits(colour, elements, found):
            return
        self._by_values += 1
        if self._by_values <= EXAMINED:
            self._by_scales(colour, elements, found.got)
        elif failing:
            self._differences.estimate.bar[:, elements] = np.inf

    def _widen(self, got: Float) -> None:
        """Widen the intervals of elements on a kink by the slopes beside it.

        Where several elements tie (a sort, a maximum), each slope is that of some order of them.
        """
        if self._beside is None:
            return
        cells = np.array(self._kinks.elements)
        for interval in self._kinks.intervals():
            outside = (got < interval.low) | (got > interval.high)
            for element in cells[outside[:, cells].any(axis=0)][:EXAMINED]:
                slopes = self._cts @ self._beside.slopes(np.array([element])).T  # [q, points]
                self._kinks.widen(int(element), slopes.min(axis=1), slopes.max(axis=1))

    @property
    def _beside(self) -> KinkNeighbours | None:
        """Points beside the kinks found; in float32 they are too near for a slope."""
        evaluator = self._differences.evaluator
        if evaluator.x.dtype != np.float64:
            return None
        return KinkNeighbours(evaluator, np.array(self._kinks.elements))

    def _compare_sums(self, got: Float) -> str:
        """What elements on kinks must share, if they do not share it.

        Along a direction through all of a block's elements on kinks the slope may be the same
        in every order of them: then it is what they must share, whatever the convention.
        """
        if self._beside is None:
            return ""
        structure, cells = self._differences.structure, np.array(self._kinks.elements)
        owner = np.empty(got.shape[1], dtype=np.int64)
        owner[structure.grid] = np.arange(structure.blocks)
        rise = self._cts[:, None, :] * self._beside.slopes(cells)  # [q, points, m]
        sums, size = structure.by_block(rise), structure.by_block(np.abs(rise)).max(axis=1)
        given = np.zeros((len(got), structure.blocks))
        np.add.at(given.T, owner[cells], got[:, cells].T)
        allowed = SHARED * size
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

    def _still_fails(self, elements: NDArray[np.int64], found: Comparison) -> bool:
        """Whether one of `elements` fails by what is known now."""
        again = self._truth.compared(found.got, self._rules, self._kinks.intervals())
        return bool(again.failed[:, elements].any())

    def _by_digits(self, colour: int, elements: NDArray[np.int64], found: Comparison) -> bool:
        """Settle `elements` of a colour by forward in 50 digits; False where that cannot be."""
        if self._arbiter is None:
            return False
        structure, kinks = self._differences.structure, self._kinks
        cells = structure.grid[colour]
        slopes = self._arbiter.slopes(self._index, cells)
        if slopes is None:
            return False
        behind, ahead = (self._cts * side for side in slopes)
        sums = [structure.by_block(side) for side in (behind, ahead)]
        size = structure.by_block(np.abs(behind) + np.abs(ahead))
        apart = structure.by_block(np.abs(ahead - behind))
        smooth = apart <= SAME * size
        low, high = (
            structure.by_block(end)
            for end in (np.minimum(behind, ahead), np.maximum(behind, ahead))
        )
        known = np.isfinite(sums[0]) & np.isfinite(sums[1])
        column = np.flatnonzero(np.isin(cells, elements))
        mine = cells[column]
        estimate = self._differences.estimate
        if not known[:, column].all():
            kinks.lose(mine[~known[:, column].all(axis=0)])
            estimate.bar[:, mine] = np.where(known[:, column], estimate.bar[:, mine], np.inf)
        values, which = np.zeros(found.got.shape), np.zeros(found.got.shape, dtype=bool)
        values[:, mine] = ((sums[0] + sums[1]) / 2)[:, column]
        which[:, mine] = (smooth & known)[:, column]
        self._differences.settle(values, which)
        # Products of rounded slopes, summed: what cancels in them is off by their rounding.
        rounding = np.zeros(found.got.shape)
        rounding[:, mine] = np.finfo(np.float64).eps * size[:, column]
        estimate.bar[which] = np.maximum(estimate.bar[which], rounding[which])
        bent = (~smooth & known).any(axis=0)[column]
        kinks.add(mine[bent], low[:, column[bent]], high[:, column[bent]])
        estimate.scale[:, cells] = size
        return True

    def _borne_out(self, got: Float) -> list[int]:
        """Elements that fail by 50 digits, and not by forward's own values: [k].

        A staircase has a slope of 0 on each step, and a table its own between two entries; from
        afar they have another one.
        """
        estimate, structure = self.estimate, self._differences.structure
        again = self._truth.compared(got, self._rules, self._kinks.intervals())
        failing = again.failed & estimate.settled & np.isfinite(got)
        found: list[int] = []
        wanted: Mask = np.asarray(failing.any(axis=0))
        for colour in np.flatnonzero(wanted[structure.grid].any(axis=1))[:EXAMINED]:
            scales = self._scales(int(colour))
            cells = scales.cells
            column = np.flatnonzero(failing[:, cells].any(axis=0))
            read = scales.reading(self._cts, got[:, cells], column)
            bar = KAPPA * read.bar
            with np.errstate(invalid="ignore"):
                fits = ~(np.abs(got[:, cells] - read.value) > bar) | read.split
                other = np.abs(estimate.value[:, cells] - read.value) > bar
            flat = scales.stairs & (estimate.value[:, cells] == 0)
            fits &= other | flat | read.split
            found += [int(e) for e in cells[(failing[:, cells] & fits).any(axis=0)]]
        return found

    def _by_scales(self, colour: int, elements: NDArray[np.int64], got: Float) -> None:
        """Read slopes and kinks of `elements` from forward's values at every scale."""
        scales, kinks = self._scales(colour), self._kinks
        estimate = self._differences.estimate
        column = np.flatnonzero(np.isin(scales.cells, elements))
        cells = scales.cells[column]
        sides = scales.sides(self._cts)
        read = scales.reading(self._cts, got[:, scales.cells], column)
        blur = KAPPA * sides.bar[:, column]
        low, high = sides.low[:, column], sides.high[:, column]
        steepest = np.maximum(np.abs(low), np.abs(high))
        kinked, jumps = sides.kinked[column], sides.jumps[column]
        blurred = ~np.all(blur <= BLURRED * steepest, axis=0)
        ends = jumps | (kinked & blurred)
        kinks.lose(cells[ends])
        on = kinked & ~ends
        kinks.add(cells[on], (low - blur)[:, on], (high + blur)[:, on])
        with np.errstate(invalid="ignore"):
            unclear = (read.step[:, column] >= sides.vague[column]).any(axis=0) & ~kinked
        kinks.vague += [int(e) for e in cells[unclear]]
        split = read.split[:, column].any(axis=0) & ~kinked & ~unclear
        kinks.split += [int(e) for e in cells[split]]
        value, bar = read.value[:, column], read.bar[:, column]
        slope, its_side = (part[:, column] for part in scales.better_side(self._cts))
        with np.errstate(invalid="ignore"):
            sharper = (its_side < bar) & (np.abs(slope - value) <= KAPPA * bar) & ~kinked
        value, bar = np.where(sharper, slope, value), np.where(sharper, its_side, bar)
        old, its_bar, given = estimate.value[:, cells], estimate.bar[:, cells], got[:, cells]
        with np.errstate(invalid="ignore"):
            # What all scales say replaces what contradicts it, and what is known less well.
            agree = np.abs(value - old) <= KAPPA * (bar + its_bar)
            # And what alone would accuse a gradient that all scales allow.
            accused = np.abs(given - old) > KAPPA * its_bar
            allowed = np.abs(given - value) <= KAPPA * bar
        new = ~agree | (bar < its_bar) | read.split[:, column] | (accused & allowed)
        # Between two stairs a slope of 0 is right, whatever that of the envelope is.
        between = scales.narrow[column] & (given == 0).all(axis=0)
        kinks.stairs += [int(e) for e in cells[between]]
        lost = ends | unclear | between
        estimate.value[:, cells] = np.where(new & np.isfinite(value), value, old)
        estimate.bar[:, cells] = np.where(lost, np.inf, np.where(new, bar, its_bar))

    def _scales(self, colour: int) -> Scales:
        """Forward at every scale around the elements of `colour`."""
        if colour not in self._read:
            evaluator, structure = self._differences.evaluator, self._differences.structure
            self._read[colour] = Scales(evaluator, structure, colour)
        return self._read[colour]

    def _where(self, elements: list[int]) -> str:
        index = np.unravel_index(elements[0], self._truth.shape)
        shown = f"[{', '.join(str(int(i)) for i in index)}]" if index else ""
        value = self._differences.evaluator.x.reshape(-1)[elements[0]]
        more = f" and at {len(elements) - 1} more" if len(elements) > 1 else ""
        return f"{self._subject[0]}{shown} = {value:g}{more}"


def blindness(rules: Rules, dtype: np.dtype[Any]) -> float:
    """The part of the largest Σ|ct·J| that forward's values, in `dtype`, cannot show."""
    return max(FLAT * (rules.accumulate or rules.u), UNSEEN * float(np.finfo(dtype).eps) / 2)


def promoted(point: Point, outputs: Sequence[Array]) -> Point:
    """The same point in float64, where a float32 forward computes in its arguments' dtype."""
    if all(p.dtype != np.float32 for p in point.primals):
        return point
    wide = tuple(p.astype(np.float64) if p.dtype.kind == "f" else p for p in point.primals)
    try:
        with np.errstate(all="ignore"):
            values = point.forward(*(p.copy() for p in wide))
    except REFUSALS:  # it insists on float32, and says so in its own way
        return point
    if any(v.dtype != np.float64 for v in values):
        return point
    a, b = flatten(outputs), flatten(values)
    if a.shape != b.shape:
        return point
    size = float(np.max(np.abs(b), initial=0.0))
    ok = bool(np.all(np.abs(a - b) <= AGREES * size))
    return replace(point, primals=wide) if ok else point
