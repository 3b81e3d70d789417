"""Every element of an output that is overwritten is written, whatever was there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gradcheck.judge.contract.accumulates import preload
from gradcheck.judge.contract.asking import Breach, Cotangent, Gradients, Vacuous
from gradcheck.judge.contract.differing import place
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "A gradient that does not accumulate is written whole, whatever its buffer held."


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
