"""Every tensor's gradient against the slope of a scalar function along random directions.

With e = ⟨g* − g, d⟩ as the ladder found it, U = 2 · error bar and B = 12·u·‖g∘d‖₂ for what the
implementation may round: |e| ≤ B + U passes; more than that fails, if the whole ladder and a
second direction say so too. Nothing is relative to the gradient: a whole tensor is as wrong as it
is, and one element of a million shows as far as its error exceeds the bar.

Every finding says what it could have seen. A tensor of which not even an error as a whole was
visible is INCONCLUSIVE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import KAPPA
from gradcheck.judge.contract.loss import checksum, not_finite, value_at
from gradcheck.judge.directional_result import DirectionalResult, common_factor
from gradcheck.judge.locate import ALLOWED, MOST, PRECISE, Located, Seen, Wrong, locate, one_element
from gradcheck.numerics.adaptive_slope import TensorView, slope_search
from gradcheck.numerics.draw import LEAST_MAGNITUDE, key_of
from gradcheck.numerics.ray import Given, Heading, Line, Place, Scalar, unit_of
from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]

TARGET: Final = {"float64": 1e-9, "float32": 1e-4}
"""The error bar, as a part of ‖g∘d‖₂, with which the ladder is content: in float64 one element of
10⁸ shows if it is a thousandth off."""
LONE: Final = 0.025
CROWDED: Final = 5e-3
"""The same in float32: LONE/√n shows one of n elements that is a tenth off. Where that is less than
TARGET, no step will show it, and CROWDED shows what is wrong with the whole."""
BLIND: Final = {"float64": 1e-3, "float32": 0.1}
"""The smallest error of a whole tensor that must be visible, relative: a mean over T − 1 instead of
T for a thousand tokens. In float32 a network with kinks shows no less than a few per cent, and a
missing term, a sign or a factor 2 is more than a tenth."""
STRIKES: Final = 3
"""Directions at most: two that fail, or one that decides otherwise."""
BLIND_TO_ZERO: Final = {"float64": 1e-8, "float32": 1e-4}
"""The smallest slope that must be visible where the gradient is zero: as a part of the loss, for a
step of the tensor's own size. (Values that do not move at all show a slope of 1e-15, 1e-6.)"""
ALIGNED: Final = 0.25
"""|⟨g, d⟩| is at least this part of ‖g∘d‖₂, or another direction is drawn: none should be blind to
an error of the whole tensor by chance."""
DRAWS: Final = 8
CONFIRMED: Final = 0.01
"""The error bar of an element, as a part of its error, where others confirm what is accused."""
CLEARLY: Final = 8.0
"""How many times finer than an alarm the error bar must be that may clear it."""
SQUARE: Final = 13.0 / 12.0
"""The mean square of a direction's elements."""


def judge_tensors(
    value: Callable[[], Any],
    tensors: Mapping[str, Array],
    gradients: Mapping[str, Array | Sequence[Array] | Finding],
    *,
    seed: Sequence[object] = (0,),
    search: int = 400,
) -> list[Finding]:
    """One finding per floating tensor, in their order.

    Args:
        value: the scalar function of all tensors; it reads them where they are.
        tensors: C-contiguous writable float64 or float32 arrays, which are moved in place, one at
            a time, and restored bit by bit; integer ones are left alone.
        gradients: per floating tensor the gradient (shaped like it; a list is summed), or a
            finding that says what is wrong with it, which is passed on.
        seed: what the random directions are called, beside the tensor's own name.
        search: evaluations that may be spent per tensor on finding wrong elements; 0: none.

    Returns:
        The findings. If the function itself cannot be differenced (it raises, is not finite, or
        is not deterministic), a single one that says so, called "loss".
    """
    scalar = Scalar(value)
    floating = {name: t for name, t in tensors.items() if t.dtype.kind == "f"}
    base = value_at(scalar, floating)
    if isinstance(base, Finding):
        return [base]
    return [
        _judge(scalar, base, name, tensor, gradients.get(name), (*seed, name), search)
        for name, tensor in floating.items()
    ]


