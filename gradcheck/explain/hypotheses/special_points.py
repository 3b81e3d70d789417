"""Special points: wrong only on kinks, at repeated indices, or under another mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.elementwise import answers_diagonally, is_diagonal, slope
from gradcheck.explain.hypothesis import Hypothesis, Observations, predicting
from gradcheck.explain.probe import Array, Float, Mask, Probe

On = Callable[[Probe], Mask | None]


def kinks(obs: Observations) -> Iterator[Hypothesis]:
    """Wrong only on a declared kink; only where two arguments are equal."""
    name = obs.output
    if any(not np.isfinite(p.got[name]).all() for p in obs.failing if name in p.got):
        return  # how NaN comes about has rules of its own
    says = f"{obs.gradient} is wrong only where {name} is exactly on a kink or a tie"
    found = _slopes(obs)
    evidence = (f"the slope is {found}",) if found else ()
    yield Hypothesis(label="K", says=says, fits=_only(name, _declared(name)), evidence=evidence)
    for other in obs.first.names:
        if other != name and obs.first.primal(other).dtype.kind == "f":
            says = f"{obs.gradient} is wrong only where {name} and {other} are equal"
            yield Hypothesis(label="K", says=says, fits=_only(name, _equal(name, other)))


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


def _slopes(obs: Observations) -> str:
    """The returned and the conventional slope on the kink, if forward is element by element."""
    name = obs.output
    came: list[float] = []
    meant: list[float] = []
    for probe in obs.failing:
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
    """The number that all values equal, or None."""
    found = np.asarray(values)
    same = found.size and np.ptp(found) <= 1e-6 * max(1.0, float(np.max(np.abs(found))))
    return float(found[0]) if same else None


MIN_DUPLICATE_PROBES: Final = 2


def duplicates(obs: Observations) -> Iterator[Hypothesis]:
    """Per index primal: its values as rows of the gradient, or its places as places there."""
    name = obs.output
    if len(obs.failing) < MIN_DUPLICATE_PROBES:
        return
    for index, primal in zip(obs.first.names, obs.first.primals, strict=True):
        if primal.dtype.kind == "f":
            continue
        axes = range(-obs.first.right[name].ndim, 0)
        for again in (partial(_places, index), *(partial(_rows, index, k) for k in axes)):
            spared = 0
            for probe in obs.failing:
                mask = again(probe, name)
                if mask is None or bool((probe.wrong(name) & ~mask).any()):
                    break
                spared += int((~mask & (probe.right[name] != 0)).sum())
            else:
                if spared:  # what occurs once is there, and right
                    yield Hypothesis(
                        label="DI",
                        says=f"{obs.gradient} is wrong only where {index} holds a value "
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


Read = Callable[[Probe], Array]


def mask(obs: Observations) -> Iterator[Hypothesis]:
    """The mask inverted, recovered from zeros, one matrix's for all; or any other."""
    name, own = obs.output, obs.gradient
    drop = _mask_of(obs)
    if drop is None or not is_diagonal(obs.first, name):
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
        yield predicting(obs, label, f"{own} {says}", _under(name, drop, read))
    yield Hypothesis(
        label="M",
        says=f"{own} is masked, but not as forward was: it drops other elements than {drop} does",
        fits=lambda probe: _masked_otherwise(probe, name),
        evidence=("its slope is 0 or forward's factor everywhere, at other places",),
    )


def _mask_of(obs: Observations) -> str | None:
    """The argument of 0 and 1 that says for one other argument's elements which are kept."""
    probe = obs.first
    floating = [n for n, p in zip(probe.names, probe.primals, strict=True) if p.dtype.kind == "f"]
    if floating != [obs.output]:
        return None
    for name in probe.names:
        values = probe.primal(name)
        shapely = name != obs.output and values.shape == probe.primal(obs.output).shape
        if shapely and np.isin(values, (0, 1)).all() and np.ptp(values):
            return name
    return None


def _first(name: str) -> Read:
    def read(probe: Probe) -> Array:
        values = probe.primal(name)
        return np.broadcast_to(values[(0,) * (values.ndim - 2)], values.shape)

    return read


def _under(output: str, name: str, read: Read) -> Callable[[Probe], Float | None]:
    return lambda probe: probe.gradient(output, primals={name: read(probe)})


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
