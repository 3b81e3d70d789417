"""One model against the truth: its loss, the gradient of every parameter, every stage's VJP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import BoundModel, ModelBinding
from gradcheck.implementations.checked_call import bound_by
from gradcheck.implementations.returned import Broken, failures
from gradcheck.judge.call_model import GRADIENTS, ask_gradients, ask_loss, ask_stage, stage_of
from gradcheck.judge.compare import TOLERANCES, Tolerance, empty_pass, number_miss
from gradcheck.judge.model_truth import KnownGradient, ModelTruth
from gradcheck.judge.stage import judge_stage
from gradcheck.numerics.arithmetic import FLOATS, Arithmetic
from gradcheck.numerics.arrays import Array, Float
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.program import Stage, Values

Gradients = Mapping[str, "Float | Finding"]
"""Per parameter (or other value) its gradient as rows [q, n], or the fault found in it."""
CERTIFICATE: Final = "mp50"
"""The dtype under which 50-digit differences certify a model's own gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJudgement:
    """A model's findings, in the order of reports, and the gradients behind them for blame.

    `bound` is the code judged (None: nothing was bound), `gradients` its gradients by name.
    """

    findings: tuple[Finding, ...]
    bound: BoundModel | None = None
    gradients: Gradients | None = None

    def of(self, part: Part) -> dict[str, Finding]:
        """The findings about one part, by name."""
        return {f.name: f for f in self.findings if f.part is part}


def judge_model(
    truth: ModelTruth,
    binding: ModelBinding,
    dtype: str,
    *,
    taylor: bool = False,
    project: bool = False,
) -> ModelJudgement:
    """Judge `binding` at the model in `dtype`: the loss, then parameters, then stages.

    With `taylor`, every parameter's gradient gets its Taylor remainder. With `project`, gradients
    are compared with slopes of the loss in `dtype`, as of any function, and not element by element
    with the truth; a large model's own gradients in float64 always are.
    """
    if dtype == CERTIFICATE:
        return ModelJudgement(findings=tuple(_certificate(truth, binding)))
    truth = truth.at(dtype)
    try:
        bound = bound_by(lambda: binding.bind_model(truth.case, dtype), GRADIENTS)
    except Unsupported as reason:
        return _alone(Verdict.UNSUPPORTED, str(reason))
    except Broken as error:
        return ModelJudgement(findings=(error.finding,))
    if bound is None:
        silent = f"not implemented by {binding.name}"
        return _alone(Verdict.UNBOUND, silent)
    findings = [] if bound.loss is None else [_judge_loss(truth, bound, dtype)]
    try:
        with failures() as failed:
            gradients = gradients_of(truth, bound, dtype)
    except Broken as error:
        return ModelJudgement(findings=(*findings, error.finding), bound=bound)
    if binding.name == "reference" and dtype == "float64" and not truth.exact:
        of_tensors: Iterable[Finding] = truth.certificates
    elif project:
        of_tensors = _projected(truth, bound, gradients, dtype)
    else:
        of_tensors = judge_gradients(truth, bound, gradients, dtype)
    findings += [_curved(truth, f, gradients) if taylor else f for f in of_tensors]
    stages = _stages(truth, bound, dtype) if truth.exact else ()
    findings += _with_fold_faults(stages, [f for f in failed if f.part is Part.STAGE])
    return ModelJudgement(findings=tuple(findings), bound=bound, gradients=gradients)


def _stages(truth: ModelTruth, bound: BoundModel, dtype: str) -> Iterator[Finding]:
    for stage in truth.program.stages:
        try:
            vjp = stage_of(bound, stage)
        except Broken as error:
            yield error.finding
        else:
            if vjp is not None:
                yield judge_stage(truth.stage(stage), vjp, dtype)


def _with_fold_faults(stages: Iterable[Finding], failed: Iterable[Finding]) -> Iterator[Finding]:
    """The stages' findings, and faults that appeared in the fold but not in a call alone."""
    unreported = {f.name: f for f in failed if not f.verdict.expected}
    for finding in stages:
        before = unreported.pop(finding.name, finding)
        yield before if finding.verdict.expected else finding
    yield from unreported.values()


