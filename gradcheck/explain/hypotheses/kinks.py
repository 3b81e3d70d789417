"""Kinks: the gradient is wrong only exactly on a kink, a bound or a tie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gradcheck.explain.byelement import slope
from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.probe import Mask, Probe

On = Callable[[Probe], Mask | None]


def kinks(scene: Observations) -> Iterator[Suspicion]:
    """Wrong only on a declared kink; only where two arguments are equal."""
    name = scene.output
    if any(not np.isfinite(p.got[name]).all() for p in scene.failing if name in p.got):
        return  # how NaN comes about has rules of its own
    says = f"{scene.gradient} is wrong only where {name} is exactly on a kink or a tie"
    found = _slopes(scene)
    evidence = (f"the slope is {found}",) if found else ()
    yield Suspicion(label="K", says=says, fits=_only(name, _declared(name)), evidence=evidence)
    for other in scene.first.names:
        if other != name and scene.first.primal(other).dtype.kind == "f":
            says = f"{scene.gradient} is wrong only where {name} and {other} are equal"
            yield Suspicion(label="K", says=says, fits=_only(name, _equal(name, other)))


def _only(name: str, on: On) -> Callable[[Probe], bool]:
    """Whether all wrong elements sit there, and something is right elsewhere."""

    def fits(probe: Probe) -> bool:
        if not probe.fails(name):
            return True
        there = on(probe)
        if name not in probe.got or there is None:
            return False
        return not (probe.wrong(name) & ~there).any()

    return fits


def _declared(name: str) -> On:
    def on(probe: Probe) -> Mask | None:
        there = probe.kinked.get(name)
        return there if there is not None and there.shape == probe.right[name].shape else None

    return on


def _equal(name: str, other: str) -> On:
    def on(probe: Probe) -> Mask | None:
        a, b = probe.primal(name), probe.primal(other)
        return np.asarray(a == b) if a.shape == b.shape else None

    return on


def _slopes(scene: Observations) -> str:
    """The slopes that came and those of the convention, where forward acts element by element."""
    name = scene.output
    came: list[float] = []
    meant: list[float] = []
    for probe in scene.failing:
        if name not in probe.got:
            return ""
        got, right = slope(probe, probe.got[name]), slope(probe, probe.right[name])
        if got is None or right is None:
            return ""
        wrong = probe.wrong(name)
        came += got[wrong].tolist()
        meant += right[wrong].tolist()
    one, other = _one(came), _one(meant)
    if one is None or other is None:
        return ""
    return f"{one + 0.0:.6g} there, {other + 0.0:.6g} by convention"  # no −0


def _one(values: Sequence[float]) -> float | None:
    """The one number that all of them are."""
    found = np.asarray(values)
    same = found.size and np.ptp(found) <= 1e-6 * max(1.0, float(np.max(np.abs(found))))
    return float(found[0]) if same else None
