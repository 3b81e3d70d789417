"""What has to be answered: of operators, models and update rules that are required, all of it.

A result that says nothing about the code, UNSUPPORTED or UNBOUND, closes the gate there. SKIP is
the suite's own word: a sample that float16 does not hold, a stage that reads indices alone, a
property that there is nothing to ask about. It closes the gate where nothing else was put to the
test either: no result of the same operator, dtype and part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.results.case_result import CaseResult
from gradcheck.results.verdict import Verdict
from gradcheck.spec.dtype_selection import CERTIFIED, LOW

if TYPE_CHECKING:
    from gradcheck.spec.suite import Suite

FLAG: Final = "--require"
Name = tuple[str, str]
"""An operator, a model or a rule, and a dialect of it."""


def lacks(globs: Sequence[str], result: CaseResult) -> bool:
    """Whether a result is required, and the implementation does not have it."""
    absent = result.finding.verdict in (Verdict.UNSUPPORTED, Verdict.UNBOUND)
    return absent and _requires(globs, result)


def unmet(globs: Sequence[str], results: Iterable[CaseResult], *, whole: bool) -> list[str]:
    """A line for each thing that is required and is not there.

    `whole`: the results are those of a whole run, and not of a shard or of one that was cut short.
    """
    if not globs:
        return []
    results = list(results)
    several = len({result.case.implementation for result in results}) > 1
    of_run = [result for result in results if _requires(globs, result)]
    tested = {_group(result) for result in of_run if result.finding.verdict.checked}
    groups: dict[tuple[str, str, Verdict], list[CaseResult]] = {}
    for result in of_run:
        skipped = result.finding.verdict is Verdict.SKIP and _group(result) not in tested
        if skipped or lacks(globs, result):
            groups.setdefault(
                (result.case.implementation, result.case.op, result.finding.verdict), []
            ).append(result)
    lines = [_told(group, several=several) for group in groups.values()]
    names = {(result.case.op, result.case.dialect) for result in results}
    unrun = [glob for glob in globs if whole and glob not in matching(globs, names)]
    return [*lines, *(f"{glob}: required, but nothing of it was run" for glob in unrun)]


def _told(results: Sequence[CaseResult], *, several: bool) -> str:
    """Why the gate is closed there; `several`: it is to be said whose it is."""
    first, count = results[0], len(results)
    whose = f" of {first.case.implementation}" if several else ""
    where = f"{count} results" if count > 1 else f"{first.case.sample}/{first.case.dtype}"
    reason = f": {first.finding.reason}" if first.finding.reason else ""
    return f"{first.case.op}{whose}: required, but {first.finding.verdict.name} in {where}{reason}"


def asked(globs: Sequence[str], suite: Suite, selected: Iterable[Name]) -> list[str]:
    """Those of the globs that match something that is selected.

    Raises:
        UnknownNameError: one matches nothing in the suite either.
    """
    kept = matching(globs, selected)
    for glob in globs:
        if glob not in kept:
            check_known(glob, suite)
    return kept


def matching(globs: Sequence[str], names: Iterable[Name]) -> list[str]:
    """Those of the globs that match one of the names."""
    of = set(names) if globs else set()
    return [glob for glob in globs if _any(of, glob)]


def refuse_left_out(globs: Iterable[str], kept: Sequence[str]) -> None:
    """Refuse to require what a selection leaves out.

    Raises:
        UsageError: it does.
    """
    for glob in globs:
        if glob not in kept:
            raise UsageError(
                f"{FLAG} {glob}: nothing that is selected matches it; select it too, or do not "
                "require it"
            )


def check_known(glob: str, suite: Suite) -> None:
    """Refuse a glob that nothing in a suite matches.

    Raises:
        UnknownNameError: nothing does.
    """
    every = (suite.operators, suite.models, suite.rules)
    op, slash, _ = glob.partition("/")
    names = [name for specs in every for name in specs if not slash or fnmatchcase(name, op)]
    if names and slash:
        specs = [kind[name] for kind in every for name in kind if name in names]
        names = [f"{spec.name}/{dialect.name}" for spec in specs for dialect in spec.dialects]
    if not any(fnmatchcase(name, glob) for name in names):
        known = names or [name for specs in every for name in specs]
        raise UnknownNameError("operator, model or rule to require", glob, known)


def _group(result: CaseResult) -> tuple[str, ...]:
    """What one thing that is put to the test stands for, where others cannot be."""
    return (
        result.case.implementation,
        result.case.kind,
        result.case.op,
        result.case.dtype,
        result.finding.part,
    )


def _requires(globs: Sequence[str], result: CaseResult) -> bool:
    """Whether a result is required; not so in a dtype in which nobody's code is judged."""
    others = result.case.kind != "operator" and result.case.dtype in (CERTIFIED, *LOW)
    return not others and any(_matches(result.case.op, result.case.dialect, glob) for glob in globs)


def _any(names: Iterable[Name], glob: str) -> bool:
    return any(_matches(op, dialect, glob) for op, dialect in names)


@lru_cache(maxsize=4096)
def _matches(op: str, dialect: str, glob: str) -> bool:
    """Whether OP-GLOB, or OP-GLOB/DIALECT-GLOB, means a dialect of an operator."""
    return fnmatchcase(f"{op}/{dialect}" if "/" in glob else op, glob)
