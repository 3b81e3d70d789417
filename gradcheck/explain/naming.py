"""What exactly is wrong with a VJP: in words, by hypotheses that reproduce what was returned.

A hypothesis is named only if it gives the same numbers to rounding and the right VJP does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F64
from gradcheck.explain.hypothesis import Hypothesis, hypotheses
from gradcheck.model import Program, Stage, Values
from gradcheck.power.mutant import Mutant

Float = NDArray[np.float64]
Gradients = Sequence[Any]

SAME: Final = {"mp50": 1e-13, "float64": 1e-10, "float32": 3e-5}
"""Distance, relative to the largest element, that rounding alone explains."""
CLOSER: Final = 0.01
"""A hypothesis must be so many times nearer to what was returned than the right VJP is."""
TOLD: Final = 3
"""Names that are given where several hypotheses cannot be told apart."""


def name(
    stage: Stage,
    cts: Gradients,
    got: Gradients,
    values: Values,
    mutants: Sequence[Mutant] = (),
    dtype: str = "float64",
) -> tuple[str, ...]:
    """What is wrong with one stage: sentences, () where nothing reproduces it.

    `cts` are the reference's cotangents of its outputs, `got` is what it returned for them, one
    per value read (None: nothing), `values` are the reference's, in float64, by name. `mutants`
    are those of its operator; `dtype` is the one in which `got` was computed.
    """
    right = stage.vjp(F64, tuple(cts), values)
    slots = {i for i, g in enumerate(right) if g is not None}
    missing = [i for i in sorted(slots) if got[i] is None or np.shape(got[i]) != np.shape(right[i])]
    said = [_lacking(stage, i, got[i], right[i]) for i in missing]
    left = {i for i in slots - set(missing) if not _near(got[i], right[i], dtype)}
    found = [
        *_simple(stage, right),
        *hypotheses(stage, tuple(cts), values, mutants),
    ]
    left -= _say(stage, found, got, right, left, dtype, said)
    said += [_pattern(stage, i, _array(got[i]), _array(right[i]), dtype) for i in sorted(left)]
    return tuple(text for text in said if text)


def _say(
    stage: Stage,
    found: Sequence[Hypothesis],
    got: Gradients,
    right: Gradients,
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
                if _reproduces(hypothesis.gradients[i], got[i], right[i], dtype)
            )
            if slots and _harmless(hypothesis, right, got, slots, dtype):
                key = (-len(slots), hypothesis.rank, slots)
                fits.setdefault(key, []).append(hypothesis.says)
        if not fits:
            break
        best = min(fits, key=lambda key: (*key[:2], sorted(key[2])))
        names = list(dict.fromkeys(fits[best]))
        more = f" (or one of {len(names) - TOLD} more)" if len(names) > TOLD else ""
        said.append(f"{_which(stage, best[2])}: {' Or: '.join(names[:TOLD])}{more}")
        explained |= best[2]
    return explained


def _harmless(
    hypothesis: Hypothesis, right: Gradients, got: Gradients, slots: frozenset[int], dtype: str
) -> bool:
    """Whether it leaves right what was returned right: a single cause explains all that is seen."""
    for i, true in enumerate(right):
        if i in slots or true is None or got[i] is None:
            continue
        if np.shape(got[i]) != np.shape(true) or not _near(got[i], true, dtype):
            continue
        if not _near(hypothesis.gradients[i], true, dtype):
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


def _simple(stage: Stage, right: Gradients) -> Iterator[Hypothesis]:
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


# ── patterns of an error ─────────────────────────────────────────────────────────────────────


def _pattern(stage: Stage, index: int, got: Float, right: Float, dtype: str) -> str:
    """Where a gradient is wrong, and by which factor if there is one; "" if nothing is special."""
    which = f"d{stage.primals[index]}"
    wrong = ~_close(got, right, dtype)
    where = _where(stage, wrong)
    how = _factor(got[wrong], right[wrong], dtype)
    if not (where or how):
        return ""
    return f"{which}: {' '.join(part for part in (how or 'wrong', where) if part)}."


def _factor(got: Float, right: Float, dtype: str) -> str:
    if not np.isfinite(got).all():
        return "not finite"
    if not np.any(got):
        return "zero"
    size = float(right @ right)
    factor = float(got @ right) / size if size else 0.0
    if not _near(got, factor * right, dtype):
        return ""
    return (
        "its sign is wrong"
        if factor == -1.0 or abs(factor + 1) < SAME[dtype]
        else (f"{factor:.6g} times what it should be")
    )


def _root(factor: float, dtype: str) -> str:
    """What an odd factor may stand for: a root, or a fraction, of a whole number."""
    for value, form in ((factor, "{}"), (1 / factor, "1/{}")):
        for whole, sign in ((value, "{}"), (value * value, "√{}")):
            near = round(whole)
            odd = form == "{}" == sign
            if not odd and 1 < near < 10_000 and abs(whole - near) <= SAME[dtype] * near:
                return f" ({form.format(sign.format(near))})" if value > 0 else ""
    return ""


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
    return "only " + " and ".join(parts) if parts else f"in {count} of {wrong.size} elements"


def _places(places: NDArray[np.int64]) -> str:
    first, last = int(places[0]), int(places[-1])
    if len(places) == 1:
        return f"place {first}"
    if last - first + 1 == len(places):
        return f"places {first} to {last}"
    shown = ", ".join(str(int(p)) for p in places[:6])
    return f"places {shown}{', …' if len(places) > 6 else ''}"


# ── end to end ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """A defect of one stage that gives all the end-to-end gradients that were returned."""

    stage: str
    says: str


def reproduce(
    program: Program,
    values: Values,
    cts: Mapping[str, Any],
    got: Mapping[str, Any],
    suspects: Collection[str],
    mutants: Mapping[str, Sequence[Mutant]],
    dtype: str = "float64",
) -> tuple[Reproduced, ...]:
    """Which defects of which suspects reproduce every gradient in `got`, the simplest ones.

    `got` holds what was returned, by name; names with None are left out of the comparison.
    """
    right = {name: cts[name] for name in got if name in cts}
    judged = {n: g for n, g in got.items() if n in right and np.shape(g) == np.shape(right[n])}
    best: dict[int, list[Reproduced]] = {}
    for stage in program.stages:
        if stage.name not in suspects:
            continue
        whole = _cotangents(stage, values, cts)
        true = stage.vjp(F64, whole, values)
        for hypothesis in (
            *_simple(stage, true),
            *hypotheses(stage, whole, values, mutants.get(stage.op.name, ())),
        ):  # fmt: skip
            if best and hypothesis.rank > min(best):
                break
            if not _fits_shapes(hypothesis.gradients, true):
                continue
            folded = program.backward(
                F64, values, np.array(1.0), _instead(stage.name, hypothesis.gradients)
            )
            if _all_reproduced(folded, judged, right, dtype):
                best.setdefault(hypothesis.rank, []).append(
                    Reproduced(stage=stage.name, says=hypothesis.says)
                )
    return tuple(best[min(best)]) if best else ()


def contributions(
    program: Program, values: Values, cts: Mapping[str, Any], name: str, got: Any, dtype: str
) -> str:
    """What a tied gradient lacks: which of its readers' contributions are in it; "" if unclear."""
    shares = {}
    for stage in program.readers.get(name, ()):
        found = stage.vjp(F64, _cotangents(stage, values, cts), values)
        own = [g for read, g in zip(stage.reads, found, strict=True) if read == name]
        shares[stage.name] = sum(g for g in own if g is not None)
    right = sum(shares.values())
    if len(shares) < 2 or got is None or np.shape(got) != np.shape(right):
        return ""
    for lost, share in shares.items():
        if _reproduces(right - share, got, right, dtype):
            kept = ", ".join(f"`{other}`" for other in shares if other != lost)
            return (
                f"`{name}`: it is the contribution of {kept} alone; that of `{lost}` is "
                "overwritten instead of added, or its buffer is not bound."
            )
    for kept, share in shares.items():
        if _reproduces(share, got, right, dtype):
            return f"`{name}`: it is the contribution of `{kept}` alone; the others are lost."
        if _reproduces(right + share, got, right, dtype):
            return f"`{name}`: the contribution of `{kept}` is added twice."
    return ""


