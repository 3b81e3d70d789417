"""The truth of a model at one point: its loss, and the gradient of every parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.errors import SpecError
from gradcheck.judge.compare import (
    ROUNDING_SAFETY,
    TOLERANCES,
    Comparison,
    Tolerance,
    compare_with_rounding,
)
from gradcheck.judge.evidence_curves import Remainders
from gradcheck.judge.loss import judge_tensors
from gradcheck.judge.low_precision import rounded
from gradcheck.judge.stage import SINGLE, StageTruth, distance
from gradcheck.numerics.arithmetic import F64, FLOATS, Arithmetic
from gradcheck.numerics.arrays import Array, Float
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.estimator import Estimate, certain
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.numerics.operator_oracle import Agreement, Oracle
from gradcheck.numerics.rounding import ROUNDING, allowance
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Nudged, Program, Stage, Values, Whole

MAX_EXACT_PARAMETERS: Final = 5_000
"""Parameters up to which 50 digits are affordable; above, the truth is the float64 fold."""
DRAWS: Final = 8
NOISE_UNIT: Final = 2.0**-36
"""The size of one u in the simulation: far above float64's rounding, and small enough to propagate
linearly."""
SPREAD_FACTOR: Final = 4.0
"""Eight draws bound the next one within this factor of their root mean square."""
MIN_TYPICAL_SHARE: Final = 0.25
"""The least spread of an element, relative to its tensor's: eight draws may be lucky."""


@dataclass(frozen=True, slots=True)
class KnownGradient:
    """A true gradient [n] (or value), its error bar, and the cost of rounding in units of u.

    `rounding()` [n] is called only if a judgement depends on it.
    """

    value: Float
    bar: Float
    shape: tuple[int, ...]
    rounding: Callable[[], Float]

    def estimate(self, cts: Float) -> Estimate:
        """The gradient for each loss cotangent of `cts` [q], as rows [q, n]."""
        return certain(cts[:, None] * self.value, np.abs(cts[:, None]) * self.bar)

    def compared(self, got: Float, cts: Float, tolerance: Tolerance) -> Comparison:
        """Rows [q, n], one for each loss cotangent of `cts` [q], compared with this gradient."""
        return compare_with_rounding(
            got,
            self.estimate(cts),
            tolerance,
            lambda: ROUNDING_SAFETY * tolerance.u * np.abs(cts[:, None]) * self.rounding(),
        )

    def beside(self, own: Float, there: Float) -> KnownGradient | None:
        """The gradient at a rounded point, where the float64 fold gives `there`.

        The fold gives `own` here, and is as near to the truth there as it is here; None where it is
        wrong here.
        """
        found = self.compared(own[None], np.ones(1), TOLERANCES["float64"])
        off = distance(found)
        return None if off is None else replace(self, value=there, bar=off[0])


