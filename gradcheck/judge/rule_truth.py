"""The true result of every step of an update rule, in 50 digits, and what rounding may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.errors import SpecError, Unsupported
from gradcheck.judge.compare import ROUNDING_SAFETY, TOLERANCES, Tolerance
from gradcheck.judge.low_precision import rounded
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Array, Float
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.numerics.narrow import Narrow, narrower
from gradcheck.numerics.rounding import ROUNDING, allowance
from gradcheck.spec.rule import RuleCase, State, Tensors

Flat = dict[str, Any]
"""Tensors by output name: a parameter's own name, or `slot.parameter` for state."""
SHARP_ROUNDINGS: Final = 16.0
"""Units of u, relative to the element, allowed beside the known cost of rounding: nothing is
differenced here, so nothing wider is needed."""
MAX_NARROWED_STEPS: Final = 3
"""Single steps at which rules in a narrower type are tried."""
MAX_COST_SHARE: Final = 2.0**-6
"""The cost of rounding, relative to a tensor's largest number, above which a run of steps shows
nothing."""


def tolerance_for(dtype: str) -> Tolerance:
    """The tolerance of a dtype, as sharp as an update allows.

    Raises:
        Unsupported: update rules are judged in float64 and float32 alone.
    """
    if dtype not in TOLERANCES:
        raise Unsupported("update rules are judged in float64 and float32")
    return replace(TOLERANCES[dtype], rtol=SHARP_ROUNDINGS * TOLERANCES[dtype].u)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Parameters and state at one moment, in any arithmetic."""

    params: Tensors
    state: State

    def mapped(self, change: Callable[[Any], Any]) -> Snapshot:
        """A snapshot with `change` applied to every array."""
        state = {slot: map_tensors(change, old) for slot, old in self.state.items()}
        return Snapshot(map_tensors(change, self.params), state)

    @property
    def flat(self) -> Flat:
        """All arrays by output name."""
        named = {f"{slot}.{n}": a for slot, old in self.state.items() for n, a in old.items()}
        return {**self.params, **named}


@dataclass(frozen=True, slots=True)
class ExpectedRow:
    """One tensor after one step or a run of several: the truth, and the cost of rounding.

    `base` is the tensor before: parameters are judged by how far they move. Shapes: that of the
    tensor; `cost` is in units of u, `bar` is the error bar of `want`.
    """

    name: str
    want: Float
    base: Float
    cost: Float
    bar: Float

    @property
    def single(self) -> bool:
        """Whether it is one step from the true state."""
        return self.name.startswith("step ")


class RuleTruth:
    """The true results of one case's rule, in 50-digit arithmetic; made once per case.

    Every dtype is judged at numbers that it holds: single steps from the true states, rounded to
    it, and a run of all steps from a rounded start with rounded gradients. The run of float32 is
    computed in float64, whose rounding is 2^-29 of the bound.

    Raises:
        SpecError: the rule gives something else than its parameters' shapes, or no number.
    """

    def __init__(self, case: RuleCase) -> None:
        """Take all steps of the case with 50 digits."""
        self.case = case
        self.xp = mp50()
        self.states = self._run(self.xp)
        self._rows: dict[str, dict[str, list[ExpectedRow]]] = {}

    def step(self, xp: Any, here: Snapshot, grads: Tensors, k: int) -> Snapshot:
        """The reference's `k`-th step (from 0) in the arithmetic `xp`."""
        case = self.case
        made = case.spec.update(xp, here.params, grads, here.state, case.times[k], **case.attrs)
        new = Snapshot(*made).mapped(xp.asarray)
        shapes = {name: np.shape(a) for name, a in new.params.items()}
        if shapes != {name: p.shape for name, p in case.params.items()}:
            raise SpecError(f"{case.name}: step {case.times[k]} gives tensors of shape {shapes}")
        return new

    def gradients(self, xp: Any, params: Tensors, k: int, dtype: str = "float64") -> Tensors:
        """The gradients of the `k`-th step in the arithmetic `xp`, at its own parameters.

        Gradients that were drawn are rounded to `dtype` first.
        """
        given = self.case.gradients[k]
        drawn = {name: xp.asarray(rounded(g, dtype)) for name, g in given.items()}
        slope = self.case.sample.slope
        return drawn if slope is None else map_tensors(xp.asarray, slope(xp, params, drawn))

    def follow(self, here: Snapshot, new: Snapshot) -> Snapshot:
        """The start of the next step: clipped gradients move no parameter."""
        return Snapshot(new.params if self.moves else here.params, new.state)

    def start(self, xp: Any, dtype: str = "float64") -> Snapshot:
        """Parameters and state before the first step, rounded to `dtype`."""

        def held(a: Array) -> Any:
            return xp.asarray(rounded(a, dtype))

        params, loaded = map_tensors(held, self.case.params), self.case.state
        if loaded is None:
            return Snapshot(params, self.case.spec.init(xp, params))
        return Snapshot(params, {slot: map_tensors(held, old) for slot, old in loaded.items()})

    @property
    def moves(self) -> bool:
        """Whether the rule gives parameters; else it gives gradients."""
        return self.case.spec.gives == "params"

    def before(self, k: int, dtype: str) -> tuple[Snapshot, Tensors]:
        """The true state before step `k` and its gradients, as arrays of `dtype`."""
        here = self.states[k]
        grads = self.gradients(self.xp, here.params, k)

        def typed(a: Any) -> Array:
            with np.errstate(over="ignore", under="ignore"):
                return np.asarray(self._float(a)).astype(dtype)

        return here.mapped(typed), map_tensors(typed, grads)

    def rows(self, dtype: str) -> dict[str, list[ExpectedRow]]:
        """Per output, one row for each single step, then one for each run from the start."""
        if dtype in self._rows:
            return self._rows[dtype]
        found = self._rows[dtype] = {}
        with np.errstate(all="ignore"):
            self._add_rows(found, dtype)
        return found

    def _add_rows(self, found: dict[str, list[ExpectedRow]], dtype: str) -> None:
        for k, t in enumerate(self.case.times):
            here, grads = self.before(k, dtype)
            want, cost = (
                self.step(xp, here.mapped(xp.asarray), map_tensors(xp.asarray, grads), k)
                for xp in (self.xp, ROUNDING)
            )
            self._add(found, f"step {t}", want, cost, here.mapped(_to_float64))
        if self.moves:
            exact = dtype == "float64"
            run = self.states if exact else self._run(F64, dtype)
            start = run[0].mapped(self._float)
            for k, t in enumerate(self.case.times):
                new, cost = run[k + 1], self._costs[k + 1]
                if self._lost(new, cost, start, tolerance_for(dtype)):
                    break
                name = f"steps {self.case.times[0]} to {t}"
                self._add(found, name, new, cost, start, exact=exact)

    def narrowed(self, dtype: str) -> dict[str, dict[str, dict[str, Float]]]:
        """The results of a rule in a narrower type than `dtype`: by kind, step, output.

        Its parameters, its state, its gradients, or its results are rounded to the type; a kind
        without any effect is left out.
        """
        found: dict[str, dict[str, dict[str, Float]]] = {}
        count = len(self.case.times)
        for k in sorted({0, count // 2, count - 1})[:MAX_NARROWED_STEPS]:
            here, grads = self.before(k, dtype)
            here, grads = here.mapped(_to_float64), map_tensors(_to_float64, grads)
            with np.errstate(all="ignore"):
                plain = self.step(F64, here, grads, k)
                for narrow in narrower(dtype):
                    for kind, new in self._kinds(here, grads, k, plain, narrow):
                        name = f"{narrow.name}-{kind}"
                        for output, value in new.flat.items():
                            if not np.array_equal(value, plain.flat[output]):
                                steps = found.setdefault(name, {})
                                steps.setdefault(f"step {self.case.times[k]}", {})[output] = value
        return found

    def _kinds(
        self, here: Snapshot, grads: Tensors, k: int, plain: Snapshot, narrow: Narrow
    ) -> Iterator[tuple[str, Snapshot]]:
        """One step per kind: with some arguments, or with the result, in a narrower type."""
        short = here.mapped(narrow.rounded)
        yield "params", self.step(F64, Snapshot(short.params, here.state), grads, k)
        yield "state", self.step(F64, Snapshot(here.params, short.state), grads, k)
        yield "gradients", self.step(F64, here, map_tensors(narrow.rounded, grads), k)
        yield "result", plain.mapped(narrow.rounded)

    @cached_property
    def _costs(self) -> list[Snapshot]:
        """The run in an arithmetic that tracks its rounding."""
        return self._run(ROUNDING)

    def _lost(self, new: Snapshot, cost: Snapshot, start: Snapshot, tolerance: Tolerance) -> bool:
        """Whether accumulated rounding may be as large as the numbers it is compared with.

        Where later steps follow from earlier ones (L-BFGS), errors grow from step to step, and the
        run shows nothing any more; the single steps still do.
        """
        costs = cost.flat
        for output, want in self._wanted(new, start).items():
            largest = float(np.max(np.abs(want), initial=0.0))
            spent = float(np.max(np.asarray(allowance(costs[output])), initial=0.0))
            known = (
                ROUNDING_SAFETY * tolerance.u * spent <= MAX_COST_SHARE * largest or largest == 0
            )
            if not known:
                return True
        return False

    def _wanted(self, new: Snapshot, base: Snapshot) -> dict[str, Float]:
        """Movements of parameters, and values of the other tensors."""
        found = {}
        for output, exact in new.flat.items():
            value = exact
            if self.moves and output in new.params:
                start = base.params[output]
                wide = isinstance(exact, np.ndarray) and exact.dtype != object
                value = exact - (start if wide else self.xp.asarray(start))
            found[output] = self._float(value)
        return found

    def _run(self, xp: Any, dtype: str = "float64") -> list[Snapshot]:
        here = self.start(xp, dtype)
        run = [here]
        for k in range(self.case.sample.count):
            new = self.step(xp, here, self.gradients(xp, here.params, k, dtype), k)
            here = self.follow(here, new)
            run.append(here)
        return run

    def _add(
        self,
        found: dict[str, list[ExpectedRow]],
        name: str,
        want: Snapshot,
        cost: Snapshot,
        base: Snapshot,
        *,
        exact: bool = True,
    ) -> None:
        costs = cost.flat
        for output, value in self._wanted(want, base).items():
            if not np.isfinite(value).all():
                raise SpecError(f"{self.case.name}: {name} of {output} is not a finite number")
            moves = self.moves and output in want.params
            at = base.params[output] if moves else np.zeros(value.shape)
            spent = allowance(costs[output])
            assert spent is not None
            bar = np.abs(value) * 2.0**-53
            bar = bar if exact else bar + ROUNDING_SAFETY * 2.0**-53 * spent.reshape(value.shape)
            found.setdefault(output, []).append(ExpectedRow(name, value, at, spent, bar))

    def _float(self, exact: Any) -> Float:
        array = np.asarray(exact)
        return np.asarray(self.xp.to_float64(array) if array.dtype == object else array)


def map_tensors(change: Callable[[Any], Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """`change` applied to every tensor."""
    return {name: change(a) for name, a in tensors.items()}


def _to_float64(a: Array) -> Float:
    return a.astype(np.float64)
