"""Simpler numbers: attributes at their defaults, short values, a sparse cotangent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.probe import Cotangent
from gradcheck.explain.shrink_candidate import Candidate
from gradcheck.explain.shrink_trial import Outcome, Trials

Array = NDArray[Any]

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
    """Simpler values of one attribute."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield from (v for v in (0, 1, 2) if abs(v) < abs(value))
    elif isinstance(value, float) and np.isfinite(value):
        yield from (v for v in (1.0, 2.0, 0.5, round(value, 1)) if _digits(v) < _digits(value))


def _digits(value: float) -> tuple[int, float]:
    """How much there is to read of a number."""
    return len(repr(value)), abs(value)


def shorter(candidate: Candidate, trials: Trials, *, zeros: bool = True) -> Candidate:
    """Zeros, ones, and numbers of few digits, wherever the failure allows it."""
    for i, primal in enumerate(candidate.primals):
        candidate = _first(candidate, _whole(candidate, i, zeros=zeros), trials)
        for at in range(primal.size):
            candidate = _first(candidate, _single(candidate, i, at, zeros=zeros), trials)
    return candidate


def _whole(candidate: Candidate, index: int, *, zeros: bool) -> Iterator[Candidate]:
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
