"""What every case has that a test is given: what was asked of it while the test ran."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

from gradcheck.errors import UsageError

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult


class Asked:
    """A case as a test gets it, and what was asked of it while the test ran."""

    name: str
    dtype: str

    def __init__(self, test: str) -> None:
        """`test` is the file and the name of the test."""
        self.test, self.results, self._calls = test, list[Any](), 0
        self._file, self._again = test.partition("::")[0], ""

    @property
    def id(self) -> str:
        """What stands in brackets behind the test's name."""
        raise NotImplementedError

    def begin(self, node: str) -> None:
        """A test begins; `node` is what pytest calls it."""
        self.results, self._calls = [], 0
        self._file, self._again = node.partition("::")[0], shlex.join(["pytest", node])

    def end(self) -> None:
        """A test has ended well.

        Raises:
            NotCompared: it never asked.
        """
        if not self._calls:
            from gradcheck.testing.failure import NotCompared

            raise NotCompared(
                f"nothing was compared: {self.test} never calls case.check(forward, vjp)"
            )

    def __repr__(self) -> str:
        """As it stands in a test's name."""
        return f"<case {self.id}>"

    def _judged(self, records: Sequence[CaseResult]) -> None:
        """Keep what was found.

        Raises:
            CheckFailed: something is wrong.
            SkipTest: the code declares that it lacks this.
        """
        __tracebackhide__ = True
        self.results += records
        checked = [r for r in records if r.finding.verdict.checked]
        if records and not checked:
            from gradcheck.results.words import clean, word

            raise SkipTest(
                f"{word(records[0].finding.verdict)}: {clean(records[0].finding.reason)}"
            )
        failed = [r for r in checked if not r.finding.verdict.expected]
        if failed:
            from gradcheck.testing.failure import failure_of

            raise failure_of(failed)


def as_entry(forward: Any, vjp: Callable[..., Any] | None) -> Any:
    """What a table would have for whatever was passed to `check`.

    Raises:
        UsageError: there is nothing to judge in it.
    """
    from gradcheck.implementations.frameworks import differentiated
    from gradcheck.implementations.keywords import method
    from gradcheck.implementations.python import ROLES

    entry = forward
    if vjp is not None:
        entry = {"vjp": vjp} if forward is None else {"forward": forward, "vjp": vjp}
    if differentiated(entry) is None and not any(method(entry, role) for role in ROLES):
        raise UsageError(
            f"there is no vjp: case.check(forward, vjp), not of a {type(forward).__name__} alone"
        )
    return entry
