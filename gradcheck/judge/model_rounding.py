"""The cost of rounding for every gradient of a model, by random propagation of each stage's share.

Running error analysis adds up worst cases; through a whole model their product would allow
anything. So it is applied to one stage at a time, at exact values; the result is added to the
stage's outputs as noise, which the program itself propagates to the gradients, in several draws.
Their spread is the standard deviation that any sensible evaluation may have. (Monte Carlo
arithmetic: Parker 1997; running error analysis: Higham, Accuracy and Stability, §3.3.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.rounding import ROUNDING, allowance
from gradcheck.spec.operator import Array
from gradcheck.spec.program import Program, Stage, Values

Float = NDArray[np.float64]
DRAWS: Final = 8
NOISE_UNIT: Final = 2.0**-36
"""The size of one u in the simulation: far above float64's rounding, and small enough to propagate
linearly."""
SPREAD_FACTOR: Final = 4.0
"""Eight draws bound the next one within this factor of their root mean square."""
MIN_TYPICAL_SHARE: Final = 0.25
"""The least spread of an element, relative to its tensor's: eight draws may be lucky."""


class PropagatedRounding:
    """The rounding of a program's values and cotangents, in units of u: `values`, `cts` by name."""

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
