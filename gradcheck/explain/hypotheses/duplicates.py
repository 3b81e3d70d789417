"""Duplicates: the gradient is wrong only where an index occurs more than once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.probe import Array, Mask, Probe

PROBES: Final = 2
"""Failing probes that must agree."""


def duplicates(scene: Observations) -> Iterator[Suspicion]:
    """Per index primal: its values as rows of the gradient, or its places as places there."""
    name = scene.output
    if len(scene.failing) < PROBES:
        return
    for index, primal in zip(scene.first.names, scene.first.primals, strict=True):
        if primal.dtype.kind == "f":
            continue
        axes = range(-scene.first.right[name].ndim, 0)
        for again in (partial(_places, index), *(partial(_rows, index, k) for k in axes)):
            spared = 0
            for probe in scene.failing:
                mask = again(probe, name)
                if mask is None or bool((probe.wrong(name) & ~mask).any()):
                    break
                spared += int((~mask & (probe.right[name] != 0)).sum())
            else:
                if spared:  # what occurs once is there, and right
                    yield Suspicion(
                        label="DI",
                        says=f"{scene.gradient} is wrong only where {index} holds a value "
                        "more than once",
                        fits=lambda probe: True,  # every failing probe was asked above
                    )


def _places(index: str, probe: Probe, name: str) -> Mask | None:
    """Places of the gradient that stand beside a repeated index."""
    places, right = probe.primal(index), probe.right[name]
    if right.shape[: places.ndim] != places.shape:
        return None
    again = _repeated(places)
    return np.broadcast_to(
        again.reshape(again.shape + (1,) * (right.ndim - again.ndim)), right.shape
    )


def _rows(index: str, axis: int, probe: Probe, name: str) -> Mask | None:
    """Places along an axis of the gradient whose number is a repeated index."""
    places, right = probe.primal(index), probe.right[name]
    if right.ndim < -axis or not places.size:
        return None
    n = right.shape[axis]
    inside = places.ravel()[(places.ravel() >= 0) & (places.ravel() < n)]
    counts = np.bincount(inside.astype(int), minlength=n)
    again = (counts > 1).reshape(-1, *(1,) * (-axis - 1))
    return np.broadcast_to(again, right.shape)


def _repeated(index: Array) -> Mask:
    _, back, counts = np.unique(index, return_inverse=True, return_counts=True)
    return np.asarray((counts > 1)[back].reshape(index.shape))
