"""One tensor's gradient against slopes of a scalar function along random directions.

With e = ⟨g* − g, d⟩ from Richardson extrapolation, U = 2 · error bar and B = 12·u·‖g∘d‖₂ for the
rounding of the implementation: |e| ≤ B + U passes. A larger error fails if the full ladder of steps
and a second direction confirm it. Each finding states which error would have been visible; a tensor
in which not even an error of the whole would show is INCONCLUSIVE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from gradcheck.judge.compare import ERROR_BAR_FACTOR, number_miss
from gradcheck.judge.locate import (
    DIRECTION_ROUNDINGS,
    ELEMENT_PRECISION,
    MAX_WRONG,
    DirectionError,
    Located,
    WrongElement,
    locate,
)
from gradcheck.numerics.directional_slope import Sides, Slope, slope_search
from gradcheck.numerics.draw import LEAST_MAGNITUDE, key_of
from gradcheck.numerics.line_function import Heading, Line, Place
from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import share

TARGET_BAR: Final = {"float64": 1e-9, "float32": 1e-4}
"""The error bar to aim for, relative to ‖g∘d‖₂: in float64 one element of 10⁸ shows if it is a
thousandth off."""
LONE_BAR: Final = 0.025
CROWDED_BAR: Final = 5e-3
"""Bars to aim for in float32: LONE_BAR/√n shows one of n elements that is a tenth off. Where
that is below TARGET_BAR, no step shows it, and CROWDED_BAR shows an error of the whole."""
MAX_VISIBLE: Final = {"float64": 1e-3, "float32": 0.1}
"""The smallest relative error of a whole tensor that must be visible: a mean over T − 1 instead of
T for a thousand tokens. In float32 a network with kinks shows no less than a few per cent; a
missing term, a sign or a factor 2 is more than a tenth."""
MAX_DIRECTIONS: Final = 3
"""Directions at most: two that fail, or one that decides otherwise."""
MAX_VISIBLE_AT_ZERO: Final = {"float64": 1e-8, "float32": 1e-4}
"""The smallest slope that must be visible where the gradient is zero, relative to the loss, for a
step of the tensor's own size. (Values that do not move at all show a slope of 1e-15, 1e-6.)"""
MIN_ALIGNMENT: Final = 0.25
"""|⟨g, d⟩| over ‖g∘d‖₂ below which another direction is drawn: it could miss an error of the
whole."""
MAX_DRAWS: Final = 8
CONFIRMED_BAR: Final = 0.01
"""The error bar of an element, relative to its error, where the caller confirms elements."""
CLEARING_FACTOR: Final = 8.0
"""An error bar clears an alarm if it is so many times finer."""
MEAN_SQUARE: Final = 13.0 / 12.0
"""The mean square of a direction's elements."""
ZERO_NOISES: Final = 16.0
"""Below so many noise standard deviations a gradient counts as zero and is tested absolutely."""
MIXED_KINKS_FACTOR: Final = 32.0
"""Where the slopes of several kinks partly cancel, so many times their difference is allowed."""


