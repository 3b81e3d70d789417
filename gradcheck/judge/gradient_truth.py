"""The true gradient of one primal: compared with the one judged, and refined only as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gradcheck.judge.compare import Comparison, Interval, Tolerance, compare
from gradcheck.numerics.arrays import Float, Mask
from gradcheck.numerics.estimator import Differences
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from gradcheck.judge.declared_kinks import KinkConstraint


MAX_REFINED: Final = 256
"""Elements refined at once: one confirmed failure is enough to fail a tensor."""


@dataclass(slots=True)
class GradientTruth:
    """What is known of one primal's true gradient, and how to learn more.

    `settle(found)` overrules pending elements of the differences from a certain source, and returns
    the kinks found among them; `allowance(tolerance)` is the known cost of rounding; `kinks` are
    declared; `resolution` is the part of the largest Σ|ct·J| below which differences alone show
    nothing.
    """

    name: str
    shape: tuple[int, ...]
    cotangents: tuple[str, ...]
    differences: Differences
    kinks: KinkConstraint | None = None
    settle: Callable[[Comparison], list[Interval]] = field(default=lambda _: [])
    allowance: Callable[[Tolerance], Float | None] = field(default=lambda _: None)
    resolution: float = 0.0
    _last: tuple[tuple[Tolerance, bytes], Comparison] | None = None

    def judge(self, got: Float, tolerance: Tolerance, *, details: bool = True) -> Finding:
        """The verdict on `got` [q, n]; without `details`, nothing about single elements."""
        found = self._decided(got, tolerance)
        finding = found.finding(self.name, self.shape, self.cotangents, details=details)
        return finding if self.kinks is None else _on_kinks(self.kinks, found, finding)

    def judge_again(self, got: Float, tolerance: Tolerance) -> Finding:
        """As `judge`, after the allowance has changed."""
        self._last = None
        return self.judge(got, tolerance)

    def confirmed(self, got: Float, tolerance: Tolerance) -> Float | None:
        """The distance [q, n] from the truth within which `got` [q, n] lies; None if it fails.

        Where an element is open or on a kink, this is how well the truth is known there.
        """
        found = self._decided(got, tolerance)
        finding = found.finding(self.name, self.shape, self.cotangents, details=False)
        if finding.verdict is not Verdict.PASS:
            return None
        return np.where(found.kinked, 0.0, np.maximum(found.bound, found.error) + found.uncertainty)

    def share(self, got: Float, tolerance: Tolerance) -> float:
        """The largest error of an element of `got` [q, n] over its bound, away from kinks."""
        found = self._decided(got, tolerance)
        with np.errstate(all="ignore"):
            off = np.where(found.error > 0, found.error / found.bound, 0.0)
        return float(np.max(off, initial=0.0, where=~found.kinked))

    def settled(self) -> Float:
        """The true gradient as it is known now, [q, n]; on a kink, an allowed value."""
        estimate = self.differences.estimate
        if self.kinks is None:
            return estimate.value
        # The oracle's value is one of those allowed at a tie; an infinite slope has none.
        judged = self.kinks.directions is not None
        interval = self.kinks.interval
        some = np.clip(0.0, interval.low, interval.high)
        return np.where(interval.which & ~(estimate.settled & judged), some, estimate.value)

    def rejects(self, stack: Float, tolerance: Tolerance) -> Mask:
        """Which gradients of `stack` [k, q, n] fail beyond every allowance, by what is known."""
        allowed = self.allowance(tolerance)
        # An unknown allowance widens nothing: only a wider bound lets more pass.
        extra = None if allowed is None else np.where(np.isnan(allowed), 0.0, allowed)
        found = self._compare(stack, tolerance, self._declared, extra)
        failed = np.asarray(found.failed.any(axis=(1, 2)))
        if self.kinks is not None and self.kinks.directions is not None:
            for k in np.flatnonzero(~failed):
                bound = self._compare(stack[k], tolerance, self._declared, allowed).bound
                failed[k] = self.kinks.directions.violated(stack[k], bound) is not None
        return failed

    def excess(self, stack: Float, tolerance: Tolerance) -> Float:
        """The largest error of each gradient of `stack` [k, q, n], as a multiple of its bound."""
        found = self._compare(stack, tolerance, self._declared, self.allowance(tolerance))
        with np.errstate(all="ignore"):
            share = found.error / (found.bound + found.uncertainty)
        return np.asarray(np.max(np.nan_to_num(share, nan=0.0), axis=(1, 2), initial=0.0))

    def compared(self, got: Float, tolerance: Tolerance, kinks: list[Interval]) -> Comparison:
        """`got` [q, n] against what is known now, with the `kinks` found, and every allowance."""
        return self._compare(got, tolerance, kinks, self.allowance(tolerance))

    def _decided(self, got: Float, tolerance: Tolerance) -> Comparison:
        """The comparison with every refinement that `got` [q, n] needs; the last one is kept."""
        key = tolerance, got.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._decide(got, tolerance)
        return self._last[1]

    def _decide(self, got: Float, tolerance: Tolerance) -> Comparison:
        """Sharper differences first, then a certain source, then the cost of rounding."""
        kinks = self._declared
        found = self._refined(got, tolerance, kinks)
        if found.pending.any():
            kinks = [*kinks, *self.settle(found)]
            found = self._compare(got, tolerance, kinks)
            for allowed in self._allowances(tolerance) if found.pending.any() else ():
                found = self._compare(got, tolerance, kinks, allowed)
                if not found.pending.any():
                    break
        return found

    @property
    def _declared(self) -> list[Interval]:
        return [] if self.kinks is None else [self.kinks.interval]

    def _allowances(self, tolerance: Tolerance) -> Iterator[Float | None]:
        """The cost of rounding: in low precision first with float32 inside, as in kernels."""
        if tolerance.accumulate is not None:
            yield self.allowance(replace(tolerance, u=tolerance.accumulate))
        yield self.allowance(tolerance)

    def _compare(
        self, got: Float, tolerance: Tolerance, kinks: list[Interval], extra: Float | None = None
    ) -> Comparison:
        estimate = self.differences.estimate
        return compare(
            got, estimate, tolerance, kinks=kinks, extra=extra, resolution=self.resolution
        )

    def _refined(self, got: Float, tolerance: Tolerance, kinks: list[Interval]) -> Comparison:
        """Refine all open elements, and failing ones until one is confirmed."""
        tried = np.zeros(got.shape[1], dtype=bool) | self.differences.estimate.screened
        found = self._compare(got, tolerance, kinks)
        blurred = found.blurred
        while blurred.any() and self.differences.sharpen(np.flatnonzero(blurred.any(axis=0))):
            found = self._compare(got, tolerance, kinks)
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
            worst = np.flatnonzero(todo)[:MAX_REFINED]
            self.differences.refine(worst)
            found = self._compare(got, tolerance, kinks)
            tried[worst] = True


def _on_kinks(kinks: KinkConstraint, found: Comparison, finding: Finding) -> Finding:
    """The finding with the conventions followed; FAIL where elements on a kink violate a sum."""
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
