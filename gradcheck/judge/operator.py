"""One case of a suite: what its true gradients are, and what a binding makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError, Unsupported
from gradcheck.implementations.bound import Binding, Bound
from gradcheck.implementations.checked_call import bound_by
from gradcheck.implementations.returned import Broken
from gradcheck.judge.certificate import Impersonated
from gradcheck.judge.compare import Interval, Rules, rules_of
from gradcheck.judge.cotangents import Cotangents, draw_cotangents
from gradcheck.judge.declared_kinks import DISTANCE, DeclaredKinks
from gradcheck.judge.dispersion import Dispersion, as_rounding, scattering
from gradcheck.judge.gradient import Truth
from gradcheck.judge.lowprecision import lost, rounded, unbiased, unfit
from gradcheck.judge.narrowing import Narrowed
from gradcheck.judge.probe import Answer, ask_forward, ask_vjp
from gradcheck.judge.value import SAFETY, because, empty, judge_value
from gradcheck.numerics.arithmetic import F64, Arithmetic
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.dtypes import dtype_named
from gradcheck.numerics.estimator import Differences, Estimate, certain, noise_lines
from gradcheck.numerics.evaluate import Point, flatten
from gradcheck.numerics.narrow import Narrow
from gradcheck.numerics.rounding import ROUNDING, allowance, sums_kept_wide
from gradcheck.results.finding import Certificate, Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack
from gradcheck.spec.suite import Case

if TYPE_CHECKING:
    from gradcheck.judge.kink_constraint import KinkConstraint
    from gradcheck.judge.remainder import Remainders
    from gradcheck.numerics.oracle import Oracle

Array = NDArray[Any]
Float = NDArray[np.float64]

SINGLE: Final = "float32"
SINGLY: Final = 32
"""Elements that the oracle differences one by one where the spec's VJP is wrong."""


class Unsuitable(Exception):  # noqa: N818  a case is
    """A case cannot be put in some dtype of low precision."""


