"""A gradient has its primal's dtype on every path through the code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import numpy as np

from gradcheck.judge.contract.asking import Breach, Cotangent, Unfit
from gradcheck.judge.contract.linear import spike
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "A gradient has the dtype of its primal, on every path through the code."


def form(subject: Subject) -> Breach | None:
    """The early returns: cotangents of zeros or nearly so, no elements, one, few, many."""
    for what, asked, ct in _visits(subject):
        for name, gradient in asked.raw_if_any(ct).items():
            if gradient.dtype != subject.kind:
                return Breach(
                    f"{what}, d{name} is {gradient.dtype}, and {name} {subject.kind.name}"
                )
    return None


def _visits(subject: Subject) -> Iterator[tuple[str, Subject, Cotangent]]:
    ct = subject.cts[0]
    yield "with the cotangent normal", subject, ct
    yield "with a cotangent of zeros", subject, tuple(np.zeros_like(part) for part in ct)
    yield "with a cotangent of ones", subject, subject.cts[2]
    yield "with a cotangent of a single one", subject, spike(ct, 0)
    for axis, name in ((0, "first"), (-1, "last")):
        for size in (0, 1, 33):
            with suppress(Unfit):
                other = subject.resized(axis, size)
                yield f"with {size} along the {name} axis", other, other.cts[0]
