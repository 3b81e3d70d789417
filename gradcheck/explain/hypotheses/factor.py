"""Factors: the right gradient times a number, a count, an attribute or an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.elementwise import is_diagonal
from gradcheck.explain.hypotheses.factor_names import (
    NAME_TOLERANCE,
    TRIAL_TOLERANCE,
    Factor,
    constant,
    counted,
    named,
    number,
)
from gradcheck.explain.hypothesis import (
    Hypothesis,
    Observations,
    predicting,
    read_output,
    read_primal,
)
from gradcheck.explain.probe import Array, Float, Probe
from gradcheck.spec.defect import Defect

SIGNIFICANT_SHARE: Final = 1e-6
"""Share of the largest element from which on an element tells the factor."""
MIN_TELLING_ELEMENTS: Final = 3
TOLERANCE_ULPS: Final = 4
"""The same in units of roundoff, for narrow types."""
PLAIN_NUMBERS: Final = (2.0, 0.5)
"""Factors that are more likely numbers than counts, where nothing varies."""


def scale(obs: Observations) -> Iterator[Hypothesis]:
    """A constant multiple of the right gradient: signs, numbers, attributes, roots of counts."""
    found = _factors(obs)
    same = _constant(found, _loose(obs))
    loose = _loose(obs)
    if same is not None and abs(same + 1) <= loose:
        yield _hypothesis(
            obs, Factor(Defect.SIGN, "has the wrong sign: the right value negated", constant(-1))
        )
    for c in PLAIN_NUMBERS:
        if same is not None and abs(same / c - 1) <= loose:
            yield _hypothesis(obs, number(c, loose))
    yield from _fitting(obs, found, named(obs))


def reduction(obs: Observations) -> Iterator[Hypothesis]:
    """A count, its inverse, or another count's; then products with attributes, then any number."""
    found = _factors(obs)
    yield from _fitting(obs, found, counted(obs))
    same = _constant(found, _loose(obs))
    if same is not None:
        yield _hypothesis(obs, number(same, max(NAME_TOLERANCE, TOLERANCE_ULPS * obs.first.u)))


def _factors(obs: Observations) -> list[float]:
    """The factor at each failing probe; none where there is none at one of them."""
    seen = [factor_at(probe, obs.output) for probe in obs.failing]
    found = [c for c in seen if c is not None]
    shown = len(found) == len(seen) and any(found) and _telling(obs) >= MIN_TELLING_ELEMENTS
    return found if shown else []


def _constant(found: list[float], loose: float) -> float | None:
    if not found or max(found) - min(found) > loose * abs(max(found)):
        return None
    return found[0]


def _fitting(
    obs: Observations, found: list[float], factors: Iterable[Factor]
) -> Iterator[Hypothesis]:
    """The names that have the right value at all failing probes."""
    loose = _loose(obs)
    for factor in factors if found else ():
        if all(_near(factor.of(p), c, loose) for p, c in zip(obs.failing, found, strict=True)):
            yield _hypothesis(obs, factor)


def factor_at(probe: Probe, name: str) -> float | None:
    """The one number that the right gradient was multiplied by; None where there is none."""
    if name not in probe.got:
        return None
    got, right = probe.got[name].ravel(), probe.right[name].ravel()
    size = float(right @ right)
    if not (np.isfinite(got).all() and np.isfinite(size) and size > 0):
        return None
    c = float(got @ right) / size
    return c if probe.reproduces(c * probe.right[name], name) else None


def _telling(obs: Observations) -> int:
    found = 0
    for probe in obs.failing:
        right = np.abs(probe.right[obs.output])
        found += int((right > SIGNIFICANT_SHARE * np.max(right, initial=0.0)).sum())
    return found


def _near(a: float | None, c: float, loose: float) -> bool:
    return a is not None and math.isfinite(a) and abs(a - c) <= loose * abs(c)


def _loose(obs: Observations) -> float:
    """Relative distance within which a name fits a factor that was measured in the dtype."""
    return max(TRIAL_TOLERANCE, TOLERANCE_ULPS * obs.first.u)


def _hypothesis(obs: Observations, factor: Factor) -> Hypothesis:
    def predicted(probe: Probe) -> Array | None:
        c = factor.of(probe)
        if c is None or (math.isnan(c) and probe.fails(obs.output)):
            return None
        return probe.right[obs.output] * (1.0 if math.isnan(c) else c)

    return predicting(
        obs, factor.label, f"{obs.gradient} {factor.words}", predicted, _shown(obs, factor)
    )


