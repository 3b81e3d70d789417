"""Forward mode: a Jacobian-vector product against forward's differences, and against the VJP.

The differences find a wrong J·u, whatever the VJP is; the dot products ⟨v, J u⟩ and ⟨Jᵀv, u⟩ are
known to rounding, so they find errors below the error bars of differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import Answer, RowsAt, ask_jvp, rows_of
from gradcheck.judge.compare import (
    ALLOWED_ROUNDINGS,
    ERROR_BAR_FACTOR,
    Comparison,
    Tolerance,
    compare,
)
from gradcheck.judge.conditioning import Conditioning
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.primal_check import value_resolution
from gradcheck.judge.second_order import SHARPER_FACTOR, ScalarComparison
from gradcheck.numerics import sparsity
from gradcheck.numerics.arrays import Array, Attrs, Float, Mask
from gradcheck.numerics.direction import (
    CONFIRMING_LEVELS,
    FINER,
    Along,
    Direction,
    Slopes,
    magnitude,
)
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import Estimate
from gradcheck.numerics.evaluate import Evaluator, Point, flatten
from gradcheck.numerics.kinks_and_slopes import Scales
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

TANGENT_KINDS: Final = ("normal", "signed", "ones")
"""How tangents are drawn (see `Draw`); never ones alone."""
SIGN_CHANGES: Final = 8
"""Random signs of each tangent that show the size of terms in the sum over the inputs."""


@dataclass(frozen=True)
class ForwardMode:
    """A jvp at one point: `point` is forward (in float64 if possible), `outputs` its values.

    `primals` are in the dtype judged, with `names`. `vjp` gives the gradients of the VJP at other
    primals for the cotangents `cts`.
    """

    jvp: Callable[..., Any]
    point: Point
    outputs: Sequence[Array]
    primals: Sequence[Array]
    names: Sequence[str]
    attrs: Attrs
    cts: Cotangents
    vjp: RowsAt
    draw: Draw
    tolerance: Tolerance

    def judge(self, gradients: list[Float] | None) -> list[Finding]:
        """J·u, element by element, and the dot products with `gradients` [q, n] per primal.

        `gradients` is None where the VJP returned none that could be compared.
        """
        try:
            findings = self._judge(self._tangents(None), gradients)
            if all(f.verdict is not Verdict.FAIL for f in findings):
                return findings
            still = self._on_kinks()
            if not any(np.any(kinked) for kinked in still.values()):
                return findings
            return self._judge(self._tangents(still), gradients)
        except Broken as error:
            return [error.finding]

    def _judge(self, tangents: Cotangents, gradients: list[Float] | None) -> list[Finding]:
        typed = tangents.typed(self.tolerance.dtype)
        answer = self._ask(typed, self.primals)
        rows = [answer.gradients[name] for name in self._like]
        broken = [row for row in rows if isinstance(row, Finding)]
        if broken:
            return broken
        got = np.concatenate([row for row in rows if not isinstance(row, Finding)], axis=1)

        def again(primals: tuple[Array, ...], dtype: str) -> list[Float] | None:
            return self._again(tangents, primals, dtype)

        return [
            self._against_forward(got, tangents, Conditioning(again, self.point, self.tolerance)),
            self._against_vjp(got, gradients, tangents, again),
        ]

    def _against_forward(
        self, got: Float, tangents: Cotangents, conditioning: Conditioning
    ) -> Finding:
        directions = [self._direction(u) for u in tangents.values]
        found = self._slopes(tangents)
        value, bar = np.stack([s.value for s in found]), np.stack([s.bar for s in found])
        cancels = [self._forward.spread(d, self.draw, SIGN_CHANGES) for d in directions]
        scale = np.fmax(np.stack([s.scale for s in found]), np.stack(cancels))
        inputs = sum(p.size for p in self.primals if p.dtype.kind == "f")
        estimate = Estimate(
            value=value,
            bar=bar,
            scale=scale,
            terms=np.full(value.shape[1], inputs, dtype=np.int64),
            settled=np.zeros(value.shape, dtype=bool),
        )
        worked = next(p.dtype for p in self.point.primals if p.dtype.kind == "f")
        resolution = value_resolution(self.tolerance, worked)
        compared = compare(got, estimate, self.tolerance, resolution=resolution)
        if compared.pending.any():
            farthest = max(float(np.max(s.reach, initial=0.0)) for s in found)
            extra = conditioning.cost(0, np.full(value.shape, farthest))
            compared = compare(got, estimate, self.tolerance, extra=extra, resolution=resolution)
            if np.any(compared.failed & np.isfinite(got)):
                self._look_closer(compared, directions)
                compared = compare(
                    got, estimate, self.tolerance, extra=extra, resolution=resolution
                )
        shape = self.outputs[0].shape if len(self.outputs) == 1 else (value.shape[1],)
        return compared.finding("jvp", shape, tangents.names)

    def _look_closer(self, found: Comparison, directions: Sequence[Direction]) -> None:
        """Let shorter ladders overrule failures, where they agree and could see the error.

        The truth is unknown for elements that none of them overrules and no much shorter one
        confirms.
        """
        doubted, estimate = found.failed.copy(), found.estimate
        for finer in FINER:
            shorter = [self._forward.slopes(d, finer=finer) for d in directions]
            value, bar = np.stack([s.value for s in shorter]), np.stack([s.bar for s in shorter])
            with np.errstate(all="ignore"):
                apart, blur = np.abs(found.got - value), ERROR_BAR_FACTOR * bar
                agrees = doubted & (apart <= found.bound + blur)
                agrees &= np.fmax(apart, blur) <= found.error / SHARPER_FACTOR
                confirmed = doubted & (apart > found.bound + blur) & (finer >= CONFIRMING_LEVELS)
            estimate.value[agrees], estimate.bar[agrees] = value[agrees], bar[agrees]
            doubted &= ~(agrees | confirmed)
        estimate.bar[doubted] = np.inf

    def _against_vjp(
        self,
        got: Float,
        gradients: list[Float] | None,
        tangents: Cotangents,
        again: RowsAt,
    ) -> Finding:
        """⟨v, J u⟩ against ⟨Jᵀv, u⟩ for every random v and u, to rounding."""
        name = "dot product"
        if gradients is None:
            reason = "vjp gave no gradients to compare jvp with"
            return Finding(name=name, verdict=Verdict.NOTRUN, reason=reason)
        v, u, g = self.cts.flat, tangents.flat, np.concatenate(gradients, axis=1)
        with np.errstate(all="ignore"):
            left, right = (v @ got.T).reshape(-1), (g @ u.T).reshape(-1)
            scale = np.abs(v) @ np.abs(got).T + np.abs(g) @ np.abs(u).T
            # J u may vanish for one u (softmax, for all ones): others show how large its terms are.
            norms = np.outer(*(np.linalg.norm(rows, axis=1) for rows in (v, u)))
            parts = scale / norms
            largest = np.max(np.where(np.isfinite(parts), parts, 0.0), initial=0.0)
            scale = (norms * largest).reshape(-1)
        pairs = ScalarComparison(got=left, want=right, bar=np.zeros(left.size), scale=scale)
        reasons = (
            "⟨v, J u⟩ of jvp is not ⟨Jᵀv, u⟩ of vjp: one is not the transpose of the other",
            "rounding alone may cost a visible part of ⟨v, J u⟩",
        )
        part = ALLOWED_ROUNDINGS * self.tolerance.u * np.sqrt(v.shape[1] + u.shape[1])
        bound = part * scale + self.tolerance.underflow
        with np.errstate(all="ignore"):
            settled = bool(np.all(np.abs(left - right) <= bound))
        if not settled:
            afar = np.max([s.reach for s in self._slopes(tangents)], axis=0)
            bound = bound + self._lost(v, u, again) + np.repeat(part * np.abs(v) @ afar, len(u))
        return pairs.finding(name, self.tolerance, bound, reasons)

    def _lost(self, v: Float, u: Float, again: RowsAt) -> Float:
        """The allowed difference of right products, as neighbouring points show it.

        Noise is allowed here; the comparison with forward's differences does not allow it.
        """
        reach = np.full((len(u), v.shape[1]), np.inf)
        out = np.zeros((len(v), len(u)))
        forward = Conditioning(again, self.point, self.tolerance, noisy=True).cost(0, reach)
        if forward is not None:
            out += np.abs(v) @ forward.T
        backward = Conditioning(self.vjp, self.point, self.tolerance, noisy=True)
        start = 0
        for i, primal in enumerate(self.primals):
            if primal.dtype.kind != "f":
                continue
            cost = backward.cost(i, np.full((len(v), primal.size), np.inf))
            part = np.abs(u[:, start : start + primal.size])
            start += primal.size
            if cost is not None:
                out += cost @ part.T
        return out.reshape(-1)

    @cached_property
    def _forward(self) -> Along:
        return Along(self.point)

    def _slopes(self, tangents: Cotangents) -> list[Slopes]:
        return [self._forward.slopes(self._direction(u)) for u in tangents.values]

    @property
    def _like(self) -> dict[str, Array]:
        """Outputs by the names of their tangents."""
        if len(self.outputs) == 1:
            return {"jvp": self.outputs[0]}
        return {f"jvp output {k}": output for k, output in enumerate(self.outputs)}

    def _ask(self, tangents: Sequence[tuple[Array, ...]], primals: Sequence[Array]) -> Answer:
        return ask_jvp(self.jvp, tangents, primals, self.names, self.attrs, self._like)

    def _again(
        self, tangents: Cotangents, primals: tuple[Array, ...], dtype: str
    ) -> list[Float] | None:
        """J·u [q, m] at other primals, in another dtype; None if the jvp refuses."""
        like = {name: output.astype(dtype) for name, output in self._like.items()}
        try:
            answer = ask_jvp(self.jvp, tangents.typed(dtype), primals, self.names, self.attrs, like)
        except Broken:
            return None
        rows = rows_of(answer, list(like), len(tangents.values))
        return None if rows is None else [np.concatenate(rows, axis=1)]

    def _tangents(self, still: dict[int, Mask] | None) -> Cotangents:
        """Random tangents that the dtype holds, in units of the primals: powers of two."""
        floating = {i: p for i, p in enumerate(self.primals) if p.dtype.kind == "f"}

        def drawn(kind: str, i: int, primal: Array) -> Array:
            unit = 2.0 ** np.round(np.log2(magnitude(primal)))
            moves = 1.0 if still is None else np.where(still[i], 0.0, 1.0)
            shape = primal.shape
            part = np.ones(shape) if kind == "ones" else getattr(self.draw, kind)(*shape)
            return np.asarray(part * unit * moves)

        values = tuple(
            tuple(drawn(kind, i, p) for i, p in floating.items()) for kind in TANGENT_KINDS
        )
        return Cotangents(TANGENT_KINDS, values).rounded(self.tolerance.dtype)

    def _direction(self, tangent: tuple[Array, ...]) -> Direction:
        rest = iter(tangent)
        return tuple(next(rest) if p.dtype.kind == "f" else None for p in self.primals)

    def _on_kinks(self) -> dict[int, Mask]:
        """Per floating primal, the elements on a kink of forward."""
        ones = np.ones((1, flatten(self.outputs).size))
        found = {}
        for i in self.point.differentiable:
            evaluator = Evaluator(self.point, i)
            alone = sparsity.whole(evaluator.x, evaluator.base.size)
            sides = [Scales(evaluator, alone, k).sides(ones) for k in range(evaluator.x.size)]
            flags = np.array([s.kinked[0] or s.vague[0] < np.inf for s in sides], dtype=bool)
            found[i] = flags.reshape(evaluator.x.shape)
        return found