@dataclass(slots=True)
class DirectionalCheck:
    """The check of one tensor's gradient; both are finite, and `place` hides where the tensor lies.

    In a PASS an error of `least` in any element, in units of the gradient, must have been visible;
    `subject` is the name of the function in sentences. Where the caller confirms failures, an error
    of `clear` times its tolerance needs no full ladder.
    """

    name: str
    place: Place
    seed: tuple[object, ...]
    least: float = np.inf
    subject: str = "the loss"
    clear: float = np.inf
    results: list[DirectionalResult] = field(default_factory=list)

    def judge(self, search: int) -> Finding:
        """The verdict, from one to three directions."""
        for _ in range(MAX_DIRECTIONS):
            self.results.append(self._measure())
            wrong = [s for s in self.results if s.wrong]
            if len(wrong) > 1:
                return self._failed(wrong, search)
            if self._sees(self.results[-1]) and not wrong:
                break
        return self._passed()

    def _measure(self) -> DirectionalResult:
        """One more direction: three steps and a few more, or the full ladder."""
        ray, product, norm = self._aligned()
        with ray:
            search = slope_search(self.place, ray)
            target = self._target() * (norm or abs(self.place.base))
            slope = search.settle(min(target, self._alarm / CLEARING_FACTOR))
            allowed = DIRECTION_ROUNDINGS * self.place.u * norm
            result = DirectionalResult(ray.heading, product, norm, slope, allowed, search.noise())
            if self._sees(result) or abs(result.error) > self.clear * result.tolerance:
                return result
            alarm = np.inf if result.ok else result.tolerance
            slope = search.exhaust()
            result = replace(result, slope=slope, noise=search.noise(), alarm=alarm)
            return result if self._sees(result) else replace(result, sides=search.sides())

    @property
    def _alarm(self) -> float:
        """The least error that any direction took for an alarm."""
        return min((result.alarm for result in self.results), default=np.inf)

    def _target(self) -> float:
        """The error bar to aim for, as a part of ‖g∘d‖₂."""
        kind = self.place.dtype.name
        lone = LONE_BAR / np.sqrt(self.place.size)
        if kind == "float64" or lone >= TARGET_BAR[kind]:
            return float(max(TARGET_BAR[kind], lone if kind == "float32" else 0.0))
        return CROWDED_BAR

    def _aligned(self) -> tuple[Line, float, float]:
        """A direction that is not orthogonal to the gradient, its ⟨g, d⟩ and ‖g∘d‖₂."""
        quiet = self.results and self.results[0].ok and self._alarm == np.inf
        uphill = bool(quiet)  # it passed, but saw too little
        for draw in range(MAX_DRAWS):
            key = key_of("projection", *self.seed, len(self.results), draw)
            ray = self.place.ray(Heading(key, uphill))
            product, norm = ray.products()
            if abs(product) >= MIN_ALIGNMENT * norm:
                break
        return ray, product, norm

    def _sees(self, result: DirectionalResult) -> bool:
        """Whether it passes, and would have shown an error of the whole tensor.

        It clears an alarm only if it would have raised one in its place.
        """
        kind = self.place.dtype.name
        visible = MAX_VISIBLE[kind] * abs(result.product)
        if result.zero:
            visible = MAX_VISIBLE_AT_ZERO[kind] * abs(self.place.base)
        lone = self.lone(result) <= self.least
        return lone and result.ok and result.visible <= min(visible, result.alarm, self._alarm)

    def lone(self, result: DirectionalResult) -> float:
        """The error of one element that would be visible for certain, in units of the gradient."""
        return result.visible / (LEAST_MAGNITUDE * self.place.ray(result.heading).unit)

    def _passed(self) -> Finding:
        seeing = [result for result in self.results if self._sees(result)]
        result = min(seeing or self.results, key=lambda s: s.visible / (abs(s.product) or 1.0))
        finding = self.finding(result)
        if seeing:
            return replace(finding, verdict=Verdict.PASS, reason=self._caveat(result))
        verdict, count = Verdict.INCONCLUSIVE, self.place.size
        return replace(finding, verdict=verdict, unresolved=count, reason=self._unclear(result))

    def _caveat(self, result: DirectionalResult) -> str:
        notes = []
        if result.sides is not None:
            notes.append(f"{self.subject} has a kink here: judged by the slopes on both sides")
        if result.zero:
            notes.append(f"zero up to rounding: a slope of {result.visible:.2g} would be detected")
        return "; ".join(notes)

    def _unclear(self, result: DirectionalResult) -> str:
        base = self.place.base
        if result.sides is not None:
            low, high = (result.product + side for side in (result.sides.low, result.sides.high))
            return (
                f"{self.subject} has a kink here: its slopes along a random direction are "
                f"{low:.6g} and {high:.6g}, the gradient says {result.product:.6g}; move away "
                "from the kink"
            )
        if not np.isfinite(result.bar):
            refusal = self.place.value.refusal
            why = f" (it raises {refusal})" if refusal else ""
            return f"no step is short enough for {self.subject} to have a slope{why}"
        if not result.ok or self._alarm < np.inf:
            return "one random direction shows an error that others neither confirm nor clear"
        part = result.visible / abs(result.product) if result.product else np.inf
        if part <= MAX_VISIBLE[self.place.dtype.name]:
            return (
                f"it agrees along a random direction, but a single wrong element would show only "
                f"above {self.finding(result).smallest_visible_error:.1g} times a typical one: "
                f"{self.subject} is known to {result.noise / abs(base) if base else 0.0:.1g} of "
                "itself"
            )
        return (
            f"even an error of the whole tensor would show only above {part:.1g} of it: "
            f"{self.subject} is known to {result.noise / abs(base) if base else 0.0:.1g} of "
            "itself; give float64"
        )

    def _failed(self, results: Sequence[DirectionalResult], search: int) -> Finding:
        first = results[0]
        finding = replace(self.finding(first), verdict=Verdict.FAIL, failed=1)
        whole = self._as_a_whole(results)
        found = Located((), False)
        # Where others confirm it, any element given proves that the whole is wrong.
        any_proves = bool(whole) and self.clear < np.inf and any(s.product for s in results)
        if search and not any_proves:
            seen = [DirectionError(s.heading, s.slope) for s in results]
            most = 1 if whole else MAX_WRONG
            precise = ELEMENT_PRECISION if np.isinf(self.clear) else CONFIRMED_BAR
            found = locate(
                self.place, seen, first.allowed, most=most, search=search, precise=precise
            )
        if found.wrong:
            worst = tuple(miss_of(self.place, wrong) for wrong in found.wrong)
            finding = replace(finding, worst=worst, failed=len(worst))
        if whole:
            finding = replace(finding, failed=self.place.size)
        return replace(finding, reason=whole or self._extent(found, results))

    def _as_a_whole(self, results: Sequence[DirectionalResult]) -> str:
        """What is wrong with the whole gradient, if all directions agree; else an empty string."""
        if all(abs(s.product + s.error) <= s.tolerance for s in results):
            return (
                f"{self.subject} does not depend on {self.name}, but the gradient is not zero; "
                f"does {self.subject} read another copy of it?"
            )
        if all(s.product == 0 for s in results):
            return f"the gradient is zero, but {self.subject} depends on {self.name}"
        factor = common_factor(results)
        if factor is None:
            return ""
        return (
            f"along {len(results)} random directions the whole of it is {factor:.8g} times "
            f"the slope of {self.subject}"
        )

    def _extent(self, found: Located, results: Sequence[DirectionalResult]) -> str:
        count, of = len(found.wrong), self.place.size
        if not count:
            off = " and ".join(f"{s.error / s.tolerance:.3g}" for s in results)
            return f"along random directions it is off by {off} times the allowed error"
        if found.complete:
            return f"{share(count, of, 'element')} wrong"
        return f"at least {share(count, of, 'element')} wrong"

    def finding(self, result: DirectionalResult) -> Finding:
        """The numbers of one direction."""
        size = self.place.size
        typical = result.norm / np.sqrt(MEAN_SQUARE * size)
        visible = min([s.visible for s in self.results if s.ok] or [result.tolerance])
        least = float(visible / (LEAST_MAGNITUDE * typical)) if typical else None
        want, error = result.product + result.error, abs(result.error)
        miss = number_miss(result.product, want, error, result.tolerance, result.bar)
        return Finding(
            name=self.name,
            verdict=Verdict.INCONCLUSIVE,
            compared=size,
            smallest_visible_error=least,
            worst=(miss,),
        )