class CaseTruth:
    """The true gradients of one case, in float64 with a 50-digit oracle behind; made once.

    Raises:
        SpecError: the case contradicts its spec (a smooth sample near a kink, say).
    """

    def __init__(
        self,
        case: Case,
        convention: str = "",
        low: str = "",
        cotangents: Cotangents | None = None,
        wide: CaseTruth | None = None,
    ) -> None:
        """Evaluate forward and draw the cotangents, where none are given.

        `convention` names a system whose choice on kinks is the only one allowed (empty: any);
        `low` a dtype of low precision, to which primals and cotangents are rounded first. `wide`
        is the truth in float64, where this one is of float32's numbers beside it: `wide.at` makes
        it.
        """
        self.case = case
        self.convention = convention
        self.names = case.primal_names
        self.low = low
        narrower = low or (SINGLE if wide else "")
        held = [rounded(p, narrower) for p in case.primals] if narrower else case.primals
        self.primals = tuple(held)
        self.floating = [i for i, p in enumerate(self.primals) if p.dtype.kind == "f"]
        with np.errstate(all="ignore"):
            self.outputs = self._forward(*self.primals)
        self._check_outputs()
        if cotangents is None:
            shapes = [o.shape for o in self.outputs]
            cotangents = draw_cotangents(case.draw("cotangents"), shapes)
        self.cotangents = cotangents.rounded(narrower) if narrower else cotangents
        distance = DISTANCE / 2 if narrower else DISTANCE  # what rounding may take of it
        self.declared = DeclaredKinks(case, self.primals, convention, distance)
        self._wide = wide
        self._truths: dict[int, Truth] = {}
        self._certificates: dict[tuple[int, str, float], Certificate] = {}
        self._dispersions: dict[int, Dispersion] = {}

    def at(self, dtype: str) -> CaseTruth:
        """The truth at the primals and cotangents that code of `dtype` gets.

        In float32 these are the case's, rounded; the gradients there are those of the spec's VJP in
        float64, once it has passed here (ADR 42).
        """
        return self._single if dtype == SINGLE else self

    @cached_property
    def _single(self) -> CaseTruth:
        if self.low or self._wide is not None:
            return self
        held = [part for ct in self.cotangents.values for part in ct]
        if all(np.array_equal(p, rounded(p, SINGLE)) for p in (*self.primals, *held)):
            return self
        return CaseTruth(self.case, self.convention, cotangents=self.cotangents, wide=self)

    def truth(self, index: int) -> Truth:
        """What is known of the gradient of primal `index`."""
        if index not in self._truths:
            known = None if self._wide is None else self._wide.carried(index, self)
            near = self if known is None else self._wide or self
            truth = Truth(
                name=self.names[index],
                shape=self.primals[index].shape,
                cotangents=self.cotangents.names,
                differences=Differences(
                    self._point,
                    index,
                    self._carrying,
                    near._noise_lines,
                    near._forward_rounding[0],
                    known,
                ),
                kinks=self._on_kinks(index),
                settle=lambda found: self._settle(index, found.pending),
                allowance=lambda rules: self._allowance(index, rules),
            )
            self._truths[index] = truth
            if self.low:
                self._settle(index, np.ones(truth.differences.estimate.value.shape, dtype=bool))
            elif truth.kinks is not None and known is None:
                # A difference steps across a kink that lies closer than its step.
                which = np.broadcast_to(truth.kinks.known, truth.differences.estimate.value.shape)
                if which.any():
                    self._settle(index, which)
        return self._truths[index]

    def _on_kinks(self, index: int) -> KinkConstraint | None:
        """What is declared of the elements on kinks: the same where rounding moved none to one."""
        if self._wide is not None:
            known = self._wide.truth(index).kinks
            on = self.declared.on(index)
            if known is not None and on is not None and np.array_equal(known.on, on):
                return known
        return self.declared.allowed(index, self.cotangents, lambda: self._oracle)

    def carried(self, index: int, beside: CaseTruth) -> Estimate | None:
        """The gradient of primal `index` at a point `beside` this one; None: it is not known.

        The spec's VJP, which lies as near to the truth there as it is shown to lie here.
        """
        here = self.truth(index)
        off = here.confirmed(self.own[index], rules_of("float64"))
        if off is None:
            return None
        estimate, there = here.differences.estimate, beside.own[index]
        return replace(estimate, value=there, bar=off, settled=np.zeros(there.shape, dtype=bool))

    @cached_property
    def own(self) -> list[Float]:
        """What the spec's VJP gives in float64, [q, n] per primal (an index has none, [q, 0])."""
        with np.errstate(all="ignore"):
            rows = [self._vjp(F64, ct, self.primals) for ct in self.cotangents.values]
        return [np.stack(primal) for primal in zip(*rows, strict=True)]

    def _vjp(self, xp: Arithmetic, ct: tuple[Array, ...], primals: Sequence[Array]) -> list[Float]:
        """The spec's VJP in an arithmetic of floats: a flat row per primal."""
        parts = tuple(xp.asarray(part) for part in ct)
        bare = parts[0] if len(parts) == 1 else parts
        held = [xp.asarray(p) if p.dtype.kind == "f" else p for p in primals]
        found = as_tuple(self.case.spec.vjp(xp, bare, *held, **self.case.attrs))
        return [np.zeros(0) if g is None else np.asarray(g).reshape(-1) for g in found]

    def certain(self, index: int) -> Truth:
        """The gradient of primal `index` once the oracle has been asked for all of it."""
        truth = self.truth(index)
        estimate = truth.differences.estimate
        if not estimate.settled.all():
            self._settle(index, ~estimate.settled)
        return truth

    def judge_forward(
        self, outputs: Sequence[Array], dtype: str, slack: Slack | None = None
    ) -> Finding:
        """Whether an implementation computes the same function at all; `slack` is its own."""
        op = self.case.spec.name
        finding = judge_value(op, self.outputs, self._value_rounding, outputs, dtype, slack)
        if not self.low or not finding.compared:
            return finding
        one = self.outputs[0].shape if len(self.outputs) == 1 else (finding.compared,)
        got, want = flatten(outputs)[None], flatten(self.outputs)[None]
        return as_rounding(finding, got, want, self.low, self._value_dispersion, (one, ("",)))

    def _value_dispersion(self) -> Dispersion:
        """How far forwards that round every operation lie from the operator's value."""
        want, drawn = flatten(self.outputs)[None], []
        with np.errstate(all="ignore"):
            for xp in scattering(self.low):
                given = [xp.asarray(p) if p.dtype.kind == "f" else p for p in self.primals]
                outputs = as_tuple(self.case.spec.forward(xp, *given, **self.case.attrs))
                drawn.append(flatten([np.asarray(o) for o in outputs])[None])
        return Dispersion.of(self.low, certain(want), drawn, np.isfinite(want))

    def _value_rounding(self) -> Float:
        return self._forward_rounding

    def certificate(self, index: int, dtype: str, slack: float = 0.0) -> Certificate:
        """What the check of the gradient of primal `index` rejects, widened by `slack` ulp."""
        if self._wide is not None:  # rounding changes what is true by less than any impostor
            return self._wide.certificate(index, dtype, slack)
        key = (index, dtype, slack)
        if key not in self._certificates:
            rules = rules_of(dtype, slack)
            self._certificates[key] = self._impersonated.certificate(index, rules)
        return self._certificates[key]

    @cached_property
    def _impersonated(self) -> Impersonated:
        truths = [self.truth(i) if i in self.floating else None for i in range(len(self.primals))]
        return Impersonated(truths, self.cotangents, self._narrowed)

    @cached_property
    def _narrowed(self) -> Narrowed:
        return Narrowed(
            self._vjp, self.primals, self.cotangents.values[0], [rows[0] for rows in self.own]
        )

    def short(self, dtype: str) -> Narrow | None:
        """A type that holds all primals, so that no gradient shows who rounds them to it.

        None where a sample needs just these numbers, and says so.
        """
        if self._wide is not None:
            return self._wide.short(dtype)
        sample = self.case.sample
        if self.low or sample.exact or sample.at_kink:
            return None
        return self._impersonated.short(rules_of(dtype))

    @classmethod
    def in_low(
        cls, case: Case, convention: str, low: str, cotangents: Cotangents | None = None
    ) -> CaseTruth:
        """The case with its primals and cotangents rounded to a dtype of low precision.

        Raises:
            Unsuitable: the dtype does not hold its primals or its results, or the operator is
                not defined at the rounded primals.
            SpecError: the case contradicts its spec before anything is rounded.
        """
        if lost(case.primals, tuple(rounded(p, low) for p in case.primals)):
            raise Unsuitable(f"{low} does not hold the primals of some samples")
        try:
            truth = cls(case, convention, low, cotangents)
            values = [flatten(truth.outputs), *(g for g in truth._certain or () if g is not None)]
        except (SpecError, ArithmeticError) as error:
            if isinstance(error, SpecError):
                cls(case, convention)  # at fault without rounding too, it says so itself
            reason = f"rounded to {low}, the primals of some samples are out of the domain"
            raise Unsuitable(reason) from None
        if any(unfit(v, low) for v in values):
            raise Unsuitable(f"{low} does not hold the results of some samples")
        return truth

    @cached_property
    def remainders(self) -> Remainders:
        """What any gradient leaves of forward's change, under the first cotangent."""
        from gradcheck.judge.remainder import Remainders  # deferred: few ask for it

        names, case = self.names, self.case
        ct, near = self._carrying[0], self.declared.near()
        return Remainders(self._point, ct, near, lambda i: case.draw(f"taylor {names[i]}"))

    @cached_property
    def spec_is_right(self) -> bool:
        """Whether the oracle certifies the spec's own VJP here."""
        return self._certain is not None

    @cached_property
    def _point(self) -> Point:
        infinite = any(np.isinf(o).any() for o in self.outputs)
        forward = self._finite_forward if infinite else self._forward
        return Point(forward, self.primals, self.case.core_ranks)

    @cached_property
    def _noise_lines(self) -> Float:
        return noise_lines(self._point)

    def _forward(self, *primals: Array) -> tuple[Array, ...]:
        outputs = as_tuple(self.case.spec.forward(F64, *primals, **self.case.attrs))
        return tuple(np.asarray(o) for o in outputs)  # NumPy turns 0-d results into scalars

    def _finite_forward(self, *primals: Array) -> tuple[Array, ...]:
        """Forward, with 0 for what is infinite at the case's point and stays so: no slope."""
        return tuple(
            np.where(np.isinf(base), np.where(out == base, 0.0, np.nan), out)
            for out, base in zip(self._forward(*primals), self.outputs, strict=True)
        )

    @cached_property
    def _carrying(self) -> Float:
        """The cotangents [q, m] of the outputs that carry a slope; 0 for the others."""
        return np.where(np.isinf(flatten(self.outputs)), 0.0, self.cotangents.flat)

    def _check_outputs(self) -> None:
        for output in self.outputs:
            if output.dtype != np.float64:
                raise SpecError(
                    f"{self.case.name}: forward gives {output.dtype} in float64 arithmetic; "
                    "write constants with xp.const, and sums with xp.sum"
                )
            if np.isnan(output).any():
                raise SpecError(
                    f"{self.case.name}: forward gives NaN; an operator may give infinities by "
                    "design, NaN never: change the sample, or the forward"
                )

    @cached_property
    def _oracle(self) -> Oracle:
        from gradcheck.numerics.oracle import Oracle  # deferred: few cases ask for it

        spec, cts = self.case.spec, self.cotangents.values
        still, close = self.declared.still(), self.declared.close()
        return Oracle(spec, self.primals, self.case.attrs, cts, still, close)

    @cached_property
    def _certain(self) -> list[Float | None] | None:
        return self._oracle.gradient()

    def _settle(self, index: int, pending: NDArray[np.bool_]) -> list[Interval]:
        """Overrule the differences by the certified VJP, or by single 50-digit differences."""
        differences = self._truths[index].differences
        certain = self._certain
        values = certain[index] if certain is not None else None
        if values is not None:
            differences.settle(values, np.ones(values.shape, dtype=bool))
            return []
        some = np.flatnonzero(pending.any(axis=0))[:SINGLY]
        exact = np.zeros(pending.shape)
        exact[:, some] = self._oracle.differences(index, some)
        which = np.zeros(pending.shape, dtype=bool)
        which[:, some] = True
        differences.settle(exact, which)
        return []

    @cached_property
    def _vjp_rounding(self) -> list[Float]:
        """What rounding may cost each primal's gradient, [q, n], in units of u."""
        spec, attrs = self.case.spec, self.case.attrs
        primals = self._rounding_primals()
        rows, rules = [], rules_of(self.low or "float64")
        cost = 1.0 if rules.accumulate is None else rules.accumulate / rules.u
        for ct in self.cotangents.values:
            parts = tuple(ROUNDING.asarray(part) for part in ct)
            bare = parts[0] if len(parts) == 1 else parts
            with np.errstate(all="ignore"), sums_kept_wide(cost):
                gradients = as_tuple(spec.vjp(ROUNDING, bare, *primals, **attrs))
            costs = [allowance(g) for g in gradients]
            rows.append([np.zeros(0) if c is None else c.reshape(-1) for c in costs])
        return [np.stack(primal) for primal in zip(*rows, strict=True)]

    @cached_property
    def _forward_rounding(self) -> Float:
        """What rounding may cost forward's value, [1, m], in units of u."""
        with np.errstate(all="ignore"):
            outputs = self.case.spec.forward(ROUNDING, *self._rounding_primals(), **self.case.attrs)
        costs = [allowance(o) for o in as_tuple(outputs)]
        return flatten([c for c in costs if c is not None])[None]

    def dispersion(self, index: int) -> Dispersion:
        """How far kernels that round every operation lie from the gradient of primal `index`."""
        if index not in self._dispersions:
            known, draws = self.truth(index), self.scattered(index)
            estimate, kinks = known.differences.estimate, known.kinks
            on = np.array(False) if kinks is None else kinks.interval.which
            self._dispersions[index] = Dispersion.of(self.low, estimate, draws, ~on)
        return self._dispersions[index]

    def scattered(self, index: int) -> list[Float]:
        """Gradients of primal `index` by the spec's VJP, every result rounded at random."""
        return [draw[index] for draw in self._scattered]

    @cached_property
    def _scattered(self) -> list[list[Float]]:
        """Gradients by the spec's VJP with every result rounded at random: [q, n] per primal."""
        drawn = []
        with np.errstate(all="ignore"):
            for xp in scattering(self.low):
                rows = [self._vjp(xp, ct, self.primals) for ct in self.cotangents.values]
                drawn.append([np.stack(primal) for primal in zip(*rows, strict=True)])
        return drawn

    def _rounding_primals(self) -> list[Any]:
        return [ROUNDING.asarray(p) if p.dtype.kind == "f" else p for p in self.primals]

    def _allowance(self, index: int, rules: Rules) -> Float:
        extra: Float = SAFETY * rules.u * self._vjp_rounding[index]
        slack = self.case.spec.slack
        ulp = rules.slack + (0.0 if slack is None else slack.ulp)
        if ulp:
            extra = extra + ulp * 2 * rules.u * self._truths[index].differences.estimate.scale
        return extra


