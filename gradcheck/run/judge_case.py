"""The results of one case: of every implementation, in every dtype.

A case of an operator, a model or an update rule ends in findings, and a finding becomes a record.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from gradcheck.errors import CODE_ERRORS, GradcheckError, raised
from gradcheck.explain.case_diagnosis import LazyDiagnoser, only_adds
from gradcheck.implementations.bound import Implementation
from gradcheck.implementations.processes import crash_or_hang
from gradcheck.implementations.processes.crash_or_hang import LIMITS
from gradcheck.implementations.returned import failures
from gradcheck.judge.operator import CaseTruth, Unsuitable, certified, judge_case, with_v_curves
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Finding, Part
from gradcheck.results.run import NO_FEATURES
from gradcheck.results.verdict import Verdict
from gradcheck.run.limits import CALL
from gradcheck.run.plan import Plan
from gradcheck.run.to_result import result_of
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.dtype_selection import DTYPES, LOW
from gradcheck.spec.suite import Case

if TYPE_CHECKING:
    from gradcheck.judge.model_truth import ModelTruth
    from gradcheck.spec.model import ModelCase
    from gradcheck.spec.mutant import KnownMutants
    from gradcheck.spec.rule import RuleCase

Ask = Callable[[Implementation, str], Sequence[Finding]]
"""Judges one case for an implementation and a dtype."""
LeftOut = Callable[[str, str, str], str]
"""Why an operator's dialect is left out for an implementation; empty if it is judged."""
_JUDGED: Final = count()


def judge(
    plan: Plan, case: AnyCase, binding: Implementation, why: LazyDiagnoser | None = None
) -> list[CaseResult]:
    """The records of one case and one implementation, for callers with their own loop.

    `why` keeps the diagnoses from case to case.
    """
    return list(_judge(plan, case, [binding], why or why_of(plan)))


def why_of(plan: Plan) -> LazyDiagnoser:
    """The diagnoser of a plan, which makes each diagnosis once."""
    return LazyDiagnoser(plan.suite.operators, lambda: _mutants(plan))


def _mutants(plan: Plan) -> KnownMutants:
    from gradcheck.spec.mutant import KnownMutants

    return KnownMutants(plan.suite)


def judge_next(
    plan: Plan,
    case: AnyCase,
    bindings: Sequence[Implementation],
    why: LazyDiagnoser,
    left_out: LeftOut,
    asks: Container[tuple[str, str]] | None = None,
) -> Iterator[CaseResult]:
    """The records of a case of a run.

    Args:
        plan: how it is judged.
        case: the case.
        bindings: the implementations.
        why: the diagnoser.
        left_out: why an operator's dialect is left out for an implementation.
        asks: implementations and dtypes to judge; None: all.
    """
    crash_or_hang.of_case(f"{case.name} {next(_JUDGED)}")  # a repeated case has a new budget
    try:
        yield from _judge(plan, case, bindings, why, left_out, asks)
    finally:
        crash_or_hang.of_case("")


def _judge(
    plan: Plan,
    case: AnyCase,
    bindings: Sequence[Implementation],
    why: LazyDiagnoser,
    left_out: LeftOut = lambda implementation, op, dialect: "",
    asks: Container[tuple[str, str]] | None = None,
) -> Iterator[CaseResult]:
    fingerprint = ""
    ask: Ask
    try:
        fingerprint = case.fingerprint
        ask = ASKING[case.kind](plan, case, why)
    except CODE_ERRORS as error:  # a case at fault is a verdict
        ask = _invalid(error)
    dtypes = plan.dtypes_of(case)
    for binding in bindings:
        reason = left_out(binding.name, case.spec.name, case.dialect.name)
        for dtype in dtypes:
            if asks is not None and (binding.name, dtype) not in asks:
                continue
            with failures() as failed:
                try:
                    findings = [_not_run(reason)] if reason else ask(binding, dtype)
                except CODE_ERRORS as error:
                    findings = _invalid(error)(binding, dtype)
            for finding in [*findings, *_untold(failed, findings)]:
                yield result_of(plan, case, fingerprint, binding.name, dtype, finding)


def not_reached(
    plan: Plan, case: AnyCase, words: Sequence[str], known: Sequence[CaseResult], why: str
) -> list[CaseResult]:
    """NOTRUN for each implementation and dtype of a case without a known result."""
    asked = {(result.case.implementation, result.case.dtype) for result in known}
    fingerprint = known[0].case.hash if known else hash_of(case)
    return [
        result_of(plan, case, fingerprint, word, dtype, _not_run(why))
        for word in words
        for dtype in plan.dtypes_of(case)
        if (word, dtype) not in asked
    ]


def _untold(failed: Sequence[Finding], findings: Sequence[Finding]) -> list[Finding]:
    """The first crash or hang that no finding reports."""
    told = {finding.verdict for finding in findings}
    untold = [f for f in failed if f.verdict in LIMITS and f.verdict not in told]
    return [replace(f, name=CALL, part=Part.GRADIENT) for f in untold[:1]]


