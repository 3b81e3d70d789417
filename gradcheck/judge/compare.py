"""Element by element: is a gradient within its bound of the truth, as far as the truth is known?

With a the gradient judged, d the true one, S = max(|a|, |d|), U = 2 · error bar, and the bound
B = rtol·S + (rtol/16 + 4·u·√terms)·Σ|ct·J| + underflow + what rounding is known to cost:

* certified   |a − d| + U ≤ B
* failed      |a − d| > B + U: no explanation is left
* open        anything else: a better truth is needed, and without one the element is unresolved

No absolute tolerance is set by hand: the absolute part is scaled by Σ|ct·J|, so that it follows
the units of the gradient and still allows the cancellation of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.heat import heat_of
from gradcheck.numerics.dtypes import dtype_named
from gradcheck.numerics.estimator import Estimate
from gradcheck.results.finding import Finding, Heat, Miss
from gradcheck.results.verdict import Verdict

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

KAPPA: Final = 2.0
"""Error bars are doubled before anything is blamed on the code judged."""
ROUNDINGS: Final = 4.0
"""Units of roundoff allowed per square root of accumulated term."""
CANCELLED: Final = 16.0
"""An element that cancels is judged so many times more strictly, but against Σ|ct·J|."""
WORST: Final = 20
AGREES: Final = 2.0**-13
"""An element of which one pair of steps is known to so many parts of it needs no second pair."""
ZERO: Final = 2.0**-14
"""A gradient so many times smaller than the error bar of that pair is zero but for rounding."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a dtype promises. `rtol` is relative to the element.

    An unresolved element is tolerated while its bar lies below `negligible` times the tensor's
    largest scale; and a bound above `blunt` times it could hide anything, so it certifies
    nothing. `underflow` is where the dtype's numbers end (256 times its smallest normal one,
    because what underflows inside may be multiplied before it is returned). `accumulate` is the
    u of sums, where they are kept in a wider type than what is returned: one operand of each term
    may then be rounded to the dtype itself. `slack` widens an operator's bounds by so many ulp of
    Σ|ct·J|, where the code judged asks for it with a reason.
    """

    dtype: str
    u: float
    rtol: float
    negligible: float
    underflow: float
    blunt: float = 0.1
    accumulate: float | None = None
    slack: float = 0.0


RULES: Final = {
    "float64": Rules("float64", 2.0**-53, rtol=1e-8, negligible=1e-7, underflow=2.0**-1014),
    "float32": Rules("float32", 2.0**-24, rtol=1e-4, negligible=1e-3, underflow=2.0**-118),
}


LOW_RULES: Final = {
    "float16": Rules(
        "float16", 2.0**-11, rtol=2.0**-10, negligible=1e-2, underflow=2.0**-21, accumulate=2.0**-24
    ),
    "bfloat16": Rules(
        "bfloat16", 2.0**-8, rtol=2.0**-7, negligible=1e-2, underflow=2.0**-118,
        accumulate=2.0**-24,
    ),
}  # fmt: skip
"""Low precision: |g − g*| ≤ 2u·|g*| + 4(u₃₂·√n + u)·Σ|ct·J|, with sums kept in float32."""


def rules_of(dtype: str, slack: float = 0.0) -> Rules:
    """The rules of any dtype, for code whose bounds are wider by `slack` ulp."""
    rules = RULES[dtype] if dtype in RULES else LOW_RULES[dtype]
    return _widened(rules, slack) if slack else rules


@cache
def _widened(rules: Rules, slack: float) -> Rules:
    return replace(rules, slack=slack)


@dataclass(frozen=True, slots=True)
class Interval:
    """Elements `which` [q, n] that sit on a kink, and the values that are allowed there."""

    which: Mask
    low: Float
    high: Float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A gradient against the truth as it is known now: arrays [q, n], in units of the gradient.

    `want` is the true derivative (on a kink the nearest value that is allowed), `uncertainty` is
    U, `error` is |a − d| (NaN where a is NaN), `bound` is B. `certified`, `failed` and `open`
    partition the elements.
    """

    got: Float
    estimate: Estimate
    rules: Rules
    kinked: Mask
    want: Float
    uncertainty: Float
    error: Float
    bound: Float
    certified: Mask
    failed: Mask
    largest: Float

    @property
    def open(self) -> Mask:
        """Neither certified nor failed."""
        return ~(self.certified | self.failed)

    @property
    def pending(self) -> Mask:
        """Elements that a better truth, or a better bound, could still decide."""
        decided = self.certified | self.kinked | self.estimate.screened
        return np.isfinite(self.got) & ~decided

    @property
    def blurred(self) -> Mask:
        """Elements that were only screened, and need to be looked at again.

        They fail, or what one pair of steps leaves open could hide an error that would be seen
        otherwise.
        """
        todo = self.estimate.screened & ~self.certified
        if not todo.any():
            return todo
        with np.errstate(invalid="ignore"):
            size, bar = np.abs(self.got), self.uncertainty
            sharp = (bar <= AGREES * size) | (size <= ZERO * bar)
            enough = bar <= self.rules.negligible * self.largest
        return todo & ~(self.open & sharp & enough) & np.isfinite(self.got)

    @property
    def agreed(self) -> Mask:
        """Elements that were only screened, and agree within an error bar that is narrow.

        Narrow for the element itself, or what cancels in it, and for the tensor.
        """
        with np.errstate(invalid="ignore"):
            size = AGREES * np.maximum(np.abs(self.got), self.estimate.scale)
            sharp = self.uncertainty <= np.minimum(size, self.rules.negligible * self.largest)
        return self.estimate.screened & self.open & sharp

    @property
    def unresolved(self) -> Mask:
        """Open, and not known to be right within an error bar of its own either."""
        undecided = self.open
        return undecided & ~self.agreed if undecided.any() else undecided

    @property
    def _blind(self) -> tuple[Mask, Mask]:
        """Where an open element matters: its truth is not known well enough; its bound is blunt.

        A blunt bound is harmless where the whole gradient is zero but for rounding.
        """
        largest, negligible = self.largest, self.rules.negligible
        with np.errstate(invalid="ignore"):
            unknown = ~(self.uncertainty <= negligible * largest)
            want = np.where(np.isfinite(self.want), np.abs(self.want), 0.0)
            truth = np.max(want, axis=1, initial=0.0, keepdims=True)
            blunt = (truth > negligible * self.bound) & (self.bound > _blunt(self.rules, largest))
        return unknown, blunt

    def finding(
        self,
        name: str,
        shape: tuple[int, ...],
        cotangents: tuple[str, ...],
        *,
        told: bool = True,
    ) -> Finding:
        """The verdict on the whole tensor of `shape`, for the cotangents named.

        Unless it is to be `told`, the verdict and its reason alone.
        """
        failed, unresolved = self.failed, self.unresolved
        verdict, reason = self._verdict(failed, unresolved)
        if not told:
            return Finding(name=name, verdict=verdict, reason=reason, compared=self.got.size)
        with np.errstate(all="ignore"):
            allowed = self.bound + self.uncertainty
            which = failed
            if verdict is Verdict.INCONCLUSIVE:
                which = unresolved & np.logical_or(*self._blind)
            worst = self._worst(shape, cotangents, allowed, which)
            visible = self._smallest_visible(unresolved, allowed)
        told = verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)
        return Finding(
            name=name,
            verdict=verdict,
            reason=reason,
            compared=int(self.got.size),
            failed=int(np.count_nonzero(failed)),
            unresolved=int(np.count_nonzero(unresolved)),
            kinked=int(np.count_nonzero(self.kinked)),
            smallest_visible_error=visible,
            oracle=bool(self.estimate.settled.any()),
            worst=worst,
            heat=self._heat(shape, cotangents, worst[0].cotangent) if told else None,
        )

    def _heat(
        self, shape: tuple[int, ...], cotangents: tuple[str, ...], cotangent: str
    ) -> Heat | None:
        """Where the errors are under one cotangent."""
        row = cotangents.index(cotangent)
        with np.errstate(all="ignore"):
            times = self.error[row] / self.bound[row]
        return heat_of(times, self.failed[row], self.unresolved[row], shape, cotangent)

    def _verdict(self, failed: Mask, unresolved: Mask) -> tuple[Verdict, str]:
        count, of = int(np.count_nonzero(failed)), self.got.size
        if not of:
            return Verdict.INVALID, "nothing was compared: the primal has no elements"
        if count:
            strange = int((failed & ~np.isfinite(self.got)).sum())
            if strange:
                return Verdict.FAIL, f"{strange} of {of} elements are not finite"
            return Verdict.FAIL, f"{count} of {of} elements are outside their bound"
        if not unresolved.any():
            return Verdict.PASS, ""
        unknown, blunt = self._blind
        blind = int((unresolved & (unknown | blunt)).sum())
        if blind:
            why = (
                "their error bars are wider than their bounds"
                if np.any(unresolved & unknown)
                else "rounding alone may cost a tenth of the gradient, or more"
                if not self.rules.slack
                else "their bounds are a tenth of the gradient, or more"
            )
            return Verdict.INCONCLUSIVE, f"{blind} of {of} elements cannot be resolved: {why}"
        return Verdict.PASS, ""

    def _smallest_visible(self, unresolved: Mask, allowed: Float) -> float | None:
        """The largest (B + U) / S among resolved elements that are not zero."""
        ratio = allowed / np.maximum(np.abs(self.got), np.abs(self.want))
        seen = ratio[np.isfinite(ratio) & ~unresolved]
        return float(seen.max()) if seen.size else None

    def _worst(
        self, shape: tuple[int, ...], cotangents: tuple[str, ...], allowed: Float, which: Mask
    ) -> tuple[Miss, ...]:
        """Up to 20 that failed, worst first; or the one of `which` that came nearest to it."""
        count = min(int(np.count_nonzero(self.failed)), WORST)
        ratio = np.where(self.error == 0, 0.0, self.error / allowed)
        ratio = np.where(np.isfinite(self.got) & ~np.isnan(ratio), ratio, np.inf)
        if which.any():  # an element whose truth is unknown must not hide one that failed
            ratio = np.where(which, ratio, -1.0)
        if count > 1:
            order = np.argsort(-ratio, axis=None, kind="stable")[:count].tolist()
        else:
            order = [int(ratio.argmax())] if ratio.size else []
        numbers = (self.error, self.bound, self.uncertainty / KAPPA)
        return tuple(self._miss(flat, shape, cotangents, numbers) for flat in order)

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
        with np.errstate(all="ignore"):
            place = float(np.spacing(dtype_named(self.rules.dtype).type(abs(want))))
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


