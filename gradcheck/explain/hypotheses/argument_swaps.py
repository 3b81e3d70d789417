"""Slots: a gradient is lost, or another argument's stands in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, permutations, product
from typing import Final

import numpy as np

from gradcheck.explain.closeness import near
from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import Array, Float, Probe

PACKED: Final = {2: ("half", "halves"), 3: ("third", "thirds"), 4: ("quarter", "quarters")}
"""How many tensors share one, and what they are called."""
ORDINALS: Final = ("first", "second", "third", "fourth")


def lost(scene: Observations) -> Iterator[Suspicion]:
    """Nothing but zeros, to the last bit."""
    name = scene.output
    yield Suspicion(
        label="G",
        says=f"{scene.gradient} is zero: it is lost",
        fits=lambda p: (
            p.reproduces(np.zeros_like(p.right[name]), name)
            and not (p.fails(name) and p.got[name].any())
        ),
    )


def slots(scene: Observations) -> Iterator[Suspicion]:
    """Another primal's gradient, or that of a call with arguments exchanged."""
    name, own = scene.output, scene.gradient
    for other in scene.first.right:
        if other != name:
            yield Suspicion(
                label="G",
                says=f"{own} is the gradient of {other}: it stands in the wrong place",
                fits=partial(_stands, name, other),
            )
    yield from _exchanged(scene)
    for other in scene.first.right:
        if other != name:
            apart = all(_apart(probe, name, other) for probe in scene.failing)
            says = (
                f"{own} gets what belongs to {other}, too: nothing keeps it away"
                if apart
                else f"{own} has the gradient of {other} added to it"
            )
            yield predicting(scene, "D" if apart else "T", says, partial(_added, name, other))


def _stands(name: str, other: str, probe: Probe) -> bool:
    """Whether the gradient of `other` is what came for `name`, be it of another shape.

    They may have changed places before they were reduced to the shapes of what was broadcast.
    """
    right, raw = probe.right.get(other), probe.raw.get(name)
    if right is None or raw is None or raw.shape == right.shape:
        fits = name in probe.got and probe.reproduces(right, name)
        return fits or (raw is not None and right is not None and near(raw, right, probe.dtype))
    if raw.size == right.size:
        return probe.fails(name) and near(np.ravel(raw), right.ravel(), probe.dtype)
    small, large = sorted((np.asarray(raw, dtype=np.float64), right), key=lambda a: a.size)
    return probe.fails(name) and near(_summed(large, small.shape), small, probe.dtype)


def _summed(x: Float, shape: tuple[int, ...]) -> Float | None:
    """The sum over the axes along which `shape` was broadcast; None if it was not."""
    if len(shape) > x.ndim:
        return None
    lead = x.ndim - len(shape)
    axes = [k for k in range(x.ndim) if k < lead or shape[k - lead] == 1]
    return np.asarray(x.sum(axis=tuple(axes))).reshape(shape) if _fits(x, shape, lead) else None


def _fits(x: Float, shape: tuple[int, ...], lead: int) -> bool:
    return all(n in (1, x.shape[lead + k]) for k, n in enumerate(shape))


def _apart(probe: Probe, name: str, other: str) -> bool:
    """Whether no element of both gradients differs from 0."""
    a, b = probe.right[name], probe.right[other]
    return a.shape == b.shape and not ((a != 0) & (b != 0)).any()


def _added(name: str, other: str, probe: Probe) -> Float | None:
    a, b = probe.right[name], probe.right.get(other)
    return a + b if b is not None and a.shape == b.shape else None


def _exchanged(scene: Observations) -> Iterator[Suspicion]:
    """Two arguments, or an argument and the cotangent, change places in the call."""
    probe, own = scene.first, scene.gradient
    for a, b in combinations(probe.names, 2):
        if _alike(probe.primal(a), probe.primal(b)):
            yield Suspicion(
                label="G",
                says=f"{own} is right for {a} and {b} exchanged: one is read as the other",
                fits=partial(_swapped, a, b),
            )
    for a in probe.names:
        if len(probe.ct) == 1 and _alike(probe.primal(a), probe.ct[0]):
            yield Suspicion(
                label="G",
                says=f"{own} is right for {a} and the cotangent exchanged: "
                "one is read as the other",
                fits=partial(_taken_for_ct, a),
            )


