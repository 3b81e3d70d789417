"""The items that the plugin adds, and the results that travel with reports of tests.

Results travel as text: xdist sends nothing else between processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gradcheck.results import words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Header, Run
from gradcheck.results.stored.plain import dumped, result_dict
from gradcheck.results.stored.read import result_of
from gradcheck.results.verdict import Breach, Known
from gradcheck.spec.model import ModelSpec
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.rule import RuleSpec
from gradcheck.testing import BASELINE, CARRIED, MARKER
from gradcheck.testing.failure import CheckFailed, NotCompared, failure_of, lead_of

if TYPE_CHECKING:
    from gradcheck.testing.cases import CaseBase
    from gradcheck.testing.session import Check, Session

AnySpec = OpSpec | ModelSpec | RuleSpec
WHOLE: Final = (Breach.UNLISTED, Breach.STALE, Breach.EXPIRED)
"""Faults of a baseline that the case of an entry cannot report."""
NO_RUN: Final = Run(
    header=Header(version="", suite="", suite_version="", implementations=(), dtypes=(), seed=0),
    results=(),
)
"""Stands for the run of a result."""


class Item(pytest.Item):
    """An item whose failure is a text of its own, without a traceback through the checker."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure as text; for an internal error, its traceback."""
        if isinstance(excinfo.value, CheckFailed):
            return excinfo.getrepr(style="value")
        return super().repr_failure(excinfo, style)


class GradcheckItem(Item):
    """One case, one implementation, one dtype; `results` are set when it has run."""

    def __init__(self, *, ours: Session, check: Check, **rest: Any) -> None:
        """Take the check."""
        super().__init__(**rest)
        self.ours, self.check = ours, check
        self.results: Sequence[CaseResult] = ()
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Judge the case; failures that the baseline lists are xfailed.

        Raises:
            CheckFailed: a failure is not listed, or a listed one passes.
        """
        with self._quiet():
            run = self.ours.judged(self.check)
        self.results = run.results
        failed = [result for result in run.results if not run.accepts(result)]
        wrong = [r for r in failed if not r.finding.verdict.expected]
        problems = run.gate.problems if run.gate is not None else ()
        about = [problem for problem in problems if problem.breach not in WHOLE]
        lacking = [r for r in failed if not r.finding.verdict.checked]
        if lacking and not wrong:
            lines = [words.clean(text) for text in run.unmet]
            raise CheckFailed("\n".join(lines), lines[0])
        if wrong:
            raise failure_of(wrong, about)
        if about:
            raise CheckFailed("\n".join(words.clean(p.text) for p in about), lead_of(about))
        if failed or not run.results:
            raise NotCompared("nothing was compared")
        self._excuse(run)
        unchecked = [result for result in run.results if not result.finding.verdict.checked]
        if len(unchecked) == len(run.results):
            first = unchecked[0]
            pytest.skip(f"{words.word(first.finding.verdict)}: {words.clean(first.finding.reason)}")

    def _quiet(self) -> AbstractContextManager[Any]:
        """Hide the prints of child processes, which the failure shows."""
        captured = self.config.getoption("capture") != "no"
        return redirect_stderr(StringIO()) if captured and self.ours.plan.isolate else nullcontext()

    def _excuse(self, run: Run) -> None:
        """Xfail listed failures, with their entries."""
        known = [r for r in run.results if run.stands(r) is Known.XFAIL]
        if known:
            entries = [run.expected(result) for result in known]
            reasons = [
                words.clean(f"{e.entry}: {e.reason}" + (f" ({e.link})" if e.link else ""))
                for e in entries
                if e is not None
            ]
            pytest.xfail("; ".join(dict.fromkeys(reasons)))
            raise failure_of(known)  # under --runxfail the line above does nothing

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """The location of the item."""
        return place_of(self.check)


class BaselineItem(Item):
    """Checks that each entry of the baseline names an existing case, and has not expired."""

    def __init__(self, *, ours: Session, **rest: Any) -> None:
        """Take the session."""
        super().__init__(**rest)
        self.ours = ours
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Check names and dates, whose answer is the same in every process.

        Raises:
            CheckFailed: an entry must be changed or removed.
        """
        problems = self.ours.outdated()
        if problems:
            lines = [words.clean(problem.text) for problem in problems]
            raise CheckFailed("\n".join(lines), lead_of(problems))

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """The location of the item."""
        baseline = self.ours.baseline
        return baseline.name if baseline else "", None, "gradcheck baseline"


