"""What is wrong with one stage of a model, in words.

Wrong VJPs that the stage might have (its operator's mutants, wrong saved values, wrong attributes)
are computed from the reference's cotangents and values. One is named only if it gives the returned
numbers to rounding and the right VJP does not; else the pattern of the error is described.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.probe import ROUNDING_TOLERANCE, as_float64, called, close, near, reproduces
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.narrow import BITS, narrower
from gradcheck.results.words import plural
from gradcheck.spec.fault import PLACES, narrowed
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.program import Stage, Values

Gradients = tuple[Any, ...]
Returned = Sequence[Any]

COMPOUND_RANK: Final = 3
"""Rank of two defects at once."""
MAX_NEAREST_VALUES: Final = 24
"""Values, those written next to a stage, that are tried with every mutant in place of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDefect:
    """One way to be wrong: `gradients`, one per value read; lower `rank`s are simpler."""

    rank: int
    says: str
    gradients: Gradients


def wrong_vjps(
    stage: Stage, cts: Gradients, values: Values, mutants: Sequence[Mutant]
) -> Iterator[StageDefect]:
    """Wrong VJPs that a stage may have, the simplest first.

    `cts` are the cotangents of its outputs, `values` all values of the program by name, both in
    float64; `mutants` are those of its operator.
    """
    fitting = [mutant for mutant in mutants if _fits(mutant, stage)]
    primals = [values[name] for name in stage.reads]
    for mutant in fitting:
        yield from _tried(1, _mutant_words(mutant), mutant.fresh(), stage, cts, primals)
    right = stage.vjp(F64, cts, values)
    for says, part in _partial(cts):
        yield from _each(stage, right, _tried(2, says, stage.op.vjp, stage, part, primals))
    for says, attrs in _attributes(stage):
        yield from _each(stage, right, _tried(2, says, stage.op.vjp, stage, cts, primals, attrs))
    for says, read in _misread(stage, values):
        yield from _each(stage, right, _tried(2, says, stage.op.vjp, stage, cts, read))
    for says, read in _misread(stage, values, MAX_NEAREST_VALUES):
        for mutant in fitting:
            both = f"{_mutant_words(mutant)} And it {says}"
            yield from _tried(COMPOUND_RANK, both, mutant.fresh(), stage, cts, read)


def narrow_vjps(stage: Stage, cts: Gradients, values: Values, dtype: str) -> Iterator[StageDefect]:
    """The stage computes in a type that is narrower than the dtype that it is judged in."""
    for kind in narrower(dtype) if dtype in BITS else ():
        for place in PLACES:
            made = narrowed(place, kind)(F64, stage, cts, values)
            verb = "are" if place == "operands" else "is"
            says = f"its {place} {verb} rounded to {kind.title}, {kind.bits - 1} bits of mantissa."
            yield StageDefect(rank=1, says=says, gradients=made)


def _mutant_words(mutant: Mutant) -> str:
    return f"{mutant.full_name}: {mutant.says.rstrip('. ')}."


def _tried(
    rank: int,
    says: str,
    vjp: Any,
    stage: Stage,
    cts: Gradients,
    primals: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
) -> Iterator[StageDefect]:
    found = called(vjp, cts, primals, {**stage.all_attrs, **(attrs or {})})
    if found is not None:
        yield StageDefect(rank=rank, says=says, gradients=found)


def _each(stage: Stage, right: Gradients, found: Iterator[StageDefect]) -> Iterator[StageDefect]:
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
    """The stage's operands with one of them replaced by another value of its shape and kind."""
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


def misplaced_gradients(stage: Stage, right: Gradients) -> Iterator[StageDefect]:
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


def _moved(stage: Stage, right: Gradients, index: int) -> Iterator[StageDefect]:
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


def _one(right: Gradients, index: int, instead: Any, says: str) -> StageDefect:
    gradients = (*right[:index], instead, *right[index + 1 :])
    return StageDefect(rank=0, says=says, gradients=gradients)


Float = NDArray[np.float64]

WHERE_ALONE: Final = ": wrong "
"""What stands in a sentence that says where a gradient is wrong, but not how."""


def pattern(stage: Stage, index: int, got: Float, right: Float, dtype: str) -> str:
    """Where a gradient is wrong, and by which factor if there is one; "" if nothing is special."""
    which = f"d{stage.primals[index]}"
    wrong = ~close(got, right, dtype)
    where = _where(stage, wrong)
    how = _factor(got[wrong], right[wrong], dtype)
    if not (where or how):
        return ""
    return f"{which}{WHERE_ALONE}{where}." if not how else f"{which}: {how} {where}".rstrip() + "."


def _factor(got: Float, right: Float, dtype: str) -> str:
    if not np.isfinite(got).all():
        return "not finite"
    if not np.any(got):
        return "zero"
    size = float(right @ right)
    factor = float(got @ right) / size if size else 0.0
    if not near(got, factor * right, dtype):
        return ""
    return (
        "its sign is wrong"
        if factor == -1.0 or abs(factor + 1) < ROUNDING_TOLERANCE[dtype]
        else (f"{factor:.6g}{_root(factor, dtype)} times what it should be")
    )


def _root(factor: float, dtype: str) -> str:
    """A factor as a root or a fraction of a whole number."""
    if factor < 0 or _whole(factor, dtype):
        return ""
    if _whole(1 / factor, dtype):
        return f" (1/{round(1 / factor)})"
    if _whole(factor**2, dtype):
        return f" (√{round(factor**2)})"
    return f" (1/√{round(factor**-2)})" if _whole(factor**-2, dtype) else ""


