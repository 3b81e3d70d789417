"""No call remembers another: A, B of the same shape, another shape, and A again."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from gradcheck.judge.contract import determinism
from gradcheck.judge.contract.asking import Breach, Gradients, Unasked, Unfit
from gradcheck.judge.contract.subject import Subject
from gradcheck.results.verdict import Verdict

SAYS: Final = "An answer depends on this call's arguments alone, on no earlier call."


def stateless(subject: Subject) -> Breach | None:
    """What A gives is the same after B and after another shape; B, right after A, is right."""
    ct = subject.cts[0]
    first = subject.ask(ct)
    with suppress(Unfit, Unasked):
        subject.require_right()
        other = subject.renamed("other")
        off = other.wrong("after a call with other values of the same shape")
        if off:
            return Breach(f"after a call with other values of the same shape, {off}")
    found = _changed(subject, first, "other values of the same shape")
    if found is not None:
        return found
    for axis in (-1, 0):
        for size in (first_size(subject, axis) + 1, 1):
            with suppress(Unfit):
                larger = subject.resized(axis, size)
                larger.raw_if_any(larger.cts[0])
    return _changed(subject, first, "other shapes")


def first_size(subject: Subject, axis: int) -> int:
    """The size of the first floating primal along an axis; 1 for a scalar."""
    first = next(p for p in subject.primals if p.dtype == subject.kind)
    return first.shape[axis] if first.ndim else 1


def _changed(subject: Subject, first: Gradients, after: str) -> Breach | None:
    again = subject.ask(subject.cts[0], f"after calls with {after}")
    for name in first:
        if determinism.differs([first[name]], [again[name]]):
            return Breach(f"d{name} has other bits after calls with {after}", Verdict.ERROR)
    return None
