"""A gradient may take the memory of an argument, where that is declared."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.framed_memory import framed
from gradcheck.judge.contract.asking import Breach, Vacuous
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "A gradient that is written over an argument, as is declared, comes out the same."

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
