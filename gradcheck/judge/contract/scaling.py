"""A power of two in the cotangent is a power of two in the gradient, to the last bit."""

from __future__ import annotations

from typing import Final

import numpy as np

from gradcheck.judge.contract.asking import Breach, Cotangent, Gradients, Vacuous, typed
from gradcheck.judge.contract.differing import place, told
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "A cotangent times a power of two gives the gradient times it, to the last bit."
FACTORS: Final = {
    "float64": (2.0, 0.5, -1.0, 2.0**80, 2.0**-80),
    "float32": (2.0, 0.5, -1.0, 2.0**40, 2.0**-40),
    "bfloat16": (2.0, 0.5, -1.0, 2.0**40, 2.0**-40),
    "float16": (2.0, 0.5, -1.0),
}


def scaling(subject: Subject) -> Breach | None:
    """As far as nothing over- or underflows: rounding scales with the numbers.

    Linear code has no other constants to compare a cotangent with; a threshold (a clip, a flush of
    small numbers) does.
    """
    ct, tried = subject.cts[0], 0
    base = subject.ask(ct)
    for factor in FACTORS[subject.dtype]:
        with np.errstate(over="ignore"):
            scaled = typed([part.astype(np.float64) * factor for part in ct], subject.kind)
        if not _in_range(subject, scaled, base, factor):
            continue
        tried += 1
        name_of = f"2^{int(np.log2(factor))}" if factor > 0 else "-1"
        off = _off(subject, subject.ask(scaled, f"for {name_of} times a cotangent"), base, factor)
        if off:
            return Breach(f"for {name_of} times the cotangent, {off}")
    if not tried:
        raise Vacuous("every factor leaves the range of the dtype")
    return None


def _in_range(subject: Subject, scaled: Cotangent, base: Gradients, factor: float) -> bool:
    """Whether cotangent and gradient stay normal numbers."""
    info = np.finfo(np.float64 if subject.dtype == "float64" else np.float32)
    low, high = float(info.tiny), float(info.max)
    if subject.dtype == "float16":
        low, high = 2.0**-14, 65504.0
    with np.errstate(over="ignore"):
        wanted = [abs(factor) * np.abs(g.astype(np.float64)) for g in base.values()]
    sizes = [*(np.abs(part.astype(np.float64)) for part in scaled), *wanted]
    return all(bool(np.all((s == 0) | ((s >= low) & (s <= high)))) for s in sizes)


def _off(subject: Subject, got: Gradients, base: Gradients, factor: float) -> str:
    for name, gradient in base.items():
        a = got[name].astype(np.float64)
        b = gradient.astype(np.float64) * factor
        # What under- or overflows inside may be multiplied before it is returned.
        lost = np.abs(a - b) <= subject.rules.underflow * max(1.0, abs(factor))
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | lost
        if not same.all():
            index = tuple(int(i) for i in np.argwhere(~same)[0])
            return f"d{name}{place(index)} is {told(a[index], b[index])}"
    return ""
