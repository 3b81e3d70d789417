"""One gradient against the truth, escalating only where it must: triple, ladder, settlement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import Comparison, Interval, Rules, compare
from gradcheck.numerics.estimator import Differences
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from gradcheck.judge.kink_constraint import KinkConstraint

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

BATCH: Final = 256
"""Elements that the ladder takes at once: one confirmed failure is enough to fail a tensor."""


@dataclass(slots=True)
class Truth:
    """What is known of one primal's true gradient, and how to learn more.

    `settle(found)` overrules pending elements of the differences from a certain source, or
    returns the kinks found among them; `allowance(rules)` is the known cost of rounding;
    `kinks` is
    what is declared of the elements on kinks; `resolution` is the part of the largest Σ|ct·J|
    below which differences alone are blind.
    """

    name: str
    shape: tuple[int, ...]
    cotangents: tuple[str, ...]
    differences: Differences
    kinks: KinkConstraint | None = None
    settle: Callable[[Comparison], list[Interval]] = field(default=lambda _: [])
    allowance: Callable[[Rules], Float | None] = field(default=lambda _: None)
    resolution: float = 0.0
    _last: tuple[tuple[Rules, bytes], Comparison] | None = None

    def judge(self, got: Float, rules: Rules, *, told: bool = True) -> Finding:
        """The verdict on `got` [q, n]; unless it is to be `told`, nothing is said of elements."""
        found = self._decided(got, rules)
        finding = found.finding(self.name, self.shape, self.cotangents, told=told)
        return finding if self.kinks is None else _on_kinks(self.kinks, found, finding)

    def judge_again(self, got: Float, rules: Rules) -> Finding:
        """As `judge`, where what is allowed has become another since."""
        self._last = None
        return self.judge(got, rules)

    def confirmed(self, got: Float, rules: Rules) -> Float | None:
        """Within what distance [q, n] of the truth `got` [q, n] lies; None where it does not pass.

        Where an element is open or on a kink, the distance is how well the truth is known there.
        """
        found = self._decided(got, rules)
        finding = found.finding(self.name, self.shape, self.cotangents, told=False)
        if finding.verdict is not Verdict.PASS:
            return None
        return np.where(found.kinked, 0.0, np.maximum(found.bound, found.error) + found.uncertainty)

    def share(self, got: Float, rules: Rules) -> float:
        """Of its bound, the largest part that any element of `got` [q, n] is off."""
        found = self._decided(got, rules)
        with np.errstate(all="ignore"):
            off = np.where(found.error > 0, found.error / found.bound, 0.0)
        return float(np.max(off, initial=0.0, where=~found.kinked))

    def _decided(self, got: Float, rules: Rules) -> Comparison:
        """Every tier of truth and of allowance that `got` [q, n] needs; asked again, the same."""
        key = rules, got.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._asked(got, rules)
        return self._last[1]

    def _asked(self, got: Float, rules: Rules) -> Comparison:
        kinks = [] if self.kinks is None else [self.kinks.interval]
        found = self._refined(got, rules, kinks)
        if found.pending.any():
            kinks = [*kinks, *self.settle(found)]
            found = self._compare(got, rules, kinks)
            for allowed in self._allowances(rules) if found.pending.any() else ():
                found = self._compare(got, rules, kinks, allowed)
                if not found.pending.any():
                    break
        return found

    def compared(self, got: Float, rules: Rules, kinks: list[Interval]) -> Comparison:
        """`got` [q, n] against what is known now, with the `kinks` found, and every allowance."""
        return self._compare(got, rules, kinks, self.allowance(rules))

    def settled(self) -> Float:
        """The true gradient as it is known now, [q, n]; on a kink, a value that is allowed."""
        estimate = self.differences.estimate
        if self.kinks is None:
            return estimate.value
        # The oracle's value is one of those allowed at a tie; an infinite slope has none.
        judged = self.kinks.directions is not None
        interval = self.kinks.interval
        some = np.clip(0.0, interval.low, interval.high)
        return np.where(interval.which & ~(estimate.settled & judged), some, estimate.value)

    def rejects(self, stack: Float, rules: Rules) -> Mask:
        """Which gradients of `stack` [k, q, n] fail beyond every allowance, as far as is known."""
        kinks = [] if self.kinks is None else [self.kinks.interval]
        allowed = self.allowance(rules)
        # What is not known to be allowed widens nothing: a wider bound alone lets through more.
        extra = None if allowed is None else np.where(np.isnan(allowed), 0.0, allowed)
        failed = np.asarray(self._compare(stack, rules, kinks, extra).failed.any(axis=(1, 2)))
        if self.kinks is not None and self.kinks.directions is not None:
            for k in np.flatnonzero(~failed):
                bound = self._compare(stack[k], rules, kinks, allowed).bound
                failed[k] = self.kinks.directions.violated(stack[k], bound) is not None
        return failed

    def excess(self, stack: Float, rules: Rules) -> Float:
        """Of each gradient of `stack` [k, q, n], the largest error as a multiple of its bound."""
        kinks = [] if self.kinks is None else [self.kinks.interval]
        found = self._compare(stack, rules, kinks, self.allowance(rules))
        with np.errstate(all="ignore"):
            share = found.error / (found.bound + found.uncertainty)
        return np.asarray(np.max(np.nan_to_num(share, nan=0.0), axis=(1, 2), initial=0.0))

    def _allowances(self, rules: Rules) -> Iterator[Float | None]:
        """What rounding may cost: in low precision first with float32 inside, as in kernels."""
        if rules.accumulate is not None:
            yield self.allowance(replace(rules, u=rules.accumulate))
        yield self.allowance(rules)

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
        tried = np.zeros(got.shape[1], dtype=bool) | self.differences.estimate.screened
        found = self._compare(got, rules, kinks)
        blurred = found.blurred
        while blurred.any() and self.differences.sharpen(np.flatnonzero(blurred.any(axis=0))):
            found = self._compare(got, rules, kinks)
            blurred = found.blurred
        tried &= self.differences.estimate.screened  # these agree
        if tried.all():
            return found
        while True:
            failed = np.any(found.failed & np.isfinite(got), axis=0)
            confirmed = np.any(failed & tried & ~self.differences.estimate.screened)
            todo = np.any(found.open, axis=0) | (failed & ~confirmed)
            todo &= ~tried
            if not todo.any():
                return found
            worst = np.flatnonzero(todo)[:BATCH]
            self.differences.refine(worst)
            found = self._compare(got, rules, kinks)
            tried[worst] = True


def _on_kinks(kinks: KinkConstraint, found: Comparison, finding: Finding) -> Finding:
    """The finding, with what several elements on a kink fulfil together, and whose choice it is."""
    followed = tuple(filter(None, (table.by(found) for table in kinks.followed)))
    finding = replace(finding, conventions=followed)
    if finding.verdict is Verdict.FAIL:
        if not kinks.narrowed or not (found.failed & found.kinked).any():
            return finding
        return replace(finding, reason=f"{finding.reason}; {kinks.narrowed}")
    if kinks.directions is None:
        return finding
    worst = kinks.directions.violated(found.got, found.bound)
    if worst is None:
        return finding
    product, low, high = worst
    wanted = f"{low:.6g}" if low == high else f"between {low:.6g} and {high:.6g}"
    reason = (
        f"the {int(kinks.on.sum())} elements on a kink share the wrong sum: along a direction "
        f"through them the slope is {product:.6g}, it must be {wanted}"
    )
    return replace(finding, verdict=Verdict.FAIL, reason=reason, failed=int(kinks.on.sum()))
