"""Order: the right numbers in the wrong places, or J in place of its transpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.contribution import MAX_SLABS, MAX_SLABS_TESTED, jacobian
from gradcheck.explain.hypotheses.permutations import Move, divisions, losses, moves
from gradcheck.explain.hypothesis import Hypothesis, Observations, predicting
from gradcheck.explain.probe import ROUNDING_TOLERANCE, Array, Float, Probe
from gradcheck.numerics.arrays import Attrs

Of = Callable[[Probe], Float | None]
"""What a gradient would be at a probe."""

MIN_MOVED_ELEMENTS: Final = 4
"""Elements that must differ from those in their old place, before a distance explains them."""
MIN_DISPLACED_PROBES: Final = 2
MAX_REORDERED_SIZE: Final = 700


def orientation(obs: Observations) -> Iterator[Hypothesis]:
    """The gradient, the cotangent or a primal with its elements in another order."""
    attrs, name = obs.first.attrs, obs.output
    for a, b in combinations(range(-obs.first.right[name].ndim, 0), 2):
        yield predicting(
            obs,
            "L",
            f"{obs.gradient} comes transposed: axes {a} and {b} are exchanged",
            partial(_transposed, name, a, b),
        )
    for label, says, of in _moved(obs, lambda rank: moves(rank, attrs)):
        yield predicting(obs, label, says, of)


def displaced(obs: Observations) -> Iterator[Hypothesis]:
    """Elements read from, or written to, a neighbour's place."""
    attrs = obs.first.attrs
    for label, says, of in _moved(obs, lambda rank: losses(rank, attrs)):
        yield predicting(obs, label, says, of)
    name = obs.output
    for axis in range(-obs.first.right[name].ndim, 0):
        shifted = [_displaced(probe, name, axis) for probe in obs.failing]
        if False not in shifted and shifted.count(True) >= MIN_DISPLACED_PROBES:
            yield Hypothesis(
                label="I",
                says=f"{obs.gradient} stands in another place along axis {axis}: it is displaced",
                fits=lambda probe: True,  # every failing probe was asked above
            )


def _displaced(probe: Probe, name: str, axis: int) -> bool | None:
    """Whether a shift along an axis explains a gradient, except for the places shifted in.

    None where it is too short to tell.
    """
    got, right = probe.got.get(name), probe.right[name]
    if got is None or right.ndim < -axis:
        return False
    got, right = np.moveaxis(got, axis, 0), np.moveaxis(right, axis, 0)
    bound = ROUNDING_TOLERANCE[probe.dtype] * float(np.max(np.abs(right), initial=0.0))
    shifted = None
    for step in range(1, len(right) - 1):
        low, high = right[:-step], right[step:]
        if np.count_nonzero(np.abs(high - low) > bound) < MIN_MOVED_ELEMENTS:
            continue  # moved or not, it would be the same
        shifted = False
        for a, b in ((got[step:], low), (got[:-step], high)):
            if bool(np.all(np.abs(a - b) <= bound)):
                return True
    return shifted


def _moved(
    obs: Observations, catalogue: Callable[[int], Iterable[Move]]
) -> Iterator[tuple[str, str, Of]]:
    """Class, words and prediction of every move of the gradient and of its operands."""
    name, own, first = obs.output, obs.gradient, obs.first
    for move in catalogue(first.right[name].ndim):
        says = f"{own} holds the right numbers, but with {move.says}"
        yield move.label, says, partial(_written, name, move)
    for part, ct in enumerate(first.ct):
        which = "the cotangent" if len(first.ct) == 1 else f"output {part}'s cotangent"
        for move in catalogue(ct.ndim) if ct.size <= MAX_REORDERED_SIZE else ():
            if move.label == "B" or (move.square and ct.size > first.right[name].size):
                continue  # the axis of a sum is not a matter of layout
            says = f"{own} reads {which} with {move.says}"
            yield move.label, says, _at_cotangent(name, part, move)
    for other, value in zip(first.names, first.primals, strict=True):
        for move in catalogue(value.ndim) if value.size <= MAX_REORDERED_SIZE else ():
            says = f"{own} reads {other} with {move.says}"
            yield move.label, says, _at_primal(name, other, move.of)


def _transposed(name: str, a: int, b: int, probe: Probe) -> Array:
    right = probe.right[name]
    return right.swapaxes(a, b) if right.ndim >= -a else right


def _written(name: str, move: Move, probe: Probe) -> Array:
    return move.of(probe.right[name], probe.attrs)


def _at_cotangent(name: str, part: int, move: Move) -> Callable[[Probe], Float | None]:
    def of(probe: Probe) -> Float | None:
        if part >= len(probe.ct):
            return None
        moved = move.of(probe.ct[part], probe.attrs)
        return probe.gradient(name, ct=(*probe.ct[:part], moved, *probe.ct[part + 1 :]))

    return of


