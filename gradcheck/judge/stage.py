"""One stage of a model: its true gradients, and the judgement of its VJP.

A stage meets a kink where its values do (a blank image's pixels in one pooling window). There the
gradient is a convention: any mixture of the gradients at points beside the kink, where one element
or another is ahead. Those points bound every element; and where all of them share the same sum, so
must every convention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gradcheck.implementations.returned import Broken
from gradcheck.judge.call_model import ask_stage
from gradcheck.judge.compare import (
    ROUNDING_SAFETY,
    TOLERANCES,
    Comparison,
    Interval,
    compare,
    compare_with_rounding,
)
from gradcheck.judge.low_precision import rounded
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Array, Float, Mask, as_tuple
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.estimator import certain
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.numerics.narrow import TYPES
from gradcheck.numerics.operator_oracle import Oracle
from gradcheck.numerics.rounding import ROUNDING, allowance
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import SEVERITY, Verdict
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Stage, StageVjp, Values

if TYPE_CHECKING:
    from gradcheck.judge.model_truth import ModelTruth


SINGLE: Final = "float32"
MIN_OFF: Final = 0.45
"""Rounding error of some element of a cotangent, relative to the largest that a type may cause."""
MAX_DRAWS: Final = 200
POINTS: Final = 256
"""Points beside a kink: among 16 equal elements each is the largest of all in some of them."""
POINT_DISTANCE: Final = 2.0**-30
"""Their distance, relative to the largest value: nearer than any other kink."""
SAME_SUM: Final = 1e-12
"""Sums that differ by less, relative to their terms, are one sum."""


class StageTruth:
    """The true gradients of one stage, at the values and cotangents that code of a dtype gets.

    There are two cotangents: the one that reaches the stage in the model, and a random one, because
    the former may be zero where a defect lies. For float32 both are rounded once more.
    """

    names: Final = ("reference", "random")

    def __init__(self, truth: ModelTruth, stage: Stage, wide: StageTruth | None = None) -> None:
        """Take the stage's values and cotangents from the model.

        `wide` is the stage's truth in float64, where this one is at float32 numbers.
        """
        self.stage = stage
        self._wide = wide
        self._around = truth.values64
        self.primals = tuple(self._held(truth.values[name]) for name in stage.reads)
        reference, random = [], []
        for i, name in enumerate(stage.outputs):
            shape = np.shape(truth.values64[name])
            found = truth.cts.get(name)
            reference.append(np.zeros(shape) if found is None else self._held(found))
            if wide is None:
                drawn = _draw_cotangent(truth.case, stage.name, i, shape)
            else:
                drawn = wide.cts[1][i]
            random.append(self._held(drawn))
        self.cts: tuple[tuple[Array, ...], ...] = (tuple(reference), tuple(random))
        self._ties: dict[int, TieBounds] = {}

    def values(self, dtype: str) -> Values:
        """Every value of the program, rounded for the stage, in a working dtype."""
        held = {name: self._held(value) for name, value in self._around.items()}
        held.update(zip(self.stage.reads, self.primals, strict=True))
        kind = np.dtype(dtype)
        return {n: v.astype(kind) if v.dtype.kind == "f" else v for n, v in held.items()}

    def typed(self, dtype: str) -> list[tuple[Array, ...]]:
        """The cotangents in a working dtype."""
        return [tuple(part.astype(np.dtype(dtype)) for part in ct) for ct in self.cts]

    @property
    def gradients(self) -> list[Float | None] | None:
        """Rows [q, n] per value read (None: an index); None if 50 digits do not certify them."""
        return self._known[0]

    def bar(self, index: int) -> Float | None:
        """The error bar [q, n] of the gradient of one value read; None: it is exact."""
        return self._known[1][index]

    @cached_property
    def _known(self) -> tuple[list[Float | None] | None, list[Float | None]]:
        unknown: list[Float | None] = [None] * len(self.primals)
        if self._wide is not None:
            if self._wide.gradients is None:
                return None, unknown
            bars = [self._wide._distance(i) for i in range(len(self.primals))]
            if all((bar is None) == (own is None) for bar, own in zip(bars, self.own, strict=True)):
                return self.own, bars
        stage = self.stage
        oracle = Oracle(stage.op, self.primals, stage.attrs, self.cts, self.on_kink)
        return oracle.gradient(), unknown

    @cached_property
    def own(self) -> list[Float | None]:
        """The operator's own VJP in float64: rows [q, n] per value read (None: an index)."""
        values = dict(zip(self.stage.reads, self.primals, strict=True))
        with np.errstate(all="ignore"):
            rows = [self.stage.vjp(F64, ct, values) for ct in self.cts]
        return [
            None if parts[0] is None else np.stack([np.ravel(part) for part in parts])
            for parts in zip(*rows, strict=True)
        ]

    def _distance(self, index: int) -> Float | None:
        """The distance [q, n] of the float64 VJP from the truth; None where it is wrong."""
        own, exact = self.own[index], self.gradients
        want = None if exact is None else exact[index]
        if own is None or want is None:
            return None
        tolerance = TOLERANCES["float64"]
        found = compare_with_rounding(
            own,
            certain(want),
            tolerance,
            lambda: ROUNDING_SAFETY * tolerance.u * self.rounding[index],
        )
        return distance(found)

    @cached_property
    def rounding(self) -> list[Float]:
        """The cost of rounding for each gradient, [q, n], in units of u."""
        if self._wide is not None:  # an estimate, and as good here
            return self._wide.rounding
        primals = [ROUNDING.asarray(p) if p.dtype.kind == "f" else p for p in self.primals]
        values = dict(zip(self.stage.reads, primals, strict=True))
        rows = []
        for ct in self.cts:
            with np.errstate(all="ignore"):
                found = self.stage.vjp(ROUNDING, tuple(ROUNDING.asarray(c) for c in ct), values)
            costs = [allowance(g) if g is not None else None for g in found]
            rows.append([np.zeros(0) if cost is None else cost.reshape(-1) for cost in costs])
        return [np.stack(parts) for parts in zip(*rows, strict=True)]

    @cached_property
    def on_kink(self) -> list[Mask | None]:
        """Per value read, the elements that lie exactly on one of the operator's kinks."""
        op, marks = self.stage.op, [np.zeros(p.shape, dtype=bool) for p in self.primals]
        for kink in op.kinks:
            index = self.stage.primals.index(kink.primal) if kink.primal else 0
            gap = kink.gap(F64, *self.primals, **self.stage.all_attrs)
            marks[index] |= np.broadcast_to(np.asarray(gap) == 0, marks[index].shape)
        return [mark if mark.any() else None for mark in marks]

    def tie_bounds(self, index: int) -> TieBounds | None:
        """The gradients allowed for elements of one value on a kink; None where there are none."""
        on = self.on_kink[index]
        if on is None:
            return None
        if index not in self._ties:
            self._ties[index] = tie_bounds(self.stage, self.primals, self.cts, index, on)
        return self._ties[index]

    def _held(self, value: Any) -> Array:
        """A value in float64, rounded to float32 where this is the truth at float32 numbers."""
        array = np.asarray(value)
        if array.dtype == object:
            array = mp50().to_float64(array)
        return array if self._wide is None else rounded(array, SINGLE)


