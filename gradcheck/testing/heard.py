"""What a pytest session found as a whole: its lines in the terminal, its reports, its exit status.

It listens where all reports arrive, from however many processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from gradcheck.record import Record, Run
    from gradcheck.testing.session import Session

LINES: Final = 10
"""Lines of a baseline to correct that are shown."""


class Heard:
    """A plugin that hears every report."""

    def __init__(self, ours: Callable[[], Session | None]) -> None:
        """`ours()` is what the flags ask for, if they ask for anything."""
        self._asked = ours
        self._ours: Session | None = None
        self._suite: list[Record] = []
        self._own: list[Record] = []
        self._whole = False
        self._lines: list[str] = []
        self._green = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test found."""
        if hasattr(report, "gradcheck"):
            from gradcheck.testing.told import heard

            own, results = heard(report)
            (self._own if own else self._suite).extend(results)
        self._whole |= report.nodeid == "gradcheck::baseline" and report.when == "call"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say what came of it all; what no item could say makes the exit status 1."""
        if not (self._suite or self._own):
            return
        self._ours = self._asked()
        self._lines = [*self._told(session)]
        if not self._green and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it."""
        if self._lines:
            terminalreporter.section("gradcheck")
            for line in self._lines:
                terminalreporter.write_line(line)

    def _told(self, session: pytest.Session) -> Iterator[str]:
        from gradcheck.report.words import clean

        ours = self._ours
        run = ours.held(self._suite) if ours is not None else None
        yield counted(run, self._own, ours.baseline.name if ours and ours.baseline else "")
        yield from map(clean, self._baseline(run))
        if run is not None and ours is not None:
            stopped = bool(session.shouldstop or session.shouldfail)
            yield from self._written(run, ours, stopped=stopped)

    def _baseline(self, run: Run | None) -> Iterator[str]:
        """Lines of the baseline to correct, each once; what names alone say only if asked."""
        from gradcheck.expectation import Breach

        if run is None or run.gate is None or self._ours is None:
            return
        named = {*self._ours.outdated()}
        problems = [p for p in run.gate.problems if p.breach is not Breach.UNLISTED]
        shown = [p for p in problems if self._whole or p not in named]
        self._green = not shown
        yield from (problem.text for problem in shown[:LINES])
        if len(shown) > LINES:
            yield f"… and {len(shown) - LINES} more lines of {run.gate.baseline} to correct"
        yield from (f"warning: {text}" for text in run.gate.warnings)

    def _written(self, run: Run, ours: Session, *, stopped: bool) -> Iterator[str]:
        """Write the reports that were asked for; a line each."""
        if not ours.targets:
            return
        from gradcheck import report
        from gradcheck.commands.outcome import save

        whole = with_own(run, self._own)
        if stopped:
            whole = replace(whole, complete=False, stopped="pytest was stopped")
        for path, form in ours.targets:
            if save(path, report.render(whole, form), "--gradcheck-report"):
                yield f"written: {path}"
            else:
                self._green = False


def with_own(run: Run, own: Sequence[Record]) -> Run:
    """A run that holds the results of the user's own tests too, each file an implementation."""
    from gradcheck.record import digest_of

    files = dict.fromkeys(result.implementation for result in own)
    dtypes = dict.fromkeys([*run.header.dtypes, *(result.dtype for result in own)])
    results = (*run.results, *own)
    header = replace(
        run.header,
        implementations=(*run.header.implementations, *files),
        dtypes=tuple(dtypes),
        cases=digest_of(run.results),
    )
    return replace(run, header=header, results=results)


def counted(run: Run | None, own: Sequence[Record], baseline: str) -> str:
    """The counts of a session, and which classes of defects its failures are of."""
    from gradcheck.expectation import Known
    from gradcheck.report.diagnosed import UNKNOWN, word
    from gradcheck.report.words import clean, plural
    from gradcheck.verdict import Verdict

    results = [*(run.results if run is not None else ()), *own]
    checked = sum(result.verdict.checked for result in results)
    failed = [r for r in own if not r.verdict.expected]
    failed += [r for r in run.results if run.fails(r)] if run is not None else []
    texts = [plural(checked, "check")]
    if failed:
        classes = Counter(
            word(r.diagnosis) or (UNKNOWN if r.diagnosis else r.verdict.value.upper())
            for r in failed
        )
        which = ", ".join(f"{name} {count:,}" for name, count in classes.most_common())
        texts.append(f"{len(failed):,} failed ({which})")
    gate = run.gate if run is not None else None
    if gate is not None:
        for known, what in ((Known.XFAIL, "known"), (Known.XPASS, "listed and passing")):
            if count := gate.count(known):
                texts.append(f"{count:,} {what}")
    passed = all(r.verdict.expected for r in results)
    if passed and checked:
        texts[0] += " passed"
    left = Counter(r.verdict for r in results)
    texts += [f"{left[v]:,} {v.value}" for v in (Verdict.UNSUPPORTED, Verdict.UNBOUND) if left[v]]
    return ", ".join(texts) + (f"; known failures: {clean(baseline)}" if baseline else "")
