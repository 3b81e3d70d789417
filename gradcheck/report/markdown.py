"""The markdown report: verdict first, a matrix per implementation, failures to unfold.

It is meant to be committed and compared, so it holds no times, and the errors of what passed
are rounded up to powers of ten: another machine's library may change their digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import (
    failure_text,
    failures,
    model_markdown,
    notices,
    outline,
    remainder,
    run_words,
)
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
from gradcheck.results import printed, words
from gradcheck.results.case_result import Kind

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run

LIMIT: Final = 1_000_000
"""Bytes of UTF-8 that no report exceeds; GitHub shows no more than that."""
RESULTS: Final = 20
"""Failures of one gradient that are listed."""


def render(run: Run, *, limit: int = LIMIT) -> str:
    """The run as GitHub's markdown, at most `limit` bytes of UTF-8."""
    page = Capped(limit)
    counts = ", ".join(text for _, text in run_words.tally(run)) or "no results"
    page.add(f"**gradcheck: {escape(run_words.headline(run))}** ({counts})\n")
    facts = (f"{label} {escape(text)}" for label, text in run_words.versions(run))
    page.add("\n" + " · ".join(facts) + "\n")
    for trouble in run.troubles:
        page.add(f"\n> problem: {escape(words.clean(trouble))}\n")
    if not run.complete:
        page.add(f"\n> incomplete: {escape(run_words.incomplete(run))}\n")
    for text in run_words.unmet(run):
        page.add(f"\n> {escape(text)}\n", "requirement")
    for text in run_words.baseline(run):
        page.add(f"\n> baseline: {escape(text)}\n", "line of the baseline")
    found = outline.tables(run)
    named = len({*run.header.implementations, *(table.implementation for table in found)}) > 1
    for table in found:
        if named:
            page.add(f"\n### {escape(words.clean(table.implementation))}\n")
        _matrix(page, table)
    for text, noun in model_markdown.blocks(run):
        page.add(text, noun)
    if run.results:
        page.add(f"\n{LEGEND}\n")
    _soundness(page, run)
    _gaps(page, run)
    _noise(page, run)
    for text in model_markdown.blame(run):
        page.add(text, "accusation")
    _failures(page, run)
    return page.text()


def _matrix(page: Capped, table: outline.Table) -> None:
    if not page.add("\n" + "\n".join([*matrix_head(table), ""])):
        return
    lines = (f"{line}\n" for line in matrix_lines(table.rows, table.dtypes))
    page.add_all(lines, "row", len(table.rows))


def _soundness(page: Capped, run: Run) -> None:
    found = notices.certificate(run)
    if found is not None:
        page.add(f"\nCertificate: {escape(run_words.rejected(found))}.\n")
    for curves in notices.curves(run):
        page.add(f"\nTaylor: {escape(remainder.curves(*curves))}.\n")
    for name, text in notices.slacks(run):
        page.add(f"\nWider bound: {code(name)}, {escape(words.clean(text))}.\n")
    rows = notices.conventions(run)
    if rows:
        page.add("\n| operator | conventions found on its kinks |\n|---|---|\n")
    for name, texts in rows:
        page.add(f"| {code(name)} | {escape(words.clean('; '.join(texts)))} |\n", "convention")


def _gaps(page: Capped, run: Run) -> None:
    for i, gap in enumerate(notices.gaps(run)):
        ops = ", ".join(map(code, gap.named)) + gap.others
        reason = f": {escape(words.clean(gap.reason))}" if gap.reason else ""
        page.add(
            f"{'' if i else chr(10)}- {words.word(gap.verdict)}: "
            f"{words.plural(gap.count, 'result')} of {ops}{reason}\n",
            "reason",
        )


def _noise(page: Capped, run: Run) -> None:
    for result, count in notices.talkers(run):
        text = f"{result.case.op}/{result.case.dialect} printed in {words.plural(count, 'result')}"
        where = f"in {code(result.case.sample)}, {code(result.case.dtype)}:"
        lines = [where, "", *fenced(printed.indented(result.finding.printed))]
        page.add(folded("NOTE", words.clean(text), lines), "note")


def _failures(page: Capped, run: Run) -> None:
    groups = failures.groups(run)
    named = len({group.implementation for group in groups}) > 1
    page.add_all((_details(group, named) for group in groups), "failing gradient", len(groups))


def _details(group: failures.Group, named: bool) -> str:
    """One gradient's failures: a line to unfold, a table of worst elements, lines to paste."""
    whose = f"{group.implementation} · " if named else ""
    about = words.subject(group.output, group.part)
    lead = failure_text.alone(group.results[0]).lead
    text = words.clean(f"{whose}{group.op}/{group.dialect} · {about}")
    listed = group.results[:RESULTS]
    several = failure_text.differ(group.results)
    lines = [
        *_diagnoses(group, several),
        "| sample | dtype | verdict | worst | got | want | error | failed | finding |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(result, several) for result in listed),
        "",
    ]
    if len(group.results) > len(listed):
        lines += [f"… and {len(group.results) - len(listed):,} more", ""]
    hunts = dict.fromkeys((r.case.sample, r.case.hunts) for r in listed if r.case.hunts)
    lines += [f"- {code(sample)} hunts {escape(words.clean(text))}" for sample, text in hunts]
    repros = list(dict.fromkeys(words.command(r.repro) for r in listed if r.repro))
    if group.kind is Kind.MODEL:  # it fails at every size alike; the smallest one is enough
        repros = repros[:1]
    lines += ["", *fenced(repros, "sh")]
    talker = next((r for r in listed if r.finding.printed.strip()), None)
    if talker is not None:
        said = printed.indented(talker.finding.printed)
        lines += ["", f"printed in {code(talker.case.sample)}:", *fenced(said)]
    return folded(words.word(group.verdict), f"{text}{': ' if lead else ''}{lead}", lines)


def _diagnoses(group: failures.Group, several: bool) -> list[str]:
    """Why the gradient is wrong: a line per diagnosis, and what it rests on below it.

    Where there are not several, the line stands above already.
    """
    lines = []
    if several:
        lines.append(f"- diagnoses: {escape(failure_text.counts(group.results))}")
    for found in failure_text.distinct(group.results):
        evidence = [escape(words.clean(text)) for text in found.evidence if text]
        word = found.word
        if not word:
            lines.append("- pattern: " + "; ".join(["none known", *evidence]))
            continue
        lines += [f"- {word}: {escape(words.clean(found.says))}"] if several else []
        lines += [f"{'  ' * several}- evidence: {text}" for text in evidence]
    return [*lines, ""] if lines else []


def _line(result: CaseResult, several: bool) -> str:
    top = result.finding.top
    got, want = failure_text.values(top) if top else ("", "")
    cells = [
        code(result.case.sample),
        code(result.case.dtype),
        words.word(result.finding.verdict),
        code(failure_text.place(result.finding, top)) if top else "",
        got,
        f"{want} {failure_text.bar(top)}" if top else "",
        failure_text.errors(top) if top else "",
        f"{result.finding.failed:,} of {result.finding.compared:,}"
        if result.finding.compared
        else "",
        escape(failure_text.brief(result) if several else words.clean(result.finding.reason)),
    ]
    return f"| {' | '.join(cells)} |"