def hash_of(case: AnyCase) -> str:
    """The hash of a case; empty where the case is at fault."""
    try:
        return case.fingerprint
    except CODE_ERRORS:
        return ""


def _not_run(why: str) -> Finding:
    return Finding(name=CALL, verdict=Verdict.NOTRUN, reason=why)


def _invalid(error: BaseException) -> Ask:
    return lambda binding, dtype: [_at_fault(error)]


def _at_fault(error: BaseException) -> Finding:
    return Finding(name=CALL, verdict=Verdict.INVALID, reason=_describe(error))


def _model(plan: Plan, case: ModelCase, why: LazyDiagnoser) -> Ask:
    from gradcheck.explain.model_blame import ModelBlame
    from gradcheck.judge.model import judge_model
    from gradcheck.judge.model_truth import ModelTruth

    truth = ModelTruth(case)
    guilt = ModelBlame(truth, lambda: _mutants(plan))

    def ask(binding: Implementation, dtype: str) -> Sequence[Finding]:
        judged = judge_model(truth, binding, dtype, taylor=plan.taylor, project=plan.project)
        found = only_adds(judged.findings, lambda: guilt.blamed(judged, dtype))
        return _and(found, lambda: _trained(plan, truth, binding, dtype))

    return ask


def _trained(
    plan: Plan, truth: ModelTruth, binding: Implementation, dtype: str
) -> Iterator[Finding]:
    """The training of a model at its smallest size, by every rule that can."""
    smallest = truth.case.size == truth.case.spec.sizes[0]
    if not (plan.train and smallest and dtype in DTYPES):
        return
    from gradcheck.judge.training import judge_training

    for rule in plan.suite.rules.values():
        if rule.training is not None:
            for finding in judge_training(truth.case, binding, dtype, rule):
                yield replace(finding, name=f"training by {rule.name}")


def _rule(plan: Plan, case: RuleCase, why: LazyDiagnoser) -> Ask:
    from gradcheck.judge.rule import certified_rule, judge_rule
    from gradcheck.judge.rule_truth import RuleTruth

    truth = RuleTruth(case)

    def ask(binding: Implementation, dtype: str) -> Sequence[Finding]:
        return certified_rule(truth, judge_rule(truth, binding, dtype), dtype)

    return ask


def _operator(plan: Plan, case: Case, why: LazyDiagnoser) -> Ask:
    truths = _truths(plan, case)

    def ask(binding: Implementation, dtype: str) -> Sequence[Finding]:
        if case.sample.no_features and not plan.asks_without_features(binding.name):
            return [Finding(name=CALL, verdict=Verdict.SKIP, reason=NO_FEATURES)]
        truth = truths[dtype]
        if isinstance(truth, Finding):
            return [truth]
        found = certified(truth, judge_case(truth, binding, dtype, taylor=plan.taylor), dtype)
        found = with_v_curves(truth, found, every=plan.taylor)
        found = why.explained(case, binding, dtype, found)
        given_up = any(f.verdict is Verdict.NOTRUN for f in found)
        if case.name in plan.contract_at and plan.owes_contract(binding.name) and not given_up:
            return _and(found, lambda: owed(truth, binding, dtype, found))
        return found

    def owed(
        truth: CaseTruth, binding: Implementation, dtype: str, found: Sequence[Finding]
    ) -> Sequence[Finding]:
        from gradcheck.judge.contract_check import PROPERTIES, QUICK, judge_contract

        source = next((f.source for f in found if f.source), "")
        properties = PROPERTIES if plan.all else QUICK
        broken = judge_contract(truth, binding, dtype, properties, found)
        return why.explained(case, binding, dtype, [replace(f, source=source) for f in broken])

    return ask


ASKING: Final[Mapping[Kind, Callable[[Plan, Any, LazyDiagnoser], Ask]]] = {
    Kind.OPERATOR: _operator,
    Kind.MODEL: _model,
    Kind.RULE: _rule,
}
"""By the kind of a case, what prepares its judgement."""


def _and(found: Sequence[Finding], more: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Findings and more findings, or a verdict where those raise."""
    kept = [*found]
    try:
        kept += more()
    except CODE_ERRORS as error:
        kept.append(_at_fault(error))
    return kept


def _truths(plan: Plan, case: Case) -> dict[str, CaseTruth | Finding]:
    """The truth in each dtype, or a SKIP where the dtype does not hold the case."""
    truths: dict[str, CaseTruth | Finding] = {}
    exact: CaseTruth | None = None
    for dtype in plan.dtypes:
        if dtype in LOW:
            try:
                truths[dtype] = CaseTruth.in_low(case, plan.convention, dtype)
            except Unsuitable as reason:
                truths[dtype] = Finding(name="vjp", verdict=Verdict.SKIP, reason=str(reason))
        else:
            exact = exact or CaseTruth(case, plan.convention)
            truths[dtype] = exact.at(dtype)
    return truths


def _describe(error: BaseException) -> str:
    if isinstance(error, GradcheckError):
        return str(error)
    return f"the case itself raised {raised(error)}"
