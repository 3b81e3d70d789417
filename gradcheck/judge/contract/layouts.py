"""Arguments of any memory layout are read where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations import framed_memory
from gradcheck.judge.contract import purity
from gradcheck.judge.contract.asking import Breach, Cotangent, Unasked
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "An argument is read by its own strides, whatever they are."

Array = NDArray[Any]


def layouts(subject: Subject) -> Breach | None:
    """Each argument in turn, in every layout, against contiguous copies of the same numbers.

    The views lie amid other numbers: code that assumes strides reads those, and nothing beyond.
    """
    if not subject.bound.strided:
        raise Unasked("arrays reach the code as contiguous copies")
    base = subject.ask(subject.cts[0])
    for what, ct, primals in _views(subject):
        flat = tuple(np.ascontiguousarray(part) for part in ct)
        stretched = any(0 in part.strides and part.size > 1 for part in ct)
        want = subject.ask(flat) if stretched else base
        got = subject.raw(ct, f"with {what}", primals, ready=True)
        off = subject.differ(flat, got, want)
        if off:
            return Breach(f"with {what}, {off}")
    return None


def _views(subject: Subject) -> Iterator[tuple[str, Cotangent, Sequence[Array]]]:
    ct, primals = purity.guarded(subject.cts[0]), purity.guarded(subject.primals)
    for i, part in enumerate(ct):
        name = "the cotangent" if len(ct) == 1 else f"cotangent {i}"
        for how, view in (*framed_memory.layouts(part), *framed_memory.expanded(part)):
            yield f"{name} {how}", (*ct[:i], view, *ct[i + 1 :]), primals
    for i, primal in enumerate(primals):
        for how, view in framed_memory.layouts(primal):
            yield f"{subject.truth.names[i]} {how}", ct, (*primals[:i], view, *primals[i + 1 :])
