"""The only loop: every case, every implementation, every dtype; nothing already known is lost.

A case is an operator's, a model's or an update rule's; all end in findings, and a finding becomes
a record.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

import gradcheck
from gradcheck import pool
from gradcheck.binding import Closing, Implementation, LaidOut
from gradcheck.binding.isolated import TIMEOUT, Isolation
from gradcheck.binding.load import load
from gradcheck.errors import GradcheckError, LoadError, ManifestError
from gradcheck.explain.guilt import Guilt
from gradcheck.explain.why import Why
from gradcheck.finding import Finding, Part
from gradcheck.judge.contract import contract_cases, judge_contract
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.operator import CaseTruth, Unsuitable, certified, judge_case
from gradcheck.judge.rule import certified_rule, judge_rule
from gradcheck.judge.steps import RuleTruth
from gradcheck.judge.training import judge_training
from gradcheck.model import ModelCase, Size
from gradcheck.power.registry import mutants_of
from gradcheck.record import Header, Kind, Record, Run
from gradcheck.rule import RuleCase, Steps
from gradcheck.selection import DTYPES, LOW
from gradcheck.spec import Sample
from gradcheck.suite import Case, Suite, installed_suites, load_suite
from gradcheck.verdict import Verdict

Progress = Callable[[int, int, str], None]
AnyCase = Case | ModelCase | RuleCase
Ask = Callable[[Implementation, str], Sequence[Finding]]
"""What an implementation makes of one case in one dtype."""
NOWHERE: Final = Suite("nowhere", "0", ())
"""Stands for a suite that a process is to load for itself: a suite cannot be sent."""
FLAGS: Final = {Kind.OPERATOR: "--op", Kind.MODEL: "--model", Kind.RULE: "--rule"}
ENDED: Final = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.NOTRUN)
FAULTS: Final = (Exception, SystemExit)
"""What a suite may raise; the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to judge: cases of a suite, implementations by their `--impl` words, dtypes.

    `cases` are operators', `models` models'; `model_dtypes` may hold "mp50", under which the
    suite's own fold of a model is held against 50-digit differences.

    `suites` are the `--suite` references, repeated in repro lines. `convention` names the system
    whose choices on kinks are the only ones allowed (empty: any subgradient). More than one of
    `jobs` needs a suite that another process can load: an installed one, or one of `suites`.
    `taylor` asks for the Taylor remainder of every gradient; `project` holds the gradients of
    models against slopes of their loss, as large ones always are; `train` trains each at its
    smallest size, by every rule of the suite that says how. `build` lets manifests run their
    commands. `contract` asks what a backward owes beyond its numbers (None: of all but the
    reference), once per operator and dialect, at the cases named by `contract_at`. `isolate` runs
    Python that is not the suite's own in a process of its own, in which each call may take
    `timeout` seconds; it needs what several jobs need.
    """

    suite: Suite
    cases: Sequence[Case]
    implementations: Sequence[str]
    dtypes: Sequence[str]
    seed: int
    suites: Sequence[str] = ()
    convention: str = ""
    jobs: int = 1
    models: Sequence[ModelCase] = ()
    model_dtypes: Sequence[str] = ()
    taylor: bool = False
    project: bool = False
    rules: Sequence[RuleCase] = ()
    train: bool = False
    build: bool = True
    contract: bool | None = None
    contract_at: frozenset[str] = frozenset()
    isolate: bool = False
    timeout: float = TIMEOUT

    @property
    def everything(self) -> list[AnyCase]:
        """Operators first, then models, then update rules."""
        return [*self.cases, *self.models, *self.rules]

    def owes_contract(self, implementation: str) -> bool:
        """Whether an implementation is asked what it owes beyond its numbers."""
        return implementation != "reference" if self.contract is None else self.contract


def execute(plan: Plan, progress: Progress | None = None) -> Run:
    """Judge everything in the plan.

    An implementation that does not load is a trouble, not the end: the others are judged.
    Interrupted (Ctrl-C), the run returns what it has, marked incomplete.

    Raises:
        UnknownNameError: a word names no implementation.
        LoadError: none of the implementations can be loaded.
        ManifestError: a manifest that yields nonsense for one of the cases.
    """
    with loaded(plan) as ready:
        return executed(ready, progress)


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


def executed(ready: Ready, progress: Progress | None = None) -> Run:
    """Judge everything in a plan that is loaded."""
    plan, bindings, troubles = ready.plan, ready.bindings, [*ready.troubles]
    results: list[Record] = []
    complete = True
    digest = hashlib.blake2b(digest_size=4)
    try:
        with closing(_judged(plan, bindings)) as judged:
            for done, case in enumerate(plan.everything):
                if progress is not None:
                    progress(done, len(plan.everything), case.name)
                results.extend(next(judged))
                digest.update(f"{case.name}#{results[-1].hash}".encode() if results else b"")
    except KeyboardInterrupt:
        complete = False
    except pool.Died as error:
        complete = False
        troubles.append(f"{error}; run again with -j 1 to see where")
    header = Header(
        version=gradcheck.__version__,
        suite=plan.suite.name,
        suite_version=plan.suite.version,
        cases=digest.hexdigest(),
        implementations=tuple(plan.implementations),
        dtypes=tuple(_dtypes(plan)),
        seed=plan.seed,
        numpy=np.__version__,
        versions={b.name: said for b in bindings if (said := getattr(b, "version", ""))},
    )
    ordered = sorted(results, key=lambda r: plan.implementations.index(r.implementation))
    return Run(header=header, results=tuple(ordered), complete=complete, troubles=tuple(troubles))


def judge(plan: Plan, case: AnyCase, binding: Implementation) -> list[Record]:
    """The records of one case and one implementation, for callers with a loop of their own."""
    return list(_judge(plan, case, [binding], _why(plan)))


def _why(plan: Plan) -> Why:
    return Why(plan.suite.operators, lambda: mutants_of(plan.suite))


def _dtypes(plan: Plan) -> list[str]:
    """Every dtype in which something is judged."""
    some = plan.dtypes if plan.cases or plan.rules or not plan.models else ()
    return list(dict.fromkeys([*(plan.model_dtypes if plan.models else ()), *some]))


def _judged(plan: Plan, bindings: Sequence[Implementation]) -> Generator[Iterable[Record]]:
    """The records of each case, in order; from other processes, if several jobs are asked for."""
    if plan.jobs == 1:
        why = _why(plan)
        for case in plan.everything:
            yield _judge(plan, case, bindings, why)  # lazy: what is known is kept on Ctrl-C
        return
    remote = replace(plan, suite=NOWHERE, cases=(), models=(), rules=(), build=False)
    names = [(c.spec.name, c.dialect.name, _point(c).name, c.seed) for c in plan.everything]
    yield from pool.each(_judge_there, names, plan.jobs, _begin_there, (remote,))


_PLAN: Plan
_BINDINGS: Sequence[Implementation]
_WHY: Why


def _begin_there(plan: Plan) -> None:
    global _PLAN, _BINDINGS, _WHY  # noqa: PLW0603  what a worker process keeps
    _PLAN = replace(plan, suite=load_suite(plan.suites))
    _WHY = _why(_PLAN)
    _BINDINGS, _ = _load_all(_PLAN)


def _judge_there(names: tuple[str, str, str, int]) -> list[Record]:
    return list(_judge(_PLAN, _case(*names), _BINDINGS, _WHY))


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


def _point(case: AnyCase) -> Sample | Size | Steps:
    """Where a case is judged: an operator's sample, a model's size, a rule's steps."""
    return case.size if isinstance(case, ModelCase) else case.sample


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
    """Lay out every call that is planned, where a manifest says how, before the first is made.

    Raises:
        ManifestError: the manifest yields nonsense for a case; all such places are named.
    """
    for binding in bindings:
        if isinstance(binding, LaidOut):
            problems = binding.smoke(plan.cases, plan.dtypes)
            if problems:
                raise ManifestError("; also ".join(problems))


