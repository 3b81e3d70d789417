"""Mutation runs of models: is every planted fault found, blamed on its stage, and named?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck.errors import CODE_ERRORS, told
from gradcheck.explain.model_blame import ModelBlame
from gradcheck.explain.stage_defects import WHERE_ALONE
from gradcheck.implementations.bound import BoundModel
from gradcheck.implementations.reference import Reference
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.power.attack import REJECTED
from gradcheck.power.narrow_stages import StageTrials, fault_of, fixed_part
from gradcheck.power.run_mutants import MutationReport, Work
from gradcheck.results.finding import Blame, Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.fault import Fault, faults_of
from gradcheck.spec.model import ModelCase
from gradcheck.spec.mutant import mutants_of
from gradcheck.spec.program import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTrial:
    """One fault in one dialect of its model and one dtype, and its judgement.

    `rejected` counts parameters whose gradients are rejected, of `parameters`. `blamed` are the
    stages that are blamed when each is judged alone, in order of rounds, and `named` explains
    the first. `suspects` are those of each round when the gradients alone are known,
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
        """Whether exactly the faulty stages are blamed."""
        return sorted(self.blamed) == sorted(self.stages)

    @property
    def contained(self) -> bool:
        """Whether the first suspects contain a faulty stage; the only one, if there is one."""
        if not self.suspects or (len(self.stages) == 1 < len(self.suspects)):
            return False
        return bool(set(self.suspects[0]) & set(self.stages))

    @property
    def understood(self) -> bool:
        """Whether blame explains the fault of the first stage, beyond its place."""
        return any(WHERE_ALONE not in said for said in self.named)

    @property
    def sound(self) -> bool:
        """Whether it is found and blamed as it should be."""
        return self.rejected > 0 and self.exact and self.contained


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """A stage that computes in a narrower type than its dtype, and its judgement.

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
class FaultReport(MutationReport[ModelScore]):
    """The scores of models."""

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

    @property
    def checked(self) -> bool:
        """Whether any fault was planted."""
        return bool(self.sown)

    @property
    def invalid(self) -> bool:
        """Whether something could not be tried."""
        return any(score.troubles for score in self.scores)


load = faults_of
REPORT = FaultReport


def scores(work: Work, model: str) -> Sequence[ModelScore]:
    """Plant every fault of one model."""
    plan, spec, mutants = work.plan, work.suite.models[model], mutants_of(work.suite)
    sown: list[FaultTrial] = []
    narrow: list[Shortened] = []
    alarms: list[str] = []
    troubles: list[str] = []
    judged = 0
    for case in work.suite.model_cases([model], sizes=[spec.sizes[0].name], seed=plan.seed):
        try:
            truth = ModelTruth(case)
            guilt = ModelBlame(truth, lambda: mutants)
            for dtype in plan.dtypes:
                judged += 1
                right = judge_model(truth, Reference(), dtype)
                if not all(f.verdict in (Verdict.PASS, Verdict.SKIP) for f in right.findings):
                    alarms.append(f"{case.name}/{dtype}")
        except CODE_ERRORS as error:
            troubles.append(f"{case.name}: {told(error)}")
            continue
        try:
            narrow += [one for dtype in plan.dtypes for one in shorten(truth, guilt, dtype)]
        except CODE_ERRORS as error:
            troubles.append(f"{case.name}, narrow: {told(error)}")
        for fault in work.mutants[model]:
            if not fault.of_dialect(case.dialect.name):
                continue
            try:
                sown += [plant(truth, guilt, fault, dtype) for dtype in plan.dtypes]
            except CODE_ERRORS as error:
                troubles.append(f"{case.name}, {fault.full_name}: {told(error)}")
    found = ModelScore(
        model=model, sown=tuple(sown), judged=judged, alarms=tuple(alarms),
        troubles=tuple(troubles), narrow=tuple(narrow),
    )  # fmt: skip
    return [found]


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault as an implementation of its model.

    Bound are its stages, or, where it is `whole`, its end-to-end gradients; where it stands
    `alone`, only the stages at fault.
    """

    fault: Fault
    whole: bool = False
    alone: bool = False

    @property
    def name(self) -> str:
        """The fault's name."""
        return self.fault.full_name

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """The wrong backward pass; nothing for other models and dialects."""
        fault = self.fault
        if case.spec.name != fault.model or not fault.of_dialect(case.dialect.name):
            return None
        xp, program = FLOATS[dtype], case.program
        vjp = fault.vjp(xp)
        if not self.whole:
            others = None if self.alone else vjp
            return BoundModel(stage=lambda stage: vjp if stage.name in fault.stages else others)

        def gradients(params: Values, inputs: Values) -> dict[str, Any]:
            with np.errstate(all="ignore"):
                values = program.forward(xp, {**params, **inputs})
                found = program.backward(xp, values, xp.asarray(1.0), vjp)
            return {name: found[name] for name in program.params if name in found}

        return BoundModel(gradients=gradients)


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
    trial = StageTrials(truth, dtype)
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