def _at_primal(
    name: str, other: str, of: Callable[[Array, Attrs], Array]
) -> Callable[[Probe], Float | None]:
    def at(probe: Probe) -> Float | None:
        if other not in probe.names:
            return None
        moved = np.asarray(of(probe.primal(other), probe.attrs))
        return probe.gradient(name, primals={other: moved})

    return at


# ── read and written in another layout ───────────────────────────────────────────────────────


def relaid(obs: Observations) -> Iterator[Hypothesis]:
    """Operands read in another layout, and the gradient written back in it."""
    name, first = obs.output, obs.first
    own = first.primal(name)
    if own.size > MAX_REORDERED_SIZE:
        return
    for move in moves(own.ndim, first.attrs):
        if move.back is None:
            continue
        for says, chosen in _layouts(obs):
            yield predicting(
                obs,
                move.label,
                f"{obs.gradient} is right for another layout: {says} with {move.says}",
                _in_layout(name, move, chosen),
            )
    yield from _by_channel(obs)


def _by_channel(obs: Observations) -> Iterator[Hypothesis]:
    """Parts of one axis in another order, of a vector that goes with the axis, too."""
    name, attrs = obs.output, obs.first.attrs
    own = obs.first.primal(name)
    for axis in range(-own.ndim, -1):
        for move, mate in zip(divisions(axis, attrs), divisions(-1, attrs), strict=True):
            yield predicting(
                obs,
                move.label,
                f"{obs.gradient} is right for another layout: all is read, and the gradient "
                f"written, with {move.says}",
                partial(_with_mates, name, axis, move, mate),
            )


def _with_mates(name: str, axis: int, move: Move, mate: Move, probe: Probe) -> Float | None:
    own = probe.primal(name)
    if own.ndim < -axis or move.back is None:
        return None

    def moved(x: Array) -> Array:
        if x.shape == own.shape:
            return move.of(x, probe.attrs)
        return mate.of(x, probe.attrs) if x.shape == (own.shape[axis],) else x

    primals = {n: moved(p) for n, p in zip(probe.names, probe.primals, strict=True)}
    found = probe.gradient(name, tuple(map(moved, probe.ct)), primals)
    return None if found is None else move.back(found, probe.attrs)


def _layouts(obs: Observations) -> Iterator[tuple[str, Callable[[Probe, str | int], bool]]]:
    """Which operands share the layout: primals by name, cotangents by number."""
    first, name = obs.first, obs.output
    rank = first.primal(name).ndim
    alike = [n for n, p in zip(first.names, first.primals, strict=True) if p.ndim == rank]
    yield f"{name} is read, and its gradient written,", lambda probe, key: key == name
    if any(ct.ndim == rank for ct in first.ct):
        says = f"{name} and the cotangent are read, and the gradient written,"
        yield says, lambda probe, key: key == name or isinstance(key, int)
    if len(alike) > 1:
        says = "all operands are read, and the gradient written,"
        yield says, lambda probe, key: isinstance(key, int) or key in alike


def _in_layout(
    name: str, move: Move, chosen: Callable[[Probe, str | int], bool]
) -> Callable[[Probe], Float | None]:
    back = move.back
    assert back is not None

    def of(probe: Probe) -> Float | None:
        primals = {
            other: move.of(value, probe.attrs)
            for other, value in zip(probe.names, probe.primals, strict=True)
            if chosen(probe, other)
        }
        parts = enumerate(probe.ct)
        ct = tuple(move.of(c, probe.attrs) if chosen(probe, k) else c for k, c in parts)
        found = probe.gradient(name, ct, primals)
        return None if found is None else back(found, probe.attrs)

    return of


# ── J in place of its transpose ──────────────────────────────────────────────────────────────


def forward_mode(obs: Observations) -> Iterator[Hypothesis]:
    """The Jacobian applied to the cotangent, where its transpose belongs."""
    name, first = obs.output, obs.first
    if len(first.ct) != 1 or first.ct[0].size != first.right[name].size:
        return
    tested = [p for p in obs.failing if p.ct[0].size == p.right[name].size]
    if len(tested) < 2 or first.ct[0].size > MAX_SLABS:
        return

    def fits(probe: Probe) -> bool:
        ct = probe.ct[0]
        if ct.size != probe.right[name].size or ct.size > MAX_SLABS_TESTED:
            return True  # J cannot be applied to it, or would cost too much
        rows = jacobian(probe, name)
        if rows is None:
            return False
        applied = rows.reshape(ct.size, -1) @ ct.ravel()
        return probe.reproduces(applied.reshape(probe.right[name].shape), name)

    yield Hypothesis(
        label="L",
        says=f"{obs.gradient} is the Jacobian applied to the cotangent, not its transpose",
        fits=fits,
    )
