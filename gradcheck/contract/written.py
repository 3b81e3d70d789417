"""Every element of an output that is overwritten is written, whatever was there."""

from __future__ import annotations

from typing import Final

import numpy as np

from gradcheck.contract.accumulates import preload
from gradcheck.contract.subject import Breach, Gradients, Inapplicable, Subject, place

SAYS: Final = "A gradient that does not accumulate is written whole, whatever its buffer held."


def written(subject: Subject) -> Breach | None:
    """The same answer from buffers that hold zeros, NaN (poison), and numbers."""
    into = subject.into
    names = [n for n in subject.names if n not in into.accumulates and n not in into.zeroed]
    if not names:
        raise Inapplicable("no gradient is declared to be overwritten")
    ct = subject.cts[0]
    clean = {n: out.array for n, out in subject.fill(ct).items()}
    numbers = preload(subject, clean)
    poison: Gradients = {n: np.full_like(clean[n], np.nan) for n in clean}
    for held, what in ((poison, "NaN"), (numbers, "numbers")):
        got = subject.fill(ct, {n: held[n] for n in names}, f"with buffers that hold {what}")
        for name in names:
            a, b = got[name].array, clean[name]
            strange = ~((a == b) | (np.isnan(a) & np.isnan(b)))
            if strange.any():
                index = tuple(int(i) for i in np.argwhere(strange)[0])
                return Breach(
                    f"{int(strange.sum())} of {a.size} elements of d{name} depend on what was "
                    f"there: {_how(a[index], b[index], held[name][index], name + place(index))}"
                )
    return None


def _how(got: float, clean: float, held: float, where: str) -> str:
    if np.isnan(held):
        return f"with NaN before, d{where} is NaN after: never written, or added to"
    kept = "it is never written" if got == held else "it is added to"
    return f"d{where} held {float(held):.6g}, and is {float(got):.6g} after, from 0 {float(clean):.6g}: {kept}"
