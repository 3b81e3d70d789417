"""What is true of a model at one point: its loss, every gradient, every stage's VJP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError
from gradcheck.judge.compare import RULES, Comparison, Rules, compare
from gradcheck.judge.lowprecision import rounded
from gradcheck.judge.monte_carlo_rounding import Propagated
from gradcheck.judge.projection import judge_tensors
from gradcheck.judge.remainder import Remainders
from gradcheck.judge.tie_bounds import Tied, tied
from gradcheck.numerics.arithmetic import F64, FLOATS, Arithmetic
from gradcheck.numerics.estimator import Estimate, certain
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.fifty_digits import mp50
from gradcheck.numerics.narrow import TYPES
from gradcheck.numerics.oracle import Agreement, Oracle
from gradcheck.numerics.rounding import ROUNDING, allowance
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelCase
from gradcheck.spec.operator import Array
from gradcheck.spec.program import Nudged, Stage, Values, Whole

Float = NDArray[np.float64]

EXACT: Final = 5_000
"""Parameters up to which 50 digits are affordable; above, the truth is the float64 fold."""
SINGLE: Final = "float32"
FAR: Final = 0.45
"""Of what rounding to a type costs at most, relative to the number: some element is off by it."""
ATTEMPTS: Final = 200
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

    def compared(self, got: Float, cts: Float, rules: Rules) -> Comparison:
        """What was given for each loss cotangent of `cts` [q], rows [q, n], against this."""
        found = compare(got, self.estimate(cts), rules)
        if found.pending.any():
            allowed = SAFETY * rules.u * np.abs(cts[:, None]) * self.rounding()
            found = compare(got, self.estimate(cts), rules, extra=allowed)
        return found

    def beside(self, own: Float, there: Float) -> Known | None:
        """What is known at a point beside this one, where the same text gives `there`.

        In float64 it gives `own` here, and lies as near to the truth there as it is shown to lie
        here; None where it is wrong here.
        """
        found = self.compared(own[None], np.ones(1), RULES["float64"])
        off = _distance(found)
        return None if off is None else replace(self, value=there, bar=off[0])


class ModelTruth:
    """The true loss and gradients of one model case, made once for all implementations.

    A small model is folded in 50-digit arithmetic and certified by 50-digit differences of its
    loss. A large one is folded in float64, with the rounding that it collects as its error bar.

    `given` is the point: the case's own numbers, or (`at`) those rounded to float32.

    Raises:
        SpecError: the program contradicts itself, or its loss is no finite number.
    """

    def __init__(
        self, case: ModelCase, given: Values | None = None, wide: ModelTruth | None = None
    ) -> None:
        """Evaluate the program forward, once in float64.

        `given` is another point than the case's; `wide` the truth at the case's, which vouches for
        the float64 fold at the one beside: `wide.at` makes it.
        """
        self.case = case
        self.program = case.program
        self.given = case.given if given is None else given
        self.params = {name: self.given[name] for name in self.program.params}
        self.inputs = {name: self.given[name] for name in self.program.inputs}
        self.exact = sum(p.size for p in self.params.values()) <= EXACT
        self._wide = wide
        with np.errstate(all="ignore"):
            self.values64 = self.program.forward(F64, self.given)
        loss = self.values64[self.program.loss]
        if loss.shape != ():
            raise SpecError(f"{case.name}: the loss has shape {loss.shape}; reduce it to a scalar")
        if not np.isfinite(loss):
            raise SpecError(f"{case.name}: the loss is {loss} at this size's values")

    def at(self, dtype: str) -> ModelTruth:
        """The truth at the parameters and inputs that code of `dtype` gets.

        In float32 these are the case's, rounded; the gradients there are those of the float64 fold,
        once it has passed here (ADR 42).
        """
        return self._single if dtype == SINGLE else self

    @cached_property
    def _single(self) -> ModelTruth:
        given = {name: rounded(value, SINGLE) for name, value in self.given.items()}
        if all(np.array_equal(given[name], value) for name, value in self.given.items()):
            return self
        return ModelTruth(self.case, given, self)

    def typed(self, dtype: str) -> dict[str, Array]:
        """Parameters and inputs as code of `dtype` gets them."""
        kind = np.dtype(dtype)
        return {n: v.astype(kind) if v.dtype.kind == "f" else v for n, v in self.given.items()}

    @property
    def floating(self) -> list[str]:
        """Parameters that have gradients."""
        return [name for name, p in self.params.items() if p.dtype.kind == "f"]

    @cached_property
    def values(self) -> Mapping[str, Array]:
        """Every value of the program, in the arithmetic of the truth."""
        xp = self._xp
        if xp is F64:
            return self.values64
        return self.program.forward(xp, {n: _in(xp, v) for n, v in self.given.items()})

    @cached_property
    def cts(self) -> Mapping[str, Array]:
        """The cotangent of every value that the loss depends on, in the arithmetic of the truth."""
        with np.errstate(all="ignore"):
            return self.program.backward(self._xp, self.values, self._xp.asarray(1.0))

    @cached_property
    def cts64(self) -> Mapping[str, Array]:
        """The same in float64."""
        return {name: self._float64(ct) for name, ct in self.cts.items()}

    @cached_property
    def fold(self) -> Mapping[str, Array]:
        """The cotangent of every value, folded in float64."""
        if self._xp is F64:
            return self.cts
        with np.errstate(all="ignore"):
            return self.program.backward(F64, self.values64, np.asarray(1.0))

    def gradient(self, name: str) -> Known:
        """What is known of the gradient of one parameter, or the cotangent of another value."""
        if name not in self._gradients:
            self._gradients[name] = self._gradient(name)
        return self._gradients[name]

    def _gradient(self, name: str) -> Known:
        shape = self.values64[name].shape
        if self._wide is not None and self.exact:
            own, there = (self._flat(truth.fold.get(name), shape) for truth in (self._wide, self))
            known = self._wide.gradient(name).beside(own, there)
            return self._by_itself.gradient(name) if known is None else known
        flat = self._flat(self.cts.get(name), shape)
        if self.exact:
            bar = np.abs(flat) * np.finfo(np.float64).eps
        else:
            bar = SAFETY * np.finfo(np.float64).eps / 2 * self._rounding(name)
        return Known(flat, bar, shape, lambda: self._rounding(name))

    def _flat(self, found: Any, shape: tuple[int, ...]) -> Float:
        return (np.zeros(shape) if found is None else self._float64(found)).reshape(-1)

    @cached_property
    def _by_itself(self) -> ModelTruth:
        """The truth at this point, where the one beside does not vouch for the float64 fold."""
        return ModelTruth(self.case, self.given)

    @cached_property
    def loss(self) -> Known:
        """What is known of the loss, [1]."""
        name = self.program.loss
        if self._wide is not None and self.exact:
            own, there = (truth.values64[name].reshape(1) for truth in (self._wide, self))
            known = self._wide.loss.beside(own, there)
            return self._by_itself.loss if known is None else known
        value = self._float64(self.values[name]).reshape(1)
        bar = np.abs(value) * np.finfo(np.float64).eps
        return Known(value, bar, (), lambda: self._propagated.values[name])

    @cached_property
    def certified(self) -> bool:
        """Whether differences of the loss agree with the fold: in 50 digits, or in float64."""
        if self._wide is not None:
            return self._wide.certified
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
        xp, program, given = FLOATS[dtype], self.program, self.typed(dtype)
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
        whole = Whole(self.program, self.inputs)
        params = tuple(self.params.values())
        point = Point(lambda *moved: (whole.forward(F64, *moved),), params)
        return Remainders(
            point, np.ones(1), [None] * len(params), lambda i: self.case.draw("taylor", i)
        )

    def stage(self, stage: Stage) -> StageTruth:
        """What is true of one stage (a small model's only)."""
        if stage.name not in self._stages:
            wide = None if self._wide is None else self._wide.stage(stage)
            self._stages[stage.name] = StageTruth(self, stage, wide)
        return self._stages[stage.name]

    @cached_property
    def _stages(self) -> dict[str, StageTruth]:
        return {}

    @cached_property
    def _gradients(self) -> dict[str, Known]:
        return {}

    @cached_property
    def _agreements(self) -> dict[str, Agreement]:
        return {}

    @cached_property
    def _oracle(self) -> Oracle:
        params, around = list(self.params.values()), dict[str, Array]()
        whole = Nudged(self.program, self.inputs, around)
        oracle = Oracle(whole, params, {}, [(np.array(1.0),)], [None] * len(params))
        around.update(zip(self.params, oracle.primals, strict=True))
        return oracle

    def _exact(self, name: str) -> Any:
        """The gradient of one parameter in the arithmetic of the truth."""
        return self.cts.get(name, self._xp.zeros_like(self.values[name]))

    @property
    def _xp(self) -> Arithmetic:
        return mp50() if self.exact and self._wide is None else F64

    def _float64(self, values: Any) -> Float:
        array = np.asarray(values)
        return mp50().to_float64(array) if array.dtype == object else array.astype(np.float64)

    def _rounding(self, name: str) -> Float:
        """What rounding may cost one gradient, [n], in units of u."""
        cost = self._propagated.cts.get(name)
        return np.zeros(self.values64[name].size) if cost is None else cost

    @cached_property
    def _propagated(self) -> Propagated:
        if self._wide is not None:  # an estimate, and as good beside
            return self._wide._propagated
        with np.errstate(all="ignore"):
            return Propagated(self.program, self.given)


class StageTruth:
    """The true gradients of one stage, at the values and cotangents that code of a dtype gets.

    Two cotangents: the reference's own, which flows there in the model, and a random one, because
    the former may be zero where a defect sits. What float32 gets is rounded once more, to numbers
    of its own.
    """

    names: Final = ("reference", "random")

    def __init__(self, truth: ModelTruth, stage: Stage, wide: StageTruth | None = None) -> None:
        """Hold what the stage reads, and the cotangents of what it writes.

        `wide` is the stage's truth in float64, where this one is of float32's numbers.
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
            drawn = _full(truth.case, stage.name, i, shape) if wide is None else wide.cts[1][i]
            random.append(self._held(drawn))
        self.cts: tuple[tuple[Array, ...], ...] = (tuple(reference), tuple(random))

    def values(self, dtype: str) -> Values:
        """Every value of the program, as the stage's dtype holds it, in a working dtype."""
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
        """The gradients, and their error bars."""
        unknown: list[Float | None] = [None] * len(self.primals)
        if self._wide is not None:
            if self._wide.gradients is None:
                return None, unknown
            bars = [self._wide._off(i) for i in range(len(self.primals))]
            if all((bar is None) == (own is None) for bar, own in zip(bars, self.own, strict=True)):
                return self.own, bars
        stage = self.stage
        oracle = Oracle(stage.op, self.primals, stage.attrs, self.cts, self.on_kink)
        return oracle.gradient(), unknown

    @cached_property
    def own(self) -> list[Float | None]:
        """What the operator's VJP gives in float64, rows [q, n] per value read (None: an index)."""
        values = dict(zip(self.stage.reads, self.primals, strict=True))
        with np.errstate(all="ignore"):
            rows = [self.stage.vjp(F64, ct, values) for ct in self.cts]
        return [
            None if parts[0] is None else np.stack([np.ravel(part) for part in parts])
            for parts in zip(*rows, strict=True)
        ]

    def _off(self, index: int) -> Float | None:
        """How near to the truth, [q, n], the float64 VJP lies; None where it is wrong."""
        own, exact = self.own[index], self.gradients
        want = None if exact is None else exact[index]
        if own is None or want is None:
            return None
        found = compare(own, certain(want), RULES["float64"])
        if found.pending.any():
            allowed = SAFETY * found.rules.u * self.rounding[index]
            found = compare(own, certain(want), found.rules, extra=allowed)
        return _distance(found)

    @cached_property
    def rounding(self) -> list[Float]:
        """What rounding may cost them, [q, n] each, in units of u."""
        if self._wide is not None:  # an estimate, and as good beside
            return self._wide.rounding
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

    def _held(self, value: Any) -> Array:
        """A value in float64, as the stage's dtype holds it; indices as they are."""
        array = np.asarray(value)
        if array.dtype == object:
            array = mp50().to_float64(array)
        return array if self._wide is None else rounded(array, SINGLE)


def _in(xp: Any, value: Array) -> Any:
    """A value in another arithmetic; indices as they are."""
    return xp.asarray(value) if value.dtype.kind == "f" else value


def _full(case: ModelCase, stage: str, output: int, shape: tuple[int, ...]) -> Float:
    """The first random cotangent that every narrower type is far from, wherever it can be.

    A scalar may by chance lie next to a number of such a type.
    """
    for attempt in range(ATTEMPTS):
        drawn = case.draw("stage", stage, output, attempt).signed(*shape)
        off = [np.abs(one.rounded(drawn) / drawn - 1) * 2.0**one.bits for one in TYPES]
        ok = all(np.max(far, initial=0.0) >= FAR for far in off)
        if ok:
            break
    return drawn


def _cost(result: Any) -> Float:
    found = allowance(result)
    return np.zeros(0) if found is None else found.reshape(-1)


def _distance(found: Comparison) -> Float | None:
    """Within what distance of the truth [q, n] lies what was compared; None where some fails."""
    ok = not found.failed.any()
    return np.maximum(found.bound, found.error) + found.uncertainty if ok else None
