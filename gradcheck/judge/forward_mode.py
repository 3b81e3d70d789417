"""Forward mode: a Jacobian-vector product against forward's differences, and against the VJP.

The differences find a J·u that is wrong, whatever the VJP says; the dot products ⟨v, J u⟩ and
⟨Jᵀv, u⟩ are known to rounding, so they find what the error bars of differences hide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.contract.returned import Broken
from gradcheck.difference import kinks
from gradcheck.difference.direction import Along, Direction, magnitude
from gradcheck.difference.evaluate import Evaluator, Point, flatten
from gradcheck.difference.noise import per_output
from gradcheck.difference.truth import Estimate, noise_lines
from gradcheck.draw import Draw
from gradcheck.finding import Finding
from gradcheck.judge.compare import ROUNDINGS, Rules, compare
from gradcheck.judge.conditioning import Ask, Conditioning, rows_of
from gradcheck.judge.cotangents import Cotangents, draw_cotangents
from gradcheck.judge.pairs import Pairs
from gradcheck.judge.probe import Answer, ask_jvp
from gradcheck.spec import Attrs
from gradcheck.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]


@dataclass(frozen=True)
class ForwardMode:
    """A jvp at one point: `point` is forward (in float64 where it can be), `outputs` its values.

    `primals` are in the dtype that is judged; `names` are theirs. `vjp` gives the gradients of the
    VJP at other primals for the cotangents `cts` (see `conditioning.Ask`).
    """

    jvp: Callable[..., Any]
    point: Point
    outputs: Sequence[Array]
    primals: Sequence[Array]
    names: Sequence[str]
    attrs: Attrs
    cts: Cotangents
    vjp: Ask
    draw: Draw
    rules: Rules

    def judge(self, gradients: list[Float] | None) -> list[Finding]:
        """J·u, element by element, and the dot products with `gradients` [q, n] per primal.

        `gradients` is None where the VJP gave none that could be compared.
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
        typed = tangents.typed(self.rules.dtype)
        answer = self._ask(typed, self.primals)
        rows = [answer.gradients[name] for name in self._like]
        broken = [row for row in rows if isinstance(row, Finding)]
        if broken:
            return broken
        got = np.concatenate([row for row in rows if not isinstance(row, Finding)], axis=1)
        conditioning = Conditioning(
            lambda primals, dtype: self._again(tangents, primals, dtype), self.point, self.rules
        )
        return [
            self._against_forward(got, tangents, conditioning),
            self._against_vjp(got, gradients, tangents, conditioning),
        ]

    def _against_forward(
        self, got: Float, tangents: Cotangents, conditioning: Conditioning
    ) -> Finding:
        """Every element of J·u against forward's slope along u."""
        found = [self._forward.slopes(self._direction(ct)) for ct in tangents.values]
        value, bar = np.stack([s.value for s in found]), np.stack([s.bar for s in found])
        # Several random directions show what cancels in the sum over the inputs of one.
        scale = np.broadcast_to(np.max([s.scale for s in found], axis=0), value.shape)
        inputs = sum(p.size for p in self.primals if p.dtype.kind == "f")
        estimate = Estimate(
            value=value,
            bar=bar,
            scale=np.array(scale),
            terms=np.full(value.shape[1], inputs, dtype=np.int64),
            settled=np.zeros(value.shape, dtype=bool),
        )
        compared = compare(got, estimate, self.rules)
        if compared.pending.any():
            extra = conditioning.cost(0, estimate.scale)
            compared = compare(got, estimate, self.rules, extra=extra)
        shape = self.outputs[0].shape if len(self.outputs) == 1 else (value.shape[1],)
        return compared.finding("jvp", shape, tangents.names)

    def _against_vjp(
        self,
        got: Float,
        gradients: list[Float] | None,
        tangents: Cotangents,
        conditioning: Conditioning,
    ) -> Finding:
        """⟨v, J u⟩ against ⟨Jᵀv, u⟩ for every random v and u, to rounding."""
        name = "dot product"
        if gradients is None:
            reason = "vjp gave no gradients to compare jvp with"
            return Finding(name=name, verdict=Verdict.NOTRUN, reason=reason)
        v, u, g = self.cts.flat, tangents.flat, np.concatenate(gradients, axis=1)
        with np.errstate(all="ignore"):
            left, right = (v @ got.T).reshape(-1), (g @ u.T).reshape(-1)
            scale = (np.abs(v) @ np.abs(got).T + np.abs(g) @ np.abs(u).T).reshape(-1)
        pairs = Pairs(got=left, want=right, bar=np.zeros(left.size), scale=scale, natural=scale)
        reasons = (
            "⟨v, J u⟩ of jvp is not ⟨Jᵀv, u⟩ of vjp: one is not the transpose of the other",
            "rounding alone may cost a visible part of ⟨v, J u⟩",
        )
        bound = ROUNDINGS * self.rules.u * np.sqrt(v.shape[1] + u.shape[1]) * scale
        bound = bound + self.rules.underflow
        with np.errstate(all="ignore"):
            settled = bool(np.all(np.abs(left - right) <= bound))
        if not settled:
            bound = bound + self._lost(v, u, conditioning)
        return pairs.finding(name, self.rules, bound, reasons)

    def _lost(self, v: Float, u: Float, conditioning: Conditioning) -> Float:
        """What right products may differ by at this point, as neighbouring points show it."""
        reach = np.full((len(u), v.shape[1]), np.inf)
        out = np.zeros((len(v), len(u)))
        forward = conditioning.cost(0, reach)
        if forward is not None:
            out += np.abs(v) @ forward.T
        backward = Conditioning(self.vjp, self.point, self.rules)
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
            answer = ask_jvp(
                self.jvp, tangents.typed(dtype), primals, self.names, self.attrs, like
            )
        except Broken:
            return None
        rows = rows_of(answer, list(like), len(tangents.values))
        return None if rows is None else [np.concatenate(rows, axis=1)]

    def _tangents(self, still: dict[int, NDArray[np.bool_]] | None) -> Cotangents:
        """Random tangents, in units of the primals (rounded to a power of two, so exact)."""
        floating = {i: p for i, p in enumerate(self.primals) if p.dtype.kind == "f"}
        drawn = draw_cotangents(self.draw, [p.shape for p in floating.values()])

        def scaled(row: tuple[Array, ...]) -> tuple[Array, ...]:
            parts = []
            for part, (i, p) in zip(row, floating.items(), strict=True):
                unit = 2.0 ** np.round(np.log2(magnitude(p)))
                moves = 1.0 if still is None else np.where(still[i], 0.0, 1.0)
                parts.append(np.asarray(part * unit * moves))
            return tuple(parts)

        return Cotangents(drawn.names, tuple(scaled(row) for row in drawn.values))

    def _direction(self, tangent: tuple[Array, ...]) -> Direction:
        rest = iter(tangent)
        return tuple(next(rest) if p.dtype.kind == "f" else None for p in self.primals)

    def _on_kinks(self) -> dict[int, NDArray[np.bool_]]:
        """Per floating primal, the elements that sit on a kink of forward."""
        noise = per_output(noise_lines(self.point), flatten(self.outputs))
        ones = np.ones((1, flatten(self.outputs).size))
        found = {}
        for i in self.point.differentiable:
            evaluator = Evaluator(self.point, i)
            sides = [kinks.examine(evaluator, k, ones, noise) for k in range(evaluator.x.size)]
            flags = np.array([s is not None for s in sides], dtype=bool)
            found[i] = flags.reshape(evaluator.x.shape)
        return found
