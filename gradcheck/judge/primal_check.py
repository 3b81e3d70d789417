"""The check of one primal, element by element, for a function without a spec.

Central differences come first. Elements that they leave failed or open are settled by forward in 50
digits or, where that is impossible, by forward's values at every scale (`judge.open_elements`). Two
more tests precede a FAIL: whether vjp itself is right in 50 digits, and whether forward's own
values support the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gradcheck.judge.compare import (
    ERROR_BAR_FACTOR,
    Comparison,
    Tolerance,
    by_wider_bound,
    tolerance_of,
)
from gradcheck.judge.conditioning import RoundingCost
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.gradient_truth import GradientTruth
from gradcheck.judge.high_precision import HighPrecisionForward
from gradcheck.judge.open_elements import OpenElements
from gradcheck.numerics.arrays import Array, Float
from gradcheck.numerics.estimator import Differences, Estimate, NoiseProbe
from gradcheck.numerics.evaluate import REFUSALS, Function, Point, flatten
from gradcheck.numerics.kinks_and_slopes import DirectionThroughAll
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

FLAT_ROUNDINGS: Final = 16.0
"""Units of u of the largest Σ|ct·J| that any element may be off, as 1 − y² of a saturated tanh."""
UNSEEN_ROUNDINGS: Final = 1024.0
"""Units of u of the largest Σ|ct·J| below which values alone show nothing of an element."""
PROMOTION_AGREEMENT: Final = 1e-3
"""How closely, relative to its largest value, a float32 forward must agree with itself in float64
to be differenced there."""
FORMULA_ROUNDINGS: Final = 64.0
"""Units of u of its terms that a gradient with a right formula may lose."""
NEIGHBOUR_FACTOR: Final = 4.0
"""Rounding of a right formula over what neighbouring points show of it, at most."""
CANCELLED_SHARE: Final = 1e-30
"""What is left of terms that cancel in 50 digits, relative to what rounding leaves of them."""
MAX_INVERSE: Final = 2.0**20
"""1/x counts for this at most: for smaller primals, only observed rounding is allowed."""
STILL_ROUNDINGS: Final = 16.0
"""Units of u of terms that cancel which may be left where forward does not move at all."""
MAX_LOSS_RATIO: Final = 2.0**8
"""Digits that a vjp with a right formula may lose, as a multiple of forward's loss."""
FORMULA_AGREEMENT: Final = 1e-9
"""How well vjp in 50 digits must agree with the truth for its formula to be right."""


