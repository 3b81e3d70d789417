"""Nearest mutant: what was returned is what a known defect of the operator returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Rule, Suspicion, predicting
from gradcheck.explain.probe import RAISES, Float, Probe
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.spec.mutant import Mutant


def nearest(known: Sequence[Mutant]) -> Rule:
    """The rule for one operator, whose `known` defects are these."""
    return Rule("nearest", "it is a known defect of the operator", partial(_nearest, known))


def _nearest(known: Sequence[Mutant], scene: Observations) -> Iterator[Suspicion]:
    for mutant in known:
        if mutant.vjp is None or mutant.equivalent:
            continue  # one with a memory is no function of its arguments
        says = f"{scene.gradient} is that of a known defect, {mutant.full_name}: {mutant.says}"
        yield predicting(scene, mutant.label, says.rstrip("."), _returned(mutant.vjp, scene.output))


def _returned(vjp: Callable[..., Any], output: str) -> Callable[[Probe], Float | None]:
    def returned(probe: Probe) -> Float | None:
        ct = tuple(np.array(part) for part in probe.ct)  # a mutant may write over it
        try:
            with np.errstate(all="ignore"):
                found = as_tuple(
                    vjp(F64, ct[0] if len(ct) == 1 else ct, *probe.primals, **probe.attrs)
                )
        except RAISES:
            return None
        if len(found) != len(probe.names):
            return None
        gradient = found[probe.names.index(output)]
        return None if gradient is None else np.asarray(gradient, dtype=np.float64)

    return returned
