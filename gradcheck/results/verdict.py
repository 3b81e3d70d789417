"""The verdicts: one raw answer per (implementation, case, dtype, gradient output)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    """The uncertainty is larger than the tolerance, also after 50-digit arithmetic."""
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


class Known(StrEnum):
    """How a result stands that an entry of a baseline is about."""

    XFAIL = "xfail"
    """It fails as the entry says."""
    XPASS = "xpass"
    """It passes, although the entry says that it fails."""

    @property
    def expected(self) -> bool:
        """Whether the gate accepts it."""
        return self is Known.XFAIL

    @property
    def checked(self) -> bool:
        """Whether an implementation was put to the test."""
        return True


class Breach(StrEnum):
    """What is wrong between a baseline and a run; the values are promises."""

    UNLISTED = "unlisted"
    """A failure that no entry is about."""
    XPASS = "xpass"
    """A listed failure that passes."""
    VERDICT = "other verdict"
    """A listed failure that fails in another way."""
    CLASS = "other class"
    """A listed failure whose diagnosis is of another class."""
    WORSE = "worse"
    """A listed failure whose error is above the entry's."""
    UNSUPPORTED = "unsupported"
    """A listed failure that is not answered any more."""
    STALE = "stale"
    """An entry that is about nothing."""
    EXPIRED = "expired"
    """An entry whose last day is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a baseline says of one result: how it stands, and which entry says so.

    `known` is None where the entry does not excuse what was found (another class, a larger error),
    or has nothing against it (a flaky result that passes); `accepted` is what the gate makes of
    it. `entry` is "FILE:LINE"; `reason` and `link` are the entry's.
    """

    accepted: bool
    known: Known | None
    entry: str
    reason: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One line that closes the gate: what is wrong, where to change it, and how."""

    breach: Breach
    file: str
    line: int | None
    says: str

    @property
    def where(self) -> str:
        """The place to edit: "FILE:LINE"."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def text(self) -> str:
        """All of it."""
        return f"{self.where}: {self.breach.value.upper()}: {self.says}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a baseline makes of a run; `results` holds what an entry is about, by `CaseResult.key`.

    `baseline` is the file as messages call it, `digest` the SHA-256 of what it held.
    """

    baseline: str
    digest: str = ""
    results: Mapping[tuple[str, ...], Expected] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()

    def count(self, known: Known) -> int:
        """How many results stand like this."""
        return sum(found.known is known for found in self.results.values())

    def entries(self, breach: Breach) -> int:
        """How many problems are of this kind."""
        return sum(problem.breach is breach for problem in self.problems)
