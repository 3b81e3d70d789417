"""One gradient at one point, under one cotangent: what came, what is true, what is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.operator_probes import ProbeCollector
from gradcheck.explain.shrink import Shrunk, shown
from gradcheck.implementations.bound import Binding
from gradcheck.judge.compare import compare, tolerance_of
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import as_tuple, dtype_named
from gradcheck.results.finding import Finding
from gradcheck.spec.dtype_selection import LOW
from gradcheck.spec.operator import Slack
from gradcheck.spec.suite import Case

Array = NDArray[Any]
Float = NDArray[np.float64]
Cotangent = tuple[Array, ...]

STEP: Final = 1e-6
"""Of a central difference, where none can be tried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What passes for a right gradient; arrays in its shape, in its units.

    An element g is right if it lies within rtol·max(|g|, |d|) + `room` of d, the value of
    [`low`, `high`] that is nearest to it: off kinks, one number. The room holds two error bars.
    Several elements on a kink must be right together, too: along each direction of `along` [k, n]
    the slope lies between `least` and `most`, [k] each.
    """

    low: Float
    high: Float
    room: Float
    rtol: float
    along: Float
    least: Float
    most: Float

    @property
    def kinked(self) -> bool:
        """Whether more than one value is right somewhere."""
        return not np.array_equal(self.low, self.high)

    def nearest(self, values: Float) -> Float:
        """The right values that are nearest."""
        return np.asarray(np.clip(values, self.low, self.high))


def whole(
    case: Case, binding: Binding, dtype: str, finding: Finding, convention: str = ""
) -> Shrunk:
    """The case as it is, in the form of one made small: under the cotangent of the worst element.

    `finding` is the judgement of the gradient of a primal of the case.

    Raises:
        Unsuitable: the dtype does not hold the case.
    """
    truth = _truth(case, dtype, convention)
    names = truth.cotangents.names
    row = names.index(finding.top.cotangent) if finding.top is not None else 0
    return shown(truth, finding, ProbeCollector(binding, dtype), row)


def accepted(shrunk: Shrunk, convention: str = "", slack: Slack | None = None) -> Accepted:
    """What passes for the gradient that a shrunk case is about; `slack` is the code's own.

    Raises:
        Unsuitable: the dtype does not hold the case.
    """
    case, dtype = shrunk.case, shrunk.dtype
    cotangents = Cotangents(("given",), (shrunk.cotangent,))
    truth = _truth(case, dtype, convention, cotangents)
    of = truth.certain(case.primal_names.index(primal_of(shrunk)))
    rules = tolerance_of(dtype, 0.0 if slack is None else slack.ulp)
    want, kinks = of.settled(), [] if of.kinks is None else [of.kinks.interval]
    found = compare(want, of.differences.estimate, rules, kinks=kinks, extra=of.allowance(rules))
    with np.errstate(invalid="ignore"):
        room = found.bound - rules.rtol * np.abs(want) + found.uncertainty
    low, high = want, want
    for kink in kinks:
        low = np.where(kink.which, kink.low, low)
        high = np.where(kink.which, kink.high, high)
    room = np.where(np.isfinite(room), room, 0.0)  # beside an infinite slope: that alone is right
    low, high, room = (a.reshape(shrunk.want.shape) for a in (low, high, room))
    along, least, most = np.zeros((0, want.size)), np.zeros(0), np.zeros(0)
    if of.kinks is not None and of.kinks.directions is not None:
        together = of.kinks.directions
        along, least, most = together.along, together.low[0], together.high[0]
    return Accepted(
        low=low, high=high, room=room, rtol=rules.rtol, along=along, least=least, most=most
    )


def primal_of(shrunk: Shrunk) -> str:
    """The primal whose gradient is shown: of a call that fails as a whole, the first one's."""
    names, primals = shrunk.case.primal_names, shrunk.case.primals
    if shrunk.output in names:
        return shrunk.output
    return next(n for n, p in zip(names, primals, strict=True) if p.dtype.kind == "f")


def primals_of(shrunk: Shrunk) -> dict[str, Array]:
    """The primals by name, as the code gets them: in the dtype, indices as int64."""
    kind = dtype_named(shrunk.dtype)
    pairs = zip(shrunk.case.primal_names, shrunk.case.primals, strict=True)
    return {name: p.astype(kind) if p.dtype.kind == "f" else p for name, p in pairs}


def cotangent_of(shrunk: Shrunk) -> Cotangent:
    """The cotangent as the code gets it."""
    return tuple(part.astype(dtype_named(shrunk.dtype)) for part in shrunk.cotangent)


def _truth(
    case: Case, dtype: str, convention: str, cotangents: Cotangents | None = None
) -> CaseTruth:
    if dtype in LOW:
        return CaseTruth.in_low(case, convention, dtype, cotangents)
    return CaseTruth(case, convention, cotangents=cotangents).at(dtype)


def worst_of(shrunk: Shrunk) -> tuple[int, ...]:
    """Where what came is furthest from what is right."""
    with np.errstate(invalid="ignore"):
        off = np.abs(shrunk.got - shrunk.want)
    flat = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
    return tuple(int(i) for i in np.unravel_index(flat, off.shape))


def step_of(shrunk: Shrunk, index: tuple[int, ...], computes: str = "float64") -> float:
    """The step, a power of ten, at which a central difference of a forward tells most.

    It is the one at which the spec's own forward, which `computes` in float64 or float32, comes
    nearest to the true gradient at `index`.
    """
    case, xp = shrunk.case, FLOATS[computes]
    position = case.primal_names.index(primal_of(shrunk))
    best, nearest = STEP, np.inf
    for power in range(1, 13):
        step, ends = 10.0**-power, []
        for sign in (1, -1):
            moved = [xp.asarray(p) if p.dtype.kind == "f" else p.copy() for p in case.primals]
            moved[position] = moved[position].copy()
            moved[position][index] += sign * step
            with np.errstate(all="ignore"):
                outputs = as_tuple(case.spec.forward(xp, *moved, **case.attrs))
                pairs = zip(shrunk.cotangent, outputs, strict=True)
                ends.append(float(sum(np.sum(ct * np.asarray(out)) for ct, out in pairs)))
        with np.errstate(all="ignore"):
            off = abs((ends[0] - ends[1]) / (2 * step) - float(shrunk.want[index]))
        if off < nearest:
            best, nearest = step, off
    return best
