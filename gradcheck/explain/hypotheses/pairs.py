"""Pairs: what a place of the cotangent contributes to a place of the gradient is lost or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.hypotheses.contributions import along
from gradcheck.explain.hypotheses.places import BLOCKS
from gradcheck.explain.probe import Array, Probe

Pairs = Callable[[Array, Array], Array]
"""Which pairs (place in the cotangent, place in the gradient) are left."""

KEPT: Final[tuple[tuple[str, str, Pairs], ...]] = (
    ("T", "lacks what each place contributes to its own", lambda s, t: s != t),
    ("I", "lacks what each place contributes to the one before", lambda s, t: s != t + 1),
    ("I", "lacks what each place contributes to the one behind", lambda s, t: s + 1 != t),
    ("T", "holds only what each place contributes to its own", lambda s, t: s == t),
    ("I", "lacks what places contribute to later ones", lambda s, t: s >= t),
    ("I", "lacks what places contribute to earlier ones", lambda s, t: s <= t),
    ("T", "holds only what each place contributes to itself and its neighbours",
     lambda s, t: abs(s - t) <= 1),
    *(
        ("W", f"lacks what is carried from one block of {block} to another",
         lambda s, t, block=block: s // block == t // block)
        for block in BLOCKS
    ),
)  # fmt: skip


def pairs(scene: Observations) -> Iterator[Suspicion]:
    """Along an axis that the cotangent and the gradient share, some pairs of places are lost."""
    first, name = scene.first, scene.output
    for part, ct in enumerate(first.ct):
        for axis in range(-ct.ndim, 0):
            for own in _same_length(first, name, ct.shape[axis]):
                for label, says, kept in KEPT:
                    yield _suspicion(scene, part, axis, own, label, says, kept)


def _same_length(probe: Probe, name: str, length: int) -> list[int]:
    shape = probe.right[name].shape
    return [k for k in range(-len(shape), 0) if shape[k] == length > 1]


def _suspicion(
    scene: Observations, part: int, axis: int, own: int, label: str, says: str, kept: Pairs
) -> Suspicion:
    name = scene.output

    def fits(probe: Probe) -> bool:
        taken = along(probe, name, part, axis)
        right = probe.right[name]
        if taken is None:
            return probe is not scene.first
        if right.ndim < -own or right.shape[own] != len(taken):
            return not probe.fails(name)
        to = np.arange(right.shape[own]).reshape(-1, *(1,) * (-own - 1))
        at = np.arange(len(taken)).reshape(-1, *(1,) * right.ndim)
        lost = (taken * ~kept(at, to)).sum(axis=0)
        return probe.reproduces(right - lost, name)

    where = f"along axis {axis} of the cotangent"
    return Suspicion(label=label, says=f"{scene.gradient} {says}, {where}", fits=fits)
