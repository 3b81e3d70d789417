"""The markdown report, and the shorter summary of a CI job: verdict first, failures to unfold.

The report is meant to be committed and compared, so it holds no times, and the errors of what
passed are rounded up to powers of ten: another machine's library may change their digits.
The summary is for `-o "$GITHUB_STEP_SUMMARY:summary"`: in it an operator that passes has one row,
and a gradient that fails its worst case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_text, failures, models, outline, plots, run_words
from gradcheck.report.marked import (
    LEGEND,
    Capped,
    cell,
    code,
    escape,
    fenced,
    folded,
    matrix_head,
    matrix_lines,
)
from gradcheck.report.page import clip
from gradcheck.results import printed, words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gradcheck.report.models import Model
    from gradcheck.report.outline import Row
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run

LIMIT: Final = 1_000_000
"""Bytes of UTF-8 that no report exceeds; GitHub shows no more than that."""
RESULTS: Final = 20
"""Failures of one gradient that are listed."""
SUMMARY_LIMIT: Final = 60_000
"""Bytes of a summary; GitHub refuses one above a mebibyte, and shows what is long slowly."""
SHORT: Final = 300
"""Characters of one foreign text in a summary."""
OPEN_ROWS: Final = 30
"""Rows of a summary that stand open; above, those without failures are to be unfolded."""
HINT: Final = "`-o report.html` shows everything"
QUIET: Final = ("run", "visible", "taylor")
"""Facts that a summary leaves out, or tells elsewhere."""


def render(run: Run, *, limit: int = LIMIT) -> str:
    """The run as GitHub's Markdown, at most `limit` bytes of UTF-8."""
    page = Capped(limit)
    _head(page, run, escape)
    for trouble in run.troubles:
        page.add(f"\n> problem: {escape(words.clean(trouble))}\n")
    if not run.complete:
        page.add(f"\n> incomplete: {escape(run_words.incomplete(run))}\n")
    _gate(page, run, escape)
    found = outline.tables(run)
    named = outline.are_named(run, found)
    for table in found:
        if named:
            page.add(f"\n### {escape(words.clean(table.implementation))}\n")
        _matrix(page, table, table.rows)
    for text, noun in _models(run):
        page.add(text, noun)
    if run.results:
        page.add(f"\n{LEGEND}\n")
    _certificate(page, run, escape)
    for curves in run_words.curves(run):
        page.add(f"\nTaylor: {escape(plots.taylor_curves(*curves))}.\n")
    _slacks(page, run, escape)
    rows = run_words.conventions(run)
    if rows:
        page.add("\n| operator | conventions found on its kinks |\n|---|---|\n")
    for name, texts in rows:
        page.add(f"| {code(name)} | {escape(words.clean('; '.join(texts)))} |\n", "convention")
    _gaps(page, run, escape)
    _noise(page, run)
    for text in _blame(run):
        page.add(text, "accusation")
    groups = failures.groups(run)
    named = len({group.implementation for group in groups}) > 1
    page.add_all((_details(group, named) for group in groups), "failing gradient", len(groups))
    return page.text()


def summary(run: Run, *, limit: int = SUMMARY_LIMIT) -> str:
    """The run as the summary of a CI job, at most `limit` bytes of UTF-8."""
    page = Capped(limit, HINT)
    _head(page, run, _brief)
    page.until(0.2)
    for trouble in run.troubles:
        page.add(f"\n> problem: {_brief(words.clean(trouble))}\n", "problem")
    _gate(page, run, _brief)
    page.until(0.4)
    calm = _failing_tables(page, run)
    for text, noun in _models(run, unfold=False):
        page.add(text, noun)
    for text in _blame(run):
        page.add(text, "accusation")
    page.until(0.85)
    _worst_failures(page, run)
    page.until(0.95)
    for table, named, rows in calm:
        whose = f"{_short(table.implementation)}: " if named else ""
        count = words.plural(len({row.op for row in rows}), table.kind.value)
        lines = [*matrix_lines(rows, table.dtypes)]
        page.fold("", f"{whose}{count} without failures", matrix_head(table), lines, "row")
    page.until(1.0)
    if run.results:
        page.add(f"\n{LEGEND}\n")
    _certificate(page, run, _brief)
    _slacks(page, run, _brief)
    _gaps(page, run, _brief)
    return page.text()


