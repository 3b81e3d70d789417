"""One check of a function and its VJP, at whatever primals: by projection, by element, beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.contract.returned import Broken
from gradcheck.difference.evaluate import Point
from gradcheck.difference.truth import Around, Estimate
from gradcheck.difference.watch import UNWATCHED, Ended, Watch
from gradcheck.draw import Draw
from gradcheck.errors import Unsupported
from gradcheck.finding import Finding
from gradcheck.judge.arbiter import Arbiter, Formula
from gradcheck.judge.beside import FAR, NEAR, jumps, rounds, stays, times, unseen
from gradcheck.judge.compare import LOW_RULES, RULES
from gradcheck.judge.conditioning import Ask, Conditioning, asking, rows_of
from gradcheck.judge.cotangents import Cotangents, draw_cotangents, first_cotangent
from gradcheck.judge.directional import screened
from gradcheck.judge.double import judge_double
from gradcheck.judge.forward_mode import ForwardMode
from gradcheck.judge.function import BlackBox, promoted
from gradcheck.judge.large import Projected, too_large
from gradcheck.judge.low_function import LowFunction
from gradcheck.judge.probe import ask_forward, ask_vjp
from gradcheck.judge.second import Gradients, Second
from gradcheck.judge.value import empty
from gradcheck.narrow import fits_narrow
from gradcheck.spec import Slack, as_tuple
from gradcheck.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]

KEPT: Final = 1 << 14
"""Numbers that forward may return for its cotangents to be kept from check to check."""


@dataclass(slots=True, kw_only=True)
class Check:
    """What one check asks for, at whatever primals; `told`: failures get their diagnosis.

    `rules` are the names of those that a diagnosis may rest on; None: all. What does not pass is
    judged by a `wider` bound, where that is asked for.
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
    told: bool = True
    rules: frozenset[str] | None = None
    watch: Watch = UNWATCHED
    wider: Slack | None = None

    def judged(
        self, primals: tuple[Array, ...], passed: tuple[Finding, ...] | None = None
    ) -> tuple[Finding, ...]:
        """The findings at `primals`; where those are short and all passes, beside them too.

        `passed` is what a projection has found already.
        """
        known = passed if self._projects else None
        found = self.findings(primals) if known is None else known
        if self.dtype not in RULES or any(f.verdict is not Verdict.PASS for f in found):
            return found
        short = [
            n
            for n, p in zip(self.names, primals, strict=True)
            if p.dtype.kind == "f" and fits_narrow(p, self.dtype)
        ]
        return self.beside(primals, found, short) if short else found

    def findings(self, primals: tuple[Array, ...]) -> tuple[Finding, ...]:
        """By a projection where that is asked for, and certain; else element by element."""
        passed = self.screened(primals) if self._projects else None
        return self._by_element(primals) if passed is None else passed

    @property
    def _projects(self) -> bool:
        """Whether a projection may decide."""
        return self.dtype in RULES and not self.full and self.order == 1 and self.jvp is None

    def screened(self, primals: tuple[Array, ...]) -> tuple[Finding, ...] | None:
        """PASS by a projection, or None."""
        return screened(
            self.forward,
            self.vjp,
            primals,
            self.names,
            self.attrs,
            self.dtype,
            self.seed,
            self.subject,
        )

    def beside(
        self, primals: tuple[Array, ...], passed: tuple[Finding, ...], short: Sequence[str]
    ) -> tuple[Finding, ...]:
        """What `passed` at primals of which `short` have short mantissas, judged beside them too.

        A gradient that is wrong there, and not for being elsewhere, is a FAIL; where that cannot
        be told, a note says so.
        """
        near = times(primals, NEAR)
        if self.screened(near) is not None:
            return passed
        try:
            found = self._failing(primals, near)
        except (Broken, Unsupported):
            found = None
        if found is not None and all(f.verdict is Verdict.PASS for f in found):
            return passed
        wrong = {f.name: f for f in found or () if f.verdict is Verdict.FAIL}
        if wrong:
            return tuple([wrong.get(finding.name, finding) for finding in passed])
        note = unseen(short, self.dtype)
        first, *others = passed
        return replace(first, reason="; ".join(filter(None, (first.reason, note)))), *others

    def _failing(
        self, primals: tuple[Array, ...], near: tuple[Array, ...]
    ) -> tuple[Finding, ...] | None:
        """Findings at `near`, FAIL only what goes on to be so; None if nothing can be told."""
        untold = replace(self, full=False, order=1, jvp=None, told=False)
        found = untold.findings(near)
        if all(f.verdict is Verdict.PASS for f in found):
            return found
        moving = self._moving(primals, near, times(primals, FAR[1]))
        failing = {f.name: f for f in found if f.verdict is Verdict.FAIL and f.name in moving}
        staying: set[str] = set()
        for factor in FAR:
            if len(staying) < len(failing):
                afar = {f.name: f for f in untold.findings(times(primals, factor))}
                staying |= {n for n, f in failing.items() if stays(f, afar.get(n), factor)}
        if not staying:
            return None
        told = replace(untold, told=self.told).findings(near)
        return tuple(
            replace(f, reason="; ".join(filter(None, (rounds(self.dtype), f.reason))))
            for f in told
            if f.name in staying
        )

    def _moving(self, *points: tuple[Array, ...]) -> set[str]:
        """Names of primals whose gradient is another at the first two points; none on a jump."""
        outputs = [ask_forward(self.forward, p, self.names, self.attrs) for p in points]
        if jumps(*outputs):
            return set()
        v = first_cotangent(self.seed, self.subject, sum(o.size for o in outputs[0]))
        ct = tuple(np.split(v, np.cumsum([o.size for o in outputs[0]])[:-1]))
        ct = tuple(
            part.reshape(o.shape).astype(o.dtype) for part, o in zip(ct, outputs[0], strict=True)
        )
        here, there = (self._gradients(ct, p) for p in points[:2])
        return {n for n in here if n in there and not np.array_equal(here[n], there[n])}

    def _gradients(self, ct: tuple[Array, ...], primals: tuple[Array, ...]) -> dict[str, Float]:
        """What vjp gives, right after forward: that may save what vjp reads."""
        ask_forward(self.forward, primals, self.names, self.attrs)
        answer = ask_vjp(self.vjp, [ct], primals, self.names, self.attrs)
        return {n: g for n, g in answer.gradients.items() if not isinstance(g, Finding)}

    def _by_element(self, primals: tuple[Array, ...]) -> tuple[Finding, ...]:
        forward, vjp, names, attrs = self.forward, self.vjp, self.names, self.attrs
        dtype, seed, subject, arrays = self.dtype, self.seed, self.subject, primals

        def function(*values: Array) -> tuple[Array, ...]:
            self.watch.look()
            return tuple(np.asarray(o) for o in as_tuple(forward(*values, **attrs)))

        try:
            outputs = ask_forward(forward, arrays, names, attrs)
        except Broken as error:
            return (error.finding,)
        strange = sum(o.size - np.count_nonzero(np.isfinite(o)) for o in outputs)
        if strange:
            reason = f"{strange} of forward's values are not finite here: it has no derivative"
            return (Finding(name="forward", verdict=Verdict.INCONCLUSIVE, reason=reason),)
        shapes = [o.shape for o in outputs]
        few = sum(o.size for o in outputs) <= KEPT
        drawing = kept_cotangents if few else kept_cotangents.__wrapped__
        cotangents = drawing(seed, subject, tuple(shapes), tuple(o.dtype for o in outputs))
        typed = [
            tuple(c.astype(o.dtype) for c, o in zip(ct, outputs, strict=True))
            for ct in cotangents.values
        ]
        ended: list[Finding] = []
        try:
            answer = ask_vjp(vjp, typed, arrays, names, attrs)
        except Broken as error:
            ended = [error.finding]
        if dtype in LOW_RULES:
            low = LowFunction(function, vjp, arrays, names, attrs, dtype, self.wider)
            return tuple(ended or low.judge(outputs, cotangents, answer))
        rules = RULES[dtype]
        point = promoted(
            Point(function, arrays, watch=self.watch), outputs
        )  # after vjp: a forward may save for it
        estimates: dict[str, Estimate] = {}

        def explained(findings: Sequence[Finding]) -> list[Finding]:
            if not self.told or all(finding.verdict.expected for finding in findings):
                return [*findings]
            # Deferred: a check that passes needs none of it.
            from gradcheck.explain import black_box

            checked = black_box.Checked(
                forward=forward,
                vjp=vjp,
                primals=arrays,
                names=names,
                attrs=attrs,
                dtype=dtype,
                point=point,
                kinds=tuple(o.dtype for o in outputs),
                cotangents=cotangents,
                estimates=estimates,
                rules=self.rules,
            )
            try:
                return black_box.explained(checked, findings)
            except Ended:  # what is wrong is known, and why has to wait
                return [*findings]

        if ended:
            return tuple(explained(ended))
        around = Around(point, outputs if point.primals is arrays else None)

        def elsewhere(some: Cotangents) -> Ask:
            ask = asking(vjp, some, attrs)

            def asked(primals: tuple[Array, ...], dtype: str) -> list[Float] | None:
                self.watch.look()
                return ask(primals, dtype)

            return asked

        asked = elsewhere(cotangents)

        conditioning = Conditioning(asked, point, rules)
        arbiter = Arbiter(forward, arrays, attrs, outputs)
        formula = Formula(vjp, typed, arrays, attrs)
        findings: list[Finding] = []
        for i in point.differentiable:
            got = answer.gradients[names[i]]
            if isinstance(got, Finding):
                findings.append(got)
                continue
            if not arrays[i].size and any(arrays[k].size for k in point.differentiable):
                findings.append(empty(names[i]))
                continue
            self.watch.about(names[i])
            try:
                large = not self.full and too_large(point, i, outputs)
                if large or self.watch.budget is not None:
                    projected = Projected(
                        point, i, names[i], cotangents, around, rules, elsewhere, self.wider
                    )
                    finding = projected.judge(got)
                    if large or finding.verdict is Verdict.FAIL:
                        findings.append(finding)
                        continue
                primal = BlackBox(
                    point,
                    i,
                    names[i],
                    cotangents,
                    around,
                    conditioning,
                    arbiter=arbiter,
                    formula=formula,
                )
                finding = primal.judge(got)
                if self.wider is not None and finding.verdict in (
                    Verdict.FAIL,
                    Verdict.INCONCLUSIVE,
                ):
                    finding = primal.judge_wider(got, self.wider)
                findings.append(finding)
                estimates[names[i]] = primal.estimate
            except Ended as ended_early:
                findings.append(_undecided(names[i], ended_early))
        findings = explained(findings)
        floating = [names[i] for i in point.differentiable]
        gradients = rows_of(answer, floating, len(typed))

        def drawn(*role: object) -> Draw:
            return Draw(seed, "check", subject, *shapes, *role)

        if self.order == 2:
            right = all(finding.verdict is Verdict.PASS for finding in findings)
            ct = tuple(
                drawn("second", k).signed(*o.shape).astype(o.dtype) for k, o in enumerate(outputs)
            )
            try:
                base = rows_of(ask_vjp(vjp, [ct], arrays, names, attrs), floating, 1)
            except Broken as error:
                return (*findings, error.finding)
            if base is None or not all(np.isfinite(g).all() for g in base):
                reason = "vjp gives no gradients whose derivative could be judged"
                findings.append(Finding(name="d vjp", verdict=Verdict.NOTRUN, reason=reason))
            else:
                of_vjp = Gradients(vjp, ct, arrays, names, attrs, tuple(base))
                try:
                    findings += Second(point, of_vjp, drawn, rules).judge(right)
                    if self.double_vjp is not None:
                        findings += judge_double(self.double_vjp, of_vjp, drawn("double"), rules)
                except Ended as ended_early:
                    findings.append(_undecided("d vjp", ended_early))
        if self.jvp is not None:
            mode = ForwardMode(
                self.jvp,
                point,
                outputs,
                arrays,
                names,
                attrs,
                cotangents,
                asked,
                drawn("jvp"),
                rules,
            )
            try:
                findings += mode.judge(gradients)
            except Ended as ended_early:
                findings.append(_undecided("jvp", ended_early))
        return tuple(findings)


def _undecided(name: str, ended: Ended) -> Finding:
    """What the budget left open."""
    return Finding(name=name, verdict=Verdict.INCONCLUSIVE, reason=str(ended))


@lru_cache(maxsize=16)
def kept_cotangents(
    seed: int,
    subject: str,
    shapes: tuple[tuple[int, ...], ...],
    kinds: tuple[np.dtype[Any], ...],
) -> Cotangents:
    """Those of a check that goes element by element; read-only, for the next one has them too."""
    drawn = draw_cotangents(Draw(seed, "check", subject, *shapes), shapes)
    # What vjp was asked first: an answer that it keeps is then known for what it is.
    drawn = drawn.holding(first_cotangent(seed, subject, drawn.flat.shape[1])).held(kinds)
    for ct in drawn.values:
        for part in ct:
            part.setflags(write=False)
    return drawn
