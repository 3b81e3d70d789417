"""One check of a function and its VJP, at whatever primals: by projection, by element, beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.api.elements import ByElement, Request
from gradcheck.errors import Unsupported
from gradcheck.implementations.returned import Broken
from gradcheck.judge.beside import FAR, NEAR, jumps, rounds, stays, times, unseen
from gradcheck.judge.compare import RULES
from gradcheck.judge.cotangents import first_cotangent
from gradcheck.judge.directional import screened
from gradcheck.judge.probe import ask_forward, ask_vjp
from gradcheck.numerics.narrow import fits_narrow
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Check(Request):
    """One check, at whatever primals: by a projection, by element, and beside short primals."""

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
        return ByElement(self, primals).findings() if passed is None else passed

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
