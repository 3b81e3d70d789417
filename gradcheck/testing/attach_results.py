"""What goes with the report of a test: its results, and in its line of the summary what is wrong.

Results travel as text, since xdist carries nothing else from one process to another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Header, Run
from gradcheck.results.stored.plain import dumped, result_dict
from gradcheck.results.stored.read import result_of
from gradcheck.testing import CARRIED
from gradcheck.testing.failure import CheckFailed, NotCompared
from gradcheck.testing.items import Item

if TYPE_CHECKING:
    from gradcheck.testing.base_case import Asked

NO_RUN: Final = Run(
    header=Header(version="", suite="", suite_version="", implementations=(), dtypes=(), seed=0),
    results=(),
)
"""Stands for the run that a result is not part of yet."""


def tell(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, case: Asked | None
) -> None:
    """Add to the report of an item's call."""
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
    if case is not None and report.outcome != "failed":  # it was to fail
        results = [result for result in results if result.finding.verdict.expected]
    if results:
        carry(report, results, own=case is not None)


def carry(report: pytest.TestReport, results: Sequence[CaseResult], *, own: bool = False) -> None:
    """Let results go with a report; `own`: they are of a test of a user's own."""
    plain = [result_dict(NO_RUN, result) for result in results]
    setattr(report, CARRIED, dumped({"own": own, "results": plain}))


def _place(item: pytest.Item, report: pytest.TestReport) -> None:
    """Let a skip stand where the test does, and not at a line of ours or of pytest's."""
    if report.skipped and isinstance(report.longrepr, tuple):
        file, _, reason = report.longrepr
        where, at, _ = item.location
        if Path(file) != item.path:
            report.longrepr = (where, (at or 0) + 1, reason)


def heard(report: pytest.TestReport) -> tuple[bool, list[CaseResult]]:
    """What a report carries: whether it is of a user's own test, and its results."""
    text: Any = getattr(report, CARRIED, None)
    if not isinstance(text, str):
        return False, []
    told = json.loads(text)
    return told["own"], [result_of(plain) for plain in told["results"]]
