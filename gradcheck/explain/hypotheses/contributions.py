"""Contributions: of all that must be added up, some is lost or overwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.hypotheses.lost_contributions import KEEPS, PER_ELEMENT, Keep
from gradcheck.explain.hypotheses.subset import by_value, on_kinks, zero
from gradcheck.explain.probe import Array, Float, Probe

MOST: Final = 64
"""Slabs up to which a cotangent is taken apart where suspicions are formed."""
LATER: Final = 256
"""The same where they are put to the test; beyond, a probe says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A way to cut the cotangent of output `part` into slabs, in the order of memory.

    `says` names the slabs, `slabs(ct)` numbers the slab of each element from 0 (None: it cannot be
    cut so). Without a `part` all outputs' cotangents are cut alike, and slabs of one number belong
    together.
    """

    part: int | None
    says: str
    slabs: Callable[[Array], Array | None]


def contributions(scene: Observations) -> Iterator[Suspicion]:
    """The gradient with some of the cotangent's slabs left out."""
    first = scene.first
    indexed = any(p.dtype.kind != "f" for p in first.primals)
    by_values = on_kinks(scene) or by_value(scene, zero)
    ranks = [
        max(p.ct[k].ndim for p in scene.failing if k < len(p.ct)) for k in range(len(first.ct))
    ]
    cuts = [cut for part, rank in enumerate(ranks) for cut in _cuts(part, rank)]
    joint = _cuts(None, min(ranks)) if len(ranks) > 1 else ()
    for cut in [*cuts, *joint]:
        taken = _taken(first, scene.output, cut, MOST)
        if taken is None or len(taken) < 2:
            continue
        overlap = bool(((taken != 0).sum(axis=0) > 1).any())
        if not overlap and by_values:
            continue
        for keep in KEEPS:
            label = keep.shared if overlap else keep.alone
            if indexed and overlap and keep in PER_ELEMENT:
                label = "DI"
            if label and any(keep.needs(n) for n in _counts(scene, cut)):
                yield _suspicion(scene, cut, keep, label)


def _suspicion(scene: Observations, cut: Cut, keep: Keep, label: str) -> Suspicion:
    def fits(probe: Probe) -> bool:
        taken = _taken(probe, scene.output, cut, LATER)
        if taken is None:
            return probe is not scene.first
        left = (taken * keep.of(taken != 0)).sum(axis=0)
        guess = probe.right[scene.output] - taken.sum(axis=0) + left
        return probe.reproduces(guess, scene.output)

    because = keep.because if label != keep.alone else ""
    says = f"{scene.gradient} {keep.says.format(cut.says)}{because}"
    return Suspicion(label=label, says=says, fits=fits)


def _counts(scene: Observations, cut: Cut) -> Iterator[int]:
    """How many slabs there are in each failing probe."""
    for probe in scene.failing:
        numbers = _numbers(probe, cut).values()
        yield max((int(n.max()) + 1 for n in numbers if n.size), default=0)


def _taken(probe: Probe, name: str, cut: Cut, most: int) -> Float | None:
    """What each slab of the cotangent contributes to the gradient, slabs first."""
    key = ("contributions", name, cut.part, cut.says)
    found: Float | None = probe.memo.get(key)
    if found is not None:
        return found
    numbered = _numbers(probe, cut)
    count = max((int(n.max()) + 1 for n in numbered.values() if n.size), default=0)
    if not numbered or count > most:
        return None
    parts = []
    for slab in range(count):
        ct = tuple(
            np.where(numbered[k] == slab, part, 0.0) if k in numbered else np.zeros_like(part)
            for k, part in enumerate(probe.ct)
        )
        vjp = probe.vjp(ct=ct)
        if vjp is None or name not in vjp:
            return None
        parts.append(vjp[name])
    found = np.stack(parts) if parts else np.zeros((0, *probe.right[name].shape))
    probe.memo[key] = found
    return found


def along(probe: Probe, name: str, part: int, axis: int) -> Float | None:
    """What each place along an axis of a cotangent contributes to a gradient, places in front."""
    if part >= len(probe.ct) or probe.ct[part].ndim < -axis:
        return None
    return _taken(probe, name, _axis_of(part, axis), LATER)


