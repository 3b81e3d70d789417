"""Every model selected, with every planted fault: is it found, blamed and named?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import gradcheck
from gradcheck.errors import told
from gradcheck.explain.model_blame import ModelBlame
from gradcheck.explain.stage_defects import WHERE_ALONE
from gradcheck.implementations.reference import Reference
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.power.equivalence import FAULTS as RAISED
from gradcheck.power.narrow_model import Trial, fault_of, fixed_part
from gradcheck.power.planted import Planted
from gradcheck.results.finding import Blame, Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.run.workers.collect import Workers, collect
from gradcheck.spec.fault import Fault, faults_of
from gradcheck.spec.loading import load_suite
from gradcheck.spec.mutant_registry import mutants_of
from gradcheck.spec.suite import Suite

Progress = Callable[[int, int, str], None]

REJECTED: Final = frozenset({Verdict.FAIL, Verdict.MISSING, Verdict.ERROR})


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTrial:
    """One fault in one dialect of its model and one dtype, and what the judgement made of it.

    `rejected` counts parameters whose gradients are rejected, of `parameters`. `blamed` are the
    stages that are blamed when each is judged alone, in order of rounds, and `named` says what is
    wrong with the first. `suspects` are those of each round when the gradients alone are known,
    and `guess` what would reproduce them.
    """

    fault: str
    says: str
    kind: str
    dialect: str
    dtype: str
    stages: tuple[str, ...]
    of: int
    parameters: int
    rejected: int
    blamed: tuple[str, ...]
    named: tuple[str, ...]
    suspects: tuple[tuple[str, ...], ...]
    guess: tuple[str, ...]
    modelled_on: str = ""

    @property
    def exact(self) -> bool:
        """Whether the stages blamed are those at fault, and no others."""
        return sorted(self.blamed) == sorted(self.stages)

    @property
    def contained(self) -> bool:
        """Whether the first suspects hold a stage at fault: the one, where there is one alone."""
        if not self.suspects or (len(self.stages) == 1 < len(self.suspects)):
            return False
        return bool(set(self.suspects[0]) & set(self.stages))

    @property
    def understood(self) -> bool:
        """Whether blame says what is wrong with the first stage, not merely where it is wrong."""
        return any(WHERE_ALONE not in said for said in self.named)

    @property
    def sound(self) -> bool:
        """Whether it is found and blamed as it should be."""
        return self.rejected > 0 and self.exact and self.contained


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """A stage that computes in a narrower type than its dtype, and what was made of it.

    `failed` says whether the stage alone is rejected, `rejected` counts parameters whose gradients
    are. Where one of both is not so, `equivalent` says why nothing can show.
    """

    fault: str
    says: str
    dialect: str
    dtype: str
    stage: str
    failed: bool
    rejected: int
    blamed: tuple[str, ...]
    named: tuple[str, ...]
    equivalent: str = ""

    @property
    def killed(self) -> bool:
        """Whether the stage and the gradients are rejected, and the stage is blamed."""
        return self.failed and self.rejected > 0 and self.blamed == (self.stage,)

    @property
    def sound(self) -> bool:
        """Whether it is found, or nothing can show."""
        exact = self.blamed == ((self.stage,) if self.failed else ())
        return self.killed or (bool(self.equivalent) and exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScore:
    """All faults of one model; `alarms` names the cases in which the right one does not pass.

    `narrow` are stages that compute in narrower types: one fault each, a fixed part of all.
    """

    model: str
    sown: tuple[FaultTrial, ...]
    judged: int
    alarms: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    narrow: tuple[Shortened, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether every fault is found and blamed, and no right model is."""
        sound = all(s.sound for s in self.sown) and all(s.sound for s in self.narrow)
        return sound and not (self.alarms or self.troubles)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Which models to attack, in which dtypes; `suites` as in `Attack`."""

    suites: tuple[str, ...] = ()
    models: tuple[str, ...]
    dtypes: tuple[str, ...]
    seed: int = 0
    jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """What the attack showed; `complete` is false where it was cut short, `troubles` say why."""

    version: str
    suite: str
    suite_version: str
    dtypes: tuple[str, ...]
    seed: int
    scores: tuple[ModelScore, ...]
    complete: bool = True
    troubles: tuple[str, ...] = ()

    @property
    def sown(self) -> list[FaultTrial]:
        """All trials."""
        return [sown for score in self.scores for sown in score.sown]

    @property
    def narrow(self) -> list[Shortened]:
        """All stages that compute in narrower types."""
        return [one for score in self.scores for one in score.narrow]

    @property
    def sound(self) -> bool:
        """Whether all faults, one at least, are found and blamed, and all right models pass."""
        return self.complete and bool(self.sown) and all(s.sound for s in self.scores)


_SUITE: Suite
_FAULTS: dict[str, list[Fault]]
_PLAN: FaultPlan


def sow(
    plan: FaultPlan, progress: Progress | None = None, workers: Workers | None = None
) -> FaultReport:
    """Attack the models one after another; cut short, return what is known.

    Raises:
        LoadError: the suite, or its table of faults, cannot be imported.
        SpecError: a fault contradicts its model.
    """
    suite = load_suite(plan.suites)
    faults_of(suite)  # mistakes are told here, before any process starts
    found = collect(
        _score, plan.models, plan.jobs, _prepare, (plan,), progress=progress, workers=workers
    )
    return FaultReport(
        version=gradcheck.__version__,
        suite=suite.name,
        suite_version=suite.version,
        dtypes=plan.dtypes,
        seed=plan.seed,
        scores=tuple(found.results),
        complete=found.complete,
        troubles=found.troubles,
    )


def _prepare(plan: FaultPlan) -> None:
    global _SUITE, _FAULTS, _PLAN  # noqa: PLW0603  what a worker process keeps
    _PLAN, _SUITE = plan, load_suite(plan.suites)
    _FAULTS = faults_of(_SUITE)


def _score(model: str) -> ModelScore:
    spec = _SUITE.models[model]
    mutants = mutants_of(_SUITE)
    sown: list[FaultTrial] = []
    narrow: list[Shortened] = []
    alarms: list[str] = []
    troubles: list[str] = []
    judged = 0
    for case in _SUITE.model_cases([model], sizes=[spec.sizes[0].name], seed=_PLAN.seed):
        try:
            truth = ModelTruth(case)
            guilt = ModelBlame(truth, lambda: mutants)
            for dtype in _PLAN.dtypes:
                judged += 1
                right = judge_model(truth, Reference(), dtype)
                if not all(f.verdict in (Verdict.PASS, Verdict.SKIP) for f in right.findings):
                    alarms.append(f"{case.name}/{dtype}")
        except RAISED as error:
            troubles.append(f"{case.name}: {told(error)}")
            continue
        try:
            narrow += [one for dtype in _PLAN.dtypes for one in shorten(truth, guilt, dtype)]
        except RAISED as error:
            troubles.append(f"{case.name}, narrow: {told(error)}")
        for fault in _FAULTS[model]:
            if not fault.of_dialect(case.dialect.name):
                continue
            try:
                sown += [plant(truth, guilt, fault, dtype) for dtype in _PLAN.dtypes]
            except RAISED as error:
                troubles.append(f"{case.name}, {fault.full_name}: {told(error)}")
    return ModelScore(
        model=model, sown=tuple(sown), judged=judged, alarms=tuple(alarms),
        troubles=tuple(troubles), narrow=tuple(narrow),
    )  # fmt: skip


def plant(truth: ModelTruth, guilt: ModelBlame, fault: Fault, dtype: str) -> FaultTrial:
    """Judge one fault twice: stage by stage, and by its end-to-end gradients alone."""
    by_stage = guilt.blamed(judge_model(truth, Planted(fault), dtype), dtype)
    judged = judge_model(truth, Planted(fault, whole=True), dtype)
    by_gradients = guilt.blamed(judged, dtype)
    stages, whole = _blames(by_stage), _blames(by_gradients)
    exact = [blame for blame in stages if blame.exact]
    gradients = [f for f in by_gradients if f.part is Part.GRADIENT]
    return FaultTrial(
        fault=fault.full_name,
        says=fault.says,
        kind=fault.kind,
        dialect=truth.case.dialect.name,
        dtype=dtype,
        stages=fault.stages,
        of=len(truth.program.stages),
        parameters=len(gradients),
        rejected=sum(f.verdict in REJECTED for f in gradients),
        blamed=tuple(stage for blame in exact for stage in blame.stages),
        named=exact[0].names if exact else (),
        suspects=tuple(blame.stages for blame in whole),
        guess=whole[0].names if whole else (),
        modelled_on=fault.modelled_on,
    )


def shorten(truth: ModelTruth, guilt: ModelBlame, dtype: str) -> Iterator[Shortened]:
    """Let one stage after the other compute in a narrower type."""
    trial = Trial(truth, dtype)
    for stage, place, narrow in fixed_part(truth.program, dtype):
        fault = fault_of(truth.case, stage, place, narrow)
        judged = judge_model(truth, Planted(fault, alone=True), dtype)
        found = guilt.blamed(judged, dtype)
        failed = any(f.part is Part.STAGE and f.verdict in REJECTED for f in found)
        rejected = sum(f.part is Part.GRADIENT and f.verdict in REJECTED for f in found)
        whys = [
            trial.why(judge, stage, place, narrow)
            for judge, seen in ((trial.of_stage, failed), (trial.of_model, rejected))
            if not seen
        ]
        exact = [blame for blame in _blames(found) if blame.exact]
        yield Shortened(
            fault=fault.full_name,
            says=fault.says,
            dialect=truth.case.dialect.name,
            dtype=dtype,
            stage=stage.name,
            failed=failed,
            rejected=rejected,
            blamed=tuple(stage for blame in exact for stage in blame.stages),
            named=exact[0].names if exact else (),
            equivalent="; ".join(dict.fromkeys(whys)) if all(whys) else "",
        )


def _blames(findings: Sequence[Finding]) -> list[Blame]:
    return [blame for finding in findings for blame in finding.blames]
