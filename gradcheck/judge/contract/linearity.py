"""A backward is linear in its cotangent: sums, zero, powers of two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from gradcheck.judge.contract.asking import (
    Breach,
    Cotangent,
    Gradients,
    Vacuous,
    difference,
    in_digits,
    place,
    typed,
)
from gradcheck.judge.contract.subject import Subject
from gradcheck.numerics.arrays import Array, Float

A, B = 30.0, -7.0


def linear(subject: Subject) -> Breach | None:
    """Combinations of dense cotangents, and of one with single elements.

    The bounds for u, v and w add up, so that code within its bounds passes.
    """
    for what, u, v in _pairs(subject):
        w = typed([A * _wide(p) + B * _wide(q) for p, q in zip(u, v, strict=True)], subject.kind)
        parts = [(1.0, w), (A, u), (B, v)]
        answers = [subject.ask(ct, f"for {what}") for _, ct in parts]
        bounds = [subject.allowed(ct, got) for (_, ct), got in zip(parts, answers, strict=True)]
        allowed: Gradients = {}
        for name, cost in subject.cost(w).items():
            allowed[name] = subject.rules.u * cost  # w is rounded to the dtype
            for (factor, _), bound in zip(parts, bounds, strict=True):
                allowed[name] = allowed[name] + abs(factor) * bound[name]
        want: Gradients = {n: A * _wide(answers[1][n]) + B * _wide(answers[2][n])
                           for n in subject.names}  # fmt: skip
        off = difference(answers[0], want, allowed)
        if off:
            return Breach(f"with {what}, {off}")
    return None


def _pairs(subject: Subject) -> Iterator[tuple[str, Cotangent, Cotangent]]:
    normal, powers, _ = subject.cts
    yield "u normal and v of signed powers of two", normal, powers
    for end, at in (("first", 0), ("last", -1)):
        yield f"u one at its {end} element and zero elsewhere, v normal", spike(normal, at), normal


def spike(like: Cotangent, at: int) -> Cotangent:
    """Zeros, but for a one at flat index `at` of each output."""
    out = []
    for part in like:
        flat = np.zeros(part.size, dtype=part.dtype)
        flat[at : at + 1 if at >= 0 else None] = 1.0
        out.append(flat.reshape(part.shape))
    return tuple(out)


def _wide(values: Array) -> Float:
    return values.astype(np.float64)


def zero(subject: Subject) -> Breach | None:
    """Exactly zero: a NaN or a remainder is none."""
    ct = tuple(np.zeros_like(part) for part in subject.cts[0])
    wanted = subject.want(ct)
    for name, got in subject.ask(ct, "for a cotangent of zeros").items():
        strange = np.argwhere((got != 0) & ~np.isnan(np.asarray(wanted[name])))
        if len(strange):
            index = tuple(int(i) for i in strange[0])
            return Breach(f"d{name}{place(index)} is {float(got[index]):g}")
    return None


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
            return f"d{name}{place(index)} is {in_digits(a[index], b[index])}"
    return ""
