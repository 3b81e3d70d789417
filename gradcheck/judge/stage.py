"""One stage of a model: its VJP at the values and cotangents that the reference has there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.returned import Broken
from gradcheck.judge.ask_model import ask_stage
from gradcheck.judge.compare import RULES, Rules, against, compare
from gradcheck.judge.model_truth import SAFETY, ModelTruth, StageTruth
from gradcheck.numerics.estimator import Estimate, certain
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import SEVERITY, Verdict
from gradcheck.spec.program import Stage, StageVjp

Float = NDArray[np.float64]


def judge_stage(truth: ModelTruth, stage: Stage, vjp: StageVjp, dtype: str) -> Finding:
    """One stage's VJP at the values and cotangents of the reference: the worst of its gradients."""
    truth = truth.at(dtype)
    whole = _StageJudge(truth, stage, truth.stage(stage), dtype)
    try:
        return whole.judge(vjp)
    except Broken as error:
        return replace(error.finding, name=stage.name, part=Part.STAGE)


@dataclass(frozen=True, slots=True)
class _StageJudge:
    truth: ModelTruth
    stage: Stage
    known: StageTruth
    dtype: str

    def judge(self, vjp: StageVjp) -> Finding:
        """The verdict on one stage.

        Raises:
            Broken: its VJP broke its contract.
        """
        values = self.known.values(self.dtype)
        asked = self.known.typed(self.dtype)
        rows = [ask_stage(vjp, self.stage, cts, values) for cts in asked]
        slots = [
            self._slot(index, name, [row[index] for row in rows])
            for index, name in enumerate(self.stage.reads)
            if self.known.primals[index].dtype.kind == "f" and self.known.primals[index].size
        ]
        return _merged(self.stage.name, slots)

    def _slot(self, index: int, name: str, rows: list[Any]) -> Finding:
        """The gradient of one value that the stage reads."""
        fault = next((row for row in rows if isinstance(row, Finding)), None)
        if fault is not None:
            return replace(fault, name=name)
        exact = self.known.gradients
        if exact is None:
            reason = f"the VJP of {self.stage.op.name} disagrees with 50-digit differences here"
            return Finding(name=name, verdict=Verdict.INVALID, reason=reason)
        got = np.stack([np.asarray(row, dtype=np.float64).reshape(-1) for row in rows])
        want = exact[index]
        assert want is not None
        shape = self.known.primals[index].shape
        rules = RULES[self.dtype]

        def rounding() -> Float:
            return SAFETY * rules.u * self.known.rounding[index]

        ties, known = self.known.tied(index), certain(want, self.known.bar(index))
        if ties is None:
            finding = against(got, known, rules, rounding, name, shape, self.known.names)
            return self._seen(finding, got, known, rules, rounding)
        found = compare(got, known, rules, kinks=[ties.interval], extra=rounding())
        return ties.finding(found, found.finding(name, shape, self.known.names))

    def _seen(
        self,
        finding: Finding,
        got: Float,
        known: Estimate,
        rules: Rules,
        rounding: Callable[[], Float],
    ) -> Finding:
        """A pass, where every element that cancels under one cotangent is resolved under another.

        A sum may come out as next to nothing for one of them (a scale's gradient); the same VJP is
        seen sharply for the other.
        """
        if finding.verdict is not Verdict.INCONCLUSIVE:
            return finding
        found = compare(got, known, rules, extra=rounding())
        seen = found.certified.any(axis=0)
        ok = bool(np.all(seen))
        return replace(finding, verdict=Verdict.PASS, reason="", heat=None) if ok else finding


def _merged(name: str, slots: list[Finding]) -> Finding:
    """One finding per stage: the worst gradient's, with everything counted."""
    if not slots:
        reason = "it reads indices alone: there is no gradient to compare"
        return Finding(name=name, verdict=Verdict.SKIP, reason=reason, part=Part.STAGE)
    worst = min(slots, key=lambda f: (SEVERITY.index(f.verdict), -_excess(f)))
    reason = worst.reason
    if reason and worst.compared:  # what is wrong with its form names it already
        reason = f"the gradient of {worst.name}: {reason}"
    return replace(
        worst,
        name=name,
        part=Part.STAGE,
        reason=reason,
        compared=sum(f.compared for f in slots),
        failed=sum(f.failed for f in slots),
        unresolved=sum(f.unresolved for f in slots),
        worst=tuple(replace(miss, tensor=worst.name) for miss in worst.worst),
    )


def _excess(finding: Finding) -> float:
    top = finding.top
    return 0.0 if top is None or not top.bound > 0 else top.error / top.bound