def judge_case(
    truth: CaseTruth, binding: Binding, dtype: str, *, taylor: bool = False, told: bool = True
) -> list[Finding]:
    """What `binding` makes of the case in `dtype`: forward's value first, then each gradient.

    `taylor` asks for the remainder of each gradient along one direction, too. Unless they are to
    be `told`, gradients get a verdict alone: which elements are wrong is nobody's question.
    """
    truth = truth.at(dtype)
    case, names = truth.case, truth.names
    kind = dtype_named(dtype)
    primals = [p.astype(kind) if p.dtype.kind == "f" else p for p in truth.primals]
    cts = truth.cotangents.typed(dtype)
    findings: list[Finding] = []
    try:
        bound = bound_by(lambda: binding.bind(case, dtype))
    except (Unsupported, Broken) as error:
        return [_ended(error)]
    if bound is None:
        reason = f"{binding.name} says nothing about {case.spec.name}"
        return [Finding(name="vjp", verdict=Verdict.UNBOUND, reason=reason)]
    try:
        if bound.forward is not None:
            outputs = ask_forward(bound.forward, primals, names, bound.attrs)
            findings.append(truth.judge_forward(outputs, dtype, bound.slack))
        answer = ask_vjp(bound.vjp, cts, primals, names, bound.attrs)
    except (Unsupported, Broken) as error:
        return _heard([*findings, _ended(error)], bound)
    found = _judge_gradients(truth, answer, rules_of(dtype), binding.name, bound, told=told)
    findings += _with_curves(truth, answer, found) if taylor else found
    return _heard(findings, bound)


