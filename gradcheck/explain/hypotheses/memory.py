"""Memory: a run of the cotangent's numbers, as they lie in memory, stands for the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import Float, Probe

Begin = Callable[[Probe, str, int], int]
"""Where a run begins in the memory of a part of the cotangent."""


def memory(scene: Observations) -> Iterator[Suspicion]:
    """Consecutive numbers of a cotangent, where strides would have skipped some.

    Only where the right gradient, too, is a choice of its numbers: of anything else a piece of it
    is another formula.
    """
    for part in range(len(scene.first.ct)):
        if not all(_chosen(probe, scene.output, part) for probe in scene.failing):
            continue
        which = "the cotangent's" if len(scene.first.ct) == 1 else f"output {part}'s cotangent's"
        for where, begin in RUNS.items():
            yield predicting(
                scene,
                "L",
                f"{scene.gradient} is a piece of {which} memory, {where}, without regard to "
                "strides",
                partial(_run, scene.output, part, begin),
            )


def _chosen(probe: Probe, name: str, part: int) -> bool:
    """Whether every element of the right gradient is one of a cotangent that has more."""
    right = probe.right[name]
    if part >= len(probe.ct) or probe.ct[part].size <= right.size:
        return False
    return bool(np.isin(right, probe.ct[part]).all())


def _run(name: str, part: int, begin: Begin, probe: Probe) -> Float | None:
    right = probe.right[name]
    if part >= len(probe.ct):
        return None
    start = begin(probe, name, part)
    piece = probe.ct[part].ravel()[start : start + right.size] if start >= 0 else None
    return None if piece is None or piece.size != right.size else piece.reshape(right.shape)


def _behind_others(probe: Probe, name: str, part: int) -> int:
    """Behind as many numbers as the primals before it have."""
    before = probe.names[: probe.names.index(name)]
    return sum(probe.primal(other).size for other in before)


RUNS: Final[dict[str, Begin]] = {
    "from its start": lambda probe, name, part: 0,
    "up to its end": lambda probe, name, part: probe.ct[part].size - probe.right[name].size,
    "behind those of the arguments before": _behind_others,
}