def _shown(obs: Observations, factor: Factor) -> tuple[str, ...]:
    shown: dict[float, str] = {}
    for probe in obs.failing:
        c = factor.of(probe)
        if c is not None and math.isfinite(c):
            shown.setdefault(round(c, 12), f"{c:.6g} at {probe.where}")
    return ("the factor is " + ", ".join([*shown.values()][:2]),) if len(shown) > 1 else ()


Function = Callable[[Any], Any]


def _rows(of: Callable[[Float], Float]) -> Function:
    return lambda x: of(x) if x.ndim else None


FUNCTIONS: Final[tuple[tuple[str, Function], ...]] = (
    ("{}", lambda x: x),
    ("exp({})", np.exp),
    ("sigmoid({})", lambda x: 1 / (1 + np.exp(-x))),
    ("1 - {}", lambda x: 1 - x),
    ("{}²", np.square),
    ("√{}", np.sqrt),
    ("|{}|", np.abs),
    ("the norm of {}'s rows", _rows(lambda x: np.linalg.norm(x, axis=-1, keepdims=True))),
    ("the root mean square of {}'s rows",
     _rows(lambda x: np.sqrt(np.mean(x * x, axis=-1, keepdims=True)))),
    ("the standard deviation of {}'s rows", _rows(lambda x: np.std(x, axis=-1, keepdims=True))),
    ("the variance of {}'s rows", _rows(lambda x: np.var(x, axis=-1, keepdims=True))),
    ("the sum of {}'s rows", _rows(lambda x: np.sum(x, axis=-1, keepdims=True))),
    ("the largest of {}'s rows", _rows(lambda x: np.max(x, axis=-1, keepdims=True))),
)  # fmt: skip
"""What may be multiplied in, of a primal or an output."""


def argument(obs: Observations) -> Iterator[Hypothesis]:
    """The right gradient times or divided by an array, where forward is not element by element."""
    name, own = obs.output, obs.gradient
    if all(is_diagonal(probe, name) for probe in obs.failing):
        return  # a wrong slope, which is another rule's
    for words, of in _factor_arrays(obs.first):
        for form, function in FUNCTIONS:
            for by_row in (False, True):
                value = partial(_factor, of, function, by_row, name)
                shown = form.format(words) + (", one for each row" if by_row else "")
                says = f"{own} lacks the factor {shown}"
                yield predicting(obs, Defect.SCALE, says, partial(_divided, value, name))
                says = f"{own} has the factor {shown} too much"
                yield predicting(obs, Defect.SCALE, says, partial(_multiplied, value, name))


FactorAt = Callable[[Probe], Float | None]


def _factor_arrays(probe: Probe) -> Iterator[tuple[str, Callable[[Probe], Array]]]:
    for name, primal in zip(probe.names, probe.primals, strict=True):
        if primal.dtype.kind == "f":
            yield name, read_primal(name)
    for i in range(len(probe.ct)):
        yield ("the output" if len(probe.ct) == 1 else f"output {i + 1}"), read_output(i)


def _factor(
    of: Callable[[Probe], Array], function: Function, by_row: bool, name: str, probe: Probe
) -> Float | None:
    """The array in the gradient's shape: as it broadcasts, or one number for each row."""
    value, shape = np.asarray(function(of(probe)), dtype=np.float64), probe.right[name].shape
    lack = len(shape) - value.ndim
    if not value.ndim or lack < 0 or (by_row and not lack):
        return None
    return np.broadcast_to(value.reshape(*value.shape, *(1,) * (lack * by_row)), shape)


def _divided(value: FactorAt, name: str, probe: Probe) -> Float | None:
    """Without the factor; where both are 0, nothing is predicted."""
    factor = value(probe)
    if factor is None or name not in probe.got:
        return None
    right = probe.right[name]
    with np.errstate(all="ignore"):
        return np.where((factor == 0) & (right == 0), probe.got[name], right / factor)


def _multiplied(value: FactorAt, name: str, probe: Probe) -> Float | None:
    factor = value(probe)
    return None if factor is None else probe.right[name] * factor