# ── what both have; `shown` escapes foreign text, and may cut it ─────────────────────────────


def _head(page: Capped, run: Run, shown: Callable[[str], str]) -> None:
    counts = ", ".join(text for _, text in run_words.tally(run)) or "no results"
    page.add(f"**gradcheck: {shown(run_words.headline(run))}** ({counts})\n")
    facts = (f"{label} {shown(text)}" for label, text in run_words.versions(run))
    page.add("\n" + " · ".join(facts) + "\n")


def _gate(page: Capped, run: Run, shown: Callable[[str], str]) -> None:
    for text in run_words.unmet(run):
        page.add(f"\n> {shown(text)}\n", "requirement")
    for text in run_words.baseline(run):
        page.add(f"\n> baseline: {shown(text)}\n", "line of the baseline")


def _matrix(page: Capped, table: outline.Table, rows: Sequence[Row]) -> None:
    if page.add("\n".join(["", *matrix_head(table), ""])):
        lines = (f"{line}\n" for line in matrix_lines(rows, table.dtypes))
        page.add_all(lines, "row", len(rows))


def _certificate(page: Capped, run: Run, shown: Callable[[str], str]) -> None:
    found = run_words.certificate(run)
    if found is not None:
        page.add(f"\nCertificate: {shown(run_words.rejected(found))}.\n")


def _slacks(page: Capped, run: Run, shown: Callable[[str], str]) -> None:
    for name, text in run_words.slacks(run):
        page.add(f"\nWider bound: {code(name)}, {shown(words.clean(text))}.\n")


def _gaps(page: Capped, run: Run, shown: Callable[[str], str]) -> None:
    for i, gap in enumerate(run_words.gaps(run)):
        ops = ", ".join(map(code, gap.named)) + gap.others
        reason = f": {shown(words.clean(gap.reason))}" if gap.reason else ""
        page.add(
            f"{'' if i else chr(10)}- {words.word(gap.verdict)}: "
            f"{words.plural(gap.count, 'result')} of {ops}{reason}\n",
            "reason",
        )


def _noise(page: Capped, run: Run) -> None:
    for result, count in run_words.talkers(run):
        text = f"{result.case.op}/{result.case.dialect} printed in {words.plural(count, 'result')}"
        where = f"in {code(result.case.sample)}, {code(result.case.dtype)}:"
        lines = [where, "", *fenced(printed.indented(result.finding.printed))]
        page.add(folded("NOTE", words.clean(text), lines), "note")


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


# ── models ───────────────────────────────────────────────────────────────────────────────────


def _models(run: Run, *, unfold: bool = True) -> Iterator[tuple[str, str]]:
    """Pieces of a page and what each is called where it is left out for size.

    Args:
        run: what happened.
        unfold: also every gradient and stage of each model, to unfold.
    """
    found = models.models(run)
    named = len(run.header.implementations) > 1
    for implementation in dict.fromkeys(model.implementation for model in found):
        theirs = [model for model in found if model.implementation == implementation]
        title = f"\n### {escape(words.clean(implementation))}: models\n" if named else ""
        yield title + _model_lines(theirs), "model"
        for model in theirs if unfold else ():
            yield _model_rows(model), "model"
    for sight in models.sights(run):
        whose = f"{escape(words.clean(sight.implementation))} · " if named else ""
        yield (
            f"\nVisible: {whose}{code(sight.case)}: {escape(models.sight(sight))}.\n",
            "line",
        )


