"""The verdicts: one raw answer per (implementation, case, dtype, gradient output)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What was found. Nothing is a pass but PASS."""

    PASS = "pass"
    """Every element lies within its bound, and the error bars are small enough to say so."""
    FAIL = "fail"
    """An element lies outside its bound by more than its error bar, or is no number at all."""
    MISSING = "missing"
    """A gradient that the truth has is not produced."""
    INCONCLUSIVE = "inconclusive"
    """The error bars are wider than the bounds, after every escalation."""
    ERROR = "error"
    """The code judged raised, has the wrong arity, mutated its input, or is not deterministic."""
    CRASH = "crash"
    """The process judged died."""
    TIMEOUT = "timeout"
    """The process judged hung."""
    NOTRUN = "notrun"
    """Planned, but not reached."""
    INVALID = "invalid"
    """Our own case is at fault."""
    UNSUPPORTED = "unsupported"
    """The implementation declares that it lacks this."""
    UNBOUND = "unbound"
    """The implementation says nothing about this operator."""
    SKIP = "skip"
    """The user left it out."""

    @property
    def checked(self) -> bool:
        """Whether an implementation was put to the test."""
        return self not in (Verdict.UNSUPPORTED, Verdict.UNBOUND, Verdict.SKIP)

    @property
    def expected(self) -> bool:
        """Whether the gate accepts it without a baseline."""
        return self is Verdict.PASS or not self.checked

    @property
    def wrong(self) -> bool:
        """Whether it says that a gradient is wrong, and not that nobody knows."""
        return self in (Verdict.FAIL, Verdict.MISSING, Verdict.ERROR)


SEVERITY = (
    Verdict.INVALID,
    Verdict.CRASH,
    Verdict.TIMEOUT,
    Verdict.ERROR,
    Verdict.FAIL,
    Verdict.MISSING,
    Verdict.INCONCLUSIVE,
    Verdict.NOTRUN,
    Verdict.PASS,
    Verdict.UNSUPPORTED,
    Verdict.UNBOUND,
    Verdict.SKIP,
)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that a summary of several shows; SKIP if there are none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.SKIP)
