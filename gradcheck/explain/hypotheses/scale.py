"""Scale: one factor over the whole gradient, called by what varies with it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.hypotheses.factor import (
    CLOSE,
    LOOSE,
    Factor,
    constant,
    counted,
    named,
    number,
)
from gradcheck.explain.probe import Array, Probe

SIGNIFICANT: Final = 1e-6
"""Share of the largest element from which on an element tells the factor."""
ENOUGH: Final = 3
"""Elements over all probes below which proportionality says nothing."""
UNITS: Final = 4
"""The same in units of roundoff, for narrow types."""
PLAIN: Final = (2.0, 0.5)
"""Factors that are more likely numbers than counts, where nothing varies."""


def scale(scene: Observations) -> Iterator[Suspicion]:
    """A constant multiple of the right gradient: signs, numbers, attributes, roots of counts."""
    found = _factors(scene)
    same = _constant(found, _loose(scene))
    loose = _loose(scene)
    if same is not None and abs(same + 1) <= loose:
        yield _suspicion(
            scene, Factor("S", "has the wrong sign: the right value negated", constant(-1))
        )
    for c in PLAIN:
        if same is not None and abs(same / c - 1) <= loose:
            yield _suspicion(scene, number(c, loose))
    yield from _fitting(scene, found, named(scene))


def reduction(scene: Observations) -> Iterator[Suspicion]:
    """A count, its inverse, or another count's; then products with attributes, then any number."""
    found = _factors(scene)
    yield from _fitting(scene, found, counted(scene))
    same = _constant(found, _loose(scene))
    if same is not None:
        yield _suspicion(scene, number(same, max(CLOSE, UNITS * scene.first.u)))


def _factors(scene: Observations) -> list[float]:
    """The factor at each failing probe; none where there is none at one of them."""
    seen = [factor_at(probe, scene.output) for probe in scene.failing]
    found = [c for c in seen if c is not None]
    told = len(found) == len(seen) and any(found) and _telling(scene) >= ENOUGH
    return found if told else []


def _constant(found: list[float], loose: float) -> float | None:
    """The factor, where it is the same at all probes."""
    if not found or max(found) - min(found) > loose * abs(max(found)):
        return None
    return found[0]


def _fitting(
    scene: Observations, found: list[float], factors: Iterable[Factor]
) -> Iterator[Suspicion]:
    """The names that have the right value at all failing probes."""
    loose = _loose(scene)
    for factor in factors if found else ():
        if all(_near(factor.of(p), c, loose) for p, c in zip(scene.failing, found, strict=True)):
            yield _suspicion(scene, factor)


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


def _telling(scene: Observations) -> int:
    """Significant elements over all failing probes."""
    found = 0
    for probe in scene.failing:
        right = np.abs(probe.right[scene.output])
        found += int((right > SIGNIFICANT * np.max(right, initial=0.0)).sum())
    return found


def _near(a: float | None, c: float, loose: float) -> bool:
    return a is not None and math.isfinite(a) and abs(a - c) <= loose * abs(c)


def _loose(scene: Observations) -> float:
    """What a name may be off, of a factor that was measured in a narrow type."""
    return max(LOOSE, UNITS * scene.first.u)


def _suspicion(scene: Observations, factor: Factor) -> Suspicion:
    def predicted(probe: Probe) -> Array | None:
        c = factor.of(probe)
        if c is None or (math.isnan(c) and probe.fails(scene.output)):
            return None
        return probe.right[scene.output] * (1.0 if math.isnan(c) else c)

    return predicting(
        scene, factor.label, f"{scene.gradient} {factor.words}", predicted, _shown(scene, factor)
    )


def _shown(scene: Observations, factor: Factor) -> tuple[str, ...]:
    """What the factor was, at two points where it differs."""
    told: dict[float, str] = {}
    for probe in scene.failing:
        c = factor.of(probe)
        if c is not None and math.isfinite(c):
            told.setdefault(round(c, 12), f"{c:.6g} at {probe.where}")
    return ("the factor is " + ", ".join([*told.values()][:2]),) if len(told) > 1 else ()