def items_of(ours: Session, session: pytest.Session) -> Iterator[Item]:
    """An item per check, and one for the baseline as a whole."""
    for check in ours.checks:
        yield GradcheckItem.from_parent(
            session, name=_name(check), nodeid=node_of(check), ours=ours, check=check
        )
    if ours.baseline is not None:
        yield BaselineItem.from_parent(session, name="baseline", nodeid=BASELINE, ours=ours)


def node_of(check: Check) -> str:
    """The pytest id of a check."""
    return f"gradcheck::{_name(check)}"


def place_of(check: Check) -> tuple[str, int | None, str]:
    """The location of a check, and the head of its failure."""
    return *_written(check.case.spec), f"gradcheck {_name(check)}"


def _name(check: Check) -> str:
    return f"{check.binding.name}::{check.case.name}/{check.dtype}"


def _written(spec: AnySpec) -> tuple[str, int | None]:
    """The file and line, counted from 0, of a spec's function."""
    if isinstance(spec, ModelSpec):
        function: Any = spec.build
    else:
        function = spec.update if isinstance(spec, RuleSpec) else spec.forward
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno - 1) if code is not None else (spec.name, None)


# ── results on their way ─────────────────────────────────────────────────────────────────────────


def attach_results(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, case: CaseBase | None
) -> None:
    """Add results and the line of the summary to the report of an item's call."""
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, NotCompared) and call.excinfo is not None and report.failed:
        report.longrepr = call.excinfo.getrepr(style="value")
        if report.longrepr.reprcrash is not None:
            report.longrepr.reprcrash.path = report.location[0]
            report.longrepr.reprcrash.lineno = (report.location[1] or 0) + 1
    if isinstance(item, Item) or case is not None:
        _place(item, report)
    crash = getattr(report.longrepr, "reprcrash", None)
    if isinstance(error, CheckFailed) and crash is not None:
        crash.message = error.lead
        file, colon, line = error.source.rpartition(":")
        if case is None and colon and line.isdecimal():
            crash.path, crash.lineno = file, int(line)
    results: Sequence[CaseResult] = getattr(item, "results", ()) if case is None else case.results
    if case is not None and report.outcome != "failed":  # an expected failure
        results = [result for result in results if result.finding.verdict.expected]
    if results:
        carry(report, results, own=case is not None)


def carry(report: pytest.TestReport, results: Sequence[CaseResult], *, own: bool = False) -> None:
    """Attach results to a report; `own`: of a user's own test."""
    plain = [result_dict(NO_RUN, result) for result in results]
    setattr(report, CARRIED, dumped({"own": own, "results": plain}))


def _place(item: pytest.Item, report: pytest.TestReport) -> None:
    """Locate a skip at its test, not inside gradcheck or pytest."""
    if report.skipped and isinstance(report.longrepr, tuple):
        file, _, reason = report.longrepr
        where, at, _ = item.location
        if Path(file) != item.path:
            report.longrepr = (where, (at or 0) + 1, reason)


def attached_results(report: pytest.TestReport) -> tuple[bool, list[CaseResult]]:
    """The results of a report, and whether it is of a user's own test."""
    text: Any = getattr(report, CARRIED, None)
    if not isinstance(text, str):
        return False, []
    carried = json.loads(text)
    return carried["own"], [result_of(plain) for plain in carried["results"]]
