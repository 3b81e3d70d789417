"""The only loop: every case, every implementation, every dtype; nothing already known is lost.

A case is an operator's, a model's or an update rule's; all end in findings, and a finding becomes
a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

import gradcheck
from gradcheck import pool
from gradcheck.binding import Closing, Implementation, LaidOut
from gradcheck.binding.isolated import Isolation
from gradcheck.binding.load import load
from gradcheck.cutoff import CALL, Cutoff
from gradcheck.errors import GradcheckError, LoadError, ManifestError
from gradcheck.explain.guilt import Guilt
from gradcheck.explain.why import Why
from gradcheck.finding import Finding
from gradcheck.foreign import budget
from gradcheck.judge.contract import contract_cases, judge_contract
from gradcheck.judge.evidence import with_curves
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.operator import CaseTruth, Unsuitable, certified, judge_case
from gradcheck.judge.rule import certified_rule, judge_rule
from gradcheck.judge.steps import RuleTruth
from gradcheck.judge.training import judge_training
from gradcheck.model import ModelCase
from gradcheck.plan import AnyCase, Plan, point_of
from gradcheck.power.registry import mutants_of
from gradcheck.record import Header, Record, Run, digest_of
from gradcheck.recorded import record_of
from gradcheck.rule import RuleCase
from gradcheck.selection import DTYPES, LOW
from gradcheck.suite import Case, Suite, installed_suites, load_suite
from gradcheck.verdict import Verdict

Progress = Callable[[int, int, str], None]
Ask = Callable[[Implementation, str], Sequence[Finding]]
"""What an implementation makes of one case in one dtype."""
Judging = tuple[Callable[[int], Iterable[Record]], Callable[[], dict[int, list[Record]]]]
"""Judges the case at a place; says what is judged already, of all places."""
NOWHERE: Final = Suite("nowhere", "0", ())
"""Stands for a suite that a process is to load for itself: a suite cannot be sent."""
ENDED: Final = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.NOTRUN)
FAULTS: Final = (Exception, SystemExit)
"""What a suite may raise; the run goes on."""


class Witness(Protocol):
    """Is told of a run as it goes; `Run` says the same again at its end."""

    def begins(self, header: Header) -> None:
        """Before the first case; the header does not know the hash of the cases."""

    def sees(self, results: Sequence[Record]) -> str:
        """What came of one case; returns why the run is to stop now, or nothing."""


def execute(plan: Plan, progress: Progress | None = None, witness: Witness | None = None) -> Run:
    """Judge everything in the plan.

    An implementation that does not load is a trouble, not the end: the others are judged.
    Interrupted (Ctrl-C), the run returns what it has, marked incomplete.

    Raises:
        UnknownNameError: a word names no implementation.
        LoadError: none of the implementations can be loaded.
        ManifestError: a manifest that yields nonsense for one of the cases.
    """
    with loaded(plan) as ready:
        return executed(ready, progress, witness)


@dataclass(frozen=True, slots=True)
class Ready:
    """A plan whose implementations are loaded; `troubles` names those that could not be."""

    plan: Plan
    bindings: Sequence[Implementation]
    troubles: Sequence[str]


@contextmanager
def loaded(plan: Plan) -> Iterator[Ready]:
    """The plan with its implementations, whose processes end with the block.

    Raises:
        UnknownNameError, LoadError, ManifestError: as `execute` does.
    """
    bindings, troubles = _load_all(plan)
    if any(plan.owes_contract(binding.name) for binding in bindings):
        plan = replace(plan, contract_at=contract_cases(plan.cases))
    try:
        _smoke(plan, bindings)
        yield Ready(plan, bindings, troubles)
    finally:
        _close(bindings)


def executed(ready: Ready, progress: Progress | None = None, witness: Witness | None = None) -> Run:
    """Judge everything in a plan that is loaded; a witness sees it as it goes, and may end it."""
    plan, troubles = ready.plan, [*ready.troubles]
    cases, header = plan.everything, header_of(plan, ready.bindings)
    found: dict[int, list[Record]] = {}
    cutoff, stopped = Cutoff(), ""
    if witness is not None:
        witness.begins(header)
    try:
        with _judging(plan, ready.bindings, cases, cutoff) as (judged, finished):
            try:
                for place, case in enumerate(cases):
                    if progress is not None:
                        progress(place, len(cases), case.name)
                    records = found[place] = []
                    try:
                        records.extend(cutoff.applied(judged(place)))
                    finally:  # Ctrl-C within a case: what is known of it is kept
                        stopped = witness.sees(records) if witness is not None else ""
                    cutoff.sees(records)
                    if stopped:
                        break
            except (KeyboardInterrupt, pool.Died):
                for place, results in finished().items():
                    found[place] = found.get(place) or [*cutoff.after(results)]
                raise
    except KeyboardInterrupt:
        stopped = "interrupted"
    except pool.Died as error:
        stopped = str(error)
        troubles.append(f"{error}; run again with -j 1 to see where")
    else:
        stopped = stopped if len(found) < len(cases) else ""
    results = [record for place in sorted(found) for record in found[place]]
    ordered = sorted(results, key=lambda r: plan.implementations.index(r.implementation))
    reached = sum(map(bool, found.values()))
    return Run(
        header=replace(header, cases=digest_of(ordered)),
        results=tuple(ordered),
        complete=not stopped,
        stopped=_not_reached(stopped, reached, len(cases)) if stopped else "",
        troubles=tuple(troubles),
    )


def _not_reached(why: str, reached: int, planned: int) -> str:
    """Why a run ended early, and how much of it there would have been."""
    if reached == planned:
        return why
    return f"{why}; not reached: {planned - reached:,} of {planned:,} cases"


def header_of(plan: Plan, bindings: Sequence[Implementation]) -> Header:
    """What is known of a run before it begins: all but the hash of its cases."""
    return Header(
        version=gradcheck.__version__,
        suite=plan.suite.name,
        suite_version=plan.suite.version,
        implementations=tuple(plan.implementations),
        dtypes=tuple(_dtypes(plan)),
        seed=plan.seed,
        numpy=np.__version__,
        versions={b.name: said for b in bindings if (said := getattr(b, "version", ""))},
        shard=plan.shard,
    )


def judge(
    plan: Plan, case: AnyCase, binding: Implementation, why: Why | None = None
) -> list[Record]:
    """The records of one case and one implementation, for callers with a loop of their own.

    `why` holds the diagnoses that the callers keep from case to case.
    """
    return list(_judge(plan, case, [binding], why or why_of(plan)))


def why_of(plan: Plan) -> Why:
    """What explains failures, and makes each diagnosis once."""
    return Why(plan.suite.operators, lambda: mutants_of(plan.suite))


def _dtypes(plan: Plan) -> list[str]:
    """Every dtype in which something is judged."""
    some = plan.dtypes if plan.cases or plan.rules or not plan.models else ()
    return list(dict.fromkeys([*(plan.model_dtypes if plan.models else ()), *some]))


@contextmanager
def _judging(
    plan: Plan, bindings: Sequence[Implementation], cases: Sequence[AnyCase], cutoff: Cutoff
) -> Iterator[Judging]:
    """What judges the case at a place, here or in another process, and what is judged already.

    Here it is judged record by record, so that Ctrl-C leaves what is known; there all are under
    way at once.
    """
    if plan.jobs == 1:
        why = why_of(plan)
        yield lambda place: _judge_next(plan, cases[place], bindings, why, cutoff), dict
        return
    remote = replace(plan, suite=NOWHERE, cases=(), models=(), rules=(), only=None, build=False)
    names = [(c.spec.name, c.dialect.name, point_of(c).name, c.seed) for c in cases]
    with pool.Work(_judge_there, names, plan.jobs, _begin_there, (remote,)) as work:
        yield work.result, work.finished


def _judge_next(
    plan: Plan,
    case: AnyCase,
    bindings: Sequence[Implementation],
    why: Why,
    cutoff: Cutoff,
) -> Iterator[Record]:
    """The records of the next case of a run, which may leave something of it out."""
    budget.of_case(case.name)
    try:
        yield from _judge(plan, case, bindings, why, cutoff)
    finally:
        budget.of_case("")


_PLAN: Plan
_CUTOFF: Cutoff
_BINDINGS: Sequence[Implementation]
_WHY: Why


def _begin_there(plan: Plan) -> None:
    global _PLAN, _BINDINGS, _WHY, _CUTOFF  # noqa: PLW0603  what a worker process keeps
    _PLAN = replace(plan, suite=load_suite(plan.suites))
    _WHY, _CUTOFF = why_of(_PLAN), Cutoff()
    _BINDINGS, _ = _load_all(_PLAN)


def _judge_there(names: tuple[str, str, str, int]) -> list[Record]:
    """One case; what this process alone has seen is enough to leave out the same, or less."""
    return [*_CUTOFF.after(_judge_next(_PLAN, _case(*names), _BINDINGS, _WHY, _CUTOFF))]


def _case(name: str, dialect: str, point: str, seed: int) -> AnyCase:
    """The case of the loaded suite that these names mean."""
    suite = _PLAN.suite
    if name in suite.operators:
        spec = suite.operators[name]
        sample = next(s for s in spec.samples if s.name == point)
        return Case(spec, spec.dialect(dialect), sample, seed, suite.home[name])
    if name in suite.rules:
        rule = suite.rules[name]
        steps = next(s for s in rule.samples if s.name == point)
        return RuleCase(rule, rule.dialect(dialect), steps, seed, suite.home[name])
    model = suite.models[name]
    size = next(s for s in model.sizes if s.name == point)
    return ModelCase(model, model.dialect(dialect), size, seed, suite.home[name])


def _load_all(plan: Plan) -> tuple[list[Implementation], list[str]]:
    bindings: list[Implementation] = []
    troubles: list[str] = []
    first: LoadError | None = None
    own = plan.isolate and any(word != "reference" for word in plan.implementations)
    suites = (plan.suites or installed_suites()) if own else ()
    isolation = Isolation(suites=suites, timeout=plan.timeout) if own else None
    for word in plan.implementations:
        try:
            bindings.append(load(word, plan.suite, build=plan.build, isolation=isolation))
        except LoadError as error:
            troubles.append(str(error))
            first = first or error
    if first is not None and not bindings:
        raise first
    return bindings, troubles


def _smoke(plan: Plan, bindings: Sequence[Implementation]) -> None:
    """Lay out every call that is planned, where a manifest says how, before one is judged.

    Raises:
        ManifestError: the manifest yields nonsense for a case, or exchanges two sizes; all such
            places are named.
    """
    for binding in bindings:
        if isinstance(binding, LaidOut):
            problems = binding.smoke(plan.cases, plan.dtypes)
            problems = problems or binding.exchanged(plan.cases, plan.dtypes)
            if problems:
                raise ManifestError("; also ".join(problems))


def _close(bindings: Sequence[Implementation]) -> None:
    """End the processes that implementations run in."""
    for binding in bindings:
        if isinstance(binding, Closing):
            binding.close()


def _judge(
    plan: Plan,
    case: AnyCase,
    bindings: Sequence[Implementation],
    why: Why,
    cutoff: Cutoff | None = None,
) -> Iterator[Record]:
    fingerprint = ""
    ask: Ask
    try:
        fingerprint = case.fingerprint
        ask = _asking(plan, case, why)
    except FAULTS as error:  # a case at fault is a verdict
        ask = _invalid(error)
    dtypes = plan.model_dtypes if isinstance(case, ModelCase) else plan.dtypes
    for binding in bindings:
        left_out = cutoff.why(binding.name, case.spec.name) if cutoff is not None else ""
        for dtype in dtypes:
            try:
                findings = [_not_run(left_out)] if left_out else ask(binding, dtype)
            except FAULTS as error:
                findings = _invalid(error)(binding, dtype)
            for finding in findings:
                yield record_of(plan, case, fingerprint, binding.name, dtype, finding)


def _not_run(why: str) -> Finding:
    return Finding(name=CALL, verdict=Verdict.NOTRUN, reason=why)


def _asking(plan: Plan, case: AnyCase, why: Why) -> Ask:
    if isinstance(case, ModelCase):
        return _model(plan, case)
    return _rule(case) if isinstance(case, RuleCase) else _operator(plan, case, why)


def _invalid(error: BaseException) -> Ask:
    finding = Finding(name="vjp", verdict=Verdict.INVALID, reason=_describe(error))
    return lambda binding, dtype: [finding]


def _model(plan: Plan, case: ModelCase) -> Ask:
    truth = ModelTruth(case)
    guilt = Guilt(truth, lambda: mutants_of(plan.suite))

    def ask(binding: Implementation, dtype: str) -> Sequence[Finding]:
        judged = judge_model(truth, binding, dtype, taylor=plan.taylor, project=plan.project)
        return [*guilt.blamed(judged, dtype), *_trained(plan, truth, binding, dtype)]

    return ask


def _trained(
    plan: Plan, truth: ModelTruth, binding: Implementation, dtype: str
) -> Iterator[Finding]:
    """How a model's loss falls at its smallest size, by every rule that says how it trains."""
    smallest = truth.case.size == truth.case.spec.sizes[0]
    if not (plan.train and smallest and dtype in DTYPES):
        return
    for rule in plan.suite.rules.values():
        if rule.training is not None:
            for finding in judge_training(truth.case, binding, dtype, rule):
                yield replace(finding, name=f"training by {rule.name}")


