"""Element by element: is a gradient within its bound of the truth, as far as the truth is known?

With a the gradient judged, d the true one, S = max(|a|, |d|), U = 2 · error bar, and the bound
B = rtol·S + 4·u·√terms·Σ|ct·J| + underflow + what rounding is measured to cost:

* certified   |a − d| + U ≤ B
* failed      |a − d| > B + U: no explanation is left
* open        anything else: a better truth is needed, and without one the element is unresolved

No absolute tolerance is set by hand: the absolute part is scaled by Σ|ct·J|, so that it follows
the units of the gradient and still allows the cancellation of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference.truth import Estimate
from gradcheck.judge.finding import Finding, Miss
from gradcheck.judge.verdict import Verdict

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

KAPPA: Final = 2.0
"""Error bars are doubled before anything is blamed on the code judged."""
ROUNDINGS: Final = 4.0
"""Units of roundoff allowed per square root of accumulated term."""
WORST: Final = 20


@dataclass(frozen=True, slots=True)
class Rules:
    """What a dtype promises. `rtol` is relative to the element.

    An unresolved element is tolerated while its bar lies below `negligible` times the tensor's
    largest scale; and a bound above `blunt` times it could hide anything, so it certifies
    nothing. `underflow` is where the dtype's numbers end (256 times its smallest normal one,
    because what underflows inside may be multiplied before it is returned).
    """

    dtype: str
    u: float
    rtol: float
    negligible: float
    underflow: float
    blunt: float = 0.1


RULES: Final = {
    "float64": Rules("float64", 2.0**-53, rtol=1e-8, negligible=1e-8, underflow=2.0**-1014),
    "float32": Rules("float32", 2.0**-24, rtol=1e-4, negligible=1e-3, underflow=2.0**-118),
}


@dataclass(slots=True)
class Comparison:
    """A gradient against the truth: arrays [q, n], in units of the gradient."""

    got: Float
    estimate: Estimate
    rules: Rules
    extra: Float
    kink_low: Float
    kink_high: Float
    kinked: Mask

    @classmethod
    def of(cls, got: Float, estimate: Estimate, rules: Rules) -> Comparison:
        """Compare `got` [q, n] with the truth; no kinks and no extra allowance yet."""
        none = np.zeros_like(got)
        return cls(got, estimate, rules, none, none.copy(), none.copy(), none.astype(bool))

    def on_kink(self, which: Mask, low: Float, high: Float) -> None:
        """Judge the elements `which` [q, n] by the interval [low, high] instead of by d."""
        self.kinked = self.kinked | which
        self.kink_low = np.where(which, low, self.kink_low)
        self.kink_high = np.where(which, high, self.kink_high)

    @property
    def want(self) -> Float:
        """The true derivative; on a kink the nearest value that is allowed."""
        with np.errstate(invalid="ignore"):
            nearest = np.clip(self.got, self.kink_low, self.kink_high)
        return np.where(self.kinked, nearest, self.estimate.value)

    @property
    def uncertainty(self) -> Float:
        """U: twice the error bar; 0 on a kink, whose interval is given."""
        return np.where(self.kinked, 0.0, KAPPA * self.estimate.bar)

    @property
    def error(self) -> Float:
        """|a − d|; NaN where the gradient judged is NaN."""
        with np.errstate(invalid="ignore"):
            return np.abs(self.got - self.want)

    @property
    def bound(self) -> Float:
        """B."""
        estimate, rules = self.estimate, self.rules
        with np.errstate(invalid="ignore"):
            size = np.maximum(np.abs(self.got), np.abs(self.want))
            size = np.where(np.isfinite(self.got), size, np.abs(self.want))
            scale = np.where(np.isfinite(estimate.scale), estimate.scale, 0.0)
        rounding = ROUNDINGS * rules.u * np.sqrt(np.maximum(estimate.terms, 1)) * scale
        return np.asarray(rules.rtol * size + rounding + rules.underflow + self.extra)

    @property
    def certified(self) -> Mask:
        """Within the bound, error bar included, and the bound is sharp enough to mean it."""
        scale = self._largest_scale()
        sharp = self.bound <= np.maximum(self.rules.blunt * scale, self.rules.underflow)
        with np.errstate(invalid="ignore"):
            ok = self.error + self.uncertainty <= self.bound
        return np.asarray(ok & (sharp | self.kinked | (self.error == 0)))

    @property
    def failed(self) -> Mask:
        """No explanation left: outside the bound by more than the error bar, or not finite."""
        with np.errstate(invalid="ignore"):
            explained = self.error <= self.bound + self.uncertainty
        unknown = ~np.isfinite(self.estimate.value) & ~self.kinked
        return np.asarray(~(explained | unknown) | ~np.isfinite(self.got))

    @property
    def open(self) -> Mask:
        """Neither certified nor failed."""
        return np.asarray(~self.certified & ~self.failed)

    def finding(self, name: str, shape: tuple[int, ...], cotangents: tuple[str, ...]) -> Finding:
        """The verdict on the whole tensor of `shape`, for the cotangents named."""
        failed, unresolved = self.failed, self.open
        verdict, reason = self._verdict(failed, unresolved)
        return Finding(
            name=name,
            verdict=verdict,
            reason=reason,
            compared=int(self.got.size),
            failed=int(failed.sum()),
            unresolved=int(unresolved.sum()),
            kinked=int(self.kinked.sum()),
            smallest_visible_error=self._smallest_visible(unresolved),
            oracle=bool(self.estimate.settled.any()),
            worst=self._worst(shape, cotangents, WORST if failed.any() else 1),
        )

    def _verdict(self, failed: Mask, unresolved: Mask) -> tuple[Verdict, str]:
        count, of = int(failed.sum()), self.got.size
        if not of:
            return Verdict.INVALID, "nothing was compared: the primal has no elements"
        if count:
            strange = int((~np.isfinite(self.got)).sum())
            if strange:
                return Verdict.FAIL, f"{strange} of {of} elements are not finite"
            return Verdict.FAIL, f"{count} of {of} elements are outside their bound"
        limit = self.rules.negligible * self._largest_scale()
        with np.errstate(invalid="ignore"):
            blind = unresolved & ~(self.uncertainty <= np.broadcast_to(limit, self.got.shape))
        if blind.any():
            return Verdict.INCONCLUSIVE, (
                f"{int(blind.sum())} of {of} elements cannot be resolved: "
                "their error bars are wider than their bounds"
            )
        return Verdict.PASS, ""

    def _largest_scale(self) -> Float:
        """The tensor's largest Σ|ct·J| per cotangent, [q, 1]."""
        scale = self.estimate.scale
        finite = np.where(np.isfinite(scale), scale, 0.0)
        return np.asarray(np.max(finite, axis=1, initial=0.0, keepdims=True))

    def _smallest_visible(self, unresolved: Mask) -> float | None:
        """The largest (B + U) / S among resolved elements that are not zero."""
        size = np.maximum(np.abs(self.got), np.abs(self.want))
        with np.errstate(all="ignore"):
            ratio = (self.bound + self.uncertainty) / size
        seen = ratio[~unresolved & (size > 0) & np.isfinite(ratio)]
        return float(seen.max()) if seen.size else None

    def _worst(
        self, shape: tuple[int, ...], cotangents: tuple[str, ...], limit: int
    ) -> tuple[Miss, ...]:
        error, bound, bar = self.error, self.bound, self.uncertainty
        with np.errstate(all="ignore"):
            ratio = np.where(error == 0, 0.0, error / (bound + bar))
        ratio = np.where(np.isfinite(self.got) & ~np.isnan(ratio), ratio, np.inf)
        order = np.argsort(-ratio, axis=None, kind="stable")[:limit]
        return tuple(
            self._miss(int(flat), shape, cotangents, (error, bound, bar / KAPPA))
            for flat in order
            if limit == 1 or self.failed.reshape(-1)[flat]
        )

    def _miss(
        self,
        flat: int,
        shape: tuple[int, ...],
        cotangents: tuple[str, ...],
        numbers: tuple[Any, Any, Any],
    ) -> Miss:
        row, element = divmod(flat, self.got.shape[1])
        want = float(self.want[row, element])
        error, bound, bar = (float(values[row, element]) for values in numbers)
        place = float(np.spacing(np.asarray(abs(want), dtype=self.rules.dtype)))
        return Miss(
            index=tuple(int(i) for i in np.unravel_index(element, shape)),
            got=float(self.got[row, element]),
            want=want,
            error=error,
            bound=bound,
            error_bar=bar,
            ulp=error / place if want != 0 and np.isfinite(place) else None,
            cotangent=cotangents[row],
        )