def distance(found: Comparison) -> Float | None:
    """How far from the truth the gradient compared may lie, [q, n]; None if an element fails."""
    ok = not found.failed.any()
    return np.maximum(found.bound, found.error) + found.uncertainty if ok else None


def _draw_cotangent(case: ModelCase, stage: str, output: int, shape: tuple[int, ...]) -> Float:
    """The first random cotangent that no narrower type nearly holds, if there is one.

    A scalar may by chance lie next to a number of such a type.
    """
    for attempt in range(MAX_DRAWS):
        drawn = case.draw("stage", stage, output, attempt).signed(*shape)
        off = [np.abs(one.rounded(drawn) / drawn - 1) * 2.0**one.bits for one in TYPES]
        ok = all(np.max(far, initial=0.0) >= MIN_OFF for far in off)
        if ok:
            break
    return drawn


# ── judgement ────────────────────────────────────────────────────────────────────────────────────


def judge_stage(known: StageTruth, vjp: StageVjp, dtype: str) -> Finding:
    """One stage's VJP at the stage's values and cotangents: the worst of its gradients."""
    stage = known.stage
    try:
        values = known.values(dtype)
        rows = [ask_stage(vjp, stage, cts, values) for cts in known.typed(dtype)]
    except Broken as error:
        return replace(error.finding, name=stage.name, part=Part.STAGE)
    findings = [
        _judge_gradient(known, index, name, [row[index] for row in rows], dtype)
        for index, name in enumerate(stage.reads)
        if known.primals[index].dtype.kind == "f" and known.primals[index].size
    ]
    return _worst_of(stage.name, findings)


