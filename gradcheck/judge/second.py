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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference.direction import Along, Direction, Slopes, draw_direction
from gradcheck.difference.evaluate import Point, as_tuple
from gradcheck.draw import Draw
from gradcheck.finding import Finding
from gradcheck.judge.compare import Rules
from gradcheck.judge.function import promoted
from gradcheck.judge.pairs import Pairs, bound_of
from gradcheck.spec import Attrs
from gradcheck.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]

DRAWS: Final = 3


def as_function(vjp: Callable[..., Any], outputs: int, attrs: Attrs) -> Callable[..., Any]:
    """`vjp` as a forward of (each part of ct, each primal): its floating gradients, as a tuple."""

    def gradients(*arguments: Array) -> tuple[Array, ...]:
        ct, primals = arguments[:outputs], arguments[outputs:]
        found = as_tuple(vjp(ct[0] if outputs == 1 else ct, *primals, **attrs))
        pairs = zip(found, primals, strict=True)
        return tuple(np.asarray(g) for g, p in pairs if p.dtype.kind == "f")

    return gradients


@dataclass(frozen=True)
class Second:
    """A forward and a VJP at one point: `forward` is a Point already, `ct` one part per output.

    `names` are the primals'; `gradients` is the VJP as a function of (ct, primals), with the
    primals in the dtype that is judged.
    """

    forward: Point
    gradients: Point
    names: Sequence[str]
    draw: Callable[..., Draw]
    rules: Rules

    def judge(self) -> list[Finding]:
        """One finding for ct, one per floating primal, one for the symmetry."""
        rows = [("d vjp/d ct", tuple(range(self._outputs)))]
        rows += [
            (f"d vjp/d {self.names[i]}", (self._outputs + i,)) for i in self.forward.differentiable
        ]
        return [*(self._along(name, which) for name, which in rows), self._symmetry()]

    @property
    def _outputs(self) -> int:
        return len(self.gradients.primals) - len(self.forward.primals)

    @cached_property
    def _f(self) -> Along:
        return Along(self.forward)

    @cached_property
    def _g(self) -> Along:
        return Along(promoted(self.gradients, self.gradients.forward(*self.gradients.primals)))

    def _direction(self, role: str, k: int, which: Sequence[int]) -> Direction:
        """A random direction through arguments `which` of the VJP (ct parts, then primals)."""
        return draw_direction(self.draw(role, k), self.gradients.primals, which)

    def _through_primals(self, role: str, k: int) -> Direction:
        return self._direction(role, k, [self._outputs + i for i in self.forward.differentiable])

    def _row(self, direction: Direction) -> Float:
        """A direction through the primals as weights [1, n] of the gradients."""
        parts = [d.reshape(-1) for d in direction if d is not None]
        return np.concatenate(parts)[None]

    def _along(self, name: str, which: tuple[int, ...]) -> Finding:
        """Slopes of ⟨g, a⟩ along random directions through the arguments `which`."""
        got, want = [], []
        cts = self.gradients.primals[: self._outputs]
        through_ct = which[0] < self._outputs
        for k in range(DRAWS):
            a, b = self._through_primals("a", k), self._direction(name, k, which)
            got.append(self._g.slopes(b, self._row(a)))
            forward_a, forward_b = a[self._outputs :], b[self._outputs :]
            if through_ct:
                want.append(self._f.slopes(forward_a, self._row(b)))
            else:
                ct = self._row(tuple(c.astype(np.float64) for c in cts))
                want.append(self._f.mixed(forward_a, forward_b, ct))
        where = "ct" if through_ct else self.names[which[0] - self._outputs]
        truth = "the slope of forward" if through_ct else "the second derivative of forward"
        reasons = (
            f"the derivative of vjp with respect to {where} is not {truth}: "
            "is vjp computed from a value that was saved elsewhere?",
            f"the error bars of the derivative of vjp with respect to {where} are too wide",
        )
        return self._finding(name, got, want, reasons)

    def _symmetry(self) -> Finding:
        """aᵀHb and bᵀHa, both as slopes of the VJP."""
        got, want = [], []
        for k in range(DRAWS):
            a, b = self._through_primals("symmetry a", k), self._through_primals("symmetry b", k)
            got.append(self._g.slopes(b, self._row(a)))
            want.append(self._g.slopes(a, self._row(b)))
        reasons = (
            "the derivative of vjp is not symmetric: it is the Hessian of no function",
            "the error bars of the derivative of vjp are too wide",
        )
        return self._finding("Hessian symmetry", got, want, reasons)

    def _finding(
        self, name: str, got: list[Slopes], want: list[Slopes], reasons: tuple[str, str]
    ) -> Finding:
        if any(w.seen and not g.seen for g, w in zip(got, want, strict=True)):
            reason = "vjp raises, or gives no numbers, right beside the primals"
            return Finding(name=name, verdict=Verdict.FAIL, reason=reason, compared=0)
        rows = [
            self._row(self._through_primals("a", k)) * self._g.base[None] for k in range(DRAWS)
        ]
        first = np.array([np.sum(np.abs(row)) for row in rows])  # the change of g over x itself
        scale = [np.fmax(g.scale, w.scale)[0] for g, w in zip(got, want, strict=True)]
        pairs = Pairs(
            got=np.array([g.value[0] for g in got]),
            want=np.array([w.value[0] for w in want]),
            bar=np.array([g.bar[0] + w.bar[0] for g, w in zip(got, want, strict=True)]),
            scale=np.fmax(scale, first),
            natural=np.fmax(scale, first),
        )
        terms = max(self._g.base.size, self._f.base.size)
        return pairs.finding(name, self.rules, bound_of(pairs, self.rules, terms), reasons)