def _cotangents(stage: Stage, values: Values, cts: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(
        cts[name] if name in cts else np.zeros_like(values[name]) for name in stage.outputs
    )


def _instead(name: str, gradients: Gradients) -> Any:
    def vjp(stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        return tuple(gradients) if stage.name == name else stage.vjp(F64, cts, values)

    return vjp


def _fits_shapes(gradients: Gradients, right: Gradients) -> bool:
    return all(
        true is None or (g is not None and np.shape(g) == np.shape(true))
        for g, true in zip(gradients, right, strict=True)
    )


def _all_reproduced(
    folded: Mapping[str, Any], got: Mapping[str, Any], right: Mapping[str, Any], dtype: str
) -> bool:
    differs = [name for name in got if not _near(got[name], right[name], dtype)]
    return (
        bool(differs)
        and all(_near(folded.get(name), got[name], dtype) for name in got)
        and all(_reproduces(folded[name], got[name], right[name], dtype) for name in differs)
    )


# ── when two gradients are the same ──────────────────────────────────────────────────────────


def _array(x: Any) -> Float:
    return np.asarray(x, dtype=np.float64)


def _close(a: Any, b: Any, dtype: str) -> NDArray[np.bool_]:
    a, b = _array(a), _array(b)
    with np.errstate(all="ignore"):
        size = float(np.max(np.abs(b), initial=0.0))
        same = (np.abs(a - b) <= SAME[dtype] * size) | (a == b)
    return np.asarray(same)


def _near(a: Any, b: Any, dtype: str) -> bool:
    if a is None or b is None or np.shape(a) != np.shape(b):
        return a is b
    return bool(_close(a, b, dtype).all())


def _reproduces(hypothesis: Any, got: Any, right: Any, dtype: str) -> bool:
    """Whether it is what was returned, to rounding, and far nearer to it than the right one."""
    if hypothesis is None or np.shape(hypothesis) != np.shape(got):
        return False
    if not _near(hypothesis, got, dtype) or _near(right, got, dtype):
        return False
    a, b, c = _array(hypothesis), _array(got), _array(right)
    with np.errstate(all="ignore"):
        mine, its = np.abs(a - b), np.abs(c - b)
    mine, its = (np.where(np.isfinite(d), d, 0.0) for d in (mine, its))
    return bool(np.max(mine, initial=0.0) <= CLOSER * np.max(its, initial=0.0))
