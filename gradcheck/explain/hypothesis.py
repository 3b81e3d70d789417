"""Wrong VJPs that a stage might have: its operator's mutants, wrong saved values, wrong attributes.

Each is computed from the reference's cotangents and values; what was returned is not looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.narrow import BITS, narrower
from gradcheck.spec.fault import PLACES, narrowed
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.program import Stage, Values

Gradients = tuple[Any, ...]

RAISES: Final = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""What a wrong VJP may raise on values that it was not written for."""
COMPOUND: Final = 3
"""Rank of two defects at once."""
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
    right = stage.vjp(F64, cts, values)
    for says, part in _partial(cts):
        yield from _each(stage, right, _tried(2, says, stage.op.vjp, stage, part, primals))
    for says, attrs in _attributes(stage):
        yield from _each(stage, right, _tried(2, says, stage.op.vjp, stage, cts, primals, attrs))
    for says, read in _misread(stage, values):
        yield from _each(stage, right, _tried(2, says, stage.op.vjp, stage, cts, read))
    for says, read in _misread(stage, values, NEAREST):
        for mutant in fitting:
            both = f"{_told(mutant)} And it {says}"
            yield from _tried(COMPOUND, both, mutant.fresh(), stage, cts, read)


def narrow(stage: Stage, cts: Gradients, values: Values, dtype: str) -> Iterator[Hypothesis]:
    """The stage computes in a type that is narrower than the dtype that it is judged in."""
    for kind in narrower(dtype) if dtype in BITS else ():
        for place in PLACES:
            made = narrowed(place, kind)(F64, stage, cts, values)
            verb = "are" if place == "operands" else "is"
            says = f"its {place} {verb} rounded to {kind.title}, {kind.bits - 1} bits of mantissa."
            yield Hypothesis(rank=1, says=says, gradients=made)


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


def _each(stage: Stage, right: Gradients, found: Iterator[Hypothesis]) -> Iterator[Hypothesis]:
    """A wrong VJP, and the same for one gradient alone: each may be computed by itself."""
    for hypothesis in found:
        yield hypothesis
        pairs = enumerate(zip(hypothesis.gradients, right, strict=True))
        other = [i for i, (g, r) in pairs if g is not None and not np.array_equal(g, r)]
        for i in other if len(other) > 1 else ():
            says = f"{hypothesis.says.rstrip('.')}, for the gradient of `{stage.reads[i]}` alone."
            yield replace(_one(right, i, hypothesis.gradients[i], says), rank=hypothesis.rank)


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


# ── right gradients in a wrong place or order ─────────────────────────────────────────────────────


def simple(stage: Stage, right: Gradients) -> Iterator[Hypothesis]:
    """Each gradient lost or negated, in another's place, transposed, written in the other order."""
    for i, first in enumerate(right):
        if first is None:
            continue
        yield _one(right, i, np.zeros_like(first), f"the gradient of `{stage.reads[i]}` is lost.")
        yield _one(right, i, -first, f"the gradient of `{stage.reads[i]}` has the wrong sign.")
        for j, second in enumerate(right):
            if i != j and second is not None and np.shape(first) == np.shape(second):
                says = f"in place of the gradient of `{stage.reads[i]}` it is that of "
                yield _one(right, i, second, f"{says}`{stage.reads[j]}`.")
        yield from _moved(stage, right, i)
        if np.ndim(first) > 1:
            turned = np.swapaxes(np.asarray(first), -1, -2)
            whose = f"the gradient of `{stage.reads[i]}`"
            if turned.shape == np.shape(first):
                yield _one(right, i, turned, f"{whose} is transposed.")
            else:
                laid = turned.reshape(np.shape(first))
                yield _one(right, i, laid, f"{whose} has its last two axes in the other order.")


def _moved(stage: Stage, right: Gradients, index: int) -> Iterator[Hypothesis]:
    """A gradient that is shifted by one place or turned round."""
    whose = f"the gradient of `{stage.reads[index]}`"
    gradient = np.asarray(right[index])
    for axis in range(gradient.ndim):
        for step, where in ((1, "after"), (-1, "before")):
            says = f"{whose} stands one place {where} its own along axis {axis}."
            yield _one(right, index, np.roll(gradient, step, axis), says)
        yield _one(right, index, np.flip(gradient, axis), f"{whose} is reversed along axis {axis}.")
    if gradient.ndim > 1:
        says = f"{whose} is turned by half a turn in its last two axes."
        yield _one(right, index, np.flip(gradient, (-1, -2)), says)


def _one(right: Gradients, index: int, instead: Any, says: str) -> Hypothesis:
    gradients = (*right[:index], instead, *right[index + 1 :])
    return Hypothesis(rank=0, says=says, gradients=gradients)