class PrimalCheck:
    """One primal of a function without a spec: no oracle, but kinks are found."""

    def __init__(
        self,
        point: Point,
        index: int,
        name: str,
        cotangents: Cotangents,
        around: NoiseProbe,
        rounding_cost: RoundingCost,
        least_scale: Float | None = None,
        subject: tuple[str, str] = ("", "forward"),
        exact_forward: HighPrecisionForward | None = None,
        exact_vjp: Callable[[int], Float | None] = lambda _: None,
    ) -> None:
        """Difference `point` with respect to its primal `index`.

        `around` gives forward's values and noise. `least_scale` [q, 1] is a lower bound of
        Σ|ct·J|, for functions whose derivative may be zero everywhere. `subject` is how notes call
        the primal (empty: `name`) and the function. `exact_vjp(index)` is the gradient [q, n] of
        the VJP judged in 50 digits; None where it refuses.
        """
        self._index, self._forward, self._exact_vjp = index, exact_forward, exact_vjp
        self._subject = (subject[0] or name, subject[1])
        self._tolerance = rounding_cost.tolerance
        self._cts = cotangents.flat
        self._differences = Differences(point, index, self._cts, around)
        if least_scale is not None:
            estimate = self._differences.estimate
            estimate.scale = np.fmax(estimate.scale, least_scale)
        self._open = OpenElements(
            self._differences, index, self._cts, exact_forward, self._compared
        )
        self._truth = GradientTruth(
            name=name,
            shape=point.primals[index].shape,
            cotangents=cotangents.names,
            differences=self._differences,
            settle=self._open.settle,
            allowance=lambda _: self._widened(self._allowance(rounding_cost, least_scale)),
            resolution=value_resolution(self._tolerance, point.primals[index].dtype),
        )

    @property
    def estimate(self) -> Estimate:
        """What is known of the gradient by now."""
        return self._differences.estimate

    def judge(self, got: Float) -> Finding:
        """The verdict on `got` [q, n], with notes on what was found out about forward."""
        finding = self._truth.judge(got, self._tolerance)
        if finding.verdict is Verdict.PASS and not got.any() and self._forward is not None:
            finding = self._judge_zeros(got, finding, self._forward)
        notes, open_elements = [], self._open
        if finding.verdict is Verdict.FAIL and self._is_right_formula(got):
            open_elements.lenient = True
            finding = self._truth.judge_again(got, self._tolerance)
            if finding.verdict is not Verdict.FAIL:
                notes.append("what vjp gives in 50 digits is right: the rest is its rounding")
        stepped: list[int] = []
        while finding.verdict is Verdict.FAIL and (more := open_elements.supported_by_values(got)):
            stepped += more
            self.estimate.bar[:, more] = np.inf
            finding = self._truth.judge_again(got, self._tolerance)
        if stepped:
            notes.append(
                f"{self._subject[1]} is a staircase or a table at {self._where(stepped)}: the "
                "gradient is the slope of its envelope, as of a straight-through estimator, and "
                "not its own; check a forward without the steps"
            )
        if open_elements.kinked and finding.verdict is not Verdict.FAIL:
            wrong = open_elements.wrong_sum(got)
            if wrong:
                finding = replace(finding, verdict=Verdict.FAIL, failed=1, reason=wrong)
        notes += open_elements.notes(self._subject[1], self._where)
        if finding.verdict is Verdict.INCONCLUSIVE and self._forward and self._forward.refusal:
            notes.append(f"50 digits cannot decide: {self._forward.refusal}")
        return replace(finding, reason="; ".join(filter(None, (finding.reason, *notes))))

    def judge_wider(self, got: Float, wider: Slack) -> Finding:
        """The verdict on a `got` [q, n] that did not pass, by the bound that its user asks for."""
        self._tolerance = tolerance_of(self._tolerance.dtype, wider.ulp)
        return by_wider_bound(self.judge(got), wider)

    def _judge_zeros(self, got: Float, passed: Finding, forward: HighPrecisionForward) -> Finding:
        """The verdict on zeros that differences allow: perhaps the differences see nothing.

        Forward must not move along a direction through all elements: in 50 digits or, where it
        refuses them, in its own values at every scale. Otherwise each element is settled as if it
        had failed.
        """
        if self.estimate.settled.all():
            return passed
        along = DirectionThroughAll(self._differences.evaluator)
        slopes = forward.along(self._index, along.direction)
        flat = along.is_flat() if slopes is None else not any(side.any() for side in slopes)
        finding = passed if flat else self._judge_doubted(got, known=slopes is not None)
        if finding.verdict is Verdict.PASS and forward.differs:
            reason = "the gradient is 0, and constant values of forward do not prove it"
            return replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)
        return finding

    def _judge_doubted(self, got: Float, *, known: bool) -> Finding:
        """The verdict on `got` [q, n] with nothing certified by differences alone.

        `known`: forward can be evaluated in 50 digits, so a few elements that fail are enough.
        """
        found = self._truth.compared(got, self._tolerance, [])
        every, none = np.ones(got.shape, dtype=bool), np.zeros(got.shape, dtype=bool)
        self.estimate.screened = none[0]
        doubted = replace(found, certified=none, failed=every if known else none)
        for kink in self._open.settle(doubted):
            self.estimate.bar[kink.which] = np.inf  # neither of the two slopes is the slope
        return self._truth.judge_again(got, self._tolerance)

    def _compared(self, got: Float) -> Comparison:
        return self._truth.compared(got, self._tolerance, self._open.intervals())

    def _is_right_formula(self, got: Float) -> bool:
        """Whether vjp would be right but for rounding, wherever the truth is certain."""
        again = self._compared(got)
        if (again.failed & (again.kinked | ~np.isfinite(got))).any():
            return False
        rows, estimate = self._exact_vjp(self._index), self.estimate
        known = estimate.settled
        if rows is None or rows.shape != known.shape or not known.any():
            return False
        with np.errstate(invalid="ignore"):
            off = np.abs(rows - estimate.value)
            size = np.maximum(np.abs(estimate.value), np.where(known, estimate.scale, 0.0))
        least = CANCELLED_SHARE * np.max(np.abs(got), initial=0.0, where=known)
        # A failure by differences alone is excused where vjp in 50 digits passes by those too.
        blur = np.where(known, 0.0, ERROR_BAR_FACTOR * estimate.bar)
        return bool(np.all((off <= FORMULA_AGREEMENT * size + least + blur)[known | again.failed]))

    # ── what rounding may cost ───────────────────────────────────────────────────────────────

    def _widened(self, cost: Float | None) -> Float | None:
        """The cost of rounding, [q, n], plus the wider bound that was asked for."""
        if not self._tolerance.extra_ulp:
            return cost
        extra = self._tolerance.extra_ulp * 2 * self._tolerance.u * self.estimate.scale
        return extra if cost is None else cost + extra

    def _allowance(self, rounding_cost: RoundingCost, least_scale: Float | None) -> Float | None:
        """The cost of rounding, [q, n]; None if it is unknown.

        Where nothing but rounding is left, a vjp may lose as many digits as forward does.
        """
        terms, reach, u = self._terms(), self._reach(least_scale), self._tolerance.u
        cost = rounding_cost.cost(self._index, reach, terms)
        if not self._open.lenient or self._forward is None:
            # Where no output moves at all, every digit of the gradient is rounding.
            still = self.estimate.settled & (self.estimate.scale == 0)
            return cost if cost is None else cost + np.where(still, STILL_ROUNDINGS * u * terms, 0)
        base, rounding = np.max(np.abs(self._differences.evaluator.base)), self._forward.rounding
        largest = np.max(np.abs(self._cts), axis=1, keepdims=True)
        least = FORMULA_ROUNDINGS * (u * terms + largest * rounding)
        if cost is None:
            return np.asarray(least, dtype=np.float64)
        every = rounding_cost.cost(self._index, reach, np.full_like(terms, np.inf))
        noise = cost if every is None else every
        size = np.max(np.abs(self.estimate.value), axis=1, keepdims=True)
        lost = MAX_LOSS_RATIO * rounding / base if base else 1.0
        alike = lost * size if lost < 1 else np.inf  # forward itself has lost all its digits
        alike = alike + MAX_LOSS_RATIO * largest * u * base
        allowed = np.fmax(np.fmax(cost, np.fmin(NEIGHBOUR_FACTOR * noise, alike)), least)
        return np.asarray(allowed, dtype=np.float64)

    def _terms(self) -> Float:
        """The size of terms that may cancel in the gradient, [q, n]: ct·f/x, and Σ|ct·J|."""
        evaluator, scale = self._differences.evaluator, self.estimate.scale
        x = np.abs(evaluator.x.reshape(-1)).astype(np.float64)
        largest = np.max(np.abs(self._cts), axis=1, initial=0.0, keepdims=True)
        steepest = np.max(scale, axis=1, initial=0.0, keepdims=True, where=np.isfinite(scale))
        with np.errstate(all="ignore"):
            inverse = np.fmin(1 / np.where(x > 0, x, 1.0), MAX_INVERSE)
            value = np.max(np.abs(evaluator.base), initial=0.0) * inverse
            return np.asarray(np.fmax(largest * value, steepest), dtype=np.float64)

    def _reach(self, least_scale: Float | None) -> Float:
        """Slopes from afar, [q, n]; with a least scale, the tensor's largest one everywhere."""
        reach = self._differences.reach
        if least_scale is None or not reach.size:
            return reach
        largest = np.max(reach, axis=1, keepdims=True)
        return np.asarray(np.fmax(reach, np.fmax(largest, least_scale)))

    def _where(self, elements: list[int]) -> str:
        index = np.unravel_index(elements[0], self._truth.shape)
        shown = f"[{', '.join(str(int(i)) for i in index)}]" if index else ""
        value = self._differences.evaluator.x.reshape(-1)[elements[0]]
        more = f" and at {len(elements) - 1} more" if len(elements) > 1 else ""
        return f"{self._subject[0]}{shown} = {value:g}{more}"