def miss_of(place: Place, wrong: WrongElement) -> Miss:
    """A wrong element in the form of a finding."""
    error, u = abs(wrong.got - wrong.want), place.u
    with np.errstate(all="ignore"):
        ulp = float(np.spacing(np.asarray(abs(wrong.want), place.dtype)))
    return Miss(
        index=tuple(int(i) for i in np.unravel_index(wrong.index, place.shape)),
        got=wrong.got,
        want=wrong.want,
        error=error,
        bound=ERROR_BAR_FACTOR * wrong.bar + DIRECTION_ROUNDINGS * u * abs(wrong.want),
        error_bar=wrong.bar,
        ulp=error / ulp if wrong.want and np.isfinite(ulp) else None,
        cotangent="",
    )


@dataclass(frozen=True, slots=True)
class DirectionalResult:
    """One direction: ⟨g, d⟩, ‖g∘d‖₂ and the error along d, all times the unit.

    `noise` is one standard deviation of the loss; `sides` are the errors on both sides of a kink.
    `alarm` is the tolerance of a few steps that saw a larger error.
    """

    heading: Heading
    product: float
    norm: float
    slope: Slope
    allowed: float
    noise: float
    sides: Sides | None = None
    alarm: float = np.inf

    @property
    def error(self) -> float:
        """The error of the gradient along d; on a kink, to the nearest slope between both sides."""
        if self.sides is None:
            return self.slope.value
        return max(self.sides.low, 0.0) + min(self.sides.high, 0.0)

    @property
    def bar(self) -> float:
        """The error bar of the slope along d."""
        return self.slope.bar if self.sides is None else self.sides.bar

    @property
    def tolerance(self) -> float:
        """U + B."""
        return ERROR_BAR_FACTOR * self.bar + self.allowed

    @property
    def ok(self) -> bool:
        """Whether the gradient is right as far as this direction can tell."""
        return abs(self.error) <= self.tolerance

    @property
    def wrong(self) -> bool:
        """Whether nothing but a wrong gradient explains the error."""
        mixed = (
            0.0 if self.sides is None else MIXED_KINKS_FACTOR * (self.sides.high - self.sides.low)
        )
        return abs(self.error) > self.tolerance + mixed

    @property
    def visible(self) -> float:
        """The smallest other error along d that would be seen for certain."""
        between = 0.0 if self.sides is None else self.sides.high - self.sides.low
        return self.tolerance + abs(self.error) + between

    @property
    def zero(self) -> bool:
        """Whether the gradient is zero but for rounding."""
        return self.norm <= ZERO_NOISES * self.noise


def common_factor(results: Sequence[DirectionalResult]) -> float | None:
    """The factor of the whole gradient, if all directions agree on one."""
    if not all(s.sides is None and s.product and s.product + s.error for s in results):
        return None
    ratios = [s.product / (s.product + s.error) for s in results]
    blur = sum(s.tolerance / abs(s.product + s.error) for s in results)
    same = max(ratios) - min(ratios) <= blur * max(1.0, *map(abs, ratios))
    return ratios[0] if same and abs(ratios[0] - 1) > 8 * blur else None
