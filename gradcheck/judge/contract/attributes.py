"""An attribute that changes the truth changes the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np

from gradcheck.judge.contract.asking import Breach, Gradients, Unfit, Vacuous
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "A backward follows every attribute that it takes."
TINY: Final = 2.0**-6
"""A constant below this guards a division."""
SEEN: Final = 0.125
"""What shows that it is there."""
VISIBLE: Final = 16.0
"""By so many times what may be off must an attribute change the truth before it is asked about."""


def attributes(subject: Subject) -> Breach | None:
    """One attribute at a time: what other samples and dialects give it, and numeric nudges."""
    if not subject.case.attrs:
        raise Vacuous("the operator has no attributes")
    subject.require_right()
    ct, seen = subject.cts[0], 0
    base, truth = subject.ask(ct), subject.want(ct)
    for name, value in _candidates(subject):
        with suppress(Unfit):
            other = subject.renamed("nudged", {name: value})
            if _shapes(other) != _shapes(subject):
                continue
            wanted = other.want(ct)
            if not _moves(other, ct, truth, wanted):
                continue
            what = f"{name} changes from {subject.case.attrs[name]!r} to {value!r}"
            got = other.ask(ct, f"where {what}")
            seen += 1
            if not subject.differ(ct, got, base):
                return Breach(f"{name} is ignored: where {what}, the truth changes, and no answer")
            off = other.wrong(f"where {what}")
            if off:
                return Breach(f"where {what}, {off}")
    if not seen:
        raise Vacuous("no attribute that is taken changes the gradient of this sample")
    return None


def _candidates(subject: Subject) -> Iterator[tuple[str, Any]]:
    case, spec = subject.case, subject.case.spec
    switches = {name for d in spec.dialects for name in d.attrs}
    for name, value in case.attrs.items():
        if name in switches and not isinstance(value, float):
            continue  # it says which code is bound: each dialect is judged for itself
        others = [d.attrs[name] for d in spec.dialects if name in d.attrs]
        others += [s.attrs[name] for s in spec.samples if name in s.attrs]
        others += [spec.defaults[name]]
        if isinstance(value, float):  # no further: a probability must stay one
            others += [1.25 * value, 0.75 * value]
            others += [SEEN] if abs(value) < TINY else []
        known: list[Any] = [value]
        for other in others:
            if not any(_same(other, k) for k in known):
                known.append(other)
                yield name, other


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)


def _shapes(subject: Subject) -> list[tuple[int, ...]]:
    return [output.shape for output in subject.truth.outputs]


def _moves(other: Subject, ct: Any, before: Gradients, after: Gradients) -> bool:
    """Whether the truth changes visibly, and is a number."""
    allowed = other.allowed(ct, before, after)
    visible = False
    for name in after:
        a, b = np.asarray(before[name]), np.asarray(after[name])
        if a.shape != b.shape or not np.isfinite(b).all():
            return False
        visible |= bool(np.any(np.abs(a - b) > VISIBLE * allowed[name]))
    return visible
