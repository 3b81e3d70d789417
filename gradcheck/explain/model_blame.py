"""The findings of a model with the stages to blame, exact where stages are bound."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import GradcheckError
from gradcheck.explain.engine import diagnose
from gradcheck.explain.operator_probes import SpecTruth
from gradcheck.explain.probe import UNITS, Cotangent, Probe
from gradcheck.explain.reproduce import Derivatives, contributions, reproduce
from gradcheck.explain.stage_defects import name_defect
from gradcheck.explain.suspect_stages import blame_judged_stages, suspects
from gradcheck.implementations.bound import BoundModel
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call_model import ask_stage
from gradcheck.judge.model import ModelJudgement, gradients_of, judge_gradients
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.stage import StageTruth
from gradcheck.results.finding import Blame, Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.program import StageVjp

HERE: Final = "the model's own point"
"""Where a stage is asked: values follow from the model's parameters."""


def by_rules(known: StageTruth, vjp: StageVjp, dtype: str) -> Callable[[int], str]:
    """The engine's diagnosis of the gradient of the value read at an index; "" if none.

    The stage is asked lazily, under each of the reference's cotangents of it.
    """
    probes: list[Probe] = []

    def describe(index: int) -> str:
        if dtype not in UNITS:
            return ""
        if not probes:
            probes.extend(_probes(known, vjp, dtype))
        found = diagnose(known.stage.primals[index], probes)
        return f"{found.says}." if found is not None and found.label else ""

    return describe


def _probes(known: StageTruth, vjp: StageVjp, dtype: str) -> list[Probe]:
    stage, values = known.stage, known.values(dtype)
    wide = known.values("float64")
    kind = np.dtype(dtype)

    def call(ct: Cotangent) -> dict[str, Any]:
        found = ask_stage(vjp, stage, tuple(part.astype(kind) for part in ct), values)
        pairs = zip(stage.primals, found, strict=True)
        return {name: g for name, g in pairs if g is not None and not isinstance(g, Finding)}

    probes = []
    for seed, ct in enumerate(known.cts):
        with suppress(Broken):
            probe = Probe.asked(
                call,
                where=HERE,
                seed=seed,
                names=stage.primals,
                primals=tuple(np.asarray(wide[name]) for name in stage.reads),
                attrs=stage.all_attrs,
                ct=tuple(np.asarray(part, dtype=np.float64) for part in ct),
                truth=SpecTruth(stage.op),
                dtype=dtype,
            )
            probes += [] if probe is None else [probe]
    return probes


Float = NDArray[np.float64]
Mutants = Mapping[str, Sequence[Mutant]]


