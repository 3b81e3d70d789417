"""The concise report: a line per failing gradient, and the line for scripts; made for `grep`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck.report import run_words
from gradcheck.report.page import ended
from gradcheck.results import words
from gradcheck.results.finding import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck.report.failures import Group
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run


def render(run: Run, *, verbosity: int = 0) -> str:
    """The run in lines: what fails, what closes the gate besides, and `run.summary`.

    Of each gradient the worst result is shown, and how many more there are; of a `verbosity` above
    0, each has a line of its own.
    """
    return ended("".join(f"{line}\n" for line in _lines(run, verbosity)), run.summary)


def _lines(run: Run, verbosity: int) -> Iterator[str]:
    if any(map(run.fails, run.results)):
        from gradcheck.report import failures  # deferred: most runs pass

        named = len({r.case.implementation for r in run.results}) > 1
        for group in failures.groups(run):
            if verbosity > 0:
                yield from (_line(result, named) for result in group.results)
            else:
                yield _line(group.results[0], named) + _others(group)
    yield from run_words.baseline(run)
    yield from run_words.unmet(run)
    yield from (f"problem: {words.clean(trouble)}" for trouble in run.troubles)
    if not run.complete:
        yield f"incomplete: {run_words.incomplete(run)}"
    if not run.footer.checked:
        yield "nothing was checked"


def _line(result: CaseResult, named: bool) -> str:
    """`operator/dialect/sample/dtype:output VERDICT error > bound — why`.

    What stands before the verdict is what `gradcheck repro` takes, where that takes it.
    """
    from gradcheck.report import failure_text

    own = result.finding.part is Part.GRADIENT
    output = (
        words.clean(result.finding.name)
        if own
        else words.subject(result.finding.name, result.finding.part)
    )
    parts = [f"{words.case(result)}:{output}", words.word(result.finding.verdict)]
    if result.finding.top is not None and failure_text.is_known(result.finding.top):
        parts.append(words.comparison(result.finding.top))
    if named:
        parts.append(f"({words.clean(result.case.implementation)})")
    said = failure_text.alone(result).lead
    return " ".join([*parts, *(["—", said] if said else [])])


def _others(group: Group) -> str:
    more = len(group.results) - 1
    return f" (and {more:,} more)" if more else ""
