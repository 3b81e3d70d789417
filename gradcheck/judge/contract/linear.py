"""A VJP is linear in its cotangent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.contract.asking import Breach, Cotangent, Gradients, typed
from gradcheck.judge.contract.differing import difference
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "A backward is linear in the cotangent: g(30u - 7v) = 30 g(u) - 7 g(v)."
A, B = 30.0, -7.0


def linear(subject: Subject) -> Breach | None:
    """Combinations of dense cotangents, and of one with single elements.

    Whoever passes the ordinary judgement for u, v and w passes here: the three bounds add up.
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


def _wide(values: NDArray[Any]) -> NDArray[np.float64]:
    return values.astype(np.float64)
