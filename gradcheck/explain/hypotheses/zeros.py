"""Zeros: nothing is passed back where an argument is 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gradcheck.explain.byelement import is_diagonal
from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import Float, Probe


def zeros(scene: Observations) -> Iterator[Suspicion]:
    """Elements that are 0 are skipped; a tensor that is 0 as a whole is."""
    name = scene.output
    for other in scene.first.names:
        values = [probe.primal(other) for probe in scene.failing]
        if values[0].dtype.kind != "f" or not all((value == 0).any() for value in values):
            continue
        slopes = any(is_diagonal(probe, name) for probe in scene.failing)
        if not slopes and not any(value.any() for value in values):
            says = f"{scene.gradient} is 0 where all of {other} is: it never leaves 0"
            yield predicting(scene, "G", says, _skipped(name, other, whole=True))
        says = f"{scene.gradient} is 0 where {other} is: zeros are skipped"
        yield predicting(scene, "D", says, _skipped(name, other, whole=False))


def _skipped(name: str, other: str, *, whole: bool) -> Callable[[Probe], Float | None]:
    def of(probe: Probe) -> Float | None:
        value, right = probe.primal(other), probe.right[name]
        if whole:
            return right if value.any() else np.zeros_like(right)
        return np.where(value == 0, 0.0, right) if value.shape == right.shape else None

    return of