def judge_gradients(
    truth: ModelTruth,
    bound: BoundModel,
    gradients: Gradients,
    dtype: str,
    names: Iterable[str] | None = None,
) -> Iterator[Finding]:
    """One finding per name; without `names` per parameter, then per other name returned."""
    truth = truth.at(dtype)
    cts = cotangents(truth, bound)
    every = [*truth.floating, *_beside(truth, gradients)]
    for name in every if names is None else names:
        got = gradients[name]
        if isinstance(got, Finding):  # what is wrong with its form, or an unknown name
            yield got
        else:
            found = _judge_gradient(truth.gradient(name), name, got, cts, TOLERANCES[dtype])
            yield _fair(truth, found)


def _projected(
    truth: ModelTruth, bound: BoundModel, gradients: Gradients, dtype: str
) -> Iterator[Finding]:
    """Parameters by slopes of the loss, for the cotangent 1; other names element by element."""
    shaped: dict[str, Array | Finding] = {}
    for name in truth.floating:
        got = gradients[name]
        shape, kind = truth.params[name].shape, FLOATS[dtype].dtype
        shaped[name] = got if isinstance(got, Finding) else got[0].reshape(shape).astype(kind)
    yield from truth.projected(shaped, dtype)
    yield from judge_gradients(truth, bound, gradients, dtype, _beside(truth, gradients))


def _beside(truth: ModelTruth, gradients: Gradients) -> list[str]:
    """Names that are no parameters: other values of the program, and unknown names."""
    return [name for name in gradients if name not in truth.params]


def _curved(truth: ModelTruth, found: Finding, gradients: Gradients) -> Finding:
    got = gradients.get(found.name)
    if found.name not in truth.params or not isinstance(got, np.ndarray):
        return found
    index = list(truth.params).index(found.name)
    return replace(found, taylor=truth.remainders.of(index, got[0]))


def cotangents(truth: ModelTruth, bound: BoundModel) -> Float:
    """The loss's cotangents [q]: 1, and a random one where the code takes a cotangent."""
    if bound.gradients is not None:
        return np.ones(1)
    return np.array([1.0, float(truth.case.draw("cotangent").signed())])


def gradients_of(
    truth: ModelTruth, bound: BoundModel, dtype: str, replaced: frozenset[str] = frozenset()
) -> Gradients:
    """The gradients of `bound`: from its whole backward, or folded from its stages.

    Stages that are not bound, that are named in `replaced`, or that raise, are the reference's.

    Raises:
        Broken: its whole backward broke its contract.
    """
    truth = truth.at(dtype)
    typed = truth.typed(dtype)
    if bound.gradients is not None:
        params = {name: typed[name] for name in truth.params}
        inputs = {name: typed[name] for name in truth.inputs}
        asked: Gradients = ask_gradients(bound.gradients, truth.case, params, inputs)
        return asked
    xp = FLOATS[dtype]
    with np.errstate(all="ignore"):
        values = truth.program.forward(xp, typed)
        folds = [_fold(truth, bound, xp, values, ct, replaced) for ct in cotangents(truth, bound)]
    out: dict[str, Float | Finding] = {}
    for name in truth.floating:
        rows = [fold[name] for fold in folds]
        fault = next((row for row in rows if isinstance(row, Finding)), None)
        out[name] = fault or np.stack([np.ravel(row).astype(np.float64) for row in rows])
    return out