class ModelBlame:
    """The stages to blame at one point of a model, for any implementation judged there."""

    def __init__(self, truth: ModelTruth, mutants: Callable[[], Mutants]) -> None:
        """Work nothing out yet: a model that passes needs none of it.

        `mutants()` are the suite's by operator: known defects, by which a stage's is named.
        """
        self._truth = truth
        self._ask_mutants = mutants
        self._derivatives: dict[tuple[str, tuple[str, ...]], Derivatives] = {}

    @cached_property
    def _mutants(self) -> Mutants:
        return self._ask_mutants()

    def _mutants_of(self, op: str) -> Sequence[Mutant]:
        try:
            return self._mutants.get(op, ())
        except GradcheckError:  # a table at fault must not hide who is to blame
            return ()

    def blamed(self, judged: ModelJudgement, dtype: str) -> tuple[Finding, ...]:
        """The findings; the loss's (or the first that is wrong) says which stages to blame."""
        truth = self._truth.at(dtype)
        wrong = _wrong(judged.of(Part.GRADIENT).values())
        faulty = _wrong(judged.of(Part.STAGE).values())
        known = [name for name in wrong if name in truth.values64]
        if judged.bound is None or judged.gradients is None or not (known or faulty):
            return judged.findings
        if faulty:
            found = _exact(truth, judged.bound, dtype, faulty)
            bound = judged.bound
            blames = tuple(
                self._named(blame, bound, dtype) if blame.exact else blame for blame in found
            )
        else:
            blames = self._suspects(judged, dtype, known)
        return _with(judged.findings, blames)

    def _named(self, blame: Blame, bound: BoundModel, dtype: str) -> Blame:
        """The blame on one stage, with what is wrong with it."""
        stage = self._truth.program.stage(blame.stages[0])
        known, vjp = self._truth.at(dtype).stage(stage), bound.stage(stage)
        assert vjp is not None
        mutants = self._mutants_of(stage.op.name)
        rest = by_rules(known, vjp, dtype)
        for ct, typed in zip(known.cts, known.typed(dtype), strict=True):
            try:
                found = ask_stage(vjp, stage, typed, known.values(dtype))
            except Broken as error:
                return replace(blame, names=(error.finding.reason,))
            got = [None if g is None or isinstance(g, Finding) else _wide(g) for g in found]
            names = name_defect(stage, ct, got, known.values("float64"), mutants, dtype, rest)
            if names:
                return replace(blame, names=names)
        return blame

    def _suspects(
        self, judged: ModelJudgement, dtype: str, wrong: Collection[str]
    ) -> tuple[Blame, ...]:
        truth, gradients = self._truth.at(dtype), judged.gradients or {}
        errors: dict[str, Float] = {}
        whole: dict[str, Float] = {}
        right = []
        for name, finding in judged.of(Part.GRADIENT).items():
            got = gradients.get(name)
            if name not in truth.values64 or not isinstance(got, np.ndarray):
                continue
            known = truth.gradient(name)
            errors[name] = (got[0] - known.value).reshape(known.shape)
            whole[name] = got[0].reshape(known.shape)
            if finding.verdict is Verdict.PASS:
                right.append(name)
        names = tuple(name for name, error in errors.items() if np.isfinite(error).all())
        key = dtype, names
        if key not in self._derivatives:
            self._derivatives[key] = Derivatives(truth.program, truth.values64, list(names))
        blames = suspects(
            truth.program,
            truth.values64,
            truth.cts64,
            wrong,
            right,
            errors,
            dtype,
            self._derivatives[key],
        )
        return tuple(self._reproduced(blame, whole, wrong, dtype, len(blames)) for blame in blames)

    def _reproduced(
        self, blame: Blame, got: Mapping[str, Float], wrong: Collection[str], dtype: str, of: int
    ) -> Blame:
        """The blame on suspects, with the known defects of theirs that explain everything."""
        truth = self._truth.at(dtype)
        program, values, cts = truth.program, truth.values64, truth.cts64
        said = [
            contributions(program, values, cts, tied, got.get(tied), dtype)
            for tied in program.tied & set(wrong)
        ]
        if not any(said) and of == 1:
            found = reproduce(program, values, cts, got, blame.stages, self._mutants_of, dtype)
            said = [f"`{one.stage}`: {one.says}" for one in found]
        return replace(blame, names=(*blame.names, *filter(None, said)))


def _exact(
    truth: ModelTruth, bound: BoundModel, dtype: str, faulty: Collection[str]
) -> tuple[Blame, ...]:
    def still_wrong(replaced: frozenset[str]) -> list[str]:
        try:
            gradients = gradients_of(truth, bound, dtype, replaced)
        except Broken:  # a whole backward beside the stages: nothing in it can be replaced
            return []
        return _wrong(judge_gradients(truth, bound, gradients, dtype))

    return blame_judged_stages(truth.program, faulty, still_wrong)


def _wide(gradient: NDArray[np.floating[Any]]) -> Float:
    return np.asarray(gradient, dtype=np.float64)


def _wrong(findings: Iterable[Finding]) -> list[str]:
    return [finding.name for finding in findings if finding.verdict.wrong]


def _with(findings: tuple[Finding, ...], blames: tuple[Blame, ...]) -> tuple[Finding, ...]:
    """The blames stand with the loss; without one, with the first finding that is wrong."""
    places = [i for i, f in enumerate(findings) if f.part is Part.VALUE]
    places += [i for i, f in enumerate(findings) if f.verdict.wrong]
    at = places[0]
    return (*findings[:at], replace(findings[at], blames=blames), *findings[at + 1 :])
