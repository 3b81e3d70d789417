"""Parts of planted faults: changes of one gradient, and mutants of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.spec.fault import Change, Fault, Wrong, changed, of_operator
from gradcheck.spec.mutant import KnownMutants
from gradcheck_cases import SUITE

_MUTANTS = KnownMutants(SUITE)


def planter(model: str) -> Callable[..., Fault]:
    """`planted(kind, stage, says, wrong)`: a fault of one stage of a model."""

    def planted(
        kind: str,
        stage: str,
        says: str,
        wrong: Wrong,
        name: str = "",
        dialects: tuple[str, ...] = (),
    ) -> Fault:
        return Fault(
            model=model,
            name=name or f"{stage}.{kind.replace(' ', '-')}",
            kind=kind,
            stages=(stage,),
            says=says,
            wrong=wrong,
            dialects=dialects,
        )

    return planted


def mutated(name: str) -> Wrong:
    """The stage's operator is the suite's mutant `op/name`."""
    op, _, own_name = name.partition("/")
    (mutant,) = (m for m in _MUTANTS[op] if m.name == own_name)
    return of_operator(mutant.fresh())


def lost(index: int) -> Wrong:
    """Gradient `index` is zero."""
    return changed(index, mutate.zeros)


def missing(index: int) -> Wrong:
    """Gradient `index` is not produced."""
    return changed(index, mutate.nothing)


def negated(index: int) -> Wrong:
    """Gradient `index` has the other sign."""
    return changed(index, lambda xp, g, *primals, **attrs: -g)


def head(index: int, which: int, change: Change = mutate.zeros) -> Wrong:
    """Gradient `index` is wrong in one head's block of features, the last axis."""

    def body(xp: Any, g: Any, *primals: Any, heads: int, **attrs: Any) -> Any:
        width = g.shape[-1] // heads
        places = np.arange(g.shape[-1]) // width == which
        return xp.where(places, change(xp, g), g)

    return changed(index, body)


def element(index: int, place: int, factor: float = 1.1) -> Wrong:
    """Gradient `index` is off in one element, counted through all axes (negative: from the end).

    An element whose gradient is 0 is passed over for the next.
    """

    def body(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
        flat = np.ravel(np.asarray(g != 0, dtype=bool))
        here = np.zeros(flat.size, dtype=bool)
        order = np.roll(np.arange(flat.size), -(place % flat.size))
        here[next(i for i in order if flat[i])] = True
        return xp.where(here.reshape(np.shape(g)), g * factor, g)

    return changed(index, body)


def shifted(axis: int = -2) -> Change:
    """Each position's gradient is written to the next one."""

    def change(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
        return np.roll(g, 1, axis=axis)

    return change


def first_of(axis: int) -> Change:
    """0 but in the first place along an axis."""
    return lambda xp, g, *primals, **attrs: mutate.cut(1, axis=axis)(xp, g)
