"""Which contributions are left, of all that must be added up: the last, whole blocks, none."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.places import BLOCKS
from gradcheck.explain.probe import Array, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Which contributions are left: `of(slabs)` gives weights per slab and element.

    `shared` labels the defect where several slabs reach one element of the gradient, `alone`
    where each reaches its own (empty: it cannot be told apart there). `says` holds {} for the slabs
    in words; `because` goes on where they are shared.
    """

    shared: str
    alone: str
    says: str
    of: Callable[[Mask], Array]
    needs: Callable[[int], bool] = lambda n: n > 1
    """Whether so many slabs tell it from simpler ways."""
    because: str = ""


def _at(choose: Callable[[int], Array]) -> Callable[[Mask], Array]:
    """Weights by the slab's number alone."""

    def of(reach: Mask) -> Array:
        return np.reshape(choose(len(reach)), (-1, *(1,) * (reach.ndim - 1)))

    return of


def _in_whole_blocks(block: int, n: int) -> Array:
    return np.asarray(np.arange(n) < n // block * block)


def _leaves_some(block: int, n: int) -> bool:
    return n > block and n % block > 0


def _in_first(block: int, n: int) -> Array:
    return np.asarray(np.arange(n) < block)


def _last(reach: Mask) -> Array:
    """The last slab that reaches each element."""
    return np.asarray(reach & (np.cumsum(reach[::-1], axis=0)[::-1] == 1))


def _first(reach: Mask) -> Array:
    return np.asarray(reach & (np.cumsum(reach, axis=0) == 1))


def _first_two(reach: Mask) -> Array:
    return np.asarray(reach & (np.cumsum(reach, axis=0) <= 2))


def _last_two(reach: Mask) -> Array:
    return np.asarray(reach & (np.cumsum(reach[::-1], axis=0)[::-1] <= 2))


def _mean(reach: Mask) -> Array:
    return np.asarray(reach / np.maximum(reach.sum(axis=0), 1))


def _wide(of: Callable[[Mask], Array], inner: int) -> Callable[[Mask], Array]:
    """The same for whole rows or matrices of the gradient: one that is reached is written whole."""

    def wide(reach: Mask) -> Array:
        if reach.ndim <= inner:
            return of(reach)
        axes = tuple(range(-inner, 0))
        return of(np.broadcast_to(reach.any(axis=axes, keepdims=True), reach.shape))

    return wide


OVERWRITTEN: Final = ": overwritten where it must be added up"
ONE_OF_ALL: Final = (
    ("the last alone", _last, OVERWRITTEN),
    ("the first alone", _first, ""),
    ("two at most, the first", _first_two, ""),
    ("two at most, the last", _last_two, ""),
)
PER_ELEMENT: Final = (
    *(
        Keep(
            shared="A",
            alone="",
            says=f"keeps, of what {{}} contribute to each {whose}, {says}",
            of=_wide(of, inner) if inner else of,
            because=because,
        )
        for says, of, because in ONE_OF_ALL
        for inner, whose in enumerate(("element", "row", "matrix"))
    ),
    Keep(
        shared="R",
        alone="",
        says="is the mean of what {} contribute to each element",
        of=_mean,
    ),
)
BY_SLAB: Final = (
    Keep(
        shared="A",
        alone="I",
        says="is what the last of {} contributes alone",
        of=_at(lambda n: np.arange(n) == n - 1),
        because=OVERWRITTEN,
    ),
    Keep(
        shared="B",
        alone="I",
        says="is what the first of {} contributes alone",
        of=_at(lambda n: np.arange(n) == 0),
    ),
    Keep(
        shared="I",
        alone="I",
        says="lacks what the last of {} contributes",
        of=_at(lambda n: np.arange(n) < n - 1),
    ),
    Keep(
        shared="I",
        alone="I",
        says="lacks what the first of {} contributes",
        of=_at(lambda n: np.arange(n) > 0),
    ),
    *(
        Keep(
            shared="W",
            alone="W",
            says=f"lacks what is left over of {{}} after the last whole block of {block}",
            of=_at(partial(_in_whole_blocks, block)),
            needs=partial(_leaves_some, block),
        )
        for block in BLOCKS
    ),
    *(
        Keep(
            shared="W",
            alone="W",
            says=f"lacks what lies beyond the first {block} of {{}}",
            of=_at(partial(_in_first, block)),
            needs=partial(operator.lt, block),
        )
        for block in BLOCKS
    ),
)
BEYOND: Final = tuple(
    Keep(
        shared="W",
        alone="W",
        says=f"lacks what lies beyond the first {count} of {{}}",
        of=_at(partial(_in_first, count)),
        needs=partial(operator.lt, count + 1),  # one slab alone is the last
    )
    for count in range(1, 12)
    if count not in BLOCKS
)
KEEPS: Final = (*BY_SLAB, *PER_ELEMENT, *BEYOND)