def _judge(
    scalar: Scalar,
    base: float,
    name: str,
    tensor: Array,
    gradient: Array | Sequence[Array] | Finding | None,
    seed: tuple[object, ...],
    search: int,
) -> Finding:
    if isinstance(gradient, Finding):
        return gradient
    if gradient is None:
        reason = f"no gradient for {name}: give zeros where it is zero"
        return Finding(name=name, verdict=Verdict.MISSING, reason=reason)
    if tensor.size == 0:
        reason = "it has no elements: only its shape and its dtype were checked"
        return Finding(name=name, verdict=Verdict.PASS, reason=reason)
    before, given = scalar.evaluations, Given.of(gradient)
    sums = checksum(given.buffers)
    site = TensorView(scalar, base, tensor, given, unit_of(tensor))
    finding = _not_finite(name, site) or Projection(name, site, seed).judge(search)
    if checksum(given.buffers) != sums:
        reason = f"the loss writes into the gradient of {name}: hand over a copy of it"
        finding = Finding(name=name, verdict=Verdict.ERROR, reason=reason)
    return replace(finding, evaluations=scalar.evaluations - before)


def _not_finite(name: str, site: TensorView) -> Finding | None:
    """A tensor, or a gradient, that holds NaN or infinity: where, and what should be there."""
    if strange := not_finite(site.tensor):
        reason = f"{name} holds {strange[0]} numbers that are not finite: no slope there"
        return Finding(name=name, verdict=Verdict.INCONCLUSIVE, reason=reason)
    for buffer in site.given.buffers:
        if not (strange := not_finite(buffer)):
            continue
        count, index, value = strange
        silent = replace(site, given=Given((np.broadcast_to(0.0, (site.size,)),)))
        want = one_element(silent, index, Heading(0))
        return Finding(
            name=name,
            verdict=Verdict.FAIL,
            reason=f"{count} of {site.size} elements are not finite",
            compared=site.size,
            failed=count,
            worst=(miss_of(site, replace(want, got=value)),),
        )
    return None


