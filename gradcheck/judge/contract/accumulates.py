"""What is declared to accumulate adds to what its buffer holds."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.contract.asking import Breach, Gradients, Vacuous
from gradcheck.judge.contract.differing import place
from gradcheck.judge.contract.subject import Subject
from gradcheck.numerics.draw import Draw

SAYS: Final = "A gradient that accumulates is added to what its buffer holds."


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