def _judge_gradient(
    known: StageTruth, index: int, name: str, rows: list[Any], dtype: str
) -> Finding:
    fault = next((row for row in rows if isinstance(row, Finding)), None)
    if fault is not None:
        return replace(fault, name=name)
    exact = known.gradients
    if exact is None:
        reason = f"the VJP of {known.stage.op.name} disagrees with 50-digit differences here"
        return Finding(name=name, verdict=Verdict.INVALID, reason=reason)
    got = np.stack([np.asarray(row, dtype=np.float64).reshape(-1) for row in rows])
    want = exact[index]
    assert want is not None
    shape, tolerance = known.primals[index].shape, TOLERANCES[dtype]
    truth, ties = certain(want, known.bar(index)), known.tie_bounds(index)

    def rounding() -> Float:
        return ROUNDING_SAFETY * tolerance.u * known.rounding[index]

    if ties is not None:
        found = compare(got, truth, tolerance, kinks=[ties.interval], extra=rounding())
        return ties.finding(found, found.finding(name, shape, known.names))
    found = compare_with_rounding(got, truth, tolerance, rounding)
    finding = found.finding(name, shape, known.names)
    if finding.verdict is Verdict.INCONCLUSIVE:
        # A sum may cancel under one cotangent (a scale's gradient) and not under the other.
        found = compare(got, truth, tolerance, extra=rounding())
        if np.all(found.certified.any(axis=0)):
            return replace(finding, verdict=Verdict.PASS, reason="", heat=None)
    return finding


def _worst_of(name: str, findings: list[Finding]) -> Finding:
    """One finding per stage: the worst gradient's, with everything counted."""
    if not findings:
        reason = "it reads indices alone: there is no gradient to compare"
        return Finding(name=name, verdict=Verdict.SKIP, reason=reason, part=Part.STAGE)
    worst = min(findings, key=lambda f: (SEVERITY.index(f.verdict), -_excess(f)))
    reason = worst.reason
    if reason and worst.compared:  # a fault of its form names it already
        reason = f"the gradient of {worst.name}: {reason}"
    return replace(
        worst,
        name=name,
        part=Part.STAGE,
        reason=reason,
        compared=sum(f.compared for f in findings),
        failed=sum(f.failed for f in findings),
        unresolved=sum(f.unresolved for f in findings),
        worst=tuple(replace(miss, tensor=worst.name) for miss in worst.worst),
    )


def _excess(finding: Finding) -> float:
    top = finding.top
    return 0.0 if top is None or not top.bound > 0 else top.error / top.bound


# ── kinks ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TieBounds:
    """The gradients allowed on a kink: `interval` per element, `total` [q] for their sum.

    The sum is None where conventions disagree about it too (each corner has its own).
    """

    interval: Interval
    total: Float | None

    def finding(self, found: Comparison, finding: Finding) -> Finding:
        """The finding, FAIL where the elements on the kink have the wrong sum."""
        if self.total is None or finding.verdict is Verdict.FAIL:
            return finding
        on = self.interval.which
        sums, allowed = (np.where(on, x, 0.0).sum(axis=1) for x in (found.got, found.bound))
        ok = np.abs(sums - self.total) <= allowed
        if ok.all():
            return finding
        q = int(np.argmin(ok))
        reason = (
            f"the {int(on[q].sum())} elements on a kink share {sums[q]:.6g}, whatever the "
            f"convention it must be {self.total[q]:.6g}"
        )
        failed = int(on[~ok].sum())
        return replace(finding, verdict=Verdict.FAIL, reason=reason, failed=failed)


def tie_bounds(
    stage: Stage,
    primals: Sequence[Array],
    cts: Sequence[tuple[Array, ...]],
    index: int,
    on: Mask,
) -> TieBounds:
    """The gradients allowed for the value `stage.reads[index]`, whose elements `on` lie on a kink.

    `primals` and `cts` are the stage's own, in float64; rows follow `cts`.
    """
    rng = np.random.Generator(np.random.Philox(key=key_of("tied", stage.name)))
    flat = on.reshape(-1)
    size = max(1.0, float(np.abs(primals[index]).max()))
    moves = rng.uniform(-1.0, 1.0, (POINTS, flat.size)) * flat * (POINT_DISTANCE * size)
    with np.errstate(all="ignore"):
        every = [_moved_gradients(stage, primals, cts, index, move) for move in moves]
    points = np.stack(every)  # [k, q, n]
    which = np.broadcast_to(flat, points.shape[1:])
    low, high = (np.where(which, end, 0.0) for end in (points.min(0), points.max(0)))
    totals, sizes = (x[..., flat].sum(axis=-1) for x in (points, np.abs(points)))  # [k, q]
    same = np.ptp(totals, axis=0) <= SAME_SUM * sizes.max(axis=0)
    return TieBounds(Interval(which, low, high), totals[0] if same.all() else None)


def _moved_gradients(
    stage: Stage,
    primals: Sequence[Array],
    cts: Sequence[tuple[Array, ...]],
    index: int,
    move: Float,
) -> Float:
    """The gradients [q, n] of one value at a point beside its own."""
    moved = list(primals)
    moved[index] = moved[index] + move.reshape(moved[index].shape)
    values = dict(zip(stage.reads, moved, strict=True))
    rows = []
    for ct in cts:
        share = as_tuple(stage.vjp(F64, ct, values))[index]
        rows.append(np.asarray(share, dtype=np.float64).reshape(-1))
    return np.stack(rows)
