"""Mask: the gradient is that under another random mask than forward's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gradcheck.explain.byelement import answers_diagonally, is_diagonal, slope
from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import Array, Float, Probe

Read = Callable[[Probe], Array]


def mask(scene: Observations) -> Iterator[Suspicion]:
    """The mask inverted, recovered from zeros, one matrix's for all; or any other."""
    name, own = scene.output, scene.gradient
    drop = _mask_of(scene)
    if drop is None or not is_diagonal(scene.first, name):
        return
    for says, label, read in (
        (f"takes what {drop} drops for what it keeps", "M", lambda p: 1 - p.primal(drop)),
        (
            f"takes zeros of {name} for dropped ones: {drop} is read from the output", "M",
            lambda p: p.primal(drop) * (p.primal(name) != 0),
        ),
        (f"uses {drop} of the first matrix for all", "M", _first(drop)),
        (f"drops nothing: {drop} is ignored", "D", lambda p: np.ones_like(p.primal(drop))),
    ):  # fmt: skip
        yield predicting(scene, label, f"{own} {says}", _under(name, drop, read))
    yield Suspicion(
        label="M",
        says=f"{own} is masked, but not as forward was: it drops other elements than {drop} does",
        fits=lambda probe: _masked_otherwise(probe, name),
        evidence=("its slope is 0 or forward's factor everywhere, at other places",),
    )


def _mask_of(scene: Observations) -> str | None:
    """The argument of 0 and 1 that says for one other argument's elements which are kept."""
    probe = scene.first
    floating = [n for n, p in zip(probe.names, probe.primals, strict=True) if p.dtype.kind == "f"]
    if floating != [scene.output]:
        return None
    for name in probe.names:
        values = probe.primal(name)
        shapely = name != scene.output and values.shape == probe.primal(scene.output).shape
        if shapely and np.isin(values, (0, 1)).all() and np.ptp(values):
            return name
    return None


def _first(name: str) -> Read:
    def read(probe: Probe) -> Array:
        values = probe.primal(name)
        return np.broadcast_to(values[(0,) * (values.ndim - 2)], values.shape)

    return read


def _under(output: str, name: str, read: Read) -> Callable[[Probe], Float | None]:
    def of(probe: Probe) -> Float | None:
        found = probe.vjp(primals={name: read(probe)})
        return None if found is None else found.get(output)

    return of


def _masked_otherwise(probe: Probe, name: str) -> bool:
    if not probe.fails(name):
        return True
    if name not in probe.got or not answers_diagonally(probe, name):
        return False
    got, right = slope(probe, probe.got[name]), slope(probe, probe.right[name])
    if got is None or right is None or not right.any():
        return False
    factor = right[right != 0][0]
    near = [np.abs(got - value) <= 1e-6 * abs(factor) for value in (0.0, factor)]
    return bool((near[0] | near[1]).all() and near[0].any() and near[1].any())
