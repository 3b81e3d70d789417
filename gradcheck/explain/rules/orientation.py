"""Orientation: the right numbers in the wrong places, or J in place of its transpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from gradcheck.explain.probe import Array, Float, Probe
from gradcheck.explain.rules.moves import Move, losses, moves
from gradcheck.explain.suspicion import Scene, Suspicion, predicting
from gradcheck.spec import Attrs

READ: Final = 700
"""Elements up to which an operand is tried in all its orders."""


def orientation(scene: Scene) -> Iterator[Suspicion]:
    """The gradient, the cotangent or a primal with its elements in another order."""
    attrs = scene.first.attrs
    yield from _moved(scene, lambda rank: moves(rank, attrs))


def displaced(scene: Scene) -> Iterator[Suspicion]:
    """The same with elements read from, or written to, a neighbour's place."""
    yield from _moved(scene, losses)


def _moved(scene: Scene, catalogue: Callable[[int], Iterable[Move]]) -> Iterator[Suspicion]:
    name, own, first = scene.output, scene.gradient, scene.first
    for move in catalogue(first.right[name].ndim):
        yield predicting(
            scene,
            move.label,
            f"{own} holds the right numbers, but with {move.says}",
            lambda probe, move=move: move.of(probe.right[name], probe.attrs),
        )
    for part, ct in enumerate(first.ct):
        which = "the cotangent" if len(first.ct) == 1 else f"output {part}'s cotangent"
        for move in catalogue(ct.ndim) if ct.size <= READ else ():
            says = f"{own} reads {which} with {move.says}"
            yield predicting(scene, move.label, says, _at_cotangent(name, part, move))
    for other, value in zip(first.names, first.primals, strict=True):
        for move in catalogue(value.ndim) if value.size <= READ else ():
            says = f"{own} reads {other} with {move.says}"
            yield predicting(scene, move.label, says, _at_primal(name, other, move.of))


def _at_cotangent(name: str, part: int, move: Move) -> Callable[[Probe], Float | None]:
    def of(probe: Probe) -> Float | None:
        if part >= len(probe.ct):
            return None
        moved = move.of(probe.ct[part], probe.attrs)
        found = probe.vjp(ct=(*probe.ct[:part], moved, *probe.ct[part + 1 :]))
        return None if found is None else found.get(name)

    return of


def _at_primal(
    name: str, other: str, of: Callable[[Array, Attrs], Array]
) -> Callable[[Probe], Float | None]:
    def at(probe: Probe) -> Float | None:
        if other not in probe.names:
            return None
        found = probe.vjp(primals={other: np.asarray(of(probe.primal(other), probe.attrs))})
        return None if found is None else found.get(name)

    return at
