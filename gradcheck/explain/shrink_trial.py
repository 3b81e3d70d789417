"""Whether a smaller candidate still fails, and in the manner in which the original did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError, Unsupported
from gradcheck.explain.operator_probes import ENDED, ProbeCollector, SpecTruth
from gradcheck.explain.probe import RAISES, ROUNDING_SAFETY, Cotangent, Probe
from gradcheck.explain.shrink_candidate import Candidate, Domain
from gradcheck.implementations.checked_call import differs
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import ask_vjp
from gradcheck.judge.compare import tolerance_of
from gradcheck.judge.cotangents import KINDS, Cotangents, draw_cotangents
from gradcheck.judge.low_precision import rounded
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arrays import dtype_named
from gradcheck.numerics.draw import Draw
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.selection import LOW
from gradcheck.spec.suite import Case

Array = NDArray[Any]
Mask = NDArray[np.bool_]

CALL: Final = "vjp"
"""What findings about the call as a whole are called."""
FORMS: Final = ("absent", "shape", "dtype")
"""How a gradient fails before a number of it is looked at."""
CLEAR_MARGIN: Final = 8.0
"""Bounds by which a failure must stay wrong, unless it never was by so many."""
JUDGEMENT_COST: Final = 5
"""Trials that one whole judgement counts for."""
OUTSIDE_DOMAIN: Final = (*RAISES, SpecError, Unsupported)
"""What shows that a candidate lies outside the operator's domain, or the code's."""


class Outcome(Enum):
    """The outcome of a trial: the failure stayed, it is gone, or nothing can be asked there."""

    KEPT = "kept"
    LOST = "lost"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class Symptom:
    """How a gradient fails: absent, of another shape or dtype, not finite, or with wrong numbers.

    Where the call as a whole fails, `kind` says how. `margin` is the error of the element `worst`
    over its bound; `largest` is the true gradient's largest element.
    """

    kind: str
    margin: float = np.inf
    worst: tuple[int, ...] | None = None
    largest: float = 0.0

    def like(self, other: Symptom) -> bool:
        """Whether it is the same failure, and about as clear as the other was."""
        return self.kind == other.kind and self.margin >= min(CLEAR_MARGIN, other.margin)


@dataclass
class Trials:
    """Trials of candidates on one implementation, counted against a budget.

    Candidates outside `domain` are skipped. A candidate must keep `symptom`, and fit `fits` if
    given. `left` is the budget, in evaluations; it is 0 once a call has crashed. `convention` is as
    in `CaseTruth`. The largest element of the true gradient must not fall below `least`, but may
    vanish if `zero`: a gradient that cancels shows little.
    """

    asked: ProbeCollector
    output: str
    domain: Domain
    left: int
    convention: str = ""
    symptom: Symptom | None = None
    fits: Callable[[Probe], bool] | None = None
    least: float = 0.0
    zero: bool = True
    last: Symptom | None = field(default=None, init=False)
    _known: dict[object, tuple[Outcome, Symptom | None]] = field(default_factory=dict, init=False)

    def begins(self, candidate: Candidate) -> bool:
        """Whether the candidate fails in any manner, which every smaller one must then keep."""
        try:
            found = self.examine(candidate)
        except Broken as error:
            self._mourn(error)
            return False
        except OUTSIDE_DOMAIN:
            return False
        if found is not None:
            self.symptom = self.last = found
        return found is not None

    def keeps(self, candidate: Candidate) -> Outcome:
        """Whether the candidate fails as the original does."""
        if not self.domain.holds(candidate.primals, candidate.attrs):
            return Outcome.OUTSIDE
        key = candidate.key(), self.least, self.zero
        if key not in self._known:
            if self.left <= 0:
                return Outcome.LOST
            self.left -= 1
            self._known[key] = self._tried(candidate)
        outcome, found = self._known[key]
        self.last = found if outcome is Outcome.KEPT else self.last
        return outcome

    def _tried(self, candidate: Candidate) -> tuple[Outcome, Symptom | None]:
        try:
            found = self.examine(candidate)
        except Broken as error:
            self._mourn(error)
            return Outcome.LOST, None
        except OUTSIDE_DOMAIN:
            return Outcome.OUTSIDE, None
        if found is None or self.symptom is None or not found.like(self.symptom):
            return Outcome.LOST, None
        return Outcome.KEPT, found

    def examine(self, candidate: Candidate) -> Symptom | None:
        """How the candidate fails; None where it passes, or fails for another reason.

        Raises:
            Broken: the code raised or died, and that is not what is looked for.
            SpecError, Unsupported, or any of `RAISES`: nothing can be asked there.
        """
        case = candidate.case()
        ct = self.cotangent(candidate, case)
        if self.output == CALL:
            return self._call(case, ct)
        probe = self.asked.ask(case, ct)
        if probe is None:
            raise Unsupported("nothing is said of this")
        if any(probe.right[n].shape != probe.primal(n).shape for n in probe.right):
            raise SpecError("the operator is not defined for these shapes")
        if self.output not in probe.right:
            raise SpecError("it has no gradient")
        smooth = np.isfinite(probe.right[self.output])
        if not (smooth | probe.kinked.get(self.output, False)).all():
            raise SpecError("there is no derivative here")
        largest = _largest(probe.right[self.output])
        if not (largest >= self.least or (self.zero and largest == 0)):
            return None
        found = self._symptom(probe, case, ct)
        if found is None or not self._fits(probe):
            return None
        return found if self._repeats(probe) else None

    def cotangent(self, candidate: Candidate, case: Case) -> Cotangent:
        """The candidate's cotangent, or one drawn for its shapes.

        Raises:
            SpecError: forward gives what has no derivative there; or the cotangent does not fit.
        """
        primals = tuple(rounded(p, self.asked.dtype) for p in case.primals)
        with np.errstate(all="ignore"):
            outputs = SpecTruth(case.spec).forward(primals, case.attrs)
        if any(np.isnan(o).any() for o in outputs) or not any(o.size for o in outputs):
            raise SpecError("forward gives nothing here, or NaN")
        shapes = [o.shape for o in outputs]
        if candidate.ct is not None:
            if [part.shape for part in candidate.ct] != shapes:
                raise SpecError("the cotangent has other shapes than forward's outputs")
            return candidate.ct
        names = (case.seed, case.suite, case.spec.name, case.sample.name, *shapes)
        drawn = draw_cotangents(Draw(*names), shapes).rounded(self.asked.dtype)
        return drawn.values[KINDS.index(candidate.kind)]

    # ── what fails ───────────────────────────────────────────────────────────────────────────

    def _call(self, case: Case, ct: Cotangent) -> Symptom | None:
        """How the call as a whole breaks its contract."""
        dtype = self.asked.dtype
        kind = dtype_named(dtype)
        bound = self.asked.binding.bind(case, dtype)
        if bound is None:
            raise Unsupported("nothing is said of this")
        typed = [p.astype(kind) if p.dtype.kind == "f" else p for p in case.primals]
        try:
            ask_vjp(
                bound.vjp, [tuple(p.astype(kind) for p in ct)], typed, case.primal_names,
                bound.attrs,
            )  # fmt: skip
        except Broken as error:
            if error.finding.verdict in ENDED:
                raise
            return Symptom("".join(c for c in error.finding.reason if not c.isdigit()))
        return None

    def _symptom(self, probe: Probe, case: Case, ct: Cotangent) -> Symptom | None:
        output, right = self.output, probe.right[self.output]
        largest = _largest(right)
        raw = probe.raw.get(output)
        if raw is None:
            return Symptom("absent", largest=largest)
        if raw.shape != right.shape:
            return Symptom("shape", largest=largest)
        if raw.dtype != dtype_named(self.asked.dtype):
            return Symptom("dtype", largest=largest)
        got = probe.got[output]
        excess = _excess(probe, output)
        smooth = ~np.broadcast_to(probe.kinked.get(output, np.zeros((), dtype=bool)), got.shape)
        if not ((excess > 1) & smooth).any():
            asked = (excess > 1).any() or (self.convention and not smooth.all())
            return self._on_kink(case, ct) if asked else None
        excess = np.where(smooth, excess, 0.0)
        kind = "numbers" if np.isfinite(got).all() else "not finite"
        flat = int(np.argmax(excess))
        worst = tuple(int(i) for i in np.unravel_index(flat, excess.shape))
        return Symptom(kind, float(excess.max()), worst, largest)

    def _on_kink(self, case: Case, ct: Cotangent) -> Symptom | None:
        """Judge the candidate where only elements on a kink differ."""
        self.left -= JUDGEMENT_COST
        finding = judged(case, self.asked, self.output, ct, self.convention)[1]
        return Symptom("kink") if finding.verdict is Verdict.FAIL else None

    def _fits(self, probe: Probe) -> bool:
        try:
            with np.errstate(all="ignore"):
                return self.fits is None or self.fits(probe)
        except RAISES:
            return False

    def _repeats(self, probe: Probe) -> bool:
        """Whether a repeated call gives the same bits."""
        again = probe.ask(probe.ct)
        first, second = probe.got.get(self.output), again.get(self.output)
        return not differs([first], [second])

    def _mourn(self, error: Broken) -> None:
        if error.finding.verdict in ENDED:
            self.left = 0


def _largest(values: Array) -> float:
    """The largest magnitude among finite values."""
    return float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))


def _excess(probe: Probe, output: str) -> NDArray[np.float64]:
    """Error over what is allowed, element by element; infinite where a number is not finite."""
    right, got, rules = probe.right[output], probe.got[output], tolerance_of(probe.dtype)
    with np.errstate(all="ignore"):
        costs = probe.truth.cost(probe.ct, probe.primals, probe.attrs)
        cost = costs[probe.names.index(output)]
        spent = np.zeros(right.shape) if cost is None else np.nan_to_num(cost, posinf=0.0)
        size = np.maximum(np.abs(got), np.abs(right))
        allowed = rules.rtol * size + ROUNDING_SAFETY * probe.u * spent + rules.underflow
        excess = np.abs(got - right) / allowed
    return np.asarray(np.where(np.isfinite(got), excess, np.inf))


def judged(
    case: Case, asked: ProbeCollector, output: str, ct: Cotangent, convention: str = ""
) -> tuple[CaseTruth, Finding]:
    """The judgement of one gradient under one cotangent, and the truth that it rests on.

    Raises:
        SpecError, or any of `RAISES`: the case is at fault.
    """
    dtype = asked.dtype
    cotangents = Cotangents(("shrunk",), (ct,))
    low = dtype if dtype in LOW else ""
    truth = CaseTruth(case, convention, low, cotangents).at(dtype)
    findings = judge_case(truth, asked.binding, dtype)
    named = [f for f in findings if f.name == output]
    return truth, (named or [f for f in findings if f.name == CALL] or findings)[0]
