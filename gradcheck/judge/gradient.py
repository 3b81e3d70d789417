"""One gradient against the truth, escalating only where it must: triple, ladder, settlement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference.truth import Differences
from gradcheck.finding import Finding
from gradcheck.judge.compare import Comparison, Interval, Rules, compare

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

BATCH: Final = 256
"""Elements that the ladder takes at once: one confirmed failure is enough to fail a tensor."""


@dataclass(slots=True)
class Truth:
    """What is known of one primal's true gradient, and how to learn more.

    `settle(found)` overrules pending elements of the differences from a certain source, or
    returns the kinks found among them; `allowance(rules)` is the known cost of rounding;
    `resolution` is the part of the largest Σ|ct·J| below which differences alone are blind.
    """

    name: str
    shape: tuple[int, ...]
    cotangents: tuple[str, ...]
    differences: Differences
    declared: Interval | None = None
    settle: Callable[[Comparison], list[Interval]] = field(default=lambda _: [])
    allowance: Callable[[Rules], Float | None] = field(default=lambda _: None)
    resolution: float = 0.0

    def judge(self, got: Float, rules: Rules) -> Finding:
        """The verdict on `got` [q, n]."""
        kinks = [] if self.declared is None else [self.declared]
        found = self._refined(got, rules, kinks)
        if found.pending.any():
            kinks = [*kinks, *self.settle(found)]
            found = self._compare(got, rules, kinks)
        if found.pending.any():
            found = self._compare(got, rules, kinks, self.allowance(rules))
        return found.finding(self.name, self.shape, self.cotangents)

    def _compare(
        self, got: Float, rules: Rules, kinks: list[Interval], extra: Float | None = None
    ) -> Comparison:
        return compare(
            got,
            self.differences.estimate,
            rules,
            kinks=kinks,
            extra=extra,
            resolution=self.resolution,
        )

    def _refined(self, got: Float, rules: Rules, kinks: list[Interval]) -> Comparison:
        """The ladder: for every open element, and for failing ones until one is confirmed."""
        tried = np.zeros(got.shape[1], dtype=bool)
        while True:
            found = self._compare(got, rules, kinks)
            failed = np.any(found.failed & np.isfinite(got), axis=0)
            confirmed = np.any(failed & tried)
            todo = np.any(found.open, axis=0) | (failed & ~confirmed)
            todo &= ~tried
            if not todo.any():
                return found
            worst = np.flatnonzero(todo)[:BATCH]
            self.differences.refine(worst)
            tried[worst] = True


def kink_interval(which: NDArray[np.bool_], slopes: tuple[float, float], cts: Float) -> Interval:
    """The values allowed on a declared kink of a forward that acts element by element.

    `which` is [n]; `cts` is [q, n]; the slopes are those of forward.
    """
    ends = np.stack([cts * slopes[0], cts * slopes[1]])
    mask = np.broadcast_to(which, cts.shape)
    return Interval(np.array(mask), ends.min(axis=0), ends.max(axis=0))


def merge(intervals: list[Interval]) -> Interval | None:
    """Several kinks of one operator as one interval per element."""
    if not intervals:
        return None
    which = np.any([i.which for i in intervals], axis=0)
    low: Any = np.min([np.where(i.which, i.low, np.inf) for i in intervals], axis=0)
    high: Any = np.max([np.where(i.which, i.high, -np.inf) for i in intervals], axis=0)
    return Interval(which, np.where(which, low, 0.0), np.where(which, high, 0.0))
