"""Earlier: the answer of another call comes back, whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.probe import Float, Probe


def earlier(scene: Observations) -> Iterator[Suspicion]:
    """Wherever it is wrong, it is what was given, bit by bit, at another point of the same shape.

    At one of them at least it was right there, and no array of one number.
    """
    name = scene.output
    asked = [p for p in (*scene.failing, *scene.passing) if name in p.got]

    def again(probe: Probe) -> list[Probe]:
        return [p for p in asked if p is not probe and _repeats(probe, p, name)]

    kept = [source for probe in scene.failing if name in probe.got for source in again(probe)]
    if any(not source.fails(name) and _varied(source.got[name]) for source in kept):
        yield Suspicion(
            label="V",
            says=f"{scene.gradient} is the answer to an earlier call of the same shape: it is "
            "kept, and not computed anew",
            fits=lambda probe: not probe.fails(name) or bool(again(probe)),
            evidence=("other primals and cotangents of the same shape get the same bits",),
        )


def _varied(values: Float) -> bool:
    """Whether an array holds several numbers."""
    return values.size > 1 and bool(np.any(values != values.reshape(-1)[0]))


def _repeats(probe: Probe, other: Probe, name: str) -> bool:
    """Whether two points have the same answer, though another is right."""
    a, b = probe.got.get(name), other.got.get(name)
    if a is None or b is None or a.shape != b.shape:
        return False
    owed = probe.right[name], other.right[name]
    return a.tobytes() == b.tobytes() and not np.array_equal(*owed, equal_nan=True)
