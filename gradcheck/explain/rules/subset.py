"""Subsets: the gradient is right except in a set of places, where it has another value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from gradcheck.explain.probe import Float, Probe
from gradcheck.explain.rules.places import Places, places
from gradcheck.explain.suspicion import Scene, Suspicion

PROBES: Final = 2
"""Failing probes below which a set of places may hold by chance."""


def subset(scene: Scene) -> Iterator[Suspicion]:
    """Zero, the cotangent, twice the gradient or 1 in a set of places, right elsewhere."""
    if len(scene.failing) < PROBES:
        return
    first, name = scene.first, scene.output
    if name not in first.got:
        return
    for says, value in VALUES:
        other = value(first, name)
        if other is None or not _between(first, name, other):
            continue
        for where in places(first, first.right[name].ndim):
            if any(where.needs(probe.right[name]) for probe in scene.failing):
                yield _suspicion(scene, where, says, value)


def _suspicion(
    scene: Scene, where: Places, says: str, value: Callable[[Probe, str], Float | None]
) -> Suspicion:
    name = scene.output

    def fits(probe: Probe) -> bool:
        other = value(probe, name)
        if other is None:
            return False
        right = probe.right[name]
        guess = np.where(where.of(right, probe), other, right)
        return probe.reproduces(guess, name)

    return Suspicion(
        label=where.label, says=f"{scene.gradient} is right except {where.says}: {says}", fits=fits
    )


def _between(probe: Probe, name: str, other: Float) -> bool:
    """Whether each element is the right one or the other, so that a set of places can be it."""
    got = probe.got[name]
    wrong = probe.wrong(name)
    with np.errstate(all="ignore"):
        chosen = np.where(wrong, other, probe.right[name])
    return probe.reproduces(chosen, name) and bool(wrong.any()) and got.size > 1


# ── what stands there instead ────────────────────────────────────────────────────────────────


def _zero(probe: Probe, name: str) -> Float:
    return np.zeros_like(probe.right[name])


def _cotangent(probe: Probe, name: str) -> Float | None:
    """The cotangent as it came, where it has the gradient's shape."""
    fitting = [ct for ct in probe.ct if ct.shape == probe.right[name].shape]
    return fitting[0] if fitting else None


def _twice(probe: Probe, name: str) -> Float:
    return 2 * probe.right[name]


def _one(probe: Probe, name: str) -> Float:
    return np.ones_like(probe.right[name])


VALUES: Final = (
    ("it is 0 there", _zero),
    ("the cotangent stands there", _cotangent),
    ("it counts twice there", _twice),
    ("1 stands there", _one),
)
