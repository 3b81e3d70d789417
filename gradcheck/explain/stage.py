"""One stage of a model as probes: what rules for operators say of its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from gradcheck.explain.diagnose import diagnose
from gradcheck.explain.probe import Cotangent, Gradients, Probe
from gradcheck.explain.probe_collector import UNITS, OfSpec
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call_model import ask_stage
from gradcheck.judge.stage import StageTruth
from gradcheck.results.finding import Finding
from gradcheck.spec.program import StageVjp

HERE: Final = "the model's own point"
"""Where a stage is asked: values follow from the model's parameters."""


def by_rules(known: StageTruth, vjp: StageVjp, dtype: str) -> Callable[[int], str]:
    """What the rules say is wrong with the gradient of the value read at a place; "" if nothing.

    The stage is asked, when it comes to that, under each of the reference's cotangents of it.
    """
    probes: list[Probe] = []

    def told(index: int) -> str:
        if dtype not in UNITS:
            return ""
        if not probes:
            probes.extend(_probes(known, vjp, dtype))
        found = diagnose(known.stage.primals[index], probes)
        return f"{found.says}." if found is not None and found.label else ""

    return told


def _probes(known: StageTruth, vjp: StageVjp, dtype: str) -> list[Probe]:
    stage, values = known.stage, known.values(dtype)
    wide = known.values("float64")
    kind = np.dtype(dtype)

    def ask(ct: Cotangent) -> Gradients:
        found = ask_stage(vjp, stage, tuple(part.astype(kind) for part in ct), values)
        pairs = zip(stage.primals, found, strict=True)
        return {
            name: np.asarray(g, dtype=np.float64)
            for name, g in pairs
            if g is not None and not isinstance(g, Finding)
        }

    probes = []
    for seed, ct in enumerate(known.cts):
        try:
            got = ask(ct)
        except Broken:
            continue
        probe = Probe(
            where=HERE,
            seed=seed,
            names=stage.primals,
            primals=tuple(np.asarray(wide[name]) for name in stage.reads),
            attrs=stage.all_attrs,
            ct=tuple(np.asarray(part, dtype=np.float64) for part in ct),
            got=got,
            truth=OfSpec(stage.op),
            ask=ask,
            dtype=dtype,
            u=UNITS[dtype],
        )
        if probe.vjp() is not None:
            probes.append(probe)
    return probes
