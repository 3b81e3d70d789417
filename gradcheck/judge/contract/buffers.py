"""What `vjp_into` writes: accumulated, overwritten, aliased, and nothing outside."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.framed_memory import framed
from gradcheck.judge.contract.asking import Breach, Cotangent, Gradients, Unfit, Vacuous, place
from gradcheck.judge.contract.side_effects import first_size
from gradcheck.judge.contract.subject import Subject
from gradcheck.numerics.draw import Draw
from gradcheck.results.verdict import Verdict


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


def _magnitude(gradient: NDArray[Any]) -> float:
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
                    f"{int(strange.sum())} of {a.size} elements of d{name} depend on what was "
                    f"there: {_how(name + place(index), *values)}"
                )
    return ""


def _how(where: str, got: float, clean: float, held: float) -> str:
    if np.isnan(held):
        return f"with NaN before, d{where} is NaN after: never written, or added to"
    kept = "it is never written" if got == held else "it is added to"
    return f"d{where} held {held:.6g} and is {got:.6g} after; from 0, {clean:.6g}: {kept}"


Array = NDArray[Any]


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
            return Breach(f"{side} of d{name} ({size} elements){where}", Verdict.ERROR)
    return None
