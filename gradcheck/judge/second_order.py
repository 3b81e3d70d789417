"""The derivative of a VJP, judged by differences of the VJP itself, and a double backward.

A VJP g(ct, x) = J(x)ᵀct that is right at one point may be wrong around it: computed from a value
that was saved elsewhere, say, so that its derivative is wrong. In random directions a (through the
gradients) and b (through one argument) three things must hold:

* along ct: the slope of ⟨g, a⟩ along b is ⟨b, J a⟩, forward's slope along a;
* along a primal: the slope of ⟨g, a⟩ along b is forward's mixed second derivative, aᵀHb with H the
  Hessian of ⟨ct, f⟩;
* symmetry: aᵀHb = bᵀHa, both as slopes of the VJP, without forward and its larger error bars.

Every number comes from a ladder of steps, with an error bar. A double backward is judged as the VJP
of the function (ct, primals) → gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from gradcheck.implementations.returned import Broken, broken
from gradcheck.judge.call import ask_vjp, vjp_rows_at
from gradcheck.judge.compare import (
    ALLOWED_ROUNDINGS,
    CANCELLATION_FACTOR,
    ERROR_BAR_FACTOR,
    Tolerance,
    number_miss,
)
from gradcheck.judge.conditioning import Conditioning
from gradcheck.judge.cotangents import Cotangents, draw_cotangents
from gradcheck.judge.primal_check import PrimalCheck, promote_to_float64
from gradcheck.numerics.arrays import Array, Attrs, Float, Mask, as_tuple
from gradcheck.numerics.direction import (
    CONFIRMING_LEVELS,
    FINER,
    Along,
    Direction,
    Slopes,
    draw_direction,
)
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import NoiseProbe
from gradcheck.numerics.evaluate import Point, flatten
from gradcheck.numerics.richardson import top_step
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

DIRECTIONS: Final = 3
SHARPER_FACTOR: Final = 4.0
"""A shorter ladder overrules a failure if it shows an error so many times smaller."""
Measure = Callable[[int, int], tuple[Slopes, Slopes]]
ROLE = "double_vjp"


@dataclass(frozen=True, slots=True)
class ScalarComparison:
    """Numbers `got` and `want` [k], with the error bar of their difference.

    `scale` is the size of the terms that cancel in them: for a pass, an error of a tenth of it
    (`Tolerance.max_useful_bound`) must be visible.
    """

    got: Float
    want: Float
    bar: Float
    scale: Float

    def failed(self, bound: Float) -> Mask:
        """Where neither the bound nor the error bars explain the difference."""
        with np.errstate(all="ignore"):
            known = np.isfinite(self.want) & np.isfinite(self.bar)
            blur = ERROR_BAR_FACTOR * np.where(known, self.bar, np.inf)
            return np.asarray(known & ~(np.abs(self.got - self.want) <= bound + blur))

    def finding(
        self, name: str, tolerance: Tolerance, bound: Float, reasons: tuple[str, str]
    ) -> Finding:
        """The verdict; `reasons` are sentences for a FAIL and for INCONCLUSIVE."""
        with np.errstate(all="ignore"):
            error = np.abs(self.got - self.want)
            known = np.isfinite(self.want) & np.isfinite(self.bar)
            blur = ERROR_BAR_FACTOR * np.where(known, self.bar, np.inf)
            failed = self.failed(bound)
            size = np.fmax(np.fmax(np.abs(self.got), np.abs(self.want)), self.scale)
            room = bound + blur
            visible = np.where(size > 0, room / size, np.where(room == 0, 0.0, np.inf))
        blind = ~failed & ~(visible <= tolerance.max_useful_bound)
        verdict, reason = Verdict.PASS, ""
        if failed.any():
            verdict = Verdict.FAIL
            reason = f"{reasons[0]} ({int(failed.sum())} of {failed.size} random directions)"
        elif blind.any():
            verdict = Verdict.INCONCLUSIVE
            reason = f"{reasons[1]} ({int(blind.sum())} of {failed.size} random directions)"
        with np.errstate(all="ignore"):
            ratio = np.where(error == 0, 0.0, error / room)
        rank = np.where(blind, 1 + visible, ratio / 2)
        rank = np.where(failed, np.inf, np.nan_to_num(rank, nan=np.inf))
        order = np.argsort(-rank, kind="stable")[: int(failed.sum()) or 1]
        rows = (self.got, self.want, error, bound, self.bar)
        return Finding(
            name=name,
            verdict=verdict,
            reason=reason,
            compared=int(failed.size),
            failed=int(failed.sum()),
            unresolved=int(blind.sum()),
            smallest_visible_error=float(np.max(visible)) if np.isfinite(visible).all() else None,
            worst=tuple(number_miss(*(float(row[k]) for row in rows)) for k in order),
        )


def scalar_bound(pairs: ScalarComparison, tolerance: Tolerance, terms: int) -> Float:
    """The allowed difference of two ways to compute a number; `terms` are summed in each."""
    with np.errstate(all="ignore"):
        size = np.fmax(np.abs(pairs.got), np.abs(pairs.want))
        size = np.where(np.isfinite(size), size, 0.0)
        part = tolerance.rtol / CANCELLATION_FACTOR + ALLOWED_ROUNDINGS * tolerance.u * np.sqrt(
            max(terms, 1)
        )
        return np.asarray(tolerance.rtol * size + part * pairs.scale + tolerance.underflow)


@dataclass(frozen=True)
class VjpFunction:
    """A VJP at one point as a function of (each part of ct, each primal), and its values there.

    `names` are those of the primals; `flat` are the gradients of the floating ones, [1, n] each.
    """

    vjp: Callable[..., Any]
    ct: tuple[Array, ...]
    primals: tuple[Array, ...]
    names: tuple[str, ...]
    attrs: Attrs
    flat: tuple[Float, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the parts of ct and of the primals, all different."""
        lead = "ct" if "ct" not in self.names else "cotangent"
        count = len(self.ct)
        parts = (lead,) if count == 1 else tuple(f"{lead}{k}" for k in range(count))
        return (*parts, *self.names)

    @cached_property
    def point(self) -> Point:
        """The gradients of the floating primals as a forward of (ct, primals)."""
        return Point(self._gradients, (*self.ct, *self.primals))

    @cached_property
    def values(self) -> tuple[Array, ...]:
        """The gradients of the floating primals at this point."""
        floating = (p for p in self.primals if p.dtype.kind == "f")
        pairs = zip(self.flat, floating, strict=True)
        return tuple(g.reshape(p.shape).astype(p.dtype) for g, p in pairs)

    def _gradients(self, *arguments: Array) -> tuple[Array, ...]:
        count = len(self.ct)
        ct, primals = arguments[:count], arguments[count:]
        found = as_tuple(self.vjp(ct[0] if count == 1 else ct, *primals, **self.attrs))
        pairs = zip(found, primals, strict=True)
        return tuple(np.asarray(g) for g, p in pairs if p.dtype.kind == "f")


