"""Slots: a gradient is lost, or another argument's stands in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gradcheck.explain.probe import Float, Probe
from gradcheck.explain.suspicion import Scene, Suspicion, predicting


def slots(scene: Scene) -> Iterator[Suspicion]:
    """Zero, or the gradient of another primal of the same shape."""
    name, own = scene.output, scene.gradient
    yield predicting(
        scene, "G", f"{own} is zero: it is lost", lambda p: np.zeros_like(p.right[name])
    )
    for other in scene.first.right:
        if other != name:
            yield predicting(
                scene,
                "G",
                f"{own} is the gradient of {other}: the two stand in each other's place",
                _of(other),
            )


def _of(other: str) -> Callable[[Probe], Float]:
    return lambda probe: probe.right[other]