def _ended(error: Unsupported | Broken) -> Finding:
    if isinstance(error, Broken):
        return error.finding
    return Finding(name="vjp", verdict=Verdict.UNSUPPORTED, reason=str(error))


def _heard(findings: Sequence[Finding], bound: Bound) -> list[Finding]:
    """The findings, with where the code stands, and what it printed.

    The latter at those that are no pass, else at the first.
    """
    printed = bound.printed()
    if not (printed or bound.source or any(f.source for f in findings)):
        return [*findings]  # as of all code of the suite's own
    told = [f.verdict is not Verdict.PASS for f in findings]
    if not any(told):
        told = [i == 0 for i in range(len(findings))]
    return [
        replace(
            finding,
            source=bound.source,
            printed=finding.printed or (printed if tell else ""),
        )
        for finding, tell in zip(findings, told, strict=True)
    ]


def _with_curves(truth: CaseTruth, answer: Answer, found: Sequence[Finding]) -> list[Finding]:
    out = []
    for i, finding in zip(truth.floating, found, strict=True):
        got = answer.gradients[truth.names[i]]
        if isinstance(got, Finding) or not got.size:
            out.append(finding)
        else:
            out.append(replace(finding, taylor=truth.remainders.of(i, got[0])))
    return out


def _judge_gradients(
    truth: CaseTruth,
    answer: Answer,
    rules: Rules,
    implementation: str,
    bound: Bound,
    *,
    told: bool = True,
) -> list[Finding]:
    findings = []
    for i in truth.floating:
        got = answer.gradients[truth.names[i]]
        if truth.primals[i].size == 0 and not isinstance(got, Finding):
            findings.append(empty(truth.names[i]))
            continue
        if isinstance(got, Finding):
            finding = _absent(got, bound)
        else:
            finding = _judged(truth, i, got, rules, bound.slack, told=told)
        if truth.low and not isinstance(got, Finding):
            known = truth.truth(i)
            settled, spread = known.settled(), partial(truth.dispersion, i)
            form = known.shape, known.cotangents
            finding = as_rounding(finding, got, settled, truth.low, spread, form)
            drawn = partial(truth.scattered, i)
            finding = unbiased(finding, got, settled, truth.low, drawn)
        blamed = finding.verdict is Verdict.FAIL and finding.compared > 0
        if blamed and implementation != "reference" and not truth.spec_is_right:
            reason = (
                f"the spec's own VJP of {truth.case.spec.name} disagrees with the 50-digit "
                f"oracle here; nothing can be said of {implementation}"
            )
            finding = replace(finding, verdict=Verdict.INVALID, reason=reason)
        findings.append(finding)
    return findings


