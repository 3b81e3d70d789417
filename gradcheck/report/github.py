"""GitHub's annotations: workflow commands that put what is wrong beside the code.

An `::error` for each gradient that fails, for each line of a baseline to correct (a listed failure
that passes is one), and for whatever else closes the gate; a `::warning` for what a baseline warns
of. Source of the syntax and its escapes: GitHub's reference of workflow commands. A runner reads
one command a line and decodes `%0A` in it, so no text of anybody's can begin a line, or end a
property.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gradcheck.report import failure_text, failures, models, run_words
from gradcheck.report.page import clip
from gradcheck.results import words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Blame, Part
from gradcheck.results.run import Run

MOST: Final = 10
"""Errors that GitHub shows of one step, and warnings."""
LONGEST: Final = 4000
"""Characters of a message: a runner cuts it at 4096, in the middle of a command to be copied."""
LINE: Final = 600
"""Characters of a line of one that is too long."""
PROPERTIES: Final = 500
"""Characters of a title, or of a path."""
REPRO: Final = "run: "
"""What the last line of a message begins with, which is to be copied."""
PLAIN: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
"""What a message may not hold as it is."""
PROPERTY: Final = {**PLAIN, ":": "%3A", ",": "%2C"}
"""What a property may not hold as it is: it ends at a comma, and the last one at colons."""


def render(run: Run) -> str:
    """The run as workflow commands of GitHub; the last line is `run.summary`."""
    errors = [*_troubles(run), *_failures(run), *_baseline(run)]
    lines = errors[:MOST]
    left_out = len(errors) - len(lines)
    spoilt = len(failures.explained(run, Part.GRADIENT))
    if left_out:
        lines.append(command("notice", f"and {left_out:,} more; -o report.html shows each"))
    warnings = run.gate.warnings if run.gate is not None else ()
    lines += [command("warning", words.clean(text), title="baseline") for text in warnings[:MOST]]
    if warnings[MOST:]:
        lines.append(command("notice", f"and {len(warnings) - MOST:,} more warnings"))
    if spoilt:
        text = f"and {words.plural(spoilt, 'gradient')} affected downstream of faulty stages"
        lines.append(command("notice", f"{text}; -o report.html shows each"))
    return "\n".join([*lines, run.summary, ""])


def _failures(run: Run) -> Iterator[str]:
    """An error per gradient, the worst first; none for those that a guilty stage spoils."""
    spoilt = failures.explained(run, Part.GRADIENT)
    named = len({*run.header.implementations, *(r.case.implementation for r in run.results)}) > 1
    blames = {
        (r.case.implementation, r.case.name): r.finding.blames
        for r in run.results
        if r.finding.blames
    }
    for group in failures.groups(run):
        if group not in spoilt:
            first = group.results[0]
            yield _failure(
                group, named, blames.get((first.case.implementation, first.case.name), ())
            )


def _failure(group: failures.Group, named: bool, blames: Sequence[Blame]) -> str:
    first = group.results[0]
    whose = f"{words.clean(group.implementation)} · " if named else ""
    about = words.subject(group.output, group.part)
    kind = first.finding.defect or words.word(group.verdict)
    title = f"{whose}{words.clean(f'{group.op}/{group.dialect}')} · {about}: {kind}"
    return command("error", "\n".join(_message(group, blames)), **place(first), title=title)


def _message(group: failures.Group, blames: Sequence[Blame]) -> Iterator[str]:
    first = group.results[0]
    said = failure_text.alone(first)
    yield said.text or words.word(first.finding.verdict)
    yield from (text for label, text in said.facts if label == "evidence")
    yield from (f"{label}: {text}" for label, text in said.facts if label == "pattern")
    reason = f": {words.clean(first.finding.reason)}" if said.word and first.finding.reason else ""
    yield f"{words.word(first.finding.verdict)} {words.case(first)}{reason}"
    if group.results[1:]:
        more = failure_text.rest(group.results[1:], group.results[:1])
        yield f"… and {len(group.results) - 1:,} more: {more}"
    own = [b for b in blames if group.part is not Part.STAGE or group.output in b.stages]
    yield from models.charges(own)
    if first.repro:
        yield f"{REPRO}{words.command(first.repro)}"


def _troubles(run: Run) -> Iterator[str]:
    for text in run.troubles:
        yield command("error", words.clean(text), title="gradcheck: problem")
    for text in run_words.unmet(run):
        yield command("error", text, title="gradcheck: required")
    if not run.complete:
        yield command("error", run_words.incomplete(run), title="gradcheck: incomplete")
    if not run.footer.checked:
        yield command("error", "nothing was checked", title="gradcheck: nothing was checked")


def _baseline(run: Run) -> Iterator[str]:
    """Each line of a baseline to correct; what no entry is about has an error of its own."""
    for problem in run.gate.problems if run.gate is not None else ():
        if problem.line is not None:
            where = {"file": words.clean(problem.file), "line": str(problem.line)}
            title = f"baseline: {problem.breach.value}"
            yield command("error", words.clean(problem.says), **where, title=title)


def place(result: CaseResult) -> dict[str, str]:
    """Where the code judged stands, as properties; none where that is not known.

    >>> from types import SimpleNamespace as R
    >>> place(R(source="src/rms.c:120")), place(R(source="src/rms.c")), place(R(source=""))
    ({'file': 'src/rms.c', 'line': '120'}, {'file': 'src/rms.c'}, {})
    """
    source = words.clean(result.finding.source)
    file, _, line = source.rpartition(":")
    if file and line.isascii() and line.isdecimal():
        return {"file": file, "line": line}
    return {"file": source} if source else {}


def command(name: str, message: str, **properties: str) -> str:
    r"""A workflow command of one line.

    >>> command("error", "100% wrong\nrun: it", file="a,b.c", title="op · dw: scale")
    '::error file=a%2Cb.c,title=op · dw%3A scale::100%25 wrong%0Arun: it'
    """
    properties = {key: clip(text, PROPERTIES) for key, text in properties.items()}
    told = ",".join(f"{key}={_escaped(text, PROPERTY)}" for key, text in properties.items())
    return f"::{name}{' ' * bool(told)}{told}::{_escaped(_fitting(message), PLAIN)}"


def _fitting(message: str) -> str:
    """A message that no runner cuts: lines are, and the last of them go; the command stays."""
    if _units(message) <= LONGEST:
        return message
    *lines, last = message.split("\n")
    if not last.startswith(REPRO):
        lines, last = [*lines, last], ""
    elif _units(last) > LONGEST - 2 * LINE:  # a command that is cut is none
        last = ""
    room = LONGEST - _units(last)
    kept: list[str] = []
    for line in (clip(line, LINE) for line in lines):
        room -= _units(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, *([last] if last else [])])


def _units(text: str) -> int:
    """The length of a text as a runner counts it: in units of UTF-16."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(c, c) for c in text)
