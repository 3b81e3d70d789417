"""Which cases there are, so that "matches nothing" is told from "was not run"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate
from functools import lru_cache
from re import compile as regex
from typing import TYPE_CHECKING

from gradcheck.spec.selection import CERTIFIED, DTYPES, LOW

if TYPE_CHECKING:
    from gradcheck.results.baseline.entry import Baseline
    from gradcheck.results.run import Run
    from gradcheck.spec.suite import Suite


class Names:
    """Names of cases, to be searched by globs."""

    def __init__(self, names: Iterable[str]) -> None:
        """Keep them by operator: most globs name one."""
        self._of: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            self._of.setdefault(name.partition("/")[0], []).append(name)

    def matching(self, glob: str) -> Iterator[str]:
        """The names that match."""
        for op in filter(matcher(glob.partition("/")[0]), self._of):
            yield from filter(matcher(glob), self._of[op])


class Scope:
    """The names of a suite's cases, and of those that a run reached."""

    def __init__(self, suite: Suite, usual: Iterable[str], ran: Iterable[str]) -> None:
        """`usual` are the dtypes of a full run, `ran` the cases reached (with their dtypes)."""
        self._usual = Names(_names(suite, {*usual}))
        self._every = Names(_names(suite, {*DTYPES, *LOW, CERTIFIED}))
        self._ran = frozenset(ran)

    @classmethod
    def of(cls, suite: Suite, baseline: Baseline, run: Run) -> Scope:
        """What a baseline is about: the dtypes that it names, or the usual ones, and the run's."""
        usual = {*(baseline.dtypes or DTYPES), *run.header.dtypes}
        return cls(suite, usual, (result.case.name for result in run.results))

    def reached(self, glob: str) -> list[str]:
        """The names that match, of the cases that the run reached."""
        return [*filter(matcher(glob), self._ran)]

    def exists(self, glob: str) -> bool:
        """Whether any case matches, run or not."""
        return any(self._every.matching(glob))

    def missed(self, glob: str) -> list[str]:
        """The names that match and belong to a full run, of the cases that were not reached.

        Where a full run has none of them (a dtype that is named nowhere else), of all.
        """
        names = [*self._usual.matching(glob)] or [*self._every.matching(glob)]
        return [name for name in names if name not in self._ran]


@lru_cache(maxsize=4096)
def matcher(glob: str) -> Callable[[str], bool]:
    """Whether a name matches; `*` never crosses a slash, as name and glob have three each."""
    match = regex(translate(glob)).match
    return lambda name: match(name) is not None


def _names(suite: Suite, dtypes: set[str]) -> Iterator[str]:
    """Every case of a suite, in each dtype in which its kind can be judged."""
    kinds = (
        (suite.cases(), dtypes - {CERTIFIED}),
        (suite.model_cases(), dtypes - {*LOW}),
        (suite.rule_cases(), dtypes - {CERTIFIED}),
    )
    for cases, judged in kinds:
        for case in cases:
            yield from (f"{case.name}/{dtype}" for dtype in judged)
