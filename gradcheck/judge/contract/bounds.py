"""Nothing is written outside of the buffers that were given."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from gradcheck.judge.contract.asking import Breach, Unfit
from gradcheck.judge.contract.stateless import first_size
from gradcheck.judge.contract.subject import Subject
from gradcheck.results.verdict import Verdict

SAYS: Final = "A backward writes into the buffers that it was given, and not beside them."


def bounds(subject: Subject) -> Breach | None:
    """Canaries before and after every buffer; in a worker process, pages that no one may touch."""
    found = _strayed(subject, "")
    for axis in (-1, 0):
        for size in (first_size(subject, axis) + 1, 1):
            with suppress(Unfit):
                found = found or _strayed(subject.resized(axis, size), f" at size {size}")
    return found


def _strayed(subject: Subject, where: str) -> Breach | None:
    for name, out in subject.fill(subject.cts[0]).items():
        at = out.strayed
        if at is not None:
            size = out.array.size
            side = f"{-at} before the start" if at < 0 else f"{at - size + 1} past the end"
            return Breach(f"{side} of d{name} ({size} elements){where}", Verdict.ERROR)
    return None
