"""Wrong VJPs that a stage might have: its operator's mutants, wrong saved values, wrong attributes.

Each is computed from the reference's cotangents and values; what was returned is not looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F64
from gradcheck.model import Stage, Values
from gradcheck.power.mutant import Mutant
from gradcheck.spec import as_tuple

Gradients = tuple[Any, ...]
Vjps = Mapping[str, Sequence[Mutant]]

RAISES: Final = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""What a wrong VJP may raise on values that it was not written for."""
NEAREST: Final = 24
"""Values, those written next to a stage, that are tried with every mutant in place of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One way to be wrong: `gradients`, one per value read; lower `rank`s are simpler."""

    rank: int
    says: str
    gradients: Gradients


def hypotheses(
    stage: Stage, cts: Gradients, values: Values, mutants: Sequence[Mutant]
) -> Iterator[Hypothesis]:
    """Everything that a stage might be, the simplest first.

    `cts` are the cotangents of its outputs, `values` all values of the program by name, both in
    float64; `mutants` are those of its operator.
    """
    fitting = [mutant for mutant in mutants if _fits(mutant, stage)]
    primals = [values[name] for name in stage.reads]
    for mutant in fitting:
        yield from _tried(1, _told(mutant), mutant.fresh(), stage, cts, primals)
    for says, part in _partial(cts):
        yield from _tried(2, says, stage.op.vjp, stage, part, primals)
    for says, attrs in _attributes(stage):
        yield from _tried(2, says, stage.op.vjp, stage, cts, primals, attrs)
    for says, read in _misread(stage, values):
        yield from _tried(2, says, stage.op.vjp, stage, cts, read)
    for says, read in _misread(stage, values, NEAREST):
        for mutant in fitting:
            both = f"{_told(mutant)} And it {says}"
            yield from _tried(3, both, mutant.fresh(), stage, cts, read)


def _told(mutant: Mutant) -> str:
    return f"{mutant.full_name}: {mutant.says.rstrip('. ')}."


def _tried(
    rank: int,
    says: str,
    vjp: Any,
    stage: Stage,
    cts: Gradients,
    primals: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
) -> Iterator[Hypothesis]:
    ct = tuple(np.array(part) for part in cts)  # a mutant may write over it
    try:
        with np.errstate(all="ignore"):
            found = as_tuple(
                vjp(
                    F64,
                    ct[0] if len(ct) == 1 else ct,
                    *primals,
                    **{**stage.all_attrs, **(attrs or {})},
                )
            )
    except RAISES:
        return
    if len(found) == len(stage.reads):
        yield Hypothesis(rank=rank, says=says, gradients=found)


def _fits(mutant: Mutant, stage: Stage) -> bool:
    """Whether the stage is of a dialect that the mutant is of."""
    if mutant.equivalent or not mutant.dialects:
        return not mutant.equivalent
    attrs = stage.all_attrs
    for name in mutant.dialects:
        dialect = stage.op.dialect(name)
        absent = set(stage.op.primals) - set(stage.primals)
        if set(dialect.without) == absent and all(
            attrs[key] == value for key, value in dialect.attrs.items()
        ):
            return True
    return False


def _partial(cts: Gradients) -> Iterator[tuple[str, Gradients]]:
    """Cotangents that are taken from a part of a batch, or read in another order."""
    if len(cts) > 1:
        return
    ct = np.asarray(cts[0])
    for axis, length in enumerate(ct.shape):
        if length == 1:
            continue
        at = f"along axis {axis} of its cotangent"
        for place, which in ((0, "first"), (length - 1, "last")):
            keep = np.zeros((length, *(1,) * (ct.ndim - 1 - axis)))
            keep[place] = 1.0
            yield f"takes the {which} place alone {at}.", (ct * keep,)
        for step, how in ((1, "after"), (-1, "before")):
            yield f"takes for each place {at} the one {how} it.", (np.roll(ct, -step, axis),)
        yield f"goes backwards {at}.", (np.flip(ct, axis),)


def _attributes(stage: Stage) -> Iterator[tuple[str, dict[str, Any]]]:
    """Attributes as another dialect has them, at their default, or off by one."""
    for key, value in stage.all_attrs.items():
        others: list[Any] = [d.attrs[key] for d in stage.op.dialects if key in d.attrs]
        others.append(stage.op.defaults[key])
        if isinstance(value, bool):
            others.append(not value)
        elif isinstance(value, int):
            others += [value - 1, value + 1, 0]
        elif isinstance(value, float):
            others += [0.0, 1.0]
        seen: list[Any] = [value]
        for other in others:
            if not any(other is s or (type(other) is type(s) and other == s) for s in seen):
                seen.append(other)
                yield f"takes {key} = {other!r} where it is {value!r}.", {key: other}


def _misread(
    stage: Stage, values: Values, limit: int = 1000
) -> Iterator[tuple[str, list[NDArray[Any]]]]:
    """What the stage would read if one value were another of the same shape and kind."""
    right = [values[name] for name in stage.reads]
    names = list(values)
    here = names.index(stage.outputs[0])
    order = {name: abs(place - here) for place, name in enumerate(names)}
    names.sort(key=order.__getitem__)
    for index, (name, primal) in enumerate(zip(stage.reads, right, strict=True)):
        alike = (
            other
            for other in names
            if np.shape(values[other]) == primal.shape
            and np.asarray(values[other]).dtype.kind == primal.dtype.kind
            and not np.array_equal(values[other], primal)
        )
        for other in itertools.islice(alike, limit):
            read = [*right[:index], values[other], *right[index + 1 :]]
            yield f"reads `{other}` where it needs `{name}`.", read