@dataclass(frozen=True)
class SecondOrder:
    """A forward and its VJP at one point; `draw(role, …)` makes random directions."""

    forward: Point
    gradients: VjpFunction
    draw: Callable[..., Draw]
    tolerance: Tolerance

    def judge(self, right: bool) -> list[Finding]:
        """One finding for ct, one per floating primal, one for the symmetry.

        Nothing fails unless the VJP itself is `right`: otherwise its derivative is not comparable
        with forward's.
        """
        parts, names = tuple(range(self._outputs)), self.gradients.names
        groups = [("ct", parts)]
        groups += [(names[i], (len(parts) + i,)) for i in self.forward.differentiable]
        findings = [*(self._along(*group) for group in groups), self._symmetry()]
        return findings if right else [_inconclusive(finding) for finding in findings]

    @property
    def _outputs(self) -> int:
        return len(self.gradients.ct)

    @cached_property
    def _f(self) -> Along:
        return Along(self.forward)

    @cached_property
    def _g(self) -> Along:
        return Along(promote_to_float64(self.gradients.point, self.gradients.values))

    def _direction(self, role: str, k: int, which: Sequence[int]) -> Direction:
        """A random direction through arguments `which` of the VJP (ct parts, then primals)."""
        return draw_direction(self.draw(role, k), self.gradients.point.primals, which)

    def _through_primals(self, role: str, k: int) -> Direction:
        return self._direction(role, k, [self._outputs + i for i in self.forward.differentiable])

    def _row(self, direction: Direction) -> Float:
        """A direction through the primals as weights [1, n] of the gradients."""
        parts = [d.reshape(-1) for d in direction if d is not None]
        return np.concatenate(parts)[None]

    def _along(self, where: str, which: tuple[int, ...]) -> Finding:
        """Slopes of ⟨g, a⟩ along random directions through the arguments `which`."""
        through_ct = which[0] < self._outputs
        ct = np.concatenate([c.reshape(-1).astype(np.float64) for c in self.gradients.ct])[None]

        def measure(k: int, finer: int) -> tuple[Slopes, Slopes]:
            a, b = self._through_primals("a", k), self._direction(f"b {where}", k, which)
            got = self._g.slopes(b, self._row(a), finer)
            forward_a, forward_b = a[self._outputs :], b[self._outputs :]
            if through_ct:
                return got, self._f.slopes(forward_a, self._row(b), finer)
            return got, self._f.mixed(forward_a, forward_b, ct, finer)

        truth = "slope" if through_ct else "second derivative"
        reasons = (
            f"the derivative of vjp with respect to {where} is not forward's {truth}: "
            "is vjp computed from a value that was saved elsewhere?",
            f"the uncertainty of the derivative of vjp with respect to {where} is too large",
        )
        return self._finding(f"d vjp/d {where}", measure, reasons)

    def _symmetry(self) -> Finding:
        """Both aᵀHb and bᵀHa, as slopes of the VJP."""

        def measure(k: int, finer: int) -> tuple[Slopes, Slopes]:
            a, b = self._through_primals("a", k), self._through_primals("b", k)
            left, right = (b, self._row(a)), (a, self._row(b))
            return self._g.slopes(*left, finer), self._g.slopes(*right, finer)

        reasons = (
            "the derivative of vjp is not symmetric: it is the Hessian of no function",
            "the uncertainty of the derivative of vjp is too large",
        )
        return self._finding("Hessian symmetry", measure, reasons)

    def _finding(self, name: str, measure: Measure, reasons: tuple[str, str]) -> Finding:
        """The finding on `measure(k, finer)`: the slopes got and wanted along direction k."""
        measured = [measure(k, 0) for k in range(DIRECTIONS)]
        if any(want.seen and not got.seen for got, want in measured):
            reason = "vjp raises, or gives no numbers, right beside the primals"
            return Finding(name=name, verdict=Verdict.FAIL, reason=reason)
        pairs, bound = self._pairs(measured)
        for k in np.flatnonzero(pairs.failed(bound)):
            measured[k] = self._finer(measured[k], float(bound[k]), partial(measure, int(k)))
        pairs, bound = self._pairs(measured)
        return pairs.finding(name, self.tolerance, bound, reasons)

    def _finer(
        self,
        found: tuple[Slopes, Slopes],
        bound: float,
        measure: Callable[[int], tuple[Slopes, Slopes]],
    ) -> tuple[Slopes, Slopes]:
        """The first shorter ladder that explains a failure and could have shown it, or `found`.

        The bar of a failure that no much shorter ladder confirms becomes infinite.
        """
        error, confirmed = abs(found[0].value[0] - found[1].value[0]), False
        for finer in FINER:
            got, want = measure(finer)
            apart, blur = (
                abs(got.value[0] - want.value[0]),
                ERROR_BAR_FACTOR * (got.bar[0] + want.bar[0]),
            )
            if apart <= bound + blur and max(apart, blur) <= error / SHARPER_FACTOR:
                return got, want
            confirmed |= finer >= CONFIRMING_LEVELS and bool(apart > bound + blur)
        blurred = replace(found[1], bar=np.full_like(found[1].bar, np.inf))
        return found if confirmed else (found[0], blurred)

    def _pairs(self, measured: Sequence[tuple[Slopes, Slopes]]) -> tuple[ScalarComparison, Float]:
        rows = [self._row(self._through_primals("a", k)) * self._g.base for k in range(DIRECTIONS)]
        first = np.array([np.sum(np.abs(row)) for row in rows])  # the change of g over x itself
        scale = np.array([max(got.scale[0], want.scale[0]) for got, want in measured])
        pairs = ScalarComparison(
            got=np.array([got.value[0] for got, _ in measured]),
            want=np.array([want.value[0] for _, want in measured]),
            bar=np.array([got.bar[0] + want.bar[0] for got, want in measured]),
            scale=np.fmax(scale, first),
        )
        terms = max(self._g.base.size, self._f.base.size)
        return pairs, scalar_bound(pairs, self.tolerance, terms)