def _whole(value: float, dtype: str) -> bool:
    return (
        1 < round(value) < 10_000 and abs(value - round(value)) <= ROUNDING_TOLERANCE[dtype] * value
    )


def _where(stage: Stage, wrong: NDArray[np.bool_]) -> str:
    """The part of a tensor that is wrong: one element, a head, or places along one axis."""
    count = int(wrong.sum())
    if count == wrong.size:
        return ""
    if count == 1:
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"in one element, {list(index)}"
    parts = []
    heads = int(stage.all_attrs.get("heads", 0))
    for axis, length in enumerate(wrong.shape):
        others = tuple(a for a in range(wrong.ndim) if a != axis)
        places = np.flatnonzero(wrong.any(axis=others))
        if len(places) == length:
            continue
        last = axis == wrong.ndim - 1
        blocks = {int(p) * heads // length for p in places} if heads and last else set()
        if len(blocks) == 1 and length % heads == 0 and len(places) * heads == length:
            parts.append(f"in head {blocks.pop()} of {heads}")
        else:
            parts.append(f"at {_places(places)} of {length} along axis {axis}")
    return (
        "only " + " and ".join(parts)
        if parts
        else f"in {count:,} of {plural(wrong.size, 'element')}"
    )


def _places(places: NDArray[np.int64]) -> str:
    first, last = int(places[0]), int(places[-1])
    if len(places) == 1:
        return f"place {first}"
    if last - first + 1 == len(places):
        return f"places {first} to {last}"
    shown = ", ".join(str(int(p)) for p in places[:6])
    return f"places {shown}{', …' if len(places) > 6 else ''}"


MAX_LISTED: Final = 3
"""Names that are given where several hypotheses cannot be told apart."""


def name_defect(
    stage: Stage,
    cts: Returned,
    got: Returned,
    values: Values,
    mutants: Sequence[Mutant] = (),
    dtype: str = "float64",
    rest: Callable[[int], str] = lambda _: "",
) -> tuple[str, ...]:
    """What is wrong with one stage, in sentences; () where nothing reproduces it.

    Args:
        stage: The stage.
        cts: The reference's cotangents of its outputs.
        got: The gradients that it returned for them, one per value read (None: nothing).
        values: The reference's values by name, in float64.
        mutants: Mutants of the stage's operator.
        dtype: The dtype in which `got` was computed.
        rest: Describes the gradient at an index that no wrong VJP reproduces ("": unknown).
    """
    right = stage.vjp(F64, tuple(cts), values)
    slots = {i for i, g in enumerate(right) if g is not None}
    missing = [i for i in sorted(slots) if got[i] is None or np.shape(got[i]) != np.shape(right[i])]
    said = [_lacking(stage, i, got[i], right[i]) for i in missing]
    left = {i for i in slots - set(missing) if not near(got[i], right[i], dtype)}
    if left:
        left -= _say(stage, list(narrow_vjps(stage, tuple(cts), values, dtype)), got, right, left,
                     dtype, said)  # fmt: skip
    ways = itertools.chain(
        misplaced_gradients(stage, right), wrong_vjps(stage, tuple(cts), values, mutants)
    )
    for _, alike in itertools.groupby(ways, key=lambda h: h.rank == COMPOUND_RANK):
        if left:
            left -= _say(stage, list(alike), got, right, left, dtype, said)
    said += [
        rest(i) or pattern(stage, i, as_float64(got[i]), as_float64(right[i]), dtype)
        for i in sorted(left)
    ]
    return tuple(text for text in said if text)


def _say(
    stage: Stage,
    found: Sequence[StageDefect],
    got: Returned,
    right: Returned,
    left: set[int],
    dtype: str,
    said: list[str],
) -> set[int]:
    """Add what explains the most gradients, the simplest first; returns which are explained."""
    explained: set[int] = set()
    while left - explained:
        fits: dict[tuple[int, int, frozenset[int]], list[str]] = {}
        for hypothesis in found:
            slots = frozenset(
                i
                for i in left - explained
                if reproduces(hypothesis.gradients[i], got[i], right[i], dtype)
            )
            if slots and _keeps_right(hypothesis, right, got, slots, dtype):
                key = (-len(slots), hypothesis.rank, slots)
                fits.setdefault(key, []).append(hypothesis.says)
        if not fits:
            break
        best = min(fits, key=lambda key: (*key[:2], sorted(key[2])))
        names = list(dict.fromkeys(fits[best]))
        more = f" (or one of {len(names) - MAX_LISTED} more)" if len(names) > MAX_LISTED else ""
        said.append(f"{_which(stage, best[2])}: {' Or: '.join(names[:MAX_LISTED])}{more}")
        explained |= best[2]
    return explained


def _keeps_right(
    hypothesis: StageDefect, right: Returned, got: Returned, slots: frozenset[int], dtype: str
) -> bool:
    """Whether the defect leaves right gradients right, so that one cause explains everything."""
    for i, true in enumerate(right):
        if i in slots or true is None or got[i] is None:
            continue
        if np.shape(got[i]) != np.shape(true) or not near(got[i], true, dtype):
            continue
        if not near(hypothesis.gradients[i], true, dtype):
            return False
    return True


def _which(stage: Stage, slots: Iterable[int]) -> str:
    return ", ".join(f"d{stage.primals[i]}" for i in sorted(slots))


def _lacking(stage: Stage, index: int, got: Any, right: Any) -> str:
    if got is None:
        return f"d{stage.primals[index]}: no gradient of `{stage.reads[index]}` is produced."
    return (
        f"d{stage.primals[index]}: its shape is {np.shape(got)}, "
        f"`{stage.reads[index]}` has {np.shape(right)}."
    )
