"""The results of a whole pytest session: lines in the terminal, reports on file, the exit status.

The collector runs where the reports of all processes arrive.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from gradcheck import __version__
from gradcheck import report as rendering
from gradcheck.cli.reports import Target, save
from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Header, Run, digest_of
from gradcheck.results.verdict import Breach, Gate, Known, Problem, Verdict
from gradcheck.results.words import clean, plural
from gradcheck.spec.defect import UNKNOWN
from gradcheck.testing import BASELINE
from gradcheck.testing.items import attached_results

if TYPE_CHECKING:
    from gradcheck.testing.session import Session

FLAG: Final = "--gradcheck-report"
MAX_LINES: Final = 10
"""Lines shown of a baseline to correct."""


class ResultCollector:
    """A plugin that collects the results of every report."""

    def __init__(self, ours: Session | None, targets: Sequence[Target]) -> None:
        """Take the session, if there is one, and the reports to write."""
        self._session, self._targets = ours, targets
        self._suite: dict[str, list[CaseResult]] = {}  # one that was run twice counts once
        self._own: list[CaseResult] = []
        self._whole = False
        self._lines: list[str] = []
        self._green = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the results of a test."""
        own, results = attached_results(report)
        if own:
            self._own += results
        elif results:
            self._suite[report.nodeid] = results
        self._whole |= report.nodeid == BASELINE and report.when == "call"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Summarise the session; faults that no item reports make the exit status 1."""
        if not (self._suite or self._own):
            return
        stopped = session.shouldstop or session.shouldfail
        if not stopped and exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            stopped = "pytest was interrupted"
        self._lines = [*self._summary(str(stopped or ""))]
        if not self._green and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary."""
        if self._lines:
            terminalreporter.section("gradcheck")
            for line in self._lines:
                terminalreporter.write_line(line)

    def _summary(self, stopped: str) -> Iterator[str]:
        ours = self._session
        results = [result for found in self._suite.values() for result in found]
        run = ours.held(ours.ordered(results)) if ours is not None else None
        self._own.sort(key=lambda result: (result.case.implementation, result.case.name))
        first = counted(run, self._own, ours.baseline.name if ours and ours.baseline else "")
        hint = f"; as a page: {FLAG} gradcheck.html" if " failed (" in first else ""
        yield clean(first + hint * (not self._targets))
        if ours is not None and run is not None and run.gate is not None:
            yield from map(clean, self._to_correct(run.gate, ours.outdated()))
        if run is not None and run.unmet:
            self._green = False
            yield from map(clean, run.unmet)
        if self._targets:
            yield from self._written(with_own(run, self._own, stopped))

    def _to_correct(self, gate: Gate, by_name: Sequence[Problem]) -> Iterator[str]:
        """Lines of the baseline to correct, each once."""
        problems = [p for p in gate.problems if p.breach is not Breach.UNLISTED]
        shown = [p for p in problems if self._whole or p not in by_name]
        self._green = not shown
        yield from (problem.text for problem in shown[:MAX_LINES])
        if len(shown) > MAX_LINES:
            more = plural(len(shown) - MAX_LINES, "more line")
            yield f"… and {more} of {gate.baseline} to correct"
        yield from (f"warning: {text}" for text in gate.warnings)

    def _written(self, run: Run) -> Iterator[str]:
        """Write the reports; a line each."""
        for path, form in self._targets:
            if save(path, rendering.render(run, form), FLAG):
                yield f"written: {path}"
            else:
                self._green = False
                yield f"not written: {path}"


def with_own(run: Run | None, own: Sequence[CaseResult], stopped: str = "") -> Run:
    """A run with the results of the user's own tests, each file as an implementation.

    `stopped` says why it ended early, if it did.
    """
    if run is None:
        header = Header(
            version=__version__, suite="tests", suite_version="", implementations=(),
            dtypes=(), seed=0, numpy=getattr(sys.modules.get("numpy"), "__version__", ""),
        )  # fmt: skip
        run = Run(header=header, results=())
    files = dict.fromkeys([*run.header.implementations, *(r.case.implementation for r in own)])
    dtypes = dict.fromkeys([*run.header.dtypes, *(result.case.dtype for result in own)])
    results = (*run.results, *own)
    cases = digest_of(results)
    header = replace(run.header, implementations=(*files,), dtypes=(*dtypes,), cases=cases)
    whole = replace(run, header=header, results=results)
    return replace(whole, complete=False, stopped=stopped) if stopped else whole


def counted(run: Run | None, own: Sequence[CaseResult], baseline: str) -> str:
    """The counts of a session, and the classes of its failures."""
    results = [*(run.results if run is not None else ()), *own]
    checked = sum(result.finding.verdict.checked for result in results)
    failed = [r for r in own if not r.finding.verdict.expected]
    failed += [r for r in run.results if run.fails(r)] if run is not None else []
    texts = [plural(checked, "check")]
    if failed:
        classes = Counter(
            r.finding.defect
            or (UNKNOWN if r.finding.diagnosis else r.finding.verdict.value.upper())
            for r in failed
        )
        which = ", ".join(f"{name} {count:,}" for name, count in classes.most_common())
        texts.append(f"{len(failed):,} failed ({which})")
    gate = run.gate if run is not None else None
    if gate is not None:
        for known, what in ((Known.XFAIL, "known"), (Known.XPASS, "listed and passing")):
            if count := gate.count(known):
                texts.append(f"{count:,} {what}")
    if checked and len(texts) == 1 and all(r.finding.verdict.expected for r in results):
        texts[0] += " passed"
    left = Counter(r.finding.verdict for r in results)
    texts += [f"{left[v]:,} {v.value}" for v in (Verdict.UNSUPPORTED, Verdict.UNBOUND) if left[v]]
    return ", ".join(texts) + (f"; known failures: {clean(baseline)}" if baseline else "")
