"""One case of a suite: the outputs and gradients of a binding are judged against the true ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import Binding, Bound
from gradcheck.implementations.checked_call import bound_by
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import ask_forward, ask_vjp
from gradcheck.judge.compare import (
    ROUNDING_SAFETY,
    Tolerance,
    by_wider_bound,
    compare,
    empty_pass,
    tolerance_of,
)
from gradcheck.judge.low_precision import judge_bias, judge_spread
from gradcheck.judge.operator_truth import CaseTruth, Unsuitable
from gradcheck.numerics.arrays import Array, Float, dtype_named
from gradcheck.numerics.estimator import certain
from gradcheck.numerics.evaluate import flatten
from gradcheck.numerics.narrow import Narrow
from gradcheck.results.finding import Certificate, Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

__all__ = ["CaseTruth", "Unsuitable", "certified", "judge_case", "with_v_curves"]


CURVE_VERDICTS: Final = (Verdict.FAIL, Verdict.INCONCLUSIVE)


def judge_case(
    truth: CaseTruth, binding: Binding, dtype: str, *, taylor: bool = False, details: bool = True
) -> list[Finding]:
    """Judge `binding` at the case in `dtype`: forward's value first, then each gradient.

    With `taylor`, each gradient gets its Taylor remainder along one direction. Without `details`,
    gradients get a verdict alone, and nothing about single elements.
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
        return [_call_failure(error)]
    if bound is None:
        reason = f"not implemented by {binding.name}"
        return [Finding(name="vjp", verdict=Verdict.UNBOUND, reason=reason)]
    try:
        if bound.forward is not None:
            outputs = ask_forward(bound.forward, primals, names, bound.attrs)
            findings.append(judge_forward(truth, outputs, dtype, bound.slack))
        answer = ask_vjp(bound.vjp, cts, primals, names, bound.attrs)
    except (Unsupported, Broken) as error:
        return _with_source([*findings, _call_failure(error)], bound)
    for i in truth.floating:
        got = answer.gradients[truth.names[i]]
        finding = _judge_gradient(truth, i, got, tolerance_of(dtype), bound, details=details)
        finding = _excused(truth, finding, binding.name)
        if taylor and not isinstance(got, Finding) and got.size:
            finding = replace(finding, taylor=truth.remainders.of(i, got[0]))
        findings.append(finding)
    return _with_source(findings, bound)


def _call_failure(error: Unsupported | Broken) -> Finding:
    if isinstance(error, Broken) and error.finding.verdict is not Verdict.UNSUPPORTED:
        return error.finding
    return Finding(name="vjp", verdict=Verdict.UNSUPPORTED, reason=str(error))


def _judge_gradient(
    truth: CaseTruth,
    index: int,
    got: Float | Finding,
    tolerance: Tolerance,
    bound: Bound,
    *,
    details: bool,
) -> Finding:
    """The verdict on one gradient; by a wider bound if the code asks for one and needs it."""
    name = truth.names[index]
    if isinstance(got, Finding):
        reason = bound.missing.get(got.name)
        if got.verdict is not Verdict.MISSING or reason is None:
            return got
        return replace(got, reason=f"no gradient for {got.name}: {reason}")
    if truth.primals[index].size == 0:
        return empty_pass(name)
    known, slack = truth.truth(index), bound.slack
    finding = known.judge(got, tolerance, details=details)
    if slack is not None and finding.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        finding = known.judge(got, tolerance_of(tolerance.dtype, slack.ulp))
        certificate = truth.certificate(index, tolerance.dtype, slack.ulp)
        finding = replace(by_wider_bound(finding, slack), certificate=certificate)
    if truth.low:
        want, form = known.settled(), (known.shape, known.cotangents)
        spread, drawn = partial(truth.dispersion, index), partial(truth.scattered, index)
        finding = judge_spread(finding, got, want, truth.low, spread, form)
        finding = judge_bias(finding, got, want, truth.low, drawn)
    return finding


def _excused(truth: CaseTruth, finding: Finding, implementation: str) -> Finding:
    """INVALID in place of a FAIL, where 50 digits do not certify the spec's own VJP."""
    blamed = finding.verdict is Verdict.FAIL and finding.compared > 0
    if not blamed or implementation == "reference" or truth.spec_is_right:
        return finding
    reason = (
        f"the spec's own VJP of {truth.case.spec.name} disagrees with the 50-digit "
        f"oracle here; {implementation} cannot be judged"
    )
    return replace(finding, verdict=Verdict.INVALID, reason=reason)


def _with_source(findings: Sequence[Finding], bound: Bound) -> list[Finding]:
    """The findings, with the source line of the code, and its printed output.

    The output is attached to the findings that are not PASS, or else to the first one.
    """
    printed = bound.printed()
    if not (printed or bound.source or any(f.source for f in findings)):
        return [*findings]  # as of all code of the suite's own
    failing = any(f.verdict is not Verdict.PASS for f in findings)
    return [
        replace(
            f,
            source=bound.source,
            printed=f.printed
            or (printed if (f.verdict is not Verdict.PASS if failing else i == 0) else ""),
        )
        for i, f in enumerate(findings)
    ]