def _inconclusive(finding: Finding) -> Finding:
    """INCONCLUSIVE in place of a FAIL that may follow from an error at first order."""
    if finding.verdict is not Verdict.FAIL:
        return finding
    reason = f"vjp itself did not pass, so its derivative is not judged; {finding.reason}"
    return replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)


def as_vjp(double_vjp: Callable[..., Any], outputs: int, primals: Sequence[Array]) -> Any:
    """`double_vjp` as a VJP of the function (each part of ct, each primal) → gradients.

    It calls `double_vjp(ggs, ct, *primals)` with `ggs` in the form in which vjp returns gradients,
    and flattens the result (d_ct, d_primal, …).

    Raises:
        Broken: the result has another form.
    """
    floating = [p.dtype.kind == "f" for p in primals]

    def vjp(gg: Any, *arguments: Array, **attrs: Any) -> tuple[Any, ...]:
        rest = iter(gg if isinstance(gg, tuple) else (gg,))
        entries = tuple(next(rest) if moves else None for moves in floating)
        ggs = entries if len(entries) > 1 else entries[0]
        ct = arguments[0] if outputs == 1 else arguments[:outputs]
        found = double_vjp(ggs, ct, *arguments[outputs:], **attrs)
        count = 1 + len(primals)
        if not isinstance(found, (tuple, list)) or len(found) != count:
            what = len(found) if isinstance(found, (tuple, list)) else type(found).__name__
            raise broken(
                ROLE,
                f"{ROLE} returned {what}; return a tuple of {count}: the gradient of ct, then one "
                "per primal, None for an index",
            )
        first = (found[0],) if outputs == 1 else found[0]
        if not isinstance(first, (tuple, list)) or len(first) != outputs:
            raise broken(
                ROLE,
                f"{ROLE} returned for ct no tuple of {outputs}: ct has one part per output of "
                "forward, and so has its gradient",
            )
        return (*first, *found[1:])

    return vjp