def _model_lines(found: list[Model]) -> str:
    dtypes = list(dict.fromkeys(dtype for model in found for dtype in model.dtypes))
    parts = models.counted(found)
    names = ["model", "dialect", *(models.COUNTED[part] for part in parts)]
    heads = [*names, *map(code, dtypes), "sizes"]
    lines = ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for model in found:
        line = [
            code(model.name),
            code(model.dialect),
            *(models.passed(model.block(part)) for part in parts),
            *(cell(models.whole(model, dtype)) for dtype in dtypes),
            ", ".join(map(code, model.sizes)),
        ]
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join([*lines, ""])


def _model_rows(model: Model) -> str:
    name = words.clean(f"{model.name}/{model.dialect}")
    counts = [models.block(p, len(model.block(p).rows)) for p in models.counted([model])]
    heads = ["", *map(code, model.dtypes), "elements"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * (len(heads) - 1)}---:|"]
    for row in model.rows:
        line = [
            code(words.subject(row.output, row.part)),
            *(cell(row.cells.get(dtype)) for dtype in model.dtypes),
            f"{row.compared:,}",
        ]
        lines.append(f"| {' | '.join(line)} |")
    trained = [r for row in model.block(Part.TRAINING).rows for r in models.results(row)]
    told = [r for r in trained if r.finding.verdict is Verdict.PASS and r.finding.reason]
    lines += [""] * bool(told)
    lines += [f"- {code(words.case(r))}: {escape(words.clean(r.finding.reason))}" for r in told]
    return folded(words.word(model.verdict), f"{name}: {', '.join(counts)}", lines)


def _blame(run: Run) -> Iterator[str]:
    named = len({result.case.implementation for result in run.results}) > 1
    for blamed in models.blamed(run):
        whose = f"{escape(words.clean(blamed.implementation))} · " if named else ""
        name = code(f"{blamed.name}/{blamed.dialect}")
        lines = [f"\nBlame: {whose}{name} ({escape(words.clean(blamed.where))})\n"]
        for found in blamed.blames:
            lines.append(f"- round {found.round}: {escape(models.accusation(found))}")
            lines += [f"  - {escape(text)}" for text in models.said(found)]
        lines += [f"- assumption: {escape(t)}" for t in models.assumptions(blamed.blames)]
        yield "\n".join([*lines, ""])


# ── the summary ──────────────────────────────────────────────────────────────────────────────


def _failing_tables(page: Capped, run: Run) -> list[tuple[outline.Table, bool, list[Row]]]:
    """Add the operators that fail, whole.

    Returns:
        Per table, whether to say whose it is, and its rows without failures.
    """
    found = outline.tables(run)
    named = outline.are_named(run, found)
    calm: list[tuple[outline.Table, bool, list[Row]]] = []
    for table in found:
        rows = [*outline.folded(table.rows)]
        failing = {row.op for row in rows if not _accepted(run, row)}
        wrong = [row for row in rows if row.op in failing]
        shown = rows if len(rows) <= OPEN_ROWS else wrong
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


def _worst_failures(page: Capped, run: Run) -> None:
    """Each gradient that fails, the worst first; those that a guilty stage spoils are counted."""
    spoilt = failures.explained(run, Part.GRADIENT)
    groups = [group for group in failures.groups(run) if group not in spoilt]
    named = len({r.case.implementation for r in run.results}) > 1
    blocks = (_failure(group, named) for group in groups)
    page.add_all(blocks, "failing gradient", len(groups))
    if spoilt:
        page.add(f"\n{words.plural(len(spoilt), 'gradient')} that the guilty stages spoil.\n")


def _failure(group: failures.Group, named: bool) -> str:
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


def _short(name: str) -> str:
    return clip(words.clean(name), SHORT)


def _brief(text: str) -> str:
    """A printable line of foreign text, cut and escaped."""
    return escape(clip(text, SHORT))