def _absent(finding: Finding, bound: Bound) -> Finding:
    """A gradient that is not there, with the reason that the code gives."""
    reason = bound.missing.get(finding.name)
    if finding.verdict is not Verdict.MISSING or reason is None:
        return finding
    return replace(finding, reason=f"no gradient for {finding.name}: {reason}")


def _judged(
    truth: CaseTruth,
    index: int,
    got: Float,
    rules: Rules,
    slack: Slack | None,
    *,
    told: bool,
) -> Finding:
    """The verdict on a gradient; by the wider bound that the code asks for only if it needs it."""
    finding = truth.truth(index).judge(got, rules, told=told)
    if slack is None or finding.verdict not in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        return finding
    wider = rules_of(rules.dtype, slack.ulp)
    finding = truth.truth(index).judge(got, wider)  # and so is the certificate
    certificate = truth.certificate(index, rules.dtype, slack.ulp)
    return replace(because(finding, slack), certificate=certificate)


def certified(truth: CaseTruth, findings: Sequence[Finding], dtype: str) -> list[Finding]:
    """The findings with their certificates; and a verdict on a sample that would reject nothing."""
    out: list[Finding] = []
    for finding in findings:
        unproven = finding.certificate is None
        if unproven and finding.compared and finding.name in truth.names:
            certificate = truth.certificate(truth.names.index(finding.name), dtype)
            finding = replace(finding, certificate=certificate)  # noqa: PLW2901
        out.append(finding)
    certificates = [f.certificate for f in out if f.certificate is not None]
    kept = truth.short(dtype) if certificates else None
    if kept is not None:
        return [*out, _short(kept)]
    if not certificates or any(c.proves for c in certificates):
        return out
    if truth.low and all(f.verdict is Verdict.PASS for f in out):
        reason = f"{dtype} is too coarse to reject anything in some samples"
        return [Finding(name="vjp", verdict=Verdict.SKIP, reason=reason)]
    return out if truth.low else [*out, _worthless(certificates)]


def _short(kept: Narrow) -> Finding:
    reason = (
        f"the primals of this sample fit in {kept.title}, so that code which rounds them to it "
        "would pass: draw them with `draw`, wrap them in `draw.filled`, or mark the sample "
        "exact=True if it needs just these numbers"
    )
    return Finding(name="vjp", verdict=Verdict.INVALID, reason=reason)


def _worthless(certificates: Sequence[Certificate]) -> Finding:
    blind = ", ".join(sorted({name for c in certificates for name in c.blind}))
    reason = (
        f"this sample rejects nothing but NaN: {blind or 'every impostor'} would pass too; "
        "give it other values, or take it out"
    )
    return Finding(name="vjp", verdict=Verdict.INVALID, reason=reason)