def judge_double(
    double_vjp: Callable[..., Any], gradients: VjpFunction, draw: Draw, tolerance: Tolerance
) -> list[Finding]:
    """One finding per part of ct and per floating primal: the gradients of `gradients`."""
    names, values, attrs = gradients.arguments, gradients.values, gradients.attrs
    primals = gradients.point.primals
    rows = [f"double d{name}" for name in names]
    vjp = as_vjp(double_vjp, len(gradients.ct), gradients.primals)
    drawn = draw_cotangents(draw, [v.shape for v in values])
    cotangents = drawn.held([v.dtype for v in values])
    typed = [
        tuple(c.astype(v.dtype) for c, v in zip(row, values, strict=True))
        for row in cotangents.values
    ]
    try:
        answer = ask_vjp(vjp, typed, primals, rows, attrs, ROLE)
    except Broken as error:
        return [error.finding]
    point = promote_to_float64(gradients.point, values)
    around = NoiseProbe(point)
    conditioning = Conditioning(vjp_rows_at(vjp, cotangents, attrs, ROLE), point, tolerance)
    findings = []
    for i in point.differentiable:
        got = answer.gradients[rows[i]]
        if isinstance(got, Finding):
            findings.append(got)
            continue
        least = _least_scale(point.primals[i], values, cotangents)
        subject = (names[i], "vjp")
        black_box = PrimalCheck(point, i, rows[i], cotangents, around, conditioning, least, subject)
        findings.append(black_box.judge(got))
    return findings


def _least_scale(argument: Array, values: Sequence[Array], cotangents: Cotangents) -> Float:
    """The change of all of vjp's values over the argument's reach, [q, 1].

    It is the scale for the second derivative of a piecewise linear function, which is zero.
    """
    terms = np.abs(cotangents.flat * flatten(values))
    return np.asarray(np.max(terms, axis=1, initial=0.0, keepdims=True) / top_step(argument))