def _rule(case: RuleCase) -> Ask:
    truth = RuleTruth(case)

    def ask(binding: Implementation, dtype: str) -> Sequence[Finding]:
        return certified_rule(truth, judge_rule(truth, binding, dtype), dtype)

    return ask


def _operator(plan: Plan, case: Case, why: Why) -> Ask:
    truths = _truths(plan, case)

    def ask(binding: Implementation, dtype: str) -> Sequence[Finding]:
        truth = truths[dtype]
        if isinstance(truth, Finding):
            return [truth]
        found = certified(truth, judge_case(truth, binding, dtype, taylor=plan.taylor), dtype)
        found = with_curves(truth, found, every=plan.taylor)
        found = why.explained(case, binding, dtype, found)
        ended = any(f.verdict in ENDED for f in found)  # what hung need not hang again
        if case.name in plan.contract_at and plan.owes_contract(binding.name) and not ended:
            source = next((f.source for f in found if f.source), "")
            owed = [replace(f, source=source) for f in judge_contract(truth, binding, dtype)]
            found += why.explained(case, binding, dtype, owed)
        return found

    return ask


def _truths(plan: Plan, case: Case) -> dict[str, CaseTruth | Finding]:
    """What is true in each dtype, or why the case cannot be put in it."""
    truths: dict[str, CaseTruth | Finding] = {}
    exact: CaseTruth | None = None
    for dtype in plan.dtypes:
        if dtype in LOW:
            try:
                truths[dtype] = CaseTruth.in_low(case, plan.convention, dtype)
            except Unsuitable as reason:
                truths[dtype] = Finding(name="vjp", verdict=Verdict.SKIP, reason=str(reason))
        else:
            truths[dtype] = exact = exact or CaseTruth(case, plan.convention)
    return truths


def _describe(error: BaseException) -> str:
    if isinstance(error, GradcheckError):
        return str(error)
    return f"the case itself raised {type(error).__name__}: {' '.join(str(error).split())}"
