"""One stage of a model: its VJP at the values and cotangents that the reference has there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F64, FLOATS, mp50
from gradcheck.contract.returned import Broken
from gradcheck.difference.oracle import Oracle
from gradcheck.difference.truth import certain
from gradcheck.finding import Finding, Part
from gradcheck.judge.ask_model import ask_stage
from gradcheck.judge.compare import RULES, against
from gradcheck.judge.model_truth import SAFETY, ModelTruth
from gradcheck.model import Stage, StageVjp, Values
from gradcheck.rounding import ROUNDING, allowance
from gradcheck.spec import Array
from gradcheck.verdict import SEVERITY, Verdict

Float = NDArray[np.float64]


class StageTruth:
    """The true gradients of one stage, at values and cotangents that float32 holds exactly.

    Two cotangents: the reference's own, which flows there in the model, and a random one, because
    the former may be zero where a defect sits.
    """

    names: Final = ("reference", "random")

    def __init__(self, truth: ModelTruth, stage: Stage) -> None:
        """Round what the stage reads, and the cotangents of what it writes."""
        self.stage = stage
        self.primals = tuple(self._single(truth.values[name], truth) for name in stage.reads)
        draw = truth.case.draw("stage", stage.name)
        reference, random = [], []
        for name in stage.outputs:
            shape = np.shape(truth.values64[name])
            found = truth.cts.get(name)
            reference.append(np.zeros(shape) if found is None else self._single(found, truth))
            random.append(draw.signed(*shape))
        self.cts = (tuple(reference), tuple(random))

    @cached_property
    def gradients(self) -> list[Float | None] | None:
        """Rows [q, n] per value read (None: an index); None if 50 digits do not certify them."""
        stage = self.stage
        return Oracle(stage.op, self.primals, stage.attrs, self.cts, self.on_kink).gradient()

    @cached_property
    def rounding(self) -> list[Float]:
        """What rounding may cost them, [q, n] each, in units of u."""
        primals = [_in(ROUNDING, p) for p in self.primals]
        values = dict(zip(self.stage.reads, primals, strict=True))
        rows = []
        for ct in self.cts:
            with np.errstate(all="ignore"):
                found = self.stage.vjp(ROUNDING, tuple(ROUNDING.asarray(c) for c in ct), values)
            rows.append([np.zeros(0) if g is None else _cost(g) for g in found])
        return [np.stack(parts) for parts in zip(*rows, strict=True)]

    @cached_property
    def on_kink(self) -> list[NDArray[np.bool_] | None]:
        """Per value read, the elements that sit exactly on one of the operator's kinks."""
        op, marks = self.stage.op, [np.zeros(p.shape, dtype=bool) for p in self.primals]
        for kink in op.kinks:
            index = self.stage.primals.index(kink.primal) if kink.primal else 0
            gap = kink.gap(F64, *self.primals, **self.stage.all_attrs)
            marks[index] |= np.broadcast_to(np.asarray(gap) == 0, marks[index].shape)
        return [mark if mark.any() else None for mark in marks]

    @staticmethod
    def _single(value: Any, truth: ModelTruth) -> Array:
        """A value rounded to float32, in float64; indices as they are."""
        array = np.asarray(value)
        if array.dtype.kind in "iub":
            return array
        wide = mp50().to_float64(array) if truth.exact else array
        with np.errstate(over="ignore"):
            return np.asarray(wide.astype(np.float32).astype(np.float64))


def judge_stage(truth: ModelTruth, stage: Stage, vjp: StageVjp, dtype: str) -> Finding:
    """One stage's VJP at the values and cotangents of the reference: the worst of its gradients."""
    known = StageTruth(truth, stage)
    whole = _StageJudge(truth, stage, known, dtype)
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
        rows = [ask_stage(vjp, self.stage, cts, self._values()) for cts in self._cts()]
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
        mark = self.known.on_kink[index]
        if mark is not None:  # which of several equal values gets the share is a convention
            got = np.where(mark.reshape(-1), np.where(np.isfinite(got), want, got), got)
        rules = RULES[self.dtype]

        def rounding() -> Float:
            return SAFETY * rules.u * self.known.rounding[index]

        return against(got, certain(want), rules, rounding, name, shape, self.known.names)

    def _cts(self) -> list[tuple[Array, ...]]:
        kind = FLOATS[self.dtype].dtype
        return [tuple(part.astype(kind) for part in ct) for ct in self.known.cts]

    def _values(self) -> Values:
        """Every value of the program, rounded to float32's numbers, in the working dtype."""
        kind = FLOATS[self.dtype].dtype
        values = {
            name: v.astype(np.float32).astype(kind) if v.dtype.kind == "f" else v
            for name, v in self.truth.values64.items()
        }
        reads = zip(self.stage.reads, self.known.primals, strict=True)
        return {**values, **{n: p.astype(kind) if p.dtype.kind == "f" else p for n, p in reads}}


def _merged(name: str, slots: list[Finding]) -> Finding:
    """One finding per stage: the worst gradient's, with everything counted."""
    if not slots:
        reason = "it reads indices alone: there is no gradient to compare"
        return Finding(name=name, verdict=Verdict.SKIP, reason=reason, part=Part.STAGE)
    worst = min(slots, key=lambda f: (SEVERITY.index(f.verdict), -_excess(f)))
    reason = f"the gradient of {worst.name}: {worst.reason}" if worst.reason else ""
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


def _in(xp: Any, value: Array) -> Any:
    """A value in another arithmetic; indices as they are."""
    return xp.asarray(value) if value.dtype.kind == "f" else value


def _cost(result: Any) -> Float:
    found = allowance(result)
    return np.zeros(0) if found is None else found.reshape(-1)
