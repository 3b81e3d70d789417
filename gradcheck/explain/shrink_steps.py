"""Steps that make an input smaller: fewer elements, plainer and shorter numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.probe import Cotangent
from gradcheck.explain.shrink_trial import Candidate, Outcome, Trials
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.operator import CORE

Array = NDArray[Any]
Indices = NDArray[np.int64]

LONG: Final = 12
"""Elements along an axis up to which each is tried alone."""


@dataclass(frozen=True, slots=True)
class Group:
    """Axes (primal, axis counted from the end) that have one size and shrink together."""

    size: int
    axes: tuple[tuple[int, int], ...]


def groups(candidate: Candidate) -> list[Group]:
    """Axes by their names in the signature, and batch axes by where they are broadcast."""
    case = candidate.original
    left = case.spec.signature.partition("->")[0]
    cores = dict(zip(case.spec.primals, CORE.findall(left), strict=True))
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for i, (name, primal) in enumerate(zip(case.primal_names, candidate.primals, strict=True)):
        letters = [letter.strip() for letter in cores[name].split(",") if letter.strip()]
        for back in range(1, primal.ndim + 1):
            own = back <= len(letters)
            key = letters[-back] if own else f"batch {back - len(letters)}"
            if primal.shape[-back] > 1:
                found.setdefault((key, primal.shape[-back]), []).append((i, -back))
    made = [Group(size, tuple(axes)) for (_, size), axes in found.items()]
    return sorted(made, key=lambda group: -_weight(group, candidate))


def _weight(group: Group, candidate: Candidate) -> int:
    return sum(candidate.primals[i].size // group.size for i, _ in group.axes)


def smaller(candidate: Candidate, trials: Trials) -> Candidate:
    """The candidate with as few slices as the failure needs, along every axis.

    Other shapes need another cotangent: where some are found, it is drawn again.
    """
    less, changed = replace(candidate, ct=None), True
    while changed and trials.left > 0:
        changed = False
        for group in groups(less):
            if group not in groups(less):  # it went along with another
                continue
            found = _along(less, group, trials)
            if found is not None:
                less, changed = found, True
    less = _without_batch(less, trials)
    same = zip(less.primals, candidate.primals, strict=True)
    return candidate if all(a is b for a, b in same) else less


def _along(candidate: Candidate, group: Group, trials: Trials) -> Candidate | None:
    for kept in proposed(group.size, _worst(candidate, group, trials)):
        plain = taken(candidate, (group,), kept)
        outcome = trials.keeps(plain)
        if outcome is Outcome.KEPT:
            return plain
        for other in _together(candidate, group, kept, outcome):
            if trials.keeps(other) is Outcome.KEPT:
                return other
    return None


def _worst(candidate: Candidate, group: Group, trials: Trials) -> int:
    """The index along the group of the worst element, where the gradient has such an axis."""
    names, last = candidate.original.primal_names, trials.last
    if last is None or last.worst is None:
        return 0
    own = names.index(trials.output)
    axes = [axis for i, axis in group.axes if i == own]
    return last.worst[axes[0]] if axes else 0


def proposed(size: int, worst: int) -> Iterator[Indices]:
    """Proposals of indices to keep along an axis: one, blocks, parts of blocks, all but a few."""
    every = np.arange(size)
    seen: set[bytes] = set()
    for kept in _proposals(every, size, worst):
        if 0 < kept.size < size and kept.tobytes() not in seen:
            seen.add(kept.tobytes())
            yield kept


def _proposals(every: Indices, size: int, worst: int) -> Iterator[Indices]:
    for index in (worst, 0, size - 1):
        yield every[index : index + 1]
    pair = min(worst, size - 2)
    yield every[pair : pair + 2]
    for blocks in (b for b in range(2, size // 2 + 1) if size % b == 0):
        width = size // blocks
        yield every[every % width == worst % width]
        yield every[every // width == worst // width]
        for few in (1, 2, (width + 1) // 2, width - 1):
            yield every[every % width < few]
        for few in (1, 2, (blocks + 1) // 2, blocks - 1):
            yield every[every // width < few]
    step = size // 2
    while step:
        yield every[:-step]
        yield every[step:]
        step //= 2
    if size <= LONG:
        for index in range(size - 1, -1, -1):
            yield np.delete(every, index)


def taken(candidate: Candidate, along: Sequence[Group], kept: Indices) -> Candidate:
    """The candidate with the indices `kept` alone, along groups of one size."""
    primals = list(candidate.primals)
    for group in along:
        for i, axis in group.axes:
            primals[i] = np.take(primals[i], kept, axis=axis)
    return replace(candidate, primals=tuple(primals))


def _pointing(candidate: Candidate, size: int, kept: Indices) -> Candidate:
    """The candidate with index primals renumbered after an axis of `size` was cut.

    Those that point at nothing any more are clipped.
    """
    primals = list(candidate.primals)
    for i, primal in enumerate(primals):
        if primal.dtype.kind == "i" and primal.size and kept.size <= primal.max() < size:
            moved = np.minimum(np.searchsorted(kept, primal), kept.size - 1)
            primals[i] = np.where(primal < 0, primal, moved)
    return replace(candidate, primals=tuple(primals))


def _together(
    candidate: Candidate, group: Group, kept: Indices, outcome: Outcome
) -> Iterator[Candidate]:
    """The same slices removed elsewhere too, where an axis alone will not do."""
    others = [g for g in groups(candidate) if g != group]
    same = [g for g in others if g.size == group.size]
    before, after = group.size, int(kept.size)
    plain = _pointing(taken(candidate, (group,), kept), before, kept)
    yield plain
    if same:
        yield _pointing(taken(candidate, (group, *same), kept), before, kept)
    multiples = [g for g in others if g.size > before and g.size % before == 0]
    if multiples:
        for blocks in (True, False):
            yield _multiplied(plain, multiples, kept, before, blocks)
    if outcome is not Outcome.OUTSIDE:
        return
    followed = _following(candidate.attrs, before, after)
    if followed != candidate.attrs:
        yield replace(plain, attrs=followed)
        if same:
            every = _pointing(taken(candidate, (group, *same), kept), before, kept)
            yield replace(every, attrs=followed)
    for attrs in _attributes(candidate.attrs, before, after):
        yield replace(plain, attrs=attrs)


def _multiplied(
    candidate: Candidate, multiples: Sequence[Group], kept: Indices, before: int, blocks: bool
) -> Candidate:
    """The same indices out of every block of a longer axis, or every run of it."""
    for group in multiples:
        every = np.arange(group.size)
        place = every % before if blocks else every // (group.size // before)
        candidate = taken(candidate, (group,), every[np.isin(place, kept)])
    return candidate


def _following(attrs: Attrs, before: int, after: int) -> dict[str, Any]:
    """The attributes, with `after` wherever a number is `before`."""

    def follow(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(follow(v) for v in value)
        return after if _whole(value) and value == before else value

    return {name: follow(value) for name, value in attrs.items()}


def _attributes(attrs: Attrs, before: int, after: int) -> Iterator[dict[str, Any]]:
    """The attributes, one whole number of them smaller."""
    for name, value in attrs.items():
        parts = value if isinstance(value, tuple) else (value,)
        for at, part in enumerate(parts):
            if not _whole(part) or part < 1:
                continue
            for less in dict.fromkeys((1, part * after // before, part - (before - after), 0)):
                if 0 <= less < part:
                    new = (*parts[:at], less, *parts[at + 1 :])
                    yield {**attrs, name: new if isinstance(value, tuple) else less}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _without_batch(candidate: Candidate, trials: Trials) -> Candidate:
    """The candidate without leading axes of one element that no core needs."""
    ranks = candidate.original.core_ranks
    primals = []
    for primal, rank in zip(candidate.primals, ranks, strict=True):
        batch = primal.shape[: primal.ndim - rank]
        drop = next((i for i, size in enumerate(batch) if size != 1), len(batch))
        primals.append(primal.reshape(primal.shape[drop:]))
    bare = replace(candidate, primals=tuple(primals))
    if all(a.ndim == b.ndim for a, b in zip(primals, candidate.primals, strict=True)):
        return candidate
    return bare if trials.keeps(bare) is Outcome.KEPT else candidate


GRIDS: Final = (1.0, 2.0, 4.0, 8.0)
"""Steps per unit to which numbers are rounded: at most three decimals, exact in every dtype."""
HOT: Final = 24
"""Places at which a cotangent of a single one is tried."""


def plainer(candidate: Candidate, trials: Trials) -> Candidate:
    """Attributes at the dialect's values, then at the operator's, then at smaller numbers."""
    case = candidate.original
    usual = {**case.spec.defaults, **case.dialect.attrs}
    for attrs in (usual, dict(case.spec.defaults)):
        candidate = _first(candidate, [replace(candidate, attrs=attrs)], trials)
        for name in candidate.attrs:
            changed = replace(candidate, attrs={**candidate.attrs, name: attrs[name]})
            candidate = _first(candidate, [changed], trials)
    for name, value in candidate.attrs.items():
        if repr(value) == repr(usual[name]):
            continue
        other = [replace(candidate, attrs={**candidate.attrs, name: v}) for v in _shorter(value)]
        candidate = _first(candidate, other, trials)
    return candidate


def _shorter(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield from (v for v in (0, 1, 2) if abs(v) < abs(value))
    elif isinstance(value, float) and np.isfinite(value):
        yield from (v for v in (1.0, 2.0, 0.5, round(value, 1)) if _digits(v) < _digits(value))


def _digits(value: float) -> tuple[int, float]:
    return len(repr(value)), abs(value)


def shorter(candidate: Candidate, trials: Trials, *, zeros: bool = True) -> Candidate:
    """Zeros, ones, and numbers of few digits, wherever the failure allows it."""
    for i, primal in enumerate(candidate.primals):
        candidate = _first(candidate, _whole_numbers(candidate, i, zeros=zeros), trials)
        for at in range(primal.size):
            candidate = _first(candidate, _single(candidate, i, at, zeros=zeros), trials)
    return candidate


def _whole_numbers(candidate: Candidate, index: int, *, zeros: bool) -> Iterator[Candidate]:
    """One primal, all of its numbers simpler at once."""
    primal = candidate.primals[index]
    if primal.dtype.kind == "i":
        options = [np.zeros_like(primal)]
    else:
        options = [np.zeros_like(primal), np.ones_like(primal)]
        options += (np.round(primal * g) / g + 0.0 for g in GRIDS)  # no −0
    for values in options:
        if np.array_equal(values, primal):
            return
        if zeros or values.all() or primal.dtype.kind == "i":
            yield candidate.with_primal(index, values)


def _single(candidate: Candidate, index: int, at: int, *, zeros: bool) -> Iterator[Candidate]:
    primal = candidate.primals[index]
    value = primal.flat[at]
    numbers = (0, 1) if primal.dtype.kind == "i" else _numbers(float(value))
    for number in numbers:
        if number == value:
            return
        if number == 0 and not zeros and primal.dtype.kind == "f":
            continue
        changed = primal.copy()
        changed.flat[at] = number
        yield candidate.with_primal(index, changed)


def _numbers(value: float) -> Iterator[float]:
    """Simpler numbers than one, the simplest first."""
    sign = float(np.copysign(1.0, value))
    yield from (0.0, sign, 0.5 * sign, 2 * sign)
    for grid in GRIDS:
        yield round(value * grid) / grid + 0.0


def sparser(candidate: Candidate, ct: Cotangent, trials: Trials) -> Candidate:
    """A cotangent of a single 1; where that hides the failure, of few numbers, and short ones."""
    candidate = replace(candidate, ct=ct)
    flat = np.concatenate([part.reshape(-1) for part in ct])

    def shaped(values: Array) -> Candidate:
        ends = np.cumsum([part.size for part in ct])[:-1]
        parts = zip(np.split(values, ends), ct, strict=True)
        return replace(candidate, ct=tuple(v.reshape(p.shape) for v, p in parts))

    places = np.unique(np.linspace(0, flat.size - 1, min(flat.size, HOT)).astype(int))
    for place in places:
        hot = shaped(np.eye(1, flat.size, place)[0])
        if trials.keeps(hot) is Outcome.KEPT:
            return hot
    width = max(1, flat.size // 2)
    while width:
        for start in range(0, flat.size, width):
            less = flat.copy()
            less[start : start + width] = 0.0
            if less.any() and not np.array_equal(less, flat):
                flat = less if trials.keeps(shaped(less)) is Outcome.KEPT else flat
        width //= 2
    for place in np.flatnonzero(flat):
        for number in _numbers(float(flat[place])):
            if number == flat[place]:
                break
            other = flat.copy()
            other[place] = number
            if other.any() and trials.keeps(shaped(other)) is Outcome.KEPT:
                flat = other
                break
    return shaped(flat)


def _first(
    candidate: Candidate, others: Iterator[Candidate] | list[Candidate], trials: Trials
) -> Candidate:
    """The first of others that fails as well; the candidate itself where none does."""
    return next((o for o in others if trials.keeps(o) is Outcome.KEPT), candidate)
