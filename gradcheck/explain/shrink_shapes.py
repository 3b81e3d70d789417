"""Smaller shapes of a candidate: slices removed along axes that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.shrink_candidate import Candidate
from gradcheck.explain.shrink_trial import Outcome, Trials
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
    """Elements that one slice has."""
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
    """What to keep along an axis: one index, blocks, a part of each block, all but a few."""
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
    """The candidate with indices that follow what they pointed at, along an axis of `size`.

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
