"""Contributions: of all that must be added up, some is lost or overwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.explain.probe import Array, Float, Mask, Probe
from gradcheck.explain.rules.places import BLOCKS
from gradcheck.explain.suspicion import Scene, Suspicion

MOST: Final = 64
"""Slabs up to which a cotangent is taken apart where suspicions are formed."""
LATER: Final = 256
"""The same where they are put to the test; beyond, a probe says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A way to cut the cotangent of output `part` into slabs, in the order of memory.

    `slabs(ct)` numbers the slab of each element from 0 (None: cannot be cut so).
    """

    part: int
    says: str
    slabs: Callable[[Array], Array | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Which contributions are left: `of(slabs)` gives weights per slab and element.

    `shared` labels the defect where several slabs reach one element of the gradient, `alone`
    where each reaches its own (empty: it cannot be told apart there).
    """

    shared: str
    alone: str
    says: str
    of: Callable[[Mask], Array]
    needs: Callable[[int], bool] = lambda n: n > 1
    """Whether so many slabs tell it from simpler ways."""


def contributions(scene: Scene) -> Iterator[Suspicion]:
    """The gradient with some of the cotangent's slabs left out."""
    first = scene.first
    indexed = any(p.dtype.kind != "f" for p in first.primals)
    for part, ct in enumerate(first.ct):
        for cut in _cuts(part, ct):
            taken = _taken(first, scene.output, cut, MOST)
            if taken is None or len(taken) < 2:
                continue
            reach = taken != 0
            overlap = bool((reach.sum(axis=0) > 1).any())
            for keep in KEEPS:
                label = keep.shared if overlap else keep.alone
                if indexed and overlap and keep in PER_ELEMENT:
                    label = "DI"
                if label and any(keep.needs(n) for n in _counts(scene, cut)):
                    yield _suspicion(scene, cut, keep, label)


def _suspicion(scene: Scene, cut: Cut, keep: Keep, label: str) -> Suspicion:
    def fits(probe: Probe) -> bool:
        taken = _taken(probe, scene.output, cut, LATER)
        if taken is None:
            return probe is not scene.first
        left = (taken * keep.of(taken != 0)).sum(axis=0)
        guess = probe.right[scene.output] - taken.sum(axis=0) + left
        return probe.reproduces(guess, scene.output)

    return Suspicion(label=label, says=f"{scene.gradient} {keep.says} {cut.says}", fits=fits)


def _counts(scene: Scene, cut: Cut) -> Iterator[int]:
    """How many slabs there are in each failing probe."""
    for probe in scene.failing:
        slabs = cut.slabs(probe.ct[cut.part]) if cut.part < len(probe.ct) else None
        yield 0 if slabs is None or not slabs.size else int(slabs.max()) + 1


def _taken(probe: Probe, name: str, cut: Cut, most: int) -> Float | None:
    """What each slab of the cotangent contributes to the gradient, slabs first."""
    key = ("contributions", name, cut.part, cut.says)
    if key in probe.memo:
        found: Float | None = probe.memo[key]
        return found
    if cut.part >= len(probe.ct):
        return None
    ct = probe.ct[cut.part]
    slabs = cut.slabs(ct)
    count = 0 if slabs is None or not slabs.size else int(slabs.max()) + 1
    if slabs is None or count > most:
        return None
    rest = [np.zeros_like(other) for other in probe.ct]
    parts = []
    for slab in range(count):
        rest[cut.part] = np.where(slabs == slab, ct, 0.0)
        vjp = probe.vjp(ct=tuple(rest))
        if vjp is None or name not in vjp:
            return None
        parts.append(vjp[name])
    probe.memo[key] = np.stack(parts) if parts else np.zeros((0, *probe.right[name].shape))
    return probe.memo[key]


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


# ── how a cotangent is cut ───────────────────────────────────────────────────────────────────


