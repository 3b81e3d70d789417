"""Under xdist, items whose process was lost are tried once more, in another."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pytest

from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.run.judge_case import hash_of
from gradcheck.run.limits import CALL
from gradcheck.run.to_result import result_of
from gradcheck.testing.failure import CheckFailed, failure_of
from gradcheck.testing.items import carry, node_of, place_of

if TYPE_CHECKING:
    from gradcheck.testing.session import Check, Session

RETRIED: Final = "retried"
"""The outcome of a test that is tried again."""
MARKED: Final = "gradcheck_retried"
"""The attribute of its report; JUnit files show a skip."""
WHOLE_SCOPES: Final = ("loadscope", "loadfile", "loadgroup")
"""Modes of xdist in which the tests left by a lost process, the lost one included, are rerun."""
SHARED: Final = ("load", "worksteal", *WHOLE_SCOPES)
"""Modes of xdist in which one process runs each test; not `each`."""
ENDED: Final = "the process of pytest's that judged it ended"
GONE: Final = "processes of pytest's ended, and none took their place"


class CrashRetry:
    """A plugin of xdist's controller that repeats lost items of a session, once.

    Planned tests that were not run in the end have failed, so that no loss hides another.
    """

    def __init__(self, ours: Session) -> None:
        """Take the session."""
        self._ours = ours
        self._retried: set[str] = set()
        self._reported: set[str] = set()
        self._planned: list[str] = []  # all tests, once an item was retried

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_handlecrashitem(
        self, crashitem: str, report: pytest.TestReport, sched: Any
    ) -> bool | None:
        """Retry an item of gradcheck whose process ended; other tests may not bear a second run.

        Returns True where it is handled.
        """
        if crashitem not in self._checks or report.outcome != "failed":
            return None
        if crashitem in self._reported:  # only its teardown is missing
            self._planned = [*sched.collection]
            report.outcome, report.when, report.longrepr = "passed", "teardown", None
        elif crashitem not in self._retried and self._again(sched, crashitem):
            self._retried.add(crashitem)
            self._planned = [*sched.collection]
            file, line, _ = report.location = place_of(self._checks[crashitem])
            report.outcome, report.longrepr = "skipped", (file, line or 0, f"{ENDED}: tried again")
            setattr(report, MARKED, True)
        elif crashitem in self._retried:
            _never_again(sched, crashitem)
            self._failed(report, Verdict.CRASH, f"{ENDED}, in 2 tries")
        else:
            return None
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the items that were reported."""
        if (report.when == "call" or not report.passed) and not hasattr(report, MARKED):
            self._reported.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Fail planned tests that were not run: xdist replaces only so many processes.

        If something else stopped the session, fail only those that were to be retried.
        """
        stopped = True
        try:
            found = yield
            stopped = False
            return found
        finally:
            for node in [*self._unreported(stopped=stopped)]:
                report = _report(node, f"it was not run: {GONE}")
                if node in self._retried:
                    self._failed(report, Verdict.NOTRUN, f"{ENDED}, and it was not tried again")
                elif node in self._checks:
                    self._failed(report, Verdict.NOTRUN, GONE)
                session.config.hook.pytest_runtest_logreport(report=report)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        """Show and count a test that is tried again."""
        if hasattr(report, MARKED):
            return RETRIED, "R", ("RETRIED", {"yellow": True})
        return None

    @cached_property
    def _checks(self) -> dict[str, Check]:
        return {node_of(check): check for check in self._ours.checks}

    def _unreported(self, *, stopped: bool) -> Iterator[str]:
        for node in self._planned:
            if node not in self._reported and (node in self._retried or not stopped):
                yield node

    def _again(self, sched: Any, item: str) -> bool:
        """Have an item run again; False where xdist's mode cannot."""
        if self._ours.distribution in WHOLE_SCOPES:
            return True
        with suppress(OSError):  # the other process may be dying too
            try:
                sched.mark_test_pending(item)
            except NotImplementedError:
                return False
        return True

    def _failed(self, report: pytest.TestReport, verdict: Verdict, reason: str) -> None:
        """Turn a report into that of a failure, with its result."""
        check, plan = self._checks[report.nodeid], self._ours.plan
        finding = Finding(name=CALL, verdict=verdict, reason=reason)
        result = result_of(
            plan, check.case, hash_of(check.case), check.binding.name, check.dtype, finding
        )
        try:
            raise failure_of([result])
        except CheckFailed as error:
            shown = pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
            if shown.reprcrash is not None:
                shown.reprcrash.message = error.lead
        report.outcome, report.when, report.longrepr = "failed", "call", shown
        report.location = place_of(check)
        carry(report, [result])


def _report(node: str, text: str) -> pytest.TestReport:
    """The failure of a test without a report."""
    file = node.partition("::")[0]
    where = (file, None, node)
    return pytest.TestReport(node, where, {}, outcome="failed", longrepr=text, when="call")


def _never_again(sched: Any, item: str) -> None:
    """Mark an item as done, so that the rest of its scope is run."""
    for unit in getattr(sched, "workqueue", {}).values():
        if item in unit:
            unit[item] = True
