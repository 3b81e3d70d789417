"""A call depends on its arguments alone, and writes only into its results and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from gradcheck.implementations.checked_call import differs, mutated
from gradcheck.implementations.framed_memory import framed
from gradcheck.judge.contract.asking import (
    Breach,
    Cotangent,
    Gradients,
    Unasked,
    Unfit,
    Vacuous,
    place,
)
from gradcheck.judge.contract.subject import Subject
from gradcheck.numerics.arrays import Array
from gradcheck.numerics.draw import Draw
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import plural

REPEATS: Final = 10


def repeatable(subject: Subject) -> Breach | None:
    """The ordinary judgement asks twice; a race or a rare branch needs more."""
    ct = subject.cts[0]
    first = subject.ask(ct)
    for repeat in range(2, REPEATS + 1):
        again = subject.ask(ct, f"in call {repeat} with the same arguments")
        changed = [n for n in first if differs([first[n]], [again[n]])]
        if changed:
            return Breach(f"call {repeat} gives other bits of d{changed[0]}", Verdict.ERROR)
    return None


def stateless(subject: Subject) -> Breach | None:
    """What A gives is the same after B and after another shape; B, right after A, is right."""
    ct = subject.cts[0]
    first = subject.ask(ct)
    with suppress(Unfit, Unasked):
        subject.require_right()
        other = subject.renamed("other")
        off = other.wrong("after a call with other values of the same shape")
        if off:
            return Breach(f"after a call with other values of the same shape, {off}")
    found = _changed(subject, first, "other values of the same shape")
    if found is not None:
        return found
    for axis in (-1, 0):
        for size in (first_size(subject, axis) + 1, 1):
            with suppress(Unfit):
                larger = subject.resized(axis, size)
                larger.raw_if_any(larger.cts[0])
    return _changed(subject, first, "other shapes")


def first_size(subject: Subject, axis: int) -> int:
    """The size of the first floating primal along an axis; 1 for a scalar."""
    first = next(p for p in subject.primals if p.dtype == subject.kind)
    return first.shape[axis] if first.ndim else 1


def _changed(subject: Subject, first: Gradients, after: str) -> Breach | None:
    again = subject.ask(subject.cts[0], f"after calls with {after}")
    for name in first:
        if differs([first[name]], [again[name]]):
            return Breach(f"d{name} has other bits after calls with {after}", Verdict.ERROR)
    return None


def pure(subject: Subject) -> Breach | None:
    """Arguments that may be written to, where the ordinary judgement passes read-only ones."""
    ct, primals = subject.cts[0], subject.primals
    for how in ("vjp", "vjp_into") if subject.bound.into is not None else ("vjp",):
        given, values = _copies(ct), _copies(primals)
        if how == "vjp":
            subject.raw(given, "with arguments that may be written to", values, ready=True)
        else:
            outs = {name: out.array for name, out in subject.outs({}).items()}
            subject.fill_these(outs, given, values, "with arguments that may be written to")
        names = (*("ct",) * len(ct), *subject.truth.names)
        changed = mutated((*ct, *primals), (*given, *values), names)
        if changed is not None:
            return Breach(f"{how} writes into {changed} where it may", Verdict.ERROR)
    return None


def _copies(arrays: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(np.array(a, order="C") for a in arrays)


def owned(subject: Subject) -> Breach | None:
    """Keep the first answer itself, no copy of it, and call again with other cotangents."""
    first = subject.raw(subject.cts[0])
    before = {name: np.array(gradient) for name, gradient in first.items()}
    for ct in subject.cts[1:]:
        subject.raw(ct)
        for name, gradient in first.items():
            if differs([before[name]], [gradient]):
                return Breach(f"d{name} is a view of a buffer that the next call writes into")
    return None


def accumulates(subject: Subject) -> Breach | None:
    """Start from random numbers as large as the gradient, and find them in the sum."""
    added = [name for name in subject.names if name in subject.into.accumulates]
    if not added:
        raise Vacuous("no gradient is declared to accumulate")
    ct = subject.cts[0]
    alone = {n: out.array for n, out in subject.fill(ct).items()}
    off = subject.differ(ct, alone, subject.ask(ct))
    if off:
        return Breach(f"from buffers of zeros, vjp_into gives other numbers than vjp: {off}")
    held = preload(subject, alone)
    got = subject.fill(ct, {n: held[n] for n in added}, "with a buffer that holds numbers")
    bound = subject.allowed(ct, alone)
    terms = sum(part.size for part in ct)
    for name in added:
        a, b = (np.asarray(x, dtype=np.float64) for x in (got[name].array, alone[name]))
        start = np.asarray(held[name], dtype=np.float64)
        # Each of the terms may be added to the buffer on its own, and each addition rounds.
        steps = terms * subject.rules.u * (np.abs(start) + np.abs(b) + bound[name])
        ok = np.abs(a - (start + b)) <= 2 * bound[name] + steps
        if not ok.all():
            index = tuple(int(i) for i in np.argwhere(~ok)[0])
            near = np.abs(a - b) <= 2 * bound[name]
            how = "overwrites its buffer" if near.all() else "is not added to its buffer"
            return Breach(
                f"d{name} {how}: d{name}{place(index)} held {start[index]:.6g}, the gradient is "
                f"{b[index]:.6g}, and the buffer holds {a[index]:.6g} now"
            )
    return None


def preload(subject: Subject, like: Gradients) -> Gradients:
    """Dense random numbers, of the magnitude of each gradient."""
    out: Gradients = {}
    for name, gradient in like.items():
        draw = Draw(subject.case.seed, subject.case.name, name, "held before")
        out[name] = (draw.signed(*gradient.shape) * _magnitude(gradient)).astype(gradient.dtype)
    return out


def _magnitude(gradient: Array) -> float:
    size = np.abs(np.asarray(gradient, dtype=np.float64))
    largest = float(np.max(size[np.isfinite(size)], initial=0.0))
    return float(np.exp2(np.ceil(np.log2(largest)))) if largest > 0 else 1.0


def written(subject: Subject) -> Breach | None:
    """The same answer from buffers that hold zeros, NaN (poison), and numbers."""
    into = subject.into
    names = [n for n in subject.names if n not in into.accumulates and n not in into.zeroed]
    if not names:
        raise Vacuous("no gradient is declared to be overwritten")
    zeros = tuple(np.zeros_like(part) for part in subject.cts[0])
    for ct, given in ((subject.cts[0], ""), (zeros, "for a cotangent of zeros, ")):
        clean = {n: out.array for n, out in subject.fill(ct).items()}
        off = subject.differ(ct, clean, subject.ask(ct))
        if off:
            return Breach(f"{given}vjp_into gives other numbers than vjp: {off}")
        found = _kept(subject, ct, names, clean)
        if found:
            return Breach(given + found)
    return None


def _kept(subject: Subject, ct: Cotangent, names: Sequence[str], clean: Gradients) -> str:
    numbers = preload(subject, clean)
    poison: Gradients = {n: np.full_like(clean[n], np.nan) for n in clean}
    for held, what in ((poison, "NaN"), (numbers, "numbers")):
        got = subject.fill(ct, {n: held[n] for n in names}, f"with buffers that hold {what}")
        for name in names:
            a, b = got[name].array, clean[name]
            strange = ~((a == b) | (np.isnan(a) & np.isnan(b)))
            if strange.any():
                index = tuple(int(i) for i in np.argwhere(strange)[0])
                values = (float(x[index]) for x in (a, b, held[name]))
                return (
                    f"{int(strange.sum()):,} of {plural(a.size, 'element')} of d{name} depend on "
                    f"what was there: {_how(name + place(index), *values)}"
                )
    return ""


def _how(where: str, got: float, clean: float, held: float) -> str:
    if np.isnan(held):
        return f"with NaN before, d{where} is NaN after: never written, or added to"
    kept = "it is never written" if got == held else "it is added to"
    return f"d{where} held {held:.6g} and is {got:.6g} after; from 0, {clean:.6g}: {kept}"


def aliases(subject: Subject) -> Breach | None:
    """Every declared pair on its own, against the answer in memory of its own."""
    pairs = subject.into.aliases
    if not pairs:
        raise Vacuous("no gradient is declared to share an argument's memory")
    ct = subject.cts[0]
    apart = {n: out.array for n, out in subject.fill(ct).items()}
    for primal, argument in pairs:
        given = [np.array(part) for part in ct]
        values = [np.array(p) for p in subject.primals]
        place, at = (
            (given, 0) if argument == "ct" else (values, subject.truth.names.index(argument))
        )
        if primal not in subject.names or place[at].shape != apart[primal].shape:
            continue
        shared = framed(place[at]).array
        place[at] = shared
        outs = {n: out.array for n, out in subject.outs({}).items()}
        outs[primal] = shared
        what = f"d{primal} in the memory of {argument}"
        subject.fill_these(outs, tuple(given), values, f"with {what}")
        off = subject.differ(ct, outs, apart)
        if off:
            return Breach(f"with {what}, {off}")
    return None


def bounds(subject: Subject) -> Breach | None:
    """Canaries before and after every buffer; in a worker process, pages that no one may touch."""
    found = _strayed(subject, "")
    for axis in (-1, 0):
        for size in (first_size(subject, axis) + 1, 1):
            with suppress(Unfit):
                found = found or _strayed(subject.resized(axis, size), f" at size {size}")
    return found


def _strayed(subject: Subject, where: str) -> Breach | None:
    for name, out in subject.fill(subject.cts[0]).items():
        at = out.strayed
        if at is not None:
            size = out.array.size
            side = f"{-at} before the start" if at < 0 else f"{at - size + 1} past the end"
            return Breach(f"{side} of d{name} ({plural(size, 'element')}){where}", Verdict.ERROR)
    return None
