"""What happened, as data: a header, one result per gradient output, a footer."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from platform import machine, system
from typing import Final

from gradcheck.results import required
from gradcheck.results.case_result import CaseResult
from gradcheck.results.verdict import Breach, Expected, Gate, Known, Verdict

SCHEMA: Final = 1
AT_FIRST: Final = "stopped at the first failure (-x)"
"""What `Run.stopped` begins with where the run was asked to end there."""
AT_MOST: Final = "stopped at too many failures (--max-fail)"
"""What it begins with where it was asked to end after several."""
AT_TIME: Final = "the time of the run, --max-time"
"""What it begins with where it was asked to end after some time."""
BY_BUDGET: Final = "left out by --budget"
"""What the reason of a SKIP begins with that is left out by a budget of the run."""
NO_FEATURES: Final = (
    "a sum or a norm over no features: asked with --all, or by name with --sample, alone"
)
"""The reason of a SKIP of samples that are not asked of other code unless it is asked for."""

Standing = Verdict | Known
"""How a result stands: a verdict, or what a baseline makes of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What was run.

    `version` is the engine's, `suite_version` the cases' (a calendar version), and `cases` a hash
    that changes when a case that was selected changes its meaning. `versions` is what code behind
    a manifest says that it is ("mykernels 1.2"), by its name in `implementations`. `shard` is
    "I/N" where only every N-th case was selected, from the I-th on; else empty. `require` are globs
    of what had to be answered (`gradcheck.results.required`).
    """

    version: str
    suite: str
    suite_version: str
    implementations: tuple[str, ...]
    dtypes: tuple[str, ...]
    seed: int
    python: str = field(default_factory=lambda: ".".join(map(str, sys.version_info[:3])))
    cases: str = ""
    platform: str = field(default_factory=lambda: f"{system()} {machine()}")
    numpy: str = ""
    schema: int = SCHEMA
    versions: Mapping[str, str] = field(default_factory=dict)
    shard: str = ""
    require: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """Totals. `complete` is false where the run was interrupted or lost something."""

    complete: bool
    checked: int
    elements: int
    unresolved: int
    counts: dict[str, int]

    @classmethod
    def of(cls, results: Sequence[CaseResult], complete: bool) -> Footer:
        """Count `results`."""
        counts = Counter(result.finding.verdict for result in results)
        return cls(
            complete=complete,
            checked=sum(n for verdict, n in counts.items() if verdict.checked),
            elements=sum(result.finding.compared for result in results),
            unresolved=sum(result.finding.unresolved for result in results),
            counts={verdict.value: counts[verdict] for verdict in Verdict},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a run took in all, and each of its cases by name, in seconds."""

    seconds: float
    cases: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A whole run: what the reports are made of."""

    header: Header
    results: tuple[CaseResult, ...]
    complete: bool = True
    troubles: tuple[str, ...] = ()
    """What could not be judged at all, one line each (an implementation that does not load)."""
    stopped: str = ""
    """Why a run that is not complete ended, where that is known."""
    gate: Gate | None = None
    """What a baseline makes of the results, derived and never stored; None without a baseline."""
    timing: Timing | None = field(default=None, compare=False)
    """How long it took, never stored: reports of equal results are equal. None of a stored run."""

    @property
    def footer(self) -> Footer:
        """Totals of the results."""
        return Footer.of(self.results, self.complete)

    @property
    def passed(self) -> bool:
        """Whether the gate is open: complete, something was checked, everything as expected."""
        return (
            self.complete
            and not self.troubles
            and self.footer.checked > 0
            and all(self.accepts(result) for result in self.results)
            and not (self.gate and self.gate.problems)
            and not self.unmet
        )

    @property
    def unmet(self) -> list[str]:
        """A line for each thing that was required and is not there."""
        whole = self.complete and not self.header.shard
        return required.unmet(self.header.require, self.results, whole=whole)

    @property
    def halted(self) -> bool:
        """Whether it ended early as it was asked to: an answer, no interruption."""
        return not self.complete and self.stopped.startswith((AT_FIRST, AT_MOST, AT_TIME))

    @property
    def late(self) -> bool:
        """Whether it ended early because its time was up."""
        return not self.complete and self.stopped.startswith(AT_TIME)

    def expected(self, result: CaseResult) -> Expected | None:
        """What the baseline says of a result; None where it says nothing, or there is none."""
        return self.gate.results.get(result.key) if self.gate is not None else None

    def accepts(self, result: CaseResult) -> bool:
        """Whether the gate accepts a result."""
        found = self.expected(result)
        if found is not None:
            return found.accepted
        return result.finding.verdict.expected and not required.lacks(self.header.require, result)

    def stands(self, result: CaseResult) -> Standing:
        """How a result stands: its verdict, or what the baseline makes of that."""
        found = self.expected(result)
        return result.finding.verdict if found is None or found.known is None else found.known

    def fails(self, result: CaseResult) -> bool:
        """Whether a result is a failure that the gate does not accept; an XPASS is none."""
        return not (result.finding.verdict.expected or self.accepts(result))

    @property
    def summary(self) -> str:
        """The last line, for a script to read."""
        footer = self.footer
        shown = ("pass", "fail", "missing", "inconclusive", "error", "crash", "timeout", "notrun",
                 "invalid", "unsupported", "unbound", "skip")  # fmt: skip
        always = {"pass", "fail", "inconclusive", "unsupported", "unbound"}
        words = [
            f"{word}={footer.counts[word]}"
            for word in shown
            if footer.counts[word] or word in always
        ]
        return (
            f"RESULT {'pass' if self.passed else 'fail'} checked={footer.checked} "
            f"{' '.join([*words, *self._gated()])} elements={footer.elements} "
            f"unresolved={footer.unresolved}"
        )

    def _gated(self) -> list[str]:
        if self.gate is None:
            return []
        words = [f"{known.value}={self.gate.count(known)}" for known in Known]
        return [*words, f"stale={self.gate.entries(Breach.STALE)}"]


def digest_of(results: Iterable[CaseResult]) -> str:
    """A hash that changes when a case that was judged changes its meaning."""
    digest = hashlib.blake2b(digest_size=4)
    for name, fingerprint in dict.fromkeys(
        (r.case.name.rpartition("/")[0], r.case.hash) for r in results
    ):
        digest.update(f"{name}#{fingerprint}".encode(errors="backslashreplace"))
    return digest.hexdigest()
