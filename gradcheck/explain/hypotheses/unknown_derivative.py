"""A slope without a name: where it is wrong, and what it depends on there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from gradcheck.explain.byelement import (
    SMALLEST,
    answers_diagonally,
    follows_values,
    is_diagonal,
    slope,
)
from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.probe import Probe

ALIKE: Final = 1e-6
"""Relative difference below which slopes are one number."""
TELLING: Final = 3
"""Wrong elements below which a slope without a name is none."""
SCATTERED: Final = 5
"""The same, where they do not lie in one region."""
ENOUGH: Final = 0.4
"""Share of failing probes that must show what the slope depends on."""


def flipped(scene: Observations) -> Iterator[Suspicion]:
    """Wherever it is wrong, it is the negative of what is right."""
    name = scene.output

    def fits(probe: Probe) -> bool:
        wrong = probe.wrong(name)
        if name not in probe.got or not wrong.any():
            return name in probe.got
        guess = np.where(wrong, -probe.right[name], probe.right[name])
        return probe.reproduces(guess, name)

    if 0 < _share(scene) < 1:
        where = _region(scene)
        says = f"{scene.gradient} has the other sign {where or 'in some elements'}"
        yield Suspicion(label="S", says=says, fits=fits)


def other(scene: Observations) -> Iterator[Suspicion]:
    """The slope is another function of the same element's data, whatever it may be."""
    name = scene.output
    shown = [probe for probe in scene.failing if _shows(probe, name)]
    wrong = sum(int(probe.wrong(name).sum()) for probe in shown)
    enough = wrong >= TELLING and len(shown) >= ENOUGH * len(scene.failing)
    if not enough or not _free(shown, name):
        return
    where = _region(scene)
    if not where and wrong < SCATTERED:
        return
    evidence = [
        "each element of it is the cotangent's times a number that depends on the values at that "
        "element alone"
    ]
    evidence += [f"where it is wrong, it is {value}" for value in _there(shown, name)]
    yield Suspicion(
        label="D",
        says=f"{scene.gradient} has another slope than forward" + (f" {where}" if where else ""),
        fits=lambda p: not p.fails(name) or not _shows(p, name) or _by_element(p, name),
        evidence=tuple(evidence),
    )


def _shows(probe: Probe, name: str) -> bool:
    """Whether a probe can show it: enough finite elements, each with a cotangent of its own."""
    return (
        name in probe.got
        and probe.right[name].size >= SMALLEST
        and bool(np.isfinite(probe.got[name]).all())
        and all(p.shape == probe.right[name].shape or p.size == 1 for p in probe.primals)
        and is_diagonal(probe, name)
    )


def _free(probes: Sequence[Probe], name: str) -> bool:
    """Whether the slope is none of what has a class of its own: a factor, a kink."""
    kinked = [name in p.kinked and not (p.wrong(name) & ~p.kinked[name]).any() for p in probes]
    return not all(kinked) and not all(_factor(probe, name) for probe in probes)


def _factor(probe: Probe, name: str) -> bool:
    """Whether one number makes all that is right what came."""
    right, got = probe.right[name], probe.got[name]
    there = right != 0
    if not there.any():
        return False
    ratio = got[there] / right[there]
    return bool(np.ptp(ratio) <= ALIKE * np.max(np.abs(ratio)) and not got[~there].any())


def _by_element(probe: Probe, name: str) -> bool:
    return answers_diagonally(probe, name) and follows_values(probe, name)


def _share(scene: Observations) -> float:
    """The share of wrong elements, over all failing probes."""
    masks = [probe.wrong(scene.output) for probe in scene.failing]
    return float(sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks))


def _region(scene: Observations) -> str:
    """Where it is wrong, if it is right elsewhere: beyond one value of the primal."""
    name = scene.output
    probes: Sequence[Probe] = [p for p in (*scene.failing, *scene.passing) if name in p.got]
    x = np.concatenate([p.primal(name).ravel() for p in probes])
    wrong = np.concatenate([p.wrong(name).ravel() for p in probes])
    size = np.concatenate([np.abs(p.right[name]).ravel() for p in probes])
    if wrong.all() or not np.isfinite(x).all():
        return ""
    # where the truth is 0, a wrong factor is right as well
    right = ~wrong & ((size > 0) | (_nothing(probes, name)))
    if wrong.any() and not x[wrong].any() and x[right].all():
        return f"where {name} is 0"
    for word, value in ((name, x), (f"|{name}|", np.abs(x))):
        for sign, there in (("<", value), (">", -value)):
            highest, lowest = np.max(there[wrong]), np.min(there[right], initial=np.inf)
            if highest < lowest < np.inf:
                middle = _between(highest, lowest)
                return f"where {word} {sign} {middle if sign == '<' else -middle:.3g}"
    return ""


def _nothing(probes: Sequence[Probe], name: str) -> bool:
    """Whether the truth is 0 in most elements: zeros are then no accident."""
    zeros = [probe.right[name].ravel() == 0 for probe in probes]
    return bool(np.mean(np.concatenate(zeros)) > 0.2)


def _between(low: float, high: float) -> float:
    """The shortest number between two: 0 if it is, else the fewest digits."""
    if low < 0 < high:
        return 0.0
    for digits in range(-3, 12):
        number = round((low + high) / 2, digits)
        if low <= number <= high:
            return float(number)
    return (low + high) / 2


def _there(probes: Sequence[Probe], name: str) -> Iterator[str]:
    """What stands where it is wrong, if that is one number or the cotangent times one."""
    found = [(slope(probe, probe.got[name]), probe.wrong(name)) for probe in probes]
    slopes = np.concatenate([s[wrong] for s, wrong in found if s is not None])
    if not slopes.any():
        yield "0"
    elif np.ptp(slopes) <= ALIKE * np.max(np.abs(slopes)):
        yield f"{slopes[0]:.6g} times the cotangent"
