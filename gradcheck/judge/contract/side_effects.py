"""A call depends on its arguments alone, and changes nothing but its results."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.checked_call import differs, mutated
from gradcheck.judge.contract.asking import Breach, Gradients, Unasked, Unfit
from gradcheck.judge.contract.subject import Subject
from gradcheck.results.verdict import Verdict

REPEATS: Final = 10


def repeatable(subject: Subject) -> Breach | None:
    """The ordinary judgement asks twice; a race or a rare branch needs more."""
    ct = subject.cts[0]
    first = subject.ask(ct)
    for repeat in range(2, REPEATS + 1):
        again = subject.ask(ct, f"in call {repeat} with the same arguments")
        changed = [n for n in first if differs([first[n]], [again[n]])]
        if changed:
            return Breach(f"call {repeat} gives other bits of d{changed[0]}", Verdict.ERROR)
    return None


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
        if differs([first[name]], [again[name]]):
            return Breach(f"d{name} has other bits after calls with {after}", Verdict.ERROR)
    return None


Array = NDArray[Any]


def pure(subject: Subject) -> Breach | None:
    """Arguments that may be written to, where the ordinary judgement passes read-only ones."""
    ct, primals = subject.cts[0], subject.primals
    for how in ("vjp", "vjp_into") if subject.bound.into is not None else ("vjp",):
        given, values = _copies(ct), _copies(primals)
        if how == "vjp":
            subject.raw(given, "with arguments that may be written to", values, ready=True)
        else:
            outs = {name: out.array for name, out in subject.outs({}).items()}
            subject.fill_these(outs, given, values, "with arguments that may be written to")
        names = (*("ct",) * len(ct), *subject.truth.names)
        changed = mutated((*ct, *primals), (*given, *values), names)
        if changed is not None:
            return Breach(f"{how} writes into {changed} where it may", Verdict.ERROR)
    return None


def _copies(arrays: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(np.array(a, order="C") for a in arrays)


def owned(subject: Subject) -> Breach | None:
    """Keep the first answer itself, no copy of it, and call again with other cotangents."""
    first = subject.raw(subject.cts[0])
    before = {name: np.array(gradient) for name, gradient in first.items()}
    for ct in subject.cts[1:]:
        subject.raw(ct)
        for name, gradient in first.items():
            if differs([before[name]], [gradient]):
                return Breach(f"d{name} is a view of a buffer that the next call writes into")
    return None
