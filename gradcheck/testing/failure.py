"""The failure of a test as text: what is wrong, a value, and the command that repeats it."""

from __future__ import annotations

from collections.abc import Sequence

from gradcheck.report import causes, failure_text
from gradcheck.results import printed, words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.verdict import Problem, Verdict


class CheckFailed(AssertionError):  # noqa: N818  a check has
    """A backward is wrong; the text says how, in a few lines for each gradient.

    `lead` is its first line without the name of the case, which stands beside it in a summary;
    `source` is the file and line of the code judged, where they are known.
    """

    def __init__(self, text: str, lead: str = "", source: str = "") -> None:
        """Carry the text; a `lead` that is empty is its first line."""
        super().__init__(text)
        self.lead, self.source = lead or text.partition("\n")[0], source


class NotCompared(CheckFailed):
    """A test compared nothing; it has no useful traceback."""


for _public in (CheckFailed, NotCompared):
    _public.__module__ = "gradcheck"  # its name in tracebacks


def failure_of(failed: Sequence[CaseResult], about: Sequence[Problem] = ()) -> CheckFailed:
    """The failure of a case's results; `about` are the baseline's objections to them."""
    first = failed[0]
    noise = printed.marked(first.finding.printed, "  ")
    text = "\n".join(line for result in failed for line in causes.brief(result))
    lines = [words.clean(problem.text) for problem in about]
    lead = lead_of(about) if about else f"{_lead(first)}{_more(len(failed))}"
    source = next((record.finding.source for record in failed if record.finding.source), "")
    return CheckFailed("\n".join([text, *noise, *lines]), lead, source)


def lead_of(about: Sequence[Problem]) -> str:
    """The change that a baseline needs, in one line."""
    first = about[0]
    return words.clean(
        f"{first.breach.value.upper()} {first.where}: {first.says}{_more(len(about))}"
    )


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _lead(record: CaseResult) -> str:
    """One line on what is wrong: the gradient, and the class of the defect, if it is known."""
    said = failure_text.alone(record).lead
    subject = words.subject(record.finding.name, record.finding.part)
    if not said.startswith((f"{subject} ", f"{subject}: ")):
        said = ": ".join(filter(None, (subject, said)))
    word = words.word(record.finding.verdict)
    return said if record.finding.verdict is Verdict.FAIL else f"{word} {said}"