def value_resolution(tolerance: Tolerance, dtype: np.dtype[Any]) -> float:
    """The part of the largest Σ|ct·J| that forward's values, in `dtype`, cannot show."""
    u = tolerance.accumulate or tolerance.u
    return max(FLAT_ROUNDINGS * u, UNSEEN_ROUNDINGS * float(np.finfo(dtype).eps) / 2)


def promote_to_float64(point: Point, outputs: Sequence[Array]) -> Point:
    """The same point in float64, where a float32 forward computes in its arguments' dtype."""
    if all(p.dtype != np.float32 for p in point.primals):
        return point
    wide = in_float64(point.primals)
    with np.errstate(all="ignore"):
        values = values_in_float64(point.forward, wide, outputs)
    return point if values is None else replace(point, primals=wide)


def in_float64(primals: Sequence[Array]) -> tuple[Array, ...]:
    """Floating primals in float64; others as they are."""
    return tuple([p.astype(np.float64) if p.dtype.kind == "f" else p for p in primals])


def values_in_float64(
    forward: Function, primals: Sequence[Array], outputs: Sequence[Array]
) -> tuple[Array, ...] | None:
    """Forward's values at primals `in_float64`; None unless they are its `outputs`, but finer."""
    try:
        values = forward(*[p.copy() for p in primals])
    except REFUSALS:  # it insists on float32
        return None
    if [v.shape for v in values] != [o.shape for o in outputs]:
        return None
    if any(v.dtype != np.float64 for v in values):
        return None
    a, b = flatten(outputs), flatten(values)
    ok = np.abs(a - b).max(initial=0.0) <= PROMOTION_AGREEMENT * np.abs(b).max(initial=0.0)
    return values if ok else None