def jacobian(probe: Probe, name: str, part: int = 0) -> Float | None:
    """The derivative of each element of output `part` by a primal, outputs flattened in front.

    None where the cotangent is too large, or holds a zero.
    """
    ct = probe.ct[part]
    taken = _taken(probe, name, _elements(part), LATER)
    if taken is None or not ct.all():
        return None
    return np.asarray(taken / ct.reshape(-1, *(1,) * (taken.ndim - 1)))


def _numbers(probe: Probe, cut: Cut) -> dict[int, Array]:
    """The slabs of each output's cotangent that is cut; empty where one cannot be cut so."""
    chosen = range(len(probe.ct)) if cut.part is None else [cut.part]
    if any(k >= len(probe.ct) for k in chosen):
        return {}
    found = {k: cut.slabs(probe.ct[k]) for k in chosen}
    numbered = {k: n for k, n in found.items() if n is not None}
    return numbered if len(numbered) == len(found) else {}


# ── how a cotangent is cut ───────────────────────────────────────────────────────────────────


def _cuts(part: int | None, rank: int) -> Iterator[Cut]:
    for axis in [*range(-rank, 0), *((0, 1) if rank > 1 else ())]:
        yield _axis_of(part, axis)
    which = _which(part)
    for inner in range(1, rank):
        last = "axis" if inner == 1 else f"{inner} axes"
        yield Cut(
            part=part,
            says=f"the places along all but the last {last} of {which}",
            slabs=_rows(inner),
        )
    yield _elements(part)
    for inner in range(2, rank):
        says = f"the places along the last {inner} axes of {which}"
        yield Cut(part=part, says=says, slabs=_places(inner))
    for axis in range(-rank, 0):
        for count in (2, 3, 4):
            says = f"the {count} blocks along axis {axis} of {which}"
            yield Cut(part=part, says=says, slabs=_blocks(axis, count))


def _which(part: int | None) -> str:
    named = {None: "all cotangents", 0: "the cotangent"}
    return named.get(part, f"output {part}'s cotangent")


def _axis_of(part: int | None, axis: int) -> Cut:
    which = _which(part)
    return Cut(part=part, says=f"the places along axis {axis} of {which}", slabs=_by_axis(axis))


def _elements(part: int | None) -> Cut:
    which = _which(part)
    return Cut(part=part, says=f"the elements of {which}", slabs=_rows(0))


def _by_axis(axis: int) -> Callable[[Array], Array | None]:
    def slabs(ct: Array) -> Array | None:
        if not -ct.ndim <= axis < ct.ndim:
            return np.zeros(ct.shape, dtype=int)
        return _numbered(ct, axis)

    return slabs


def _rows(inner: int) -> Callable[[Array], Array | None]:
    """All axes but the last `inner` taken as one."""

    def slabs(ct: Array) -> Array | None:
        if ct.ndim < inner:
            return None
        lead = ct.shape[: ct.ndim - inner]
        numbers = np.arange(int(np.prod(lead, dtype=int))).reshape((*lead, *(1,) * inner))
        return np.broadcast_to(numbers, ct.shape)

    return slabs


def _places(inner: int) -> Callable[[Array], Array | None]:
    """The last `inner` axes taken as one, whatever stands before them."""

    def slabs(ct: Array) -> Array | None:
        if ct.ndim < inner:
            return None
        last = ct.shape[ct.ndim - inner :]
        return np.broadcast_to(np.arange(int(np.prod(last, dtype=int))).reshape(last), ct.shape)

    return slabs


def _blocks(axis: int, count: int) -> Callable[[Array], Array | None]:
    def slabs(ct: Array) -> Array | None:
        if not -ct.ndim <= axis < ct.ndim or ct.shape[axis] % count or ct.shape[axis] <= count:
            return np.zeros(ct.shape, dtype=int)
        return np.asarray(_numbered(ct, axis) // (ct.shape[axis] // count))

    return slabs


def _numbered(ct: Array, axis: int) -> Array:
    k = axis % ct.ndim
    numbers = np.arange(ct.shape[k]).reshape(-1, *(1,) * (ct.ndim - 1 - k))
    return np.broadcast_to(numbers, ct.shape)