def _cuts(part: int, ct: Array) -> Iterator[Cut]:
    which = "the cotangent" if part == 0 else f"output {part}'s cotangent"
    for axis in [*range(-ct.ndim, 0), *((0, 1) if ct.ndim > 1 else ())]:
        yield _axis_of(part, axis)
    for inner in range(1, ct.ndim - 1):
        last = "axis" if inner == 1 else f"{inner} axes"
        yield Cut(part=part, says=f"along all but the last {last} of {which}", slabs=_rows(inner))
    yield _elements(part)
    for inner in range(2, ct.ndim):
        says = f"along the last {inner} axes of {which}"
        yield Cut(part=part, says=says, slabs=_places(inner))
    for axis in range(-ct.ndim, 0):
        for count in (2, 3, 4):
            yield Cut(
                part=part,
                says=f"of {count} blocks along axis {axis} of {which}",
                slabs=_blocks(axis, count),
            )


def _axis_of(part: int, axis: int) -> Cut:
    which = "the cotangent" if part == 0 else f"output {part}'s cotangent"
    return Cut(part=part, says=f"along axis {axis} of {which}", slabs=_by_axis(axis))


def _elements(part: int) -> Cut:
    which = "the cotangent" if part == 0 else f"output {part}'s cotangent"
    return Cut(part=part, says=f"over all elements of {which}", slabs=_rows(0))


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
        return _numbered(ct, axis) // (ct.shape[axis] // count)

    return slabs


def _numbered(ct: Array, axis: int) -> Array:
    k = axis % ct.ndim
    numbers = np.arange(ct.shape[k]).reshape(-1, *(1,) * (ct.ndim - 1 - k))
    return np.broadcast_to(numbers, ct.shape)


# ── which contributions are left ─────────────────────────────────────────────────────────────


def _at(choose: Callable[[int], Array]) -> Callable[[Mask], Array]:
    """Weights by the slab's number alone."""

    def of(reach: Mask) -> Array:
        return np.reshape(choose(len(reach)), (-1, *(1,) * (reach.ndim - 1)))

    return of


def _last(reach: Mask) -> Array:
    """The last slab that reaches each element."""
    return reach & (np.cumsum(reach[::-1], axis=0)[::-1] == 1)


def _first(reach: Mask) -> Array:
    return reach & (np.cumsum(reach, axis=0) == 1)


def _first_two(reach: Mask) -> Array:
    return reach & (np.cumsum(reach, axis=0) <= 2)


def _last_two(reach: Mask) -> Array:
    return reach & (np.cumsum(reach[::-1], axis=0)[::-1] <= 2)


def _mean(reach: Mask) -> Array:
    return reach / np.maximum(reach.sum(axis=0), 1)


PER_ELEMENT: Final = (
    Keep(
        shared="A",
        alone="",
        says="keeps of each element's contributions the last, as if it overwrote the others,",
        of=_last,
    ),
    Keep(
        shared="A",
        alone="",
        says="keeps of each element's contributions the first only",
        of=_first,
    ),
    Keep(shared="R", alone="", says="is the mean of each element's contributions", of=_mean),
    Keep(
        shared="A",
        alone="",
        says="keeps of each element's contributions two at most, the first,",
        of=_first_two,
    ),
    Keep(
        shared="A",
        alone="",
        says="keeps of each element's contributions two at most, the last,",
        of=_last_two,
    ),
)
BY_SLAB: Final = (
    Keep(
        shared="A",
        alone="I",
        says="is that of the last slab only, as if it overwrote the others,",
        of=_at(lambda n: np.arange(n) == n - 1),
    ),
    Keep(
        shared="B",
        alone="I",
        says="is that of the first slab only",
        of=_at(lambda n: np.arange(n) == 0),
    ),
    Keep(
        shared="I",
        alone="I",
        says="lacks what the last slab contributes",
        of=_at(lambda n: np.arange(n) < n - 1),
    ),
    Keep(
        shared="I",
        alone="I",
        says="lacks what the first slab contributes",
        of=_at(lambda n: np.arange(n) > 0),
    ),
    *(
        Keep(
            shared="W",
            alone="W",
            says=f"lacks what is left over after the last whole block of {block} slabs",
            of=_at(lambda n, block=block: np.arange(n) < n // block * block),
            needs=lambda n, block=block: n > block and n % block > 0,
        )
        for block in BLOCKS
    ),
    *(
        Keep(
            shared="W",
            alone="W",
            says=f"lacks what lies beyond the first {block} slabs",
            of=_at(lambda n, block=block: np.arange(n) < block),
            needs=lambda n, block=block: n > block,
        )
        for block in BLOCKS
    ),
)
KEEPS: Final = (*BY_SLAB, *PER_ELEMENT)