def compare(
    got: Float,
    estimate: Estimate,
    rules: Rules,
    *,
    kinks: Sequence[Interval] = (),
    extra: Float | None = None,
    resolution: float = 0.0,
) -> Comparison:
    """Compare `got` [q, n] with the truth; `extra` [q, n] widens the bound.

    `resolution` is the part of the tensor's largest Σ|ct·J| below which the truth sees nothing.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        kinked, want = _allowed(got, estimate, kinks)
        known = np.isfinite(estimate.value) & ~np.isnan(estimate.bar)
        scale = _finite_scale(estimate)
        largest = scale.max(axis=1, initial=0.0, keepdims=True)
        bar = np.where(known, estimate.bar, np.inf)
        uncertainty = np.maximum(KAPPA * bar, resolution * largest)
        error = np.where(got == want, 0.0, np.abs(got - want))  # an infinite slope on a kink
        number = np.isfinite(got)
        size = np.maximum(np.abs(np.where(number, got, want)), np.abs(want))
        root = np.sqrt(np.maximum(estimate.terms, 1))
        roundings = (
            ROUNDINGS * rules.u * root
            if rules.accumulate is None
            else ROUNDINGS * (rules.accumulate * root + rules.u)
        )
        part = rules.rtol / CANCELLED + roundings
        bound = rules.rtol * size + part * scale + rules.underflow
        if extra is not None:
            bound = bound + extra
        sharp = (bound <= _blunt(rules, largest)) | (error == 0)
        if kinks:
            uncertainty = np.where(kinked, 0.0, uncertainty)
            sharp |= kinked
            known = known | kinked
            number |= kinked & (error == 0)
        # Never `error > bound`: a NaN would pass.
        failed = (known & ~(error <= bound + uncertainty)) | ~number
        certified = sharp & (error + uncertainty <= bound) & ~failed
    return Comparison(
        got, estimate, rules, kinked, want, uncertainty, error, bound, certified, failed, largest
    )


def against(
    got: Float,
    estimate: Estimate,
    rules: Rules,
    rounding: Callable[[], Float],
    name: str,
    shape: tuple[int, ...],
    cotangents: tuple[str, ...],
) -> Finding:
    """The verdict on `got` [q, n] against a truth that is certain.

    `rounding()` [q, n], in units of the gradient, widens the bound where something would not pass
    without it.
    """
    found = compare(got, estimate, rules)
    if found.pending.any():
        found = compare(got, estimate, rules, extra=rounding())
    return found.finding(name, shape, cotangents)


def largest_scale(estimate: Estimate) -> Float:
    """The tensor's largest Σ|ct·J| per cotangent, [q, 1]."""
    return np.asarray(np.max(_finite_scale(estimate), axis=1, initial=0.0, keepdims=True))


def _finite_scale(estimate: Estimate) -> Float:
    """Σ|ct·J|, [q, n]; 0 where it is not known."""
    return np.where(np.isfinite(estimate.scale), estimate.scale, 0.0)


def _blunt(rules: Rules, largest: Float) -> Float:
    """The bound above which an element could hide anything."""
    return np.maximum(rules.blunt * largest, rules.underflow)


def _allowed(got: Float, estimate: Estimate, kinks: Sequence[Interval]) -> tuple[Mask, Float]:
    """Which elements sit on a kink, and what each element should be."""
    kinked, want = np.zeros(got.shape, dtype=bool), estimate.value
    for kink in kinks:
        kinked = kinked | kink.which
        want = np.where(kink.which, np.clip(got, kink.low, kink.high), want)
    return kinked, want
