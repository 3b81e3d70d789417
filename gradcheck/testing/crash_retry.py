"""Items of ours whose process was lost under xdist: each is tried once more, in another."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pytest

from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.run.crash_limit import CALL
from gradcheck.run.judge_case import hash_of
from gradcheck.run.to_result import result_of
from gradcheck.testing.attach_results import carry
from gradcheck.testing.failure import CheckFailed, failure_of
from gradcheck.testing.items import node_of, place_of

if TYPE_CHECKING:
    from gradcheck.testing.session import Check, Session

RETRIED: Final = "retried"
"""How pytest counts a test whose process was lost, and which is tried again."""
MARKED: Final = "gradcheck_retried"
"""The attribute of a report that says so; JUnit files know no such thing, and show a skip."""
WHOLE_SCOPES: Final = ("loadscope", "loadfile", "loadgroup")
"""Under these, xdist gives what a lost process had left to another, the lost item included."""
SHARED: Final = ("load", "worksteal", *WHOLE_SCOPES)
"""Ways of sharing tests out, so that each is run by one process: `each` has all run by all."""
ENDED: Final = "the process of pytest's that judged it ended"
GONE: Final = "processes of pytest's ended, and none took their place"


class Lost:
    """A plugin of the process that hears all others, where `ours` is what they judge.

    A loss that is excused may not hide another: what was to be run and was not, has failed.
    """

    def __init__(self, ours: Session) -> None:
        """Nothing is lost yet."""
        self._ours = ours
        self._retried: set[str] = set()
        self._heard: set[str] = set()
        self._planned: list[str] = []  # everybody's tests, once a loss has been excused

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_handlecrashitem(
        self, crashitem: str, report: pytest.TestReport, sched: Any
    ) -> bool | None:
        """Say of an item that was under way in a process that ended what becomes of it.

        It is of ours; anybody else's code may not bear to be run twice. True: it is settled.
        """
        if crashitem not in self._checks or report.outcome != "failed":
            return None
        if crashitem in self._heard:  # all but its last word was
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
        """Take note of what has been said of an item after all."""
        if (report.when == "call" or not report.passed) and not hasattr(report, MARKED):
            self._heard.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Fail what was to be run and was not: xdist replaces only so many processes.

        Where something else stopped the session, that is what was to be tried again.
        """
        stopped = True
        try:
            found = yield
            stopped = False
            return found
        finally:
            for node in [*self._unheard(stopped=stopped)]:
                report = _report(node, f"it was not run: {GONE}")
                if node in self._retried:
                    self._failed(report, Verdict.NOTRUN, f"{ENDED}, and it was not tried again")
                elif node in self._checks:
                    self._failed(report, Verdict.NOTRUN, GONE)
                session.config.hook.pytest_runtest_logreport(report=report)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        """How pytest shows and counts one that is tried again."""
        if hasattr(report, MARKED):
            return RETRIED, "R", ("RETRIED", {"yellow": True})
        return None

    @cached_property
    def _checks(self) -> dict[str, Check]:
        """What every item judges."""
        return {node_of(check): check for check in self._ours.checks}

    def _unheard(self, *, stopped: bool) -> Iterator[str]:
        for node in self._planned:
            if node not in self._heard and (node in self._retried or not stopped):
                yield node

    def _again(self, sched: Any, item: str) -> bool:
        """Have an item run again; False: this way of sharing tests out knows none."""
        if self._ours.distribution in WHOLE_SCOPES:
            return True
        with suppress(OSError):  # the other process may be dying too; xdist will hear of it
            try:
                sched.mark_test_pending(item)
            except NotImplementedError:
                return False
        return True

    def _failed(self, report: pytest.TestReport, verdict: Verdict, reason: str) -> None:
        """Make a report that of a failure, with the result that goes with it."""
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
    """The failure of a test of which nothing was heard."""
    file = node.partition("::")[0]
    where = (file, None, node)
    return pytest.TestReport(node, where, {}, outcome="failed", longrepr=text, when="call")


def _never_again(sched: Any, item: str) -> None:
    """Take an item out of what is still to be shared out, so that the rest of its scope is run."""
    for unit in getattr(sched, "workqueue", {}).values():
        if item in unit:
            unit[item] = True
