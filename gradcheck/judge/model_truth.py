"""What is true of a model at one point: its loss, every gradient, every stage's VJP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F64, FLOATS, Arithmetic
from gradcheck.difference.evaluate import Point
from gradcheck.difference.oracle import Agreement, Oracle
from gradcheck.difference.truth import Estimate, certain
from gradcheck.errors import SpecError
from gradcheck.fifty_digits import mp50
from gradcheck.finding import Finding
from gradcheck.judge.projection import judge_tensors
from gradcheck.judge.propagated import Propagated
from gradcheck.judge.remainder import Remainders
from gradcheck.judge.tied import Tied, tied
from gradcheck.model import ModelCase
from gradcheck.program import Nudged, Stage, Values, Whole
from gradcheck.rounding import ROUNDING, allowance
from gradcheck.spec import Array
from gradcheck.verdict import Verdict

Float = NDArray[np.float64]

EXACT: Final = 5_000
"""Parameters up to which 50 digits are affordable; above, the truth is the float64 fold."""
SAFETY: Final = 4.0
"""Other texts of the same formulas round differently: allow so many times the estimate."""


@dataclass(frozen=True, slots=True)
class Known:
    """A true gradient [n] (or value), its error bar, and what rounding may cost it in units of u.

    `rounding()` [n] is asked only where a judgement depends on it.
    """

    value: Float
    bar: Float
    shape: tuple[int, ...]
    rounding: Callable[[], Float]

    def estimate(self, cts: Float) -> Estimate:
        """The gradient for each loss cotangent of `cts` [q], as rows [q, n]."""
        return certain(cts[:, None] * self.value, np.abs(cts[:, None]) * self.bar)


class ModelTruth:
    """The true loss and gradients of one model case, made once for all implementations.

    A small model is folded in 50-digit arithmetic and certified by 50-digit differences of its
    loss. A large one is folded in float64, with the rounding that it collects as its error bar.

    Raises:
        SpecError: the program contradicts itself, or its loss is no finite number.
    """

    def __init__(self, case: ModelCase) -> None:
        """Evaluate the program forward, once in float64."""
        self.case = case
        self.program = case.program
        self.params = case.params
        self.exact = sum(p.size for p in self.params.values()) <= EXACT
        with np.errstate(all="ignore"):
            self.values64 = self.program.forward(F64, case.given)
        loss = self.values64[self.program.loss]
        if loss.shape != ():
            raise SpecError(f"{case.name}: the loss has shape {loss.shape}; reduce it to a scalar")
        if not np.isfinite(loss):
            raise SpecError(f"{case.name}: the loss is {loss} at this size's values")

    @property
    def floating(self) -> list[str]:
        """Parameters that have gradients."""
        return [name for name, p in self.params.items() if p.dtype.kind == "f"]

    @cached_property
    def values(self) -> Mapping[str, Array]:
        """Every value of the program, in the arithmetic of the truth."""
        if not self.exact:
            return self.values64
        xp = self._xp
        return self.program.forward(xp, {n: _in(xp, v) for n, v in self.case.given.items()})

    @cached_property
    def cts(self) -> Mapping[str, Array]:
        """The cotangent of every value that the loss depends on, in the arithmetic of the truth."""
        with np.errstate(all="ignore"):
            return self.program.backward(self._xp, self.values, self._xp.asarray(1.0))

    @cached_property
    def cts64(self) -> Mapping[str, Array]:
        """The same in float64."""
        return {name: self._float64(ct) for name, ct in self.cts.items()}

    def gradient(self, name: str) -> Known:
        """What is known of the gradient of one parameter, or the cotangent of another value."""
        found = self.cts.get(name)
        shape = self.values64[name].shape
        value = np.zeros(shape) if found is None else self._float64(found)
        flat = value.reshape(-1)
        if self.exact:
            bar = np.abs(flat) * np.finfo(np.float64).eps
        else:
            bar = SAFETY * np.finfo(np.float64).eps / 2 * self._rounding(name)
        return Known(flat, bar, shape, lambda: self._rounding(name))

    @cached_property
    def loss(self) -> Known:
        """What is known of the loss, [1]."""
        name = self.program.loss
        value = self._float64(self.values[name]).reshape(1)
        bar = np.abs(value) * np.finfo(np.float64).eps
        return Known(value, bar, (), lambda: self._propagated.values[name])

    @cached_property
    def certified(self) -> bool:
        """Whether differences of the loss agree with the fold: in 50 digits, or in float64."""
        if self.exact:
            return self._oracle.certifies([tuple(self._exact(name) for name in self.params)])
        return all(found.verdict is Verdict.PASS for found in self.certificates)

    @cached_property
    def certificates(self) -> list[Finding]:
        """A large model's own fold, held against slopes of its loss in float64."""
        return self.projected({name: self._exact(name) for name in self.floating}, "float64")

    def projected(self, gradients: Mapping[str, Array | Finding], dtype: str) -> list[Finding]:
        """Gradients held against slopes of the loss along directions, as of any function.

        One finding per parameter; a single one called "loss" where it cannot be differenced.
        """
        xp, program = FLOATS[dtype], self.program
        given = {
            name: v.astype(xp.dtype) if v.dtype.kind == "f" else v
            for name, v in self.case.given.items()
        }
        tensors = {name: given[name] for name in self.floating}
        case = self.case
        return judge_tensors(
            lambda: program.forward(xp, given)[program.loss],
            tensors,
            gradients,
            seed=(case.seed, case.suite, case.spec.name, case.size.name),
        )

    def agreement(self, name: str) -> Agreement:
        """The fold against a 50-digit difference along one direction of one parameter."""
        if name not in self._agreements:
            index = list(self.params).index(name)
            self._agreements[name] = self._oracle.probes(index, [self._exact(name)])[0]
        return self._agreements[name]

    @cached_property
    def remainders(self) -> Remainders:
        """Lines through the parameters, one per tensor, along which the loss is expanded."""
        whole = Whole(self.program, self.case.inputs)
        params = tuple(self.params.values())
        point = Point(lambda *moved: (whole.forward(F64, *moved),), params)
        return Remainders(
            point, np.ones(1), [None] * len(params), lambda i: self.case.draw("taylor", i)
        )

    def stage(self, stage: Stage) -> StageTruth:
        """What is true of one stage (a small model's only)."""
        if stage.name not in self._stages:
            self._stages[stage.name] = StageTruth(self, stage)
        return self._stages[stage.name]

    @cached_property
    def _stages(self) -> dict[str, StageTruth]:
        return {}

    @cached_property
    def _agreements(self) -> dict[str, Agreement]:
        return {}

    @cached_property
    def _oracle(self) -> Oracle:
        params, around = list(self.params.values()), dict[str, Array]()
        whole = Nudged(self.program, self.case.inputs, around)
        oracle = Oracle(whole, params, {}, [(np.array(1.0),)], [None] * len(params))
        around.update(zip(self.params, oracle.primals, strict=True))
        return oracle

    def _exact(self, name: str) -> Any:
        """The gradient of one parameter in the arithmetic of the truth."""
        return self.cts.get(name, self._xp.zeros_like(self.values[name]))

    @property
    def _xp(self) -> Arithmetic:
        return mp50() if self.exact else F64

    def _float64(self, values: Any) -> Float:
        return mp50().to_float64(values) if self.exact else np.asarray(values, dtype=np.float64)

    def _rounding(self, name: str) -> Float:
        """What rounding may cost one gradient, [n], in units of u."""
        cost = self._propagated.cts.get(name)
        return np.zeros(self.values64[name].size) if cost is None else cost

    @cached_property
    def _propagated(self) -> Propagated:
        with np.errstate(all="ignore"):
            return Propagated(self.program, self.case.given)


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
        self._around = truth.values64

    def values(self, dtype: str) -> Values:
        """Every value of the program, rounded to float32's numbers, in a working dtype."""
        kind = np.dtype(dtype)
        with np.errstate(over="ignore"):
            rounded = {
                name: v.astype(np.float32).astype(kind) if v.dtype.kind == "f" else v
                for name, v in self._around.items()
            }
        reads = zip(self.stage.reads, self.primals, strict=True)
        own = {name: p.astype(kind) if p.dtype.kind == "f" else p for name, p in reads}
        return {**rounded, **own}

    def typed(self, dtype: str) -> list[tuple[Array, ...]]:
        """The cotangents in a working dtype."""
        return [tuple(part.astype(np.dtype(dtype)) for part in ct) for ct in self.cts]

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

    def tied(self, index: int) -> Tied | None:
        """What the elements on a kink of one value may get; None where there are none."""
        on = self.on_kink[index]
        if on is None:
            return None
        if index not in self._tied:
            self._tied[index] = tied(self.stage, self.primals, self.cts, index, on)
        return self._tied[index]

    @cached_property
    def _tied(self) -> dict[int, Tied]:
        return {}

    @staticmethod
    def _single(value: Any, truth: ModelTruth) -> Array:
        """A value rounded to float32, in float64; indices as they are."""
        array = np.asarray(value)
        if array.dtype.kind in "iub":
            return array
        wide = mp50().to_float64(array) if truth.exact else array
        with np.errstate(over="ignore"):
            return np.asarray(wide.astype(np.float32).astype(np.float64))


def _in(xp: Any, value: Array) -> Any:
    """A value in another arithmetic; indices as they are."""
    return xp.asarray(value) if value.dtype.kind == "f" else value


def _cost(result: Any) -> Float:
    found = allowance(result)
    return np.zeros(0) if found is None else found.reshape(-1)
