"""One check element by element: each gradient, then the second order and forward mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import RowsAt, ask_forward, ask_vjp, rows_of, vjp_rows_at
from gradcheck.judge.compare import LOW_TOLERANCES, TOLERANCES, Tolerance, empty_pass
from gradcheck.judge.conditioning import Conditioning
from gradcheck.judge.cotangents import Cotangents, draw_cotangents, first_cotangent
from gradcheck.judge.forward_mode import ForwardMode
from gradcheck.judge.high_precision import HighPrecisionForward, HighPrecisionVjp
from gradcheck.judge.large_primal_check import LargePrimalCheck, too_large
from gradcheck.judge.low_precision_function import LowPrecisionFunction
from gradcheck.judge.primal_check import PrimalCheck, promote_to_float64
from gradcheck.judge.second_order import SecondOrder, VjpFunction, judge_double
from gradcheck.numerics.arrays import Array, Float, as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import Estimate, NoiseProbe
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.time_budget import UNWATCHED, Ended, Watch
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

KEPT: Final = 1 << 14
"""Numbers that forward may return for its cotangents to be cached."""


@dataclass(slots=True, kw_only=True)
class Request:
    """The arguments of one check but for the primals; with `explain`, failures get a diagnosis.

    `rules` are the names of the rules for a diagnosis (None: all). A gradient that does not pass is
    judged by the `wider` bound, if there is one.
    """

    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    names: tuple[str, ...]
    attrs: Mapping[str, Any]
    dtype: str
    seed: int
    subject: str
    full: bool
    order: int
    double_vjp: Callable[..., Any] | None
    jvp: Callable[..., Any] | None
    explain: bool = True
    rules: frozenset[str] | None = None
    watch: Watch = UNWATCHED
    wider: Slack | None = None


class ElementwiseCheck:
    """A check at one point, element by element."""

    def __init__(self, request: Request, primals: tuple[Array, ...]) -> None:
        """Call nothing yet."""
        self._request, self._primals = request, primals

    def findings(self) -> tuple[Finding, ...]:
        """The findings, in the order of the rows of a result."""
        try:
            self._call_forward()
        except Broken as error:
            return (error.finding,)
        strange = sum(o.size - np.count_nonzero(np.isfinite(o)) for o in self._outputs)
        if strange:
            reason = f"{strange} of forward's values are not finite here: it has no derivative"
            return (Finding(name="forward", verdict=Verdict.INCONCLUSIVE, reason=reason),)
        try:
            self._call_vjp()
        except Broken as error:
            # In 16 bits there is no diagnosis yet.
            low = self._request.dtype in LOW_TOLERANCES
            return (error.finding,) if low else tuple(self._explained([error.finding]))
        if self._request.dtype in LOW_TOLERANCES:
            return self._in_16_bits()
        findings = self._explained([self._gradient(i) for i in self._point.differentiable])
        if self._request.order == 2:
            findings += self._second_order(findings)
        if self._request.jvp is not None:
            findings += self._forward_mode(self._request.jvp)
        return tuple(findings)

    # ── calls ────────────────────────────────────────────────────────────────────────

    def _call_forward(self) -> None:
        """Call forward, and draw cotangents of the shapes of its outputs.

        Raises:
            Broken: forward breaks its contract.
        """
        asked = self._request
        self._outputs = ask_forward(asked.forward, self._primals, asked.names, asked.attrs)
        few = sum(o.size for o in self._outputs) <= KEPT
        drawing = kept_cotangents if few else kept_cotangents.__wrapped__
        shapes = tuple(o.shape for o in self._outputs)
        kinds = tuple(o.dtype for o in self._outputs)
        self._cotangents = drawing(asked.seed, asked.subject, shapes, kinds)
        self._typed = [
            tuple(c.astype(kind) for c, kind in zip(ct, kinds, strict=True))
            for ct in self._cotangents.values
        ]

    def _call_vjp(self) -> None:
        """Call vjp for every cotangent.

        Raises:
            Broken: vjp breaks its contract.
        """
        asked = self._request
        self._answer = ask_vjp(asked.vjp, self._typed, self._primals, asked.names, asked.attrs)

    def _function(self, *values: Array) -> tuple[Array, ...]:
        """Forward's values, as arrays; raises Ended when the budget is spent."""
        asked = self._request
        asked.watch.look()
        return tuple(np.asarray(o) for o in as_tuple(asked.forward(*values, **asked.attrs)))

    def _elsewhere(self, cotangents: Cotangents) -> RowsAt:
        """The gradients of vjp at other primals; raises Ended when the budget is spent."""
        ask = vjp_rows_at(self._request.vjp, cotangents, self._request.attrs)

        def asked(primals: tuple[Array, ...], dtype: str) -> list[Float] | None:
            self._request.watch.look()
            return ask(primals, dtype)

        return asked

    # ── made on first use ─────────────────────────────────

    @cached_property
    def _point(self) -> Point:
        """Forward and the primals; used after vjp only, since a forward may save values for it."""
        return promote_to_float64(
            Point(self._function, self._primals, watch=self._request.watch), self._outputs
        )

    @cached_property
    def _around(self) -> NoiseProbe:
        return NoiseProbe(
            self._point, self._outputs if self._point.primals is self._primals else None
        )

    @cached_property
    def _conditioning(self) -> Conditioning:
        return Conditioning(self._elsewhere(self._cotangents), self._point, self._rules)

    @cached_property
    def _exact_forward(self) -> HighPrecisionForward:
        asked = self._request
        return HighPrecisionForward(asked.forward, self._primals, asked.attrs, self._outputs)

    @cached_property
    def _exact_vjp(self) -> HighPrecisionVjp:
        return HighPrecisionVjp(self._request.vjp, self._typed, self._primals, self._request.attrs)

    @cached_property
    def _estimates(self) -> dict[str, Estimate]:
        """The true gradients by name, as far as they are known."""
        return {}

    @property
    def _rules(self) -> Tolerance:
        return TOLERANCES[self._request.dtype]

    def _drawn(self, *role: object) -> Draw:
        asked, shapes = self._request, [o.shape for o in self._outputs]
        return Draw(asked.seed, "check", asked.subject, *shapes, *role)

    # ── judgement ────────────────────────────────────────────────────────────────────────────

    def _in_16_bits(self) -> tuple[Finding, ...]:
        asked = self._request
        low = LowPrecisionFunction(
            self._function, asked.vjp, self._primals, asked.names, asked.attrs, asked.dtype,
            asked.wider,
        )  # fmt: skip
        return tuple(low.judge(self._outputs, self._cotangents, self._answer))

    def _gradient(self, index: int) -> Finding:
        asked, name = self._request, self._request.names[index]
        got = self._answer.gradients[name]
        if isinstance(got, Finding):
            return got
        others = [self._primals[k].size for k in self._point.differentiable]
        if not self._primals[index].size and any(others):
            return empty_pass(name)
        asked.watch.about(name)
        try:
            large = not asked.full and too_large(self._point, index, self._outputs)
            if large or asked.watch.budget is not None:
                finding = self._projected(index, got)
                if large or finding.verdict is Verdict.FAIL:
                    return finding
            return self._one_by_one(index, got)
        except Ended as ended:
            return _undecided(name, ended)

    def _projected(self, index: int, got: Float) -> Finding:
        """Judge along directions: their number grows with the logarithm of the elements."""
        asked = self._request
        projected = LargePrimalCheck(
            self._point, index, asked.names[index], self._cotangents, self._around, self._rules,
            self._elsewhere, asked.wider,
        )  # fmt: skip
        return projected.judge(got)

    def _one_by_one(self, index: int, got: Float) -> Finding:
        """Judge each element: by differences, then by 50 digits or at every scale."""
        name, wider = self._request.names[index], self._request.wider
        primal = PrimalCheck(
            self._point, index, name, self._cotangents, self._around, self._conditioning,
            exact_forward=self._exact_forward, exact_vjp=self._exact_vjp,
        )  # fmt: skip
        finding = primal.judge(got)
        if wider is not None and finding.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            finding = primal.judge_wider(got, wider)
        self._estimates[name] = primal.estimate
        return finding

    def _explained(self, findings: Sequence[Finding]) -> list[Finding]:
        asked = self._request
        if not asked.explain or all(finding.verdict.expected for finding in findings):
            return [*findings]
        # door: a check that passes needs none of it.
        from gradcheck.explain.findings import explained
        from gradcheck.explain.function_probes import Checked

        checked = Checked(
            forward=asked.forward,
            vjp=asked.vjp,
            primals=self._primals,
            names=asked.names,
            attrs=asked.attrs,
            dtype=asked.dtype,
            point=self._point,
            kinds=tuple(o.dtype for o in self._outputs),
            cotangents=self._cotangents,
            estimates=self._estimates,
            rules=asked.rules,
        )
        try:
            return explained(checked, findings)
        except Ended:  # what is wrong is known, and why has to wait
            return [*findings]

    @property
    def _floating(self) -> list[str]:
        return [self._request.names[i] for i in self._point.differentiable]

    def _second_order(self, findings: Sequence[Finding]) -> list[Finding]:
        asked = self._request
        right = all(finding.verdict is Verdict.PASS for finding in findings)
        ct = tuple(
            self._drawn("second", k).signed(*o.shape).astype(o.dtype)
            for k, o in enumerate(self._outputs)
        )
        try:
            answer = ask_vjp(asked.vjp, [ct], self._primals, asked.names, asked.attrs)
        except Broken as error:
            return [error.finding]
        base = rows_of(answer, self._floating, 1)
        if base is None or not all(np.isfinite(g).all() for g in base):
            reason = "vjp gives no gradients whose derivative could be judged"
            return [Finding(name="d vjp", verdict=Verdict.NOTRUN, reason=reason)]
        of_vjp = VjpFunction(asked.vjp, ct, self._primals, asked.names, asked.attrs, tuple(base))
        try:
            found = [*SecondOrder(self._point, of_vjp, self._drawn, self._rules).judge(right)]
            if asked.double_vjp is not None:
                draw = self._drawn("double")
                found += judge_double(asked.double_vjp, of_vjp, draw, self._rules)
        except Ended as ended:
            return [_undecided("d vjp", ended)]
        return found

    def _forward_mode(self, jvp: Callable[..., Any]) -> list[Finding]:
        asked = self._request
        mode = ForwardMode(
            jvp,
            self._point,
            self._outputs,
            self._primals,
            asked.names,
            asked.attrs,
            self._cotangents,
            self._elsewhere(self._cotangents),
            self._drawn("jvp"),
            self._rules,
        )
        try:
            return [*mode.judge(rows_of(self._answer, self._floating, len(self._typed)))]
        except Ended as ended:
            return [_undecided("jvp", ended)]


def _undecided(name: str, ended: Ended) -> Finding:
    """INCONCLUSIVE, for a gradient that the budget left open."""
    return Finding(name=name, verdict=Verdict.INCONCLUSIVE, reason=str(ended))


@lru_cache(maxsize=16)
def kept_cotangents(
    seed: int,
    subject: str,
    shapes: tuple[tuple[int, ...], ...],
    kinds: tuple[np.dtype[Any], ...],
) -> Cotangents:
    """The cotangents of a check element by element, cached from check to check and read-only."""
    drawn = draw_cotangents(Draw(seed, "check", subject, *shapes), shapes)
    # What vjp was asked first: an answer that it keeps is then known for what it is.
    drawn = drawn.holding(first_cotangent(seed, subject, drawn.flat.shape[1])).held(kinds)
    for ct in drawn.values:
        for part in ct:
            part.setflags(write=False)
    return drawn
