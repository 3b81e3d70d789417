"""A smaller input, whether it still fails, and in the manner in which the original did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError, Unsupported
from gradcheck.explain.operator_probes import ENDED, ProbeCollector, SpecTruth
from gradcheck.explain.probe import RAISES, ROUNDING_SAFETY, Cotangent, Probe
from gradcheck.implementations.checked_call import differs
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import ask_vjp
from gradcheck.judge.compare import tolerance_of
from gradcheck.judge.cotangents import KINDS, Cotangents, draw_cotangents
from gradcheck.judge.declared_kinks import SMOOTH_DISTANCE
from gradcheck.judge.low_precision import rounded
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, dtype_named
from gradcheck.numerics.draw import Draw
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.dtype_selection import LOW
from gradcheck.spec.suite import Case

Array = NDArray[Any]

MAX_ENUMERATED: Final = 3
"""Distinct values, over all samples, up to which a primal takes no other ones (masks, signs)."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values of one primal: between two ends; whole numbers alone, or a few alone."""

    low: float
    high: float
    whole: bool
    few: tuple[float, ...]

    def holds(self, values: Array) -> bool:
        """Whether all values are of the kind that samples have."""
        if self.few and not np.isin(values, self.few).all():
            return False
        if self.whole and not (values == np.round(values)).all():
            return False
        return bool(((values >= self.low) & (values <= self.high)).all())


@dataclass(frozen=True, slots=True)
class Domain:
    """The values and attributes that an operator takes, as far as its samples show.

    `primals` has one range per primal, None where nothing is known; `attrs` the numbers that each
    attribute takes in samples.
    """

    primals: tuple[Range | None, ...]
    attrs: dict[str, tuple[float, ...]]

    @classmethod
    def of(cls, case: Case, primals: Sequence[Array]) -> Domain:
        """The domain spanned by the operator's samples in the case's dialect, and by `primals`."""
        values: list[list[Array]] = [[] for _ in case.primal_names]
        for sample in case.spec.samples:
            if sample.dialects and case.dialect.name not in sample.dialects:
                continue
            try:
                drawn = replace(case, sample=sample).primals
            except Exception:  # noqa: BLE001  a suite's own; the ordinary judgement says so
                continue
            for seen, primal in zip(values, drawn, strict=True):
                seen.append(primal.reshape(-1))
        for seen, primal in zip(values, primals, strict=True):
            seen.append(primal.reshape(-1))
        return cls(tuple(_range(seen) for seen in values), _seen(case))

    def holds(self, primals: Sequence[Array], attrs: Attrs) -> bool:
        """Whether primals and attributes are like those of samples."""
        pairs = zip(self.primals, primals, strict=True)
        if not all(r is None or p.dtype.kind != "f" or r.holds(p) for r, p in pairs):
            return False
        return all(self._usual(name, number) for name in attrs for number in _numbers(attrs[name]))

    def _usual(self, name: str, number: float) -> bool:
        """Whole numbers from 1 on are, where smaller ones are not asked for; others in between."""
        seen = self.attrs.get(name, ())
        if number in seen:
            return True
        low, high = min(seen, default=1.0), max(seen, default=1.0)
        return number >= 1 if float(number).is_integer() and low >= 1 else low <= number <= high


def _range(seen: Sequence[Array]) -> Range | None:
    every = np.concatenate(list(seen))
    every = every[np.isfinite(every)]
    if not every.size:
        return None
    distinct = np.unique(every)
    few = tuple(float(v) for v in distinct) if distinct.size <= MAX_ENUMERATED else ()
    whole = bool((every == np.round(every)).all())
    return Range(float(distinct[0]), float(distinct[-1]), whole, few)


def _seen(case: Case) -> dict[str, tuple[float, ...]]:
    spec = case.spec
    sets = [spec.defaults, *(d.attrs for d in spec.dialects), *(s.attrs for s in spec.samples)]
    return {
        name: tuple(n for attrs in sets if name in attrs for n in _numbers(attrs[name]))
        for name in spec.defaults
    }


def _numbers(value: Any) -> Iterator[float]:
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, (int, float)) and not isinstance(part, bool):
            yield part


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Primals, attributes and a cotangent that may show the failure of `original`.

    `primals` are float64 or int64, of the primals that the dialect has. Without `ct`, one of
    `kind` is drawn for the shapes of the outputs.
    """

    original: Case
    primals: tuple[Array, ...]
    attrs: Attrs
    ct: Cotangent | None = None
    kind: str = KINDS[0]

    @property
    def size(self) -> int:
        """Elements of all primals."""
        return sum(p.size for p in self.primals)

    def with_primal(self, index: int, values: Array) -> Candidate:
        """Another value of one primal."""
        primals = tuple(values if i == index else p for i, p in enumerate(self.primals))
        return replace(self, primals=primals)

    def case(self) -> Case:
        """A case whose sample holds these primals and attributes.

        Raises:
            SpecError: An element lies beside a kink, or on one that the original avoids; or float32
                cannot hold a value.
        """
        case, dialect = self.original, self.original.dialect
        given = dict(zip(case.primal_names, self.primals, strict=True))
        every = tuple(given.get(name, np.zeros(())) for name in case.spec.primals)
        usual = {**case.spec.defaults, **dialect.attrs}
        attrs = {k: v for k, v in self.attrs.items() if repr(usual[k]) != repr(v)}
        sample = replace(
            case.sample,
            name=f"{case.sample.name}.shrunk",
            primals=lambda _: every,
            attrs=attrs,
            at_kink=self._on_kinks(),
        )
        return replace(case, sample=sample)

    def _on_kinks(self) -> bool:
        """Whether an element lies on a kink; what only comes near one belongs to no sample."""
        case = self.original
        on = near = False
        for kink in case.spec.kinks:
            if (kink.primal or case.spec.primals[0]) not in case.primal_names:
                continue
            with np.errstate(all="ignore"):
                gap = np.asarray(kink.gap(F64, *self.primals, **self.attrs))
            on, near = on or bool((gap == 0).any()), near or bool((gap < SMOOTH_DISTANCE).any())
        if near and not (on and case.sample.at_kink):
            raise SpecError(f"{case.name}: an element comes near a kink")
        return on

    def key(self) -> object:
        """A key equal for equal candidates."""
        arrays = [*self.primals, *(self.ct or ())]
        return repr(self.attrs), self.kind, *((a.shape, a.tobytes()) for a in arrays)


Mask = NDArray[np.bool_]

CALL: Final = "vjp"
"""What findings about the call as a whole are called."""
FORMS: Final = ("absent", "shape", "dtype")
"""How a gradient fails before a number of it is looked at."""
CLEAR_MARGIN: Final = 8.0
"""Bounds by which a failure must stay wrong, unless it never was by so many."""
KEPT_MARGIN: Final = 0.9
"""What must be left of a smaller margin than that: the bound varies with the input."""
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
        return self.kind == other.kind and self.margin >= min(
            CLEAR_MARGIN, KEPT_MARGIN * other.margin
        )


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
        again = probe.ask(probe.ct)
        first, second = probe.got.get(self.output), again.get(self.output)
        return not differs([first], [second])

    def _mourn(self, error: Broken) -> None:
        if error.finding.verdict in ENDED:
            self.left = 0


def _largest(values: Array) -> float:
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
