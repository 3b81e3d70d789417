"""The derivative of a VJP, judged by differences of the VJP itself.

A VJP g(ct, x) = J(x)ᵀct that is right at one point may still be wrong around it: computed from a
value that was saved elsewhere, say, so that whoever differentiates it once more gets nonsense. In
random directions a (through the gradients) and b (through one argument) three things must hold:

* along ct: the slope of ⟨g, a⟩ along b is ⟨b, J a⟩, forward's slope along a;
* along a primal: the slope of ⟨g, a⟩ along b is forward's mixed second derivative, aᵀHb with H the
  Hessian of ⟨ct, f⟩;
* symmetry: aᵀHb = bᵀHa, both as slopes of the VJP, without forward and its larger error bars.

Every number comes from a ladder, with an error bar. Nothing is assumed of how the VJP computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.black_box import promoted
from gradcheck.judge.compare import KAPPA, Rules
from gradcheck.judge.pairs import Pairs, bound_of
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.numerics.direction import (
    CONFIRMING_LEVELS,
    FINER,
    Along,
    Direction,
    Slopes,
    draw_direction,
)
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Point
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]

DRAWS: Final = 3
SHARPER: Final = 4.0
"""How many times smaller a shorter ladder must show an error to be, to explain it away."""

Measure = Callable[[int, int], tuple[Slopes, Slopes]]


@dataclass(frozen=True)
class Gradients:
    """A VJP at one point as a function of (each part of ct, each primal), and its values there.

    `names` are the primals'; `flat` are the gradients of the floating ones, [1, n] each.
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
class Second:
    """A forward and its VJP at one point; `draw(role, …)` makes random directions."""

    forward: Point
    gradients: Gradients
    draw: Callable[..., Draw]
    rules: Rules

    def judge(self, right: bool) -> list[Finding]:
        """One finding for ct, one per floating primal, one for the symmetry.

        Nothing is failed here unless the VJP itself is `right`, as far as that could be seen: the
        derivative of something else is no derivative of forward's.
        """
        parts, names = tuple(range(self._outputs)), self.gradients.names
        groups = [("ct", parts)]
        groups += [(names[i], (len(parts) + i,)) for i in self.forward.differentiable]
        findings = [*(self._along(*group) for group in groups), self._symmetry()]
        return findings if right else [_excused(finding) for finding in findings]

    @property
    def _outputs(self) -> int:
        return len(self.gradients.ct)

    @cached_property
    def _f(self) -> Along:
        return Along(self.forward)

    @cached_property
    def _g(self) -> Along:
        return Along(promoted(self.gradients.point, self.gradients.values))

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
            f"the error bars of the derivative of vjp with respect to {where} are too wide",
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
            "the error bars of the derivative of vjp are too wide",
        )
        return self._finding("Hessian symmetry", measure, reasons)

    def _finding(self, name: str, measure: Measure, reasons: tuple[str, str]) -> Finding:
        """What `measure(k, finer)`, got and wanted along direction k, amounts to."""
        measured = [measure(k, 0) for k in range(DRAWS)]
        if any(want.seen and not got.seen for got, want in measured):
            reason = "vjp raises, or gives no numbers, right beside the primals"
            return Finding(name=name, verdict=Verdict.FAIL, reason=reason)
        pairs, bound = self._pairs(measured)
        for k in np.flatnonzero(pairs.failed(bound)):
            measured[k] = self._finer(measured[k], float(bound[k]), partial(measure, int(k)))
        pairs, bound = self._pairs(measured)
        return pairs.finding(name, self.rules, bound, reasons)

    def _finer(
        self,
        found: tuple[Slopes, Slopes],
        bound: float,
        measure: Callable[[int], tuple[Slopes, Slopes]],
    ) -> tuple[Slopes, Slopes]:
        """The first shorter ladder that explains a failure and could have shown it, or `found`.

        A failure that no much shorter ladder confirms is none: its bar becomes infinite.
        """
        error, confirmed = abs(found[0].value[0] - found[1].value[0]), False
        for finer in FINER:
            got, want = measure(finer)
            apart, blur = abs(got.value[0] - want.value[0]), KAPPA * (got.bar[0] + want.bar[0])
            if apart <= bound + blur and max(apart, blur) <= error / SHARPER:
                return got, want
            confirmed |= finer >= CONFIRMING_LEVELS and bool(apart > bound + blur)
        blurred = replace(found[1], bar=np.full_like(found[1].bar, np.inf))
        return found if confirmed else (found[0], blurred)

    def _pairs(self, measured: Sequence[tuple[Slopes, Slopes]]) -> tuple[Pairs, Float]:
        """The measurements as numbers to compare, and their bound."""
        rows = [self._row(self._through_primals("a", k)) * self._g.base for k in range(DRAWS)]
        first = np.array([np.sum(np.abs(row)) for row in rows])  # the change of g over x itself
        scale = np.array([max(got.scale[0], want.scale[0]) for got, want in measured])
        pairs = Pairs(
            got=np.array([got.value[0] for got, _ in measured]),
            want=np.array([want.value[0] for _, want in measured]),
            bar=np.array([got.bar[0] + want.bar[0] for got, want in measured]),
            scale=np.fmax(scale, first),
            natural=np.fmax(scale, first),
        )
        terms = max(self._g.base.size, self._f.base.size)
        return pairs, bound_of(pairs, self.rules, terms)


def _excused(finding: Finding) -> Finding:
    """A failure that may follow from what is wrong, or unknown, at first order."""
    if finding.verdict is not Verdict.FAIL:
        return finding
    reason = f"vjp itself did not pass, so its derivative is not judged; {finding.reason}"
    return replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)
