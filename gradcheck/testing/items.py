"""The items that the plugin adds: one per check, and one for the baseline as a whole."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import pytest

from gradcheck.results import words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.expectation import Breach, Known
from gradcheck.results.run import Run
from gradcheck.spec.model import ModelSpec
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.rule import RuleSpec
from gradcheck.testing import BASELINE, MARKER
from gradcheck.testing.failure import CheckFailed, NotCompared, failure_of, lead_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck.testing.session import Check, Session

AnySpec = OpSpec | ModelSpec | RuleSpec
WHOLE: Final = (Breach.UNLISTED, Breach.STALE, Breach.EXPIRED)
"""What is wrong with a baseline that no entry's own case can say."""


class Item(pytest.Item):
    """An item whose failure is a text of its own, without a traceback through the checker."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure; of a slip of ours, where it happened."""
        if isinstance(excinfo.value, CheckFailed):
            return excinfo.getrepr(style="value")
        return super().repr_failure(excinfo, style)


class GradcheckItem(Item):
    """One case, one implementation, one dtype; `results` is what came of it."""

    def __init__(self, *, ours: Session, check: Check, **rest: Any) -> None:
        """Keep what to judge."""
        super().__init__(**rest)
        self.ours, self.check = ours, check
        self.results: Sequence[CaseResult] = ()
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Judge the case; what the baseline knows of it is xfailed.

        Raises:
            CheckFailed: something is wrong that it does not know, or not any more.
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
        """Another process's prints stand in the failure; pytest need not show them once more."""
        captured = self.config.getoption("capture") != "no"
        return redirect_stderr(StringIO()) if captured and self.ours.plan.isolate else nullcontext()

    def _excuse(self, run: Run) -> None:
        """Xfail what is known, with the entries that say so."""
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
        """Where pytest says the item is."""
        return place_of(self.check)


class BaselineItem(Item):
    """Whether each entry of the baseline is about a case that there is, and holds today."""

    def __init__(self, *, ours: Session, **rest: Any) -> None:
        """Keep where the baseline is."""
        super().__init__(**rest)
        self.ours = ours
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Look at names and dates alone: the answer is the same in every process.

        Raises:
            CheckFailed: an entry has to go, or to change.
        """
        problems = self.ours.outdated()
        if problems:
            lines = [words.clean(problem.text) for problem in problems]
            raise CheckFailed("\n".join(lines), lead_of(problems))

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where pytest says the item is."""
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
    """What pytest calls the item of a check."""
    return f"gradcheck::{_name(check)}"


def place_of(check: Check) -> tuple[str, int | None, str]:
    """Where the item of a check is, and what heads its failure."""
    return *_written(check.case.spec), f"gradcheck {_name(check)}"


def _name(check: Check) -> str:
    return f"{check.binding.name}::{check.case.name}/{check.dtype}"


def _written(spec: AnySpec) -> tuple[str, int | None]:
    """The file, and the line counted from 0, where a spec says what is to be computed."""
    if isinstance(spec, ModelSpec):
        function: Any = spec.build
    else:
        function = spec.update if isinstance(spec, RuleSpec) else spec.forward
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno - 1) if code is not None else (spec.name, None)
