"""Answers are right in every dtype path, size, attribute, memory layout and subset of gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from gradcheck.implementations import framed_memory
from gradcheck.implementations.checked_call import guarded
from gradcheck.implementations.returned import Broken
from gradcheck.judge.contract.asking import Breach, Cotangent, Gradients, Unasked, Unfit, Vacuous
from gradcheck.judge.contract.linearity import spike
from gradcheck.judge.contract.side_effects import first_size
from gradcheck.judge.contract.subject import Subject
from gradcheck.numerics.arrays import Array
from gradcheck.results.verdict import SEVERITY, Verdict


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
            if size == 0 and not subject.is_batch(axis):
                continue
            with suppress(Unfit):
                other = subject.resized(axis, size)
                yield f"with {size} along the {name} axis", other, other.cts[0]


SIZES: Final = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
COMPILED: Final = (0, 1, 2, 33)
"""Those tried of code that a compiler compiles anew for each: half a second each, or more."""
DEADLY: Final = (Verdict.CRASH, Verdict.TIMEOUT)


def few_sizes(subject: Subject) -> Breach | None:
    """As `sizes`, but at few of them where the code may be compiled for each."""
    return sizes(subject, COMPILED if subject.bound.compiles else SIZES)


def sizes(subject: Subject, tried: Sequence[int] = SIZES) -> Breach | None:
    """Along the last axis and along the first of the first primal; others go with it.

    Size 0 is tried along batch axes alone: a mean over no features has no value.
    """
    subject.require_right()
    bad: dict[str, list[int]] = {}
    reasons: list[str] = []
    verdict, asked = Verdict.FAIL, 0
    for axis, name, size in _points(subject, tried):
        where = f"with {size} along the {name} axis"
        try:
            with suppress(Unfit):
                off = subject.resized(axis, size).wrong()
                asked += 1
                if off:
                    bad.setdefault(name, []).append(size)
                    reasons.append(f"{where}, {off}")
        except Broken as error:
            if error.finding.verdict is Verdict.NOTRUN:  # nothing more is run of it
                if reasons:
                    break
                raise
            bad.setdefault(name, []).append(size)
            reasons.append(f"{where}, {error.finding.reason}")
            verdict = min(verdict, error.finding.verdict, key=SEVERITY.index)
            if error.finding.verdict in DEADLY:  # each costs a new process
                break
    if not asked and not reasons:
        raise Vacuous("the sample cannot be drawn in other sizes")
    if not reasons:
        return None
    lists = "; ".join(f"{', '.join(map(str, at))} along the {name}" for name, at in bad.items())
    more = f" (all that are wrong: {lists})" if len(reasons) > 1 else ""
    return Breach(reasons[0] + more, verdict)


def _points(subject: Subject, tried: Sequence[int]) -> Iterator[tuple[int, str, int]]:
    first = next(p for p in subject.primals if p.dtype == subject.kind)
    axes = [(-1, "last")] if first.ndim else []
    if first.ndim > 1 and first.shape[0] != first.shape[-1]:
        axes.append((0, "first"))
    for axis, name in axes:
        for size in tried:
            if size != first_size(subject, axis) and (size or subject.is_batch(axis)):
                yield axis, name, size


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
    ct, primals = guarded(subject.cts[0]), guarded(subject.primals)
    for i, part in enumerate(ct):
        name = "the cotangent" if len(ct) == 1 else f"cotangent {i}"
        for how, view in (*framed_memory.layouts(part), *framed_memory.expanded(part)):
            yield f"{name} {how}", (*ct[:i], view, *ct[i + 1 :]), primals
    for i, primal in enumerate(primals):
        for how, view in framed_memory.layouts(primal):
            yield f"{subject.truth.names[i]} {how}", ct, (*primals[:i], view, *primals[i + 1 :])


ALL: Final = 3
"""Primals up to which every subset is asked for; of more, single ones and all but one."""


def subsets(subject: Subject) -> Breach | None:
    """Every proper subset of the primals, against all of them at once."""
    if len(subject.names) < 2:
        raise Vacuous("there is one gradient only")
    ct = subject.cts[0]
    every = subject.ask_some(
        tuple(n in subject.names for n in subject.truth.names), ct, "asked for all gradients"
    )
    for some in _subsets(subject.names):
        needs = tuple(name in some for name in subject.truth.names)
        what = f"asked for {' and '.join(f'd{name}' for name in some)} alone"
        got = subject.ask_some(needs, ct, what)
        off = subject.differ(ct, got, every)
        if off:
            return Breach(f"{what}, {off}")
    plain = subject.ask(ct)
    off = subject.differ(ct, every, plain)
    return Breach(f"asked for all gradients by `needs`, {off}") if off else None


def _subsets(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    sizes = range(1, len(names)) if len(names) <= ALL else (1, len(names) - 1)
    for size in sizes:
        yield from itertools.combinations(names, size)
