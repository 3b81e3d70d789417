"""The summary of a CI job: the verdict first, what is wrong before what is right, in 60 KB.

For `-o "$GITHUB_STEP_SUMMARY:summary"`. It is the markdown report without what nobody reads on
the page of a job: an operator that passes has one row, a gradient that fails its worst case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_text, failures, model_markdown, notices, outline, run_words
from gradcheck.report.marked import (
    LEGEND,
    Capped,
    code,
    escape,
    fenced,
    folded,
    matrix_head,
    matrix_lines,
)
from gradcheck.report.page import clip
from gradcheck.results import printed, words
from gradcheck.results.finding import Part

if TYPE_CHECKING:
    from gradcheck.report.rows import Row
    from gradcheck.results.run import Run

LIMIT: Final = 60_000
"""Bytes of UTF-8; GitHub refuses a summary above a mebibyte, and shows what is long slowly."""
SHORT: Final = 300
"""Characters of one foreign text."""
FEW: Final = 30
"""Rows that stand open; above, those without failures are to be unfolded."""
HINT: Final = "`-o report.html` shows everything"
QUIET: Final = ("run", "visible", "taylor")
"""Facts that are told elsewhere, or not here."""


def render(run: Run, *, limit: int = LIMIT) -> str:
    """The run as GitHub's markdown, at most `limit` bytes of UTF-8."""
    page = Capped(limit, HINT)
    counts = ", ".join(text for _, text in run_words.tally(run)) or "no results"
    page.add(f"**gradcheck: {_brief(run_words.headline(run))}** ({counts})\n")
    facts = (f"{label} {_brief(text)}" for label, text in run_words.versions(run))
    page.add("\n" + " · ".join(facts) + "\n")
    page.until(0.2)
    for trouble in run.troubles:
        page.add(f"\n> problem: {_brief(words.clean(trouble))}\n", "problem")
    for text in run_words.unmet(run):
        page.add(f"\n> {_brief(text)}\n", "requirement")
    for text in run_words.baseline(run):
        page.add(f"\n> baseline: {_brief(text)}\n", "line of the baseline")
    page.until(0.4)
    calm = _tables(page, run)
    for text, noun in model_markdown.blocks(run, unfold=False):
        page.add(text, noun)
    for text in model_markdown.blame(run):
        page.add(text, "accusation")
    page.until(0.85)
    _failures(page, run)
    page.until(0.95)
    for table, named, rows in calm:
        whose = f"{_short(table.implementation)}: " if named else ""
        count = words.plural(len({row.op for row in rows}), table.kind.value)
        lines = [*matrix_lines(rows, table.dtypes)]
        page.fold("", f"{whose}{count} without failures", matrix_head(table), lines, "row")
    page.until(1.0)
    _footnotes(page, run)
    return page.text()


Calm = list[tuple[outline.Table, bool, list["Row"]]]
"""Rows of a table without failures, and whether to say whose they are."""


def _tables(page: Capped, run: Run) -> Calm:
    """The operators that fail, whole; returns what is left to be told of the others."""
    found = outline.tables(run)
    named = len({*run.header.implementations, *(table.implementation for table in found)}) > 1
    calm: Calm = []
    for table in found:
        rows = [*outline.folded(table.rows)]
        failing = {row.op for row in rows if not _accepted(run, row)}
        wrong = [row for row in rows if row.op in failing]
        shown = rows if len(rows) <= FEW else wrong
        if shown is wrong:
            calm.append((table, named, [row for row in rows if row.op not in failing]))
        if not shown:
            continue
        title = f"\n### {_brief(words.clean(table.implementation))}\n" if named else ""
        if page.add("\n".join([title, *matrix_head(table), ""])):
            lines = (f"{line}\n" for line in matrix_lines(shown, table.dtypes))
            page.add_all(lines, "row", len(shown))
        else:
            page.leave_out("row", len(shown))
    return calm


def _accepted(run: Run, row: Row) -> bool:
    return all(run.accepts(result) for cell in row.cells.values() for result in cell.results)


def _failures(page: Capped, run: Run) -> None:
    """Each gradient that fails, the worst first; those that a guilty stage spoils are counted."""
    spoilt = failures.explained(run, Part.GRADIENT)
    groups = [group for group in failures.groups(run) if group not in spoilt]
    named = len({r.case.implementation for r in run.results}) > 1
    blocks = (_failure(group, named) for group in groups)
    page.add_all(blocks, "failing gradient", len(groups))
    if spoilt:
        page.add(f"\n{words.plural(len(spoilt), 'gradient')} that the guilty stages spoil.\n")


def _failure(group: failures.Group, named: bool) -> str:
    """What is wrong with one gradient, and its worst case, to unfold."""
    first, more = group.results[0], group.results[1:]
    said = failure_text.alone(first)
    whose = f"{_short(group.implementation)} · " if named else ""
    about = clip(words.subject(group.output, group.part), SHORT)
    text = f"{whose}{_short(f'{group.op}/{group.dialect}')} · {about}"
    if said.lead:
        text = f"{text}: {clip(said.lead, SHORT)}"
    lines = [f"- {words.word(first.finding.verdict)} in {code(clip(words.case(first), SHORT))}"]
    lines += [f"- {label}: {_brief(fact)}" for label, fact in said.facts if label not in QUIET]
    if more:
        lines.append(f"- … and {len(more):,} more: {_brief(failure_text.rest(more, [first]))}")
    if first.finding.printed.strip():
        lines += ["", "printed:", *fenced(printed.lines(first.finding.printed, printed.FEW))]
    lines += ["", *fenced([words.command(first.repro)], "sh")] if first.repro else []
    return folded(words.word(group.verdict), text, lines)


def _footnotes(page: Capped, run: Run) -> None:
    """How to read a table, what would have been rejected, and what was not checked."""
    if run.results:
        page.add(f"\n{LEGEND}\n")
    found = notices.certificate(run)
    if found is not None:
        page.add(f"\nCertificate: {_brief(run_words.rejected(found))}.\n")
    for name, text in notices.slacks(run):
        page.add(f"\nWider bound: {code(name)}, {_brief(words.clean(text))}.\n")
    for i, gap in enumerate(notices.gaps(run)):
        ops = ", ".join(map(code, gap.named)) + gap.others
        reason = f": {_brief(words.clean(gap.reason))}" if gap.reason else ""
        page.add(
            f"{'' if i else chr(10)}- {words.word(gap.verdict)}: "
            f"{words.plural(gap.count, 'result')} of {ops}{reason}\n",
            "reason",
        )


def _short(name: str) -> str:
    """A name as one printable line."""
    return clip(words.clean(name), SHORT)


def _brief(text: str) -> str:
    """A printable line of foreign text, cut and escaped."""
    return escape(clip(text, SHORT))
