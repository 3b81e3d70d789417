"""One primal of a function that no spec describes: values alone, but kinks can be found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference import kinks
from gradcheck.difference.evaluate import REFUSALS, Point, flatten
from gradcheck.difference.noise import per_output
from gradcheck.difference.truth import Around, Differences, Estimate
from gradcheck.finding import Finding
from gradcheck.judge.compare import KAPPA, Comparison, Interval, Rules
from gradcheck.judge.conditioning import Allowing
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.gradient import Truth

Array = NDArray[Any]
Float = NDArray[np.float64]

CONFIRMED: Final = 16
"""Failing elements without a kink of forward under them that settle the matter."""
EXAMINED: Final = 64
"""Open elements without a kink after which the others are left unresolved."""
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


class BlackBox:
    """One primal of a function that no spec describes: no oracle, but kinks can be found."""

    def __init__(
        self,
        point: Point,
        index: int,
        name: str,
        cotangents: Cotangents,
        around: Around,
        conditioning: Allowing,
        least_scale: Float | None = None,
        subject: tuple[str, str] = ("", "forward"),
    ) -> None:
        """Difference `point` with respect to its primal `index`.

        `around` shows forward's values and noise. `least_scale` [q, 1] is what Σ|ct·J| counts for
        at least, where a derivative that is zero everywhere is no
        surprise. `subject` is what notes call the primal (empty: `name`) and the function.
        """
        self._subject = (subject[0] or name, subject[1])
        self._rules = conditioning.rules
        self._cts = cotangents.flat
        self._differences = Differences(point, index, self._cts, around)
        if least_scale is not None:
            estimate = self._differences.estimate
            estimate.scale = np.fmax(estimate.scale, least_scale)
        self._around = around
        self._truth = Truth(
            name=name,
            shape=point.primals[index].shape,
            cotangents=cotangents.names,
            differences=self._differences,
            settle=self._find_kinks,
            allowance=lambda _: conditioning.cost(index, self._reach(least_scale)),
            resolution=blindness(self._rules, point.primals[index].dtype),
        )
        self._notes: list[str] = []

    @property
    def estimate(self) -> Estimate:
        """What is known of the gradient by now."""
        return self._differences.estimate

    @cached_property
    def _noise(self) -> Float:
        """Noise of each output, [m]."""
        return per_output(self._around.lines, self._differences.evaluator.base)

    def judge(self, got: Float) -> Finding:
        """The verdict on `got` [q, n], with what was found out about forward."""
        finding = self._truth.judge(got, self._rules)
        if not self._notes:
            return finding
        return replace(finding, reason="; ".join(filter(None, (finding.reason, *self._notes))))

    def _reach(self, least_scale: Float | None) -> Float:
        """Slopes from afar, [q, n]; with a least scale, one tensor's largest counts for all."""
        reach = self._differences.reach
        if least_scale is None or not reach.size:
            return reach
        largest = np.max(reach, axis=1, keepdims=True)
        return np.asarray(np.fmax(reach, np.fmax(largest, least_scale)))

    def _find_kinks(self, found: Comparison) -> list[Interval]:
        """Look for a kink under the elements that the differences leave failed or open."""
        evaluator = self._differences.evaluator
        shape = found.got.shape
        which = np.zeros(shape, dtype=bool)
        low, high = np.zeros(shape), np.zeros(shape)
        lost: list[int] = []
        for suspects, enough in ((found.failed, CONFIRMED), (found.open, EXAMINED)):
            smooth = 0
            for element in np.flatnonzero(np.any(suspects & found.pending, axis=0)):
                sides = kinks.examine(evaluator, int(element), self._cts, self._noise)
                if sides is None:
                    self._look_aside(int(element))
                    smooth += 1
                    if smooth == enough:
                        break
                    continue
                blur = KAPPA * sides.bar
                steepest = np.maximum(np.abs(sides.low), np.abs(sides.high))
                if sides.jumps or not np.all(blur <= BLURRED * steepest):
                    lost.append(int(element))
                    self._differences.estimate.bar[:, element] = np.inf
                else:
                    which[:, element] = True
                    low[:, element], high[:, element] = sides.low - blur, sides.high + blur
        kinked = [int(e) for e in np.flatnonzero(np.any(which, axis=0))]
        if kinked:
            self._notes.append(
                f"{self._subject[1]} has an undeclared kink at {self._where(kinked)}: "
                "judged by the slopes on both sides"
            )
        if lost:
            self._notes.append(
                f"{self._subject[1]} jumps, or ends, at {self._where(lost)}: no slope to judge by"
            )
        return [Interval(which, low, high)] if kinked else []

    def _look_aside(self, element: int) -> None:
        """Sharpen an element whose bar is wide because a kink lies close beside it."""
        estimate = self._differences.estimate
        evaluator = self._differences.evaluator
        slope, bar = kinks.better_sides(evaluator, element, self._cts, self._noise)
        value, wide = estimate.value[:, element], estimate.bar[:, element]
        better = (bar < wide) & (np.abs(slope - value) <= KAPPA * wide)
        estimate.value[:, element] = np.where(better, slope, value)
        estimate.bar[:, element] = np.where(better, bar, wide)

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