def _alike(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f"


def _swapped(a: str, b: str, probe: Probe) -> bool:
    """Whether that explains all gradients, returned in either order."""
    if not _alike(probe.primal(a), probe.primal(b)):
        return False
    found = probe.vjp(primals={a: probe.primal(b), b: probe.primal(a)})
    if found is None:
        return False
    turned = {a: b, b: a}
    return any(
        all(probe.reproduces(found.get(place.get(n, n)), n) for n in found)
        for place in ({}, turned)
    )


def _taken_for_ct(a: str, probe: Probe) -> bool:
    """Whether that explains all gradients: where one alone is wrong, it read something else."""
    primal = probe.primal(a)
    if not _alike(primal, probe.ct[0]):
        return False
    found = probe.vjp((primal,), primals={a: probe.ct[0]})
    if found is None:
        return False
    alone = probe.vjp((primal,))
    if len(found) == 1 and alone is not None and np.array_equal(alone[a], found[a]):
        return False
    return all(probe.reproduces(found[n], n) for n in found)


# ── several tensors in one ───────────────────────────────────────────────────────────────────


def packed(scene: Observations) -> Iterator[Suspicion]:
    """Parts of a packed tensor: one is lost, or another's stands in its place."""
    shape = scene.first.primal(scene.output).shape
    for axis in range(-len(shape), 0):
        for count in PACKED:
            if _is_packed(scene.first, scene.output, axis, count):
                yield from _parts(scene, axis, count)


def _is_packed(probe: Probe, name: str, axis: int, count: int) -> bool:
    """Whether an axis holds `count` tensors, of which the output has the size of one."""
    whole = probe.primal(name).shape
    return whole[axis] % count == 0 and any(
        len(part.shape) == len(whole) and part.shape[axis] * count == whole[axis]
        for part in probe.ct
    )


def _parts(scene: Observations, axis: int, count: int) -> Iterator[Suspicion]:
    part, parts = PACKED[count]
    name, own = scene.output, scene.gradient
    for i, j in product(range(count), (None, *range(count))):
        if i != j:
            stands = "0 stands" if j is None else f"that of the {ORDINALS[j]} stands"
            says = f"{own} is lost in its {ORDINALS[i]} {part}: {stands} there"
            order: Order = [j if k == i else k for k in range(count)]
            yield predicting(scene, "G", says, partial(_moved, axis, count, order, name))
    for order in permutations(range(count)):
        if order == tuple(range(count)):
            continue
        told = f"in the order {', '.join(str(k + 1) for k in order)}"
        for says, edit in (
            (f"{own} has its {parts} {told}", _moved),
            (f"{own} is right for the {parts} of {name} {told}", _read),
            (f"{own} takes the {parts} of {name} {told}", _returned),
        ):
            yield predicting(scene, "G", says, partial(edit, axis, count, order, name))


Order = Sequence[int | None]


def _moved(axis: int, count: int, order: Order, name: str, probe: Probe) -> Float | None:
    if not _is_packed(probe, name, axis, count):
        return None
    return _ordered(probe.right[name], axis, count, order)


def _read(axis: int, count: int, order: Order, name: str, probe: Probe) -> Float | None:
    if not _is_packed(probe, name, axis, count):
        return None
    found = probe.vjp(primals={name: _ordered(probe.primal(name), axis, count, order)})
    return None if found is None else found.get(name)


def _returned(axis: int, count: int, order: Order, name: str, probe: Probe) -> Float | None:
    """Read in another order, and written back in it."""
    found = _read(axis, count, order, name, probe)
    back = [order.index(k) for k in range(count)]
    return None if found is None else _ordered(found, axis, count, back)


def _ordered(x: Array, axis: int, count: int, order: Order) -> Array:
    parts = np.split(x, count, axis=axis)
    return np.concatenate(
        [np.zeros_like(parts[0]) if k is None else parts[k] for k in order], axis=axis
    )
