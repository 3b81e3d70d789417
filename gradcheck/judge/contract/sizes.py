"""The gradient is right at sizes 0 and 1, and around the powers of two that blocks have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from gradcheck.implementations.returned import Broken
from gradcheck.judge.contract.asking import Breach, Unfit, Vacuous
from gradcheck.judge.contract.stateless import first_size
from gradcheck.judge.contract.subject import Subject
from gradcheck.results.verdict import SEVERITY, Verdict

SAYS: Final = "A gradient is right at every size: at 0 and 1, and beside every power of two."
SIZES: Final = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
DEADLY: Final = (Verdict.CRASH, Verdict.TIMEOUT)


def sizes(subject: Subject) -> Breach | None:
    """Along the last axis and along the first of the first primal; others go with it."""
    subject.require_right()
    bad: dict[str, list[int]] = {}
    reasons: list[str] = []
    verdict, asked = Verdict.FAIL, 0
    for axis, name, size in _points(subject):
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


def _points(subject: Subject) -> Iterator[tuple[int, str, int]]:
    first = next(p for p in subject.primals if p.dtype == subject.kind)
    axes = [(-1, "last")] if first.ndim else []
    if first.ndim > 1 and first.shape[0] != first.shape[-1]:
        axes.append((0, "first"))
    for axis, name in axes:
        for size in SIZES:
            if size != first_size(subject, axis):
                yield axis, name, size