@dataclass(slots=True)
class Projection:
    """The check of one tensor's gradient, wherever the tensor lies; both are finite.

    An error of `least` in any one element, in units of the gradient, is to be visible where it
    passes; `subject` is what sentences call the function. Where what is accused is confirmed by
    others, a `clear` alarm is one: so many times what is tolerated.
    """

    name: str
    site: Place
    seed: tuple[object, ...]
    least: float = np.inf
    subject: str = "the loss"
    clear: float = np.inf
    strikes: list[DirectionalResult] = field(default_factory=list)

    def judge(self, search: int) -> Finding:
        """The verdict, after as many directions as it takes."""
        for _ in range(STRIKES):
            self.strikes.append(self._strike())
            wrong = [s for s in self.strikes if s.wrong]
            if len(wrong) > 1:
                return self._failed(wrong, search)
            if self._sees(self.strikes[-1]) and not wrong:
                break
        return self._passed()

    def _strike(self) -> DirectionalResult:
        """One more direction: three steps and a few more, or the whole ladder."""
        ray, product, norm = self._aligned()
        with ray:
            rungs = slope_search(self.site, ray)
            target = self._target() * (norm or abs(self.site.base))
            slope = rungs.settle(min(target, self._alarm / CLEARLY))
            allowed = ALLOWED * self.site.u * norm
            strike = DirectionalResult(ray.heading, product, norm, slope, allowed, rungs.noise())
            if self._sees(strike) or abs(strike.error) > self.clear * strike.tolerance:
                return strike
            alarm = np.inf if strike.ok else strike.tolerance
            slope = rungs.exhaust()
            strike = replace(strike, slope=slope, noise=rungs.noise(), alarm=alarm)
            return strike if self._sees(strike) else replace(strike, sides=rungs.sides())

    @property
    def _alarm(self) -> float:
        """The least error that a direction took for one."""
        return min((strike.alarm for strike in self.strikes), default=np.inf)

    def _target(self) -> float:
        """The error bar to aim for, as a part of ‖g∘d‖₂."""
        kind = self.site.dtype.name
        lone = LONE / np.sqrt(self.site.size)
        if kind == "float64" or lone >= TARGET[kind]:
            return float(max(TARGET[kind], lone if kind == "float32" else 0.0))
        return CROWDED

    def _aligned(self) -> tuple[Line, float, float]:
        """A direction that is not orthogonal to the gradient, its ⟨g, d⟩ and ‖g∘d‖₂."""
        quiet = self.strikes and self.strikes[0].ok and self._alarm == np.inf
        uphill = bool(quiet)  # it passed, but saw too little
        for draw in range(DRAWS):
            key = key_of("projection", *self.seed, len(self.strikes), draw)
            ray = self.site.ray(Heading(key, uphill))
            product, norm = ray.products()
            if abs(product) >= ALIGNED * norm:
                break
        return ray, product, norm

    def _sees(self, strike: DirectionalResult) -> bool:
        """Whether it passes, and would have shown an error of the whole tensor.

        It clears an alarm only if it would have been one in its place.
        """
        kind = self.site.dtype.name
        visible = BLIND[kind] * abs(strike.product)
        if strike.zero:
            visible = BLIND_TO_ZERO[kind] * abs(self.site.base)
        lone = self.lone(strike) <= self.least
        return lone and strike.ok and strike.visible <= min(visible, strike.alarm, self._alarm)

    def lone(self, strike: DirectionalResult) -> float:
        """The error of one element that would be seen for certain, in units of the gradient."""
        return strike.visible / (LEAST_MAGNITUDE * self.site.ray(strike.heading).unit)

    def _passed(self) -> Finding:
        seeing = [strike for strike in self.strikes if self._sees(strike)]
        strike = min(seeing or self.strikes, key=lambda s: s.visible / (abs(s.product) or 1.0))
        finding = self.finding(strike)
        if seeing:
            return replace(finding, verdict=Verdict.PASS, reason=self._caveat(strike))
        verdict, count = Verdict.INCONCLUSIVE, self.site.size
        return replace(finding, verdict=verdict, unresolved=count, reason=self._unclear(strike))

    def _caveat(self, strike: DirectionalResult) -> str:
        """What a pass does not say."""
        notes = []
        if strike.sides is not None:
            notes.append(f"{self.subject} has a kink here: judged by the slopes on both sides")
        if strike.zero:
            notes.append(f"zero but for rounding: a slope of {strike.visible:.2g} would be seen")
        return "; ".join(notes)

    def _unclear(self, strike: DirectionalResult) -> str:
        """Why nothing can be said."""
        base = self.site.base
        if strike.sides is not None:
            low, high = (strike.product + side for side in (strike.sides.low, strike.sides.high))
            return (
                f"{self.subject} has a kink here: its slopes along a random direction are "
                f"{low:.6g} and {high:.6g}, the gradient says {strike.product:.6g}; move away "
                "from the kink"
            )
        if not np.isfinite(strike.bar):
            refusal = self.site.value.refusal
            why = f" (it raises {refusal})" if refusal else ""
            return f"no step is short enough for {self.subject} to have a slope{why}"
        if not strike.ok or self._alarm < np.inf:
            return "one random direction shows an error that others neither confirm nor clear"
        part = strike.visible / abs(strike.product) if strike.product else np.inf
        if part <= BLIND[self.site.dtype.name]:
            return (
                f"it agrees along a random direction, but a single wrong element would show only "
                f"above {self.finding(strike).smallest_visible_error:.1g} times a typical one: "
                f"{self.subject} is known to {strike.noise / abs(base) if base else 0.0:.1g} of "
                "itself"
            )
        return (
            f"even an error of the whole tensor would show only above {part:.1g} of it: "
            f"{self.subject} is known to {strike.noise / abs(base) if base else 0.0:.1g} of "
            "itself; give float64"
        )

    def _failed(self, strikes: Sequence[DirectionalResult], search: int) -> Finding:
        """Two directions say that it is wrong: where, and by how much?"""
        first = strikes[0]
        finding = replace(self.finding(first), verdict=Verdict.FAIL, failed=1)
        whole = self._as_a_whole(strikes)
        found = Located((), False)
        # Where others confirm it, any element given proves that the whole is wrong.
        any_proves = bool(whole) and self.clear < np.inf and any(s.product for s in strikes)
        if search and not any_proves:
            seen = [Seen(s.heading, s.slope) for s in strikes]
            most = 1 if whole else MOST
            precise = PRECISE if np.isinf(self.clear) else CONFIRMED
            found = locate(
                self.site, seen, first.allowed, most=most, search=search, precise=precise
            )
        if found.wrong:
            worst = tuple(miss_of(self.site, wrong) for wrong in found.wrong)
            finding = replace(finding, worst=worst, failed=len(worst))
        if whole:
            finding = replace(finding, failed=self.site.size)
        return replace(finding, reason=whole or self._extent(found, strikes))

    def _as_a_whole(self, strikes: Sequence[DirectionalResult]) -> str:
        """What is wrong with the whole of it, if all directions agree; else an empty string."""
        if all(abs(s.product + s.error) <= s.tolerance for s in strikes):
            return (
                f"{self.subject} does not depend on {self.name}, but the gradient is not zero; "
                f"does {self.subject} read another copy of it?"
            )
        if all(s.product == 0 for s in strikes):
            return f"the gradient is zero, but {self.subject} depends on {self.name}"
        factor = common_factor(strikes)
        if factor is None:
            return ""
        return (
            f"along {len(strikes)} random directions the whole of it is {factor:.8g} times "
            f"the slope of {self.subject}"
        )

    def _extent(self, found: Located, strikes: Sequence[DirectionalResult]) -> str:
        """How many elements are wrong, as far as that was found out."""
        count, of = len(found.wrong), self.site.size
        if not count:
            off = " and ".join(f"{s.error / s.tolerance:.3g}" for s in strikes)
            return f"along random directions it is off by {off} times what could be explained"
        if found.complete:
            return f"{count} of {of} elements {'is' if count == 1 else 'are'} wrong"
        return f"{count} or more of {of} elements are wrong"

    def finding(self, strike: DirectionalResult) -> Finding:
        """The numbers of one direction."""
        size = self.site.size
        typical = strike.norm / np.sqrt(SQUARE * size)
        visible = min([s.visible for s in self.strikes if s.ok] or [strike.tolerance])
        least = float(visible / (LEAST_MAGNITUDE * typical)) if typical else None
        miss = Miss(
            index=(),
            got=strike.product,
            want=strike.product + strike.error,
            error=abs(strike.error),
            bound=strike.tolerance,
            error_bar=strike.bar,
            ulp=None,
            cotangent="",
        )
        return Finding(
            name=self.name,
            verdict=Verdict.INCONCLUSIVE,
            compared=size,
            smallest_visible_error=least,
            worst=(miss,),
        )


def miss_of(site: Place, wrong: Wrong) -> Miss:
    """A wrong element as a finding shows it."""
    error, u = abs(wrong.got - wrong.want), site.u
    with np.errstate(all="ignore"):
        place = float(np.spacing(np.asarray(abs(wrong.want), site.dtype)))
    return Miss(
        index=tuple(int(i) for i in np.unravel_index(wrong.index, site.shape)),
        got=wrong.got,
        want=wrong.want,
        error=error,
        bound=KAPPA * wrong.bar + ALLOWED * u * abs(wrong.want),
        error_bar=wrong.bar,
        ulp=error / place if wrong.want and np.isfinite(place) else None,
        cotangent="",
    )