# ── forward's value ──────────────────────────────────────────────────────────────────────────────


def judge_forward(
    truth: CaseTruth, got: Sequence[Array], dtype: str, slack: Slack | None = None
) -> Finding:
    """Whether a forward computes the operator's value: element by element, infinities too.

    `slack` widens the bound for this implementation alone.
    """
    finding = _judge_value(truth, got, dtype, slack)
    if not truth.low or not finding.compared:
        return finding
    one = truth.outputs[0].shape if len(truth.outputs) == 1 else (finding.compared,)
    given, want = flatten(got)[None], flatten(truth.outputs)[None]
    form = one, ("",)
    return judge_spread(finding, given, want, truth.low, truth.value_dispersion, form)


def _judge_value(
    truth: CaseTruth, got: Sequence[Array], dtype: str, slack: Slack | None
) -> Finding:
    outputs = truth.outputs
    wrong = _form_fault(outputs, got, dtype)
    if wrong:
        return Finding(name="forward", verdict=Verdict.FAIL, reason=wrong)
    if not any(o.size for o in outputs):
        return empty_pass("forward")
    value, flat, tolerance = flatten(outputs)[None], flatten(got)[None], tolerance_of(dtype)
    infinite = np.isinf(value)
    strange = infinite & (flat != value)
    if strange.any():
        place = int(np.flatnonzero(strange)[0])
        reason = (
            f"{int(strange.sum())} outputs are infinite by design and are not so here: "
            f"element {place} is {flat[0, place]:g}, the operator gives {value[0, place]:g}"
        )
        return Finding(name="forward", verdict=Verdict.FAIL, reason=reason)
    value, flat = np.where(infinite, 0.0, value), np.where(infinite, 0.0, flat)
    # Its own rounding is part of the allowance below.
    estimate = replace(certain(value, np.zeros_like(value)), settled=np.zeros_like(infinite))
    found, extra = compare(flat, estimate, tolerance), np.zeros_like(value)
    for u in (tolerance.accumulate or tolerance.u, tolerance.u):
        if found.pending.any():
            extra = ROUNDING_SAFETY * u * truth.value_rounding
            found = compare(flat, estimate, tolerance, extra=extra)
    wider = slack if found.pending.any() else None
    if wider is not None:
        extra = extra + wider.ulp * 2 * tolerance.u * estimate.scale
        found = compare(flat, estimate, tolerance, extra=extra)
    shape = outputs[0].shape if len(outputs) == 1 else value.shape[1:]
    finding = found.finding("forward", shape, ("",))
    if finding.verdict is Verdict.FAIL:
        op = truth.case.spec.name
        return replace(finding, reason=f"it computes something else than {op}: {finding.reason}")
    return finding if wider is None else by_wider_bound(finding, wider)


def _form_fault(outputs: Sequence[Array], got: Sequence[Array], dtype: str) -> str:
    shapes, wanted = [np.shape(o) for o in got], [o.shape for o in outputs]
    if shapes == wanted and all(o.dtype == dtype for o in got):
        return ""
    forms = ", ".join(f"{o.dtype}{o.shape}" for o in got)
    return f"forward returned {forms}, the operator gives {dtype} of shape {wanted}"


# ── beside the verdict ───────────────────────────────────────────────────────────────────────────


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
        return [*out, _short_mantissas(kept)]
    if not certificates or any(c.proves for c in certificates):
        return out
    if truth.low and all(f.verdict is Verdict.PASS for f in out):
        reason = f"{dtype} has too few digits to reject anything in some samples"
        return [Finding(name="vjp", verdict=Verdict.SKIP, reason=reason)]
    return out if truth.low else [*out, _rejects_nothing(certificates)]


def _short_mantissas(kept: Narrow) -> Finding:
    reason = (
        f"the primals of this sample fit in {kept.title}, so that code which rounds them to it "
        "would pass: draw them with `draw`, wrap them in `draw.filled`, or mark the sample "
        "exact=True if it needs just these numbers"
    )
    return Finding(name="vjp", verdict=Verdict.INVALID, reason=reason)


def _rejects_nothing(certificates: Sequence[Certificate]) -> Finding:
    blind = ", ".join(sorted({name for c in certificates for name in c.blind}))
    reason = (
        f"this sample rejects only NaN: {blind or 'every wrong gradient'} would pass too; "
        "change its values, or remove it"
    )
    return Finding(name="vjp", verdict=Verdict.INVALID, reason=reason)


def with_v_curves(truth: CaseTruth, findings: Sequence[Finding], *, every: bool) -> list[Finding]:
    """The findings, those of gradients that do not pass with a curve; with `every`, those too."""
    drawn = [
        found.name in truth.names and found.top and (every or found.verdict in CURVE_VERDICTS)
        for found in findings
    ]
    if not any(drawn):
        return [*findings]
    from gradcheck.judge.evidence_curves import v_curve  # door: a passing run has no curve

    return [
        replace(found, curve=v_curve(truth.truth(truth.names.index(found.name)), found))
        if draw
        else found
        for found, draw in zip(findings, drawn, strict=True)
    ]
