"""What a baseline holds: entries, each a failure that is known, and why it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from gradcheck.results.verdict import Verdict

FLAKY: Final = "flaky"
"""What stands for a verdict where a result sometimes fails: it may pass."""
EXCUSABLE: Final = (
    Verdict.FAIL,
    Verdict.MISSING,
    Verdict.INCONCLUSIVE,
    Verdict.ERROR,
    Verdict.CRASH,
    Verdict.TIMEOUT,
)
"""What may be known of an implementation. INVALID is a fault of the suite, NOTRUN is nobody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One failure that is known.

    `match` is a glob on `operator/dialect/sample/dtype`, `output` one on what reports call the
    output ("dx"); `verdict` is `FLAKY` or the value of one that is `EXCUSABLE`. Empty, or None, is
    what was left out: `label` (the word of a class of defects), `max_error` (the largest relative
    error of a worst element), `when` (a condition), `link`, `expires` (the last day on which the
    entry holds). `line` is where it begins in its file, counted from 1.
    """

    line: int
    match: str
    output: str
    verdict: str
    reason: str
    label: str = ""
    max_error: float | None = None
    when: str = ""
    link: str = ""
    expires: date | None = None

    @property
    def flaky(self) -> bool:
        """Whether it may pass."""
        return self.verdict == FLAKY

    @property
    def about(self) -> str:
        """What it is about, in the words of a report's title."""
        return f"{self.match} · {self.output}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A file of entries.

    `name` is the file as messages call it. `suite` is the calendar version of the cases that it
    was written for, and `dtypes` those that a full run has; empty where the file does not say.
    `digest` is the SHA-256 of the file; empty where there is none.
    """

    name: str
    entries: tuple[Entry, ...] = ()
    suite: str = ""
    dtypes: tuple[str, ...] = ()
    digest: str = ""

    def where(self, entry: Entry) -> str:
        """Where an entry begins: "FILE:LINE"."""
        return f"{self.name}:{entry.line}"


def today() -> date:
    """The day in UTC: a gate gives the same answer wherever it runs."""
    return datetime.now(UTC).date()