def _close(bindings: Sequence[Implementation]) -> None:
    """End the processes that implementations run in."""
    for binding in bindings:
        if isinstance(binding, Closing):
            binding.close()


def _judge(
    plan: Plan, case: AnyCase, bindings: Sequence[Implementation], why: Why
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
        for dtype in dtypes:
            try:
                findings = ask(binding, dtype)
            except FAULTS as error:
                findings = _invalid(error)(binding, dtype)
            for finding in findings:
                yield _record(plan, case, fingerprint, binding.name, dtype, finding)


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


def _record(
    plan: Plan,
    case: AnyCase,
    fingerprint: str,
    implementation: str,
    dtype: str,
    finding: Finding,
) -> Record:
    point, kind = _point(case), _kind(case)
    return Record(
        name=f"{case.name}/{dtype}",
        hash=fingerprint,
        implementation=implementation,
        op=case.spec.name,
        dialect=case.dialect.name,
        sample=point.name,
        dtype=dtype,
        output=finding.name,
        verdict=finding.verdict,
        seed=plan.seed,
        repro=_again(plan, case, implementation, dtype, finding),
        hunts="" if finding.part is Part.CONTRACT else point.hunts,
        reason=finding.reason,
        compared=finding.compared,
        failed=finding.failed,
        unresolved=finding.unresolved,
        kinked=finding.kinked,
        smallest_visible_error=finding.smallest_visible_error,
        oracle=finding.oracle,
        conventions=finding.conventions,
        certificate=finding.certificate,
        worst=finding.worst,
        kind=kind,
        part=finding.part,
        evaluations=finding.evaluations,
        taylor=finding.taylor,
        blames=finding.blames,
        printed=finding.printed,
        slack=finding.slack,
        diagnosis=finding.diagnosis,
        source=finding.source,
    )


def _again(plan: Plan, case: AnyCase, implementation: str, dtype: str, finding: Finding) -> str:
    """The command that judges one case again, alone."""
    kind = _kind(case)
    alone = kind is Kind.OPERATOR and finding.part is Part.GRADIENT
    words = ["gradcheck"]
    if alone:
        one = isinstance(case, Case) and finding.name in case.primal_names
        words += ["repro", f"{case.name}/{dtype}" + f":{finding.name}" * one]
    else:
        words += ["run", FLAGS[kind], case.spec.name, "--dialect", case.dialect.name]
        words += ["--sample", _point(case).name, "--dtype", dtype]
    for reference in plan.suites:
        words += _flag("--suite", reference)
    if implementation != "reference":
        words += _flag("--impl", implementation)
    if kind is Kind.MODEL:
        words += ["--project"] * plan.project + ["--train"] * (finding.part is Part.TRAINING)
    if finding.part is Part.CONTRACT and plan.contract:
        words.append("--contract")
    if plan.timeout != TIMEOUT:
        words += ["--timeout", f"{plan.timeout:g}"]
    if plan.convention:
        words += _flag("--convention", plan.convention)
    if plan.seed:
        words += ["--seed", str(plan.seed)]
    return shlex.join(words)


def _kind(case: AnyCase) -> Kind:
    if isinstance(case, ModelCase):
        return Kind.MODEL
    return Kind.RULE if isinstance(case, RuleCase) else Kind.OPERATOR


def _flag(flag: str, value: str) -> list[str]:
    """A flag and its value; a value that looks like a flag needs an equals sign."""
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]