class ModelTruth:
    """The true loss and gradients of one model case, made once for all implementations.

    A small model is folded in 50-digit arithmetic and certified by 50-digit differences of its
    loss. A large one is folded in float64, with accumulated rounding as its error bar. `given` is
    the point: the case's own numbers, or (`at`) those rounded to float32.

    Raises:
        SpecError: the program contradicts itself, or its loss is no finite number.
    """

    def __init__(
        self, case: ModelCase, given: Values | None = None, wide: ModelTruth | None = None
    ) -> None:
        """Evaluate the program forward, once in float64.

        `given` is a point other than the case's; `wide` is the truth at the case's, which certifies
        the float64 fold at the rounded point (made by `wide.at`).
        """
        self.case = case
        self.program = case.program
        self.given = case.given if given is None else given
        self.params = {name: self.given[name] for name in self.program.params}
        self.inputs = {name: self.given[name] for name in self.program.inputs}
        self.exact = sum(p.size for p in self.params.values()) <= MAX_EXACT_PARAMETERS
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

        In float32 these are rounded; the gradients there are those of the float64 fold, if it
        passes here (ADR 42).
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
        return self.program.forward(
            xp, {n: xp.asarray(v) if v.dtype.kind == "f" else v for n, v in self.given.items()}
        )

    @cached_property
    def cts(self) -> Mapping[str, Array]:
        """The cotangent of every value that the loss depends on, in the arithmetic of the truth."""
        with np.errstate(all="ignore"):
            return self.program.backward(self._xp, self.values, self._xp.asarray(1.0))

    @cached_property
    def cts64(self) -> Mapping[str, Array]:
        """These cotangents in float64."""
        return {name: self._float64(ct) for name, ct in self.cts.items()}

    @cached_property
    def fold(self) -> Mapping[str, Array]:
        """The cotangent of every value, folded in float64."""
        if self._xp is F64:
            return self.cts
        with np.errstate(all="ignore"):
            return self.program.backward(F64, self.values64, np.asarray(1.0))

    def gradient(self, name: str) -> KnownGradient:
        """The gradient of one parameter, or the cotangent of another value."""
        if name not in self._gradients:
            self._gradients[name] = self._gradient(name)
        return self._gradients[name]

    def _gradient(self, name: str) -> KnownGradient:
        shape = self.values64[name].shape
        if self._wide is not None and self.exact:
            own, there = (self._flat(truth.fold.get(name), shape) for truth in (self._wide, self))
            known = self._wide.gradient(name).beside(own, there)
            return self._by_itself.gradient(name) if known is None else known
        flat = self._flat(self.cts.get(name), shape)
        if self.exact:
            bar = np.abs(flat) * np.finfo(np.float64).eps
        else:
            bar = ROUNDING_SAFETY * np.finfo(np.float64).eps / 2 * self._rounding(name)
        return KnownGradient(flat, bar, shape, lambda: self._rounding(name))

    def _flat(self, found: Any, shape: tuple[int, ...]) -> Float:
        return (np.zeros(shape) if found is None else self._float64(found)).reshape(-1)

    @cached_property
    def _by_itself(self) -> ModelTruth:
        """The truth at this point by itself, where `wide` does not certify the float64 fold."""
        return ModelTruth(self.case, self.given)

    @cached_property
    def loss(self) -> KnownGradient:
        """The true loss, [1]."""
        name = self.program.loss
        if self._wide is not None and self.exact:
            own, there = (truth.values64[name].reshape(1) for truth in (self._wide, self))
            known = self._wide.loss.beside(own, there)
            return self._by_itself.loss if known is None else known
        value = self._float64(self.values[name]).reshape(1)
        bar = np.abs(value) * np.finfo(np.float64).eps
        return KnownGradient(value, bar, (), lambda: self._propagated.values[name])

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
        """A large model's own gradients, compared with slopes of its loss in float64."""
        return self.projected({name: self._exact(name) for name in self.floating}, "float64")

    def projected(self, gradients: Mapping[str, Array | Finding], dtype: str) -> list[Finding]:
        """Findings on gradients compared with slopes of the loss along directions.

        One per parameter; a single one called "loss" where it cannot be differenced.
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
        """Taylor remainders of the loss, along one line per parameter."""
        whole = Whole(self.program, self.inputs)
        params = tuple(self.params.values())
        point = Point(lambda *moved: (whole.forward(F64, *moved),), params)
        return Remainders(
            point, np.ones(1), [None] * len(params), lambda i: self.case.draw("taylor", i)
        )

    def stage(self, stage: Stage) -> StageTruth:
        """The truth of one stage (of a small model only)."""
        if stage.name not in self._stages:
            wide = None if self._wide is None else self._wide.stage(stage)
            self._stages[stage.name] = StageTruth(self, stage, wide)
        return self._stages[stage.name]

    @cached_property
    def _stages(self) -> dict[str, StageTruth]:
        return {}

    @cached_property
    def _gradients(self) -> dict[str, KnownGradient]:
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
        return self.cts.get(name, self._xp.zeros_like(self.values[name]))

    @property
    def _xp(self) -> Arithmetic:
        return mp50() if self.exact and self._wide is None else F64

    def _float64(self, values: Any) -> Float:
        array = np.asarray(values)
        return mp50().to_float64(array) if array.dtype == object else array.astype(np.float64)

    def _rounding(self, name: str) -> Float:
        """The cost of rounding for one gradient, [n], in units of u."""
        cost = self._propagated.cts.get(name)
        return np.zeros(self.values64[name].size) if cost is None else cost

    @cached_property
    def _propagated(self) -> PropagatedRounding:
        if self._wide is not None:  # an estimate, and as good beside
            return self._wide._propagated
        with np.errstate(all="ignore"):
            return PropagatedRounding(self.program, self.given)


class PropagatedRounding:
    """The rounding of a program's values and cotangents, in units of u: `values`, `cts` by name.

    Running error analysis adds up worst cases; through a whole model their product would allow
    anything. So it is applied to one stage at a time, at exact values; the result is added to the
    stage's outputs as noise, which the program itself propagates to the gradients, in several
    draws. Their spread is the standard deviation that any sensible evaluation may have. (Monte
    Carlo arithmetic: Parker 1997; running error analysis: Higham, Accuracy and Stability, §3.3.)
    """

    def __init__(self, program: Program, given: Values) -> None:
        """Run the program eight times with noise, forward and backward."""
        self._program = program
        self._given = given
        self._one = np.asarray(1.0)
        exact = program.forward(F64, given)
        cts = program.backward(F64, exact, self._one)
        self._forward_cost = {s.name: _forward_cost(s, exact) for s in program.stages}
        self._backward_cost = {s.name: _backward_cost(s, exact, cts) for s in program.stages}
        squares: dict[str, Float] = {}
        ct_squares: dict[str, Float] = {}
        for k in range(DRAWS):
            rng = np.random.Generator(np.random.Philox(key=key_of("propagated", k)))
            values = self._noisy_forward(rng)
            noisy = self._noisy_backward(values, rng)
            _add(squares, values, exact)
            _add(ct_squares, noisy, cts)
        self.values = {name: _spread(total) for name, total in squares.items()}
        self.cts = {name: _spread(total) for name, total in ct_squares.items()}

    def _noisy_forward(self, rng: np.random.Generator) -> dict[str, Array]:
        values = dict(self._given)
        for stage in self._program.stages:
            outputs = stage.forward(F64, values)
            for name, out, cost in zip(
                stage.outputs, outputs, self._forward_cost[stage.name], strict=True
            ):
                values[name] = _noisy(out, cost, rng)
        return values

    def _noisy_backward(self, values: Values, rng: np.random.Generator) -> dict[str, Array]:
        def vjp(stage: Stage, cts: tuple[Array, ...], values: Values) -> tuple[Any, ...]:
            shares = stage.vjp(F64, cts, values)
            costs = self._backward_cost[stage.name]
            return tuple(
                None if share is None else _noisy(share, cost, rng)
                for share, cost in zip(shares, costs, strict=True)
            )

        return self._program.backward(F64, values, self._one, vjp)


def _forward_cost(stage: Stage, values: Values) -> list[Float]:
    found = stage.forward(ROUNDING, _lifted(stage, values))
    return [_cost(out) for out in found]


def _backward_cost(stage: Stage, values: Values, cts: Mapping[str, Array]) -> list[Float]:
    whole = tuple(ROUNDING.asarray(cts.get(n, np.zeros_like(values[n]))) for n in stage.outputs)
    return [_cost(share) for share in stage.vjp(ROUNDING, whole, _lifted(stage, values))]


def _lifted(stage: Stage, values: Values) -> dict[str, Any]:
    """The values that the stage reads, as exact numbers of the rounding arithmetic."""
    reads = {name: np.asarray(values[name]) for name in stage.reads}
    return {n: ROUNDING.asarray(v) if v.dtype.kind == "f" else v for n, v in reads.items()}


def _cost(result: Any) -> Float:
    found = allowance(result)
    return np.zeros(()) if found is None else found


def _noisy(value: Array, cost: Float, rng: np.random.Generator) -> Array:
    value = np.asarray(value)
    noise = rng.standard_normal(value.shape) * cost * NOISE_UNIT
    return np.where(np.isfinite(value), value + noise, value)


def _add(totals: dict[str, Float], noisy: Mapping[str, Array], exact: Mapping[str, Array]) -> None:
    for name, value in exact.items():
        if np.asarray(value).dtype.kind == "f":
            square = ((noisy[name] - value) / NOISE_UNIT) ** 2
            totals[name] = totals.get(name, 0.0) + np.where(np.isfinite(square), square, 0.0)


def _spread(total: Float) -> Float:
    """One allowance [n] from summed squares: an element's own spread, or its tensor's typical one.

    An element that no noise reached is exact: the row of an unused token, the weights of a blank
    pixel.
    """
    mean = np.ravel(total) / DRAWS
    typical = np.sqrt(np.mean(mean)) if mean.size else 0.0
    return SPREAD_FACTOR * np.where(
        mean == 0, 0.0, np.maximum(np.sqrt(mean), MIN_TYPICAL_SHARE * typical)
    )