def _fold(
    truth: ModelTruth,
    bound: BoundModel,
    xp: Arithmetic,
    values: Values,
    ct: float,
    replaced: frozenset[str],
) -> dict[str, Any]:
    """The gradient of every parameter, folded; a Finding where a stage returns a faulty share."""
    faults: dict[str, Finding] = {}

    def vjp(stage: Stage, cts: tuple[Array, ...], values: Values) -> tuple[Any, ...]:
        reference = stage.vjp(xp, cts, values)
        try:
            own = None if stage.name in replaced else stage_of(bound, stage)
            if own is None:
                return reference
            found = ask_stage(own, stage, cts, values)
        except Broken:  # the stage's own row says so; what lies behind it is judged all the same
            return reference
        shares = []
        for name, share, right in zip(stage.reads, found, reference, strict=True):
            if isinstance(share, Finding):
                faults.setdefault(name, replace(share, name=name))
            shares.append(right if isinstance(share, Finding) else share)
        return tuple(shares)

    found = truth.program.backward(xp, values, xp.asarray(ct), vjp)
    zeros = {n: xp.zeros_like(values[n]) for n in truth.floating if n not in found}
    return {**found, **zeros, **{n: f for n, f in faults.items() if n in truth.params}}


def _judge_gradient(
    known: KnownGradient, name: str, got: Float, cts: Float, tolerance: Tolerance
) -> Finding:
    if got.shape[1] == 0:
        return empty_pass(name)
    names = ("one", "random")[: len(cts)]
    return known.compared(got, cts, tolerance).finding(name, known.shape, names)


def _judge_loss(truth: ModelTruth, bound: BoundModel, dtype: str) -> Finding:
    typed = truth.typed(dtype)
    params = {name: typed[name] for name in truth.params}
    inputs = {name: typed[name] for name in truth.inputs}
    assert bound.loss is not None
    try:
        value = ask_loss(bound.loss, params, inputs)
    except Broken as error:
        return replace(error.finding, name="loss", part=Part.VALUE)
    got = np.array([[value]])
    found = truth.loss.compared(got, np.ones(1), TOLERANCES[dtype]).finding("loss", (), ("",))
    reason = found.reason
    if found.verdict is Verdict.FAIL and np.isfinite(value):
        reason = f"it computes something else than {truth.case.spec.name}: {reason}"
    return replace(found, part=Part.VALUE, reason=reason)


def _certificate(truth: ModelTruth, binding: ModelBinding) -> list[Finding]:
    """The suite's own gradients against 50-digit differences: per parameter, and per stage."""
    if binding.name != "reference":
        reason = "50 digits certify the suite's own reverse pass only"
        return [Finding(name="gradients", verdict=Verdict.UNSUPPORTED, reason=reason)]
    if not truth.exact:
        reason = "too many parameters for 50 digits: float64 is certified by differences"
        return [Finding(name="gradients", verdict=Verdict.SKIP, reason=reason)]
    findings = []
    for name in truth.floating:
        found = truth.agreement(name)
        why = "" if found.ok else "along one direction it is not the slope of the loss"
        miss = number_miss(
            found.product, found.slope, found.error, found.allowed, bar=0.0, cotangent="one"
        )
        findings.append(replace(_certified(name, why), worst=(miss,)))
    for stage in truth.program.stages:
        ok = truth.stage(stage).gradients is not None
        why = "" if ok else f"the VJP of {stage.op.name} disagrees with 50-digit differences"
        findings.append(replace(_certified(stage.name, why), part=Part.STAGE))
    return findings


def _certified(name: str, why_not: str) -> Finding:
    return Finding(
        name=name,
        verdict=Verdict.FAIL if why_not else Verdict.PASS,
        reason=why_not,
        compared=1,
        failed=int(bool(why_not)),
        oracle=True,
    )


def _fair(truth: ModelTruth, finding: Finding) -> Finding:
    """INVALID in place of a verdict where the suite's own gradients are not certified."""
    blamed = finding.verdict in (Verdict.FAIL, Verdict.PASS) and finding.compared > 0
    if not blamed or truth.certified:
        return finding
    where = "50-digit differences disagree" if truth.exact else "slopes of the loss disagree"
    shows = "mp50" if truth.exact else "float64"
    reason = f"{where} with the suite's own fold: --impl reference --dtype {shows} shows it"
    return replace(finding, verdict=Verdict.INVALID, reason=reason)


def _alone(verdict: Verdict, reason: str) -> ModelJudgement:
    return ModelJudgement(findings=(Finding(name="gradients", verdict=verdict, reason=reason),))
