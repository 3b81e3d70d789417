"""The markdown report, and the shorter summary of a CI job: verdict first, failures to unfold.

The report is meant to be committed and compared, so it holds no times, and the errors of what
passed are rounded up to powers of ten: another machine's library may change their digits.
The summary is for `-o "$GITHUB_STEP_SUMMARY:summary"`: in it an operator that passes has one row,
and a gradient that fails its worst case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import causes, failure_text, failures, models, outline, plots, run_words
from gradcheck.report.marked import (
    LEGEND,
    Capped,
    cell,
    code,
    fenced,
    folded,
    matrix_head,
    matrix_lines,
)
from gradcheck.report.page import clip
from gradcheck.report.prose import escape, in_markdown
from gradcheck.results import printed, words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gradcheck.report.causes import Cause
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
QUIET: Final = ("run", "visible", "taylor", "worst", "failed")
"""Facts that a summary leaves out, or tells elsewhere."""


def render(run: Run, *, limit: int = LIMIT) -> str:
    """The run as GitHub's Markdown, at most `limit` bytes of UTF-8."""
    page = Capped(limit)
    _head(page, run, escape)
    for trouble in run.troubles:
        page.add(f"\n> problem: {in_markdown(words.clean(trouble))}\n")
    if not run.complete:
        page.add(f"\n> incomplete: {in_markdown(run_words.incomplete(run))}\n")
    _gate(page, run, in_markdown)
    found_causes = causes.causes(run)
    named = _is_several(run)
    page.until(0.4)
    page.add_all((_cause(cause, named) for cause in found_causes), "cause", len(found_causes))
    for text in _blame(run):
        page.add(text, "accusation")
    page.until(1.0)
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
    _certificate(page, run, in_markdown)
    for curves in run_words.curves(run):
        page.add(f"\nTaylor: {in_markdown(plots.taylor_curves(*curves))}.\n")
    _slacks(page, run, in_markdown)
    rows = run_words.conventions(run)
    if rows:
        page.add("\n| operator | subgradient chosen at kinks |\n|---|---|\n")
    for name, texts in rows:
        page.add(f"| {code(name)} | {in_markdown(words.clean('; '.join(texts)))} |\n", "operator")
    _gaps(page, run, in_markdown)
    _noise(page, run)
    _gradients(page, run, found_causes)
    return page.text()


def summary(run: Run, *, limit: int = SUMMARY_LIMIT) -> str:
    """The run as the summary of a CI job, at most `limit` bytes of UTF-8."""
    page = Capped(limit, HINT)
    _head(page, run, lambda text: escape(clip(text, SHORT)))
    page.until(0.2)
    for trouble in run.troubles:
        page.add(f"\n> problem: {_brief(words.clean(trouble))}\n", "problem")
    _gate(page, run, _brief)
    page.until(0.6)
    found = causes.causes(run)
    several = _is_several(run)
    page.add_all((_folded_cause(cause, several) for cause in found), "cause", len(found))
    page.until(0.85)
    for text in _blame(run):
        page.add(text, "accusation")
    calm = _failing_tables(page, run)
    for text, noun in _models(run, unfold=False):
        page.add(text, noun)
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


def _is_several(run: Run) -> bool:
    return len({r.case.implementation for r in run.results}) > 1


def _cause(cause: Cause, named: bool) -> str:
    """One cause of failures: who fails and why, a value that shows it, the command."""
    said = causes.told(cause, named=named)
    where = in_markdown(f" (`{said.source}`)") if said.source else ""
    why = f": {in_markdown(said.sentence)}" if said.what else ""
    lines = [f"\n**{words.word(cause.verdict)}** {escape(said.who)}{where}{why}\n"]
    facts = "; ".join(filter(None, (said.element, said.extent)))
    lines += [f"- {in_markdown(facts)}"] if facts else []
    return "\n".join([*lines, *(["", *fenced([said.run], "sh")] if said.run else []), ""])


def _gradients(page: Capped, run: Run, found: Sequence[Cause]) -> None:
    """Every failing gradient to unfold, those affected downstream all in one."""
    follows = {result.key for cause in found for result in cause.consequences}
    groups = failures.groups(run)
    own = [g for g in groups if any(result.key not in follows for result in g.results)]
    later = [g for g in groups if all(result.key in follows for result in g.results)]
    named = _is_several(run)
    page.add_all((_details(group, named) for group in own), "failing gradient", len(own))
    if later:
        text = f"{words.plural(len(later), 'gradient')} affected downstream"
        blocks = [_details(group, named) for group in later]
        page.fold("", text, [], blocks, "failing gradient")


def _matrix(page: Capped, table: outline.Table, rows: Sequence[Row]) -> None:
    if page.add("\n".join(["", *matrix_head(table), ""])):
        lines = (f"{line}\n" for line in matrix_lines(rows, table.dtypes))
        page.add_all(lines, "row", len(rows))


def _certificate(page: Capped, run: Run, shown: Callable[[str], str]) -> None:
    found = run_words.certificate(run)
    if found is not None:
        page.add(f"\nSelf-check: {shown(run_words.rejected(found))}.\n")


def _slacks(page: Capped, run: Run, shown: Callable[[str], str]) -> None:
    for name, text in run_words.slacks(run):
        page.add(f"\nWider tolerance: {code(name)}, {shown(words.clean(text))}.\n")


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
        "| sample | dtype | verdict | worst | got | expected | error | failed | finding |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(result, several) for result in listed),
        "",
    ]
    if len(group.results) > len(listed):
        lines += [f"… and {len(group.results) - len(listed):,} more", ""]
    hunts = dict.fromkeys((r.case.sample, r.case.hunts) for r in listed if r.case.hunts)
    lines += [
        f"- {code(sample)} is designed to catch: {in_markdown(words.clean(text))}"
        for sample, text in hunts
    ]
    repros = list(dict.fromkeys(words.command(r.repro) for r in listed if r.repro))
    if group.kind is Kind.MODEL:  # it fails at every size alike; the smallest one is enough
        repros = repros[:1]
    lines += ["", *fenced(repros, "sh")]
    talker = next((r for r in listed if r.finding.printed.strip()), None)
    if talker is not None:
        said = printed.indented(talker.finding.printed)
        lines += ["", f"printed in {code(talker.case.sample)}:", *fenced(said)]
    return folded(words.word(group.verdict), text, lines, lead)


def _diagnoses(group: failures.Group, several: bool) -> list[str]:
    """Why the gradient is wrong: a line per diagnosis, and what it rests on below it.

    Where there are not several, the line stands above already.
    """
    lines = []
    if several:
        lines.append(f"- diagnoses: {in_markdown(failure_text.counts(group.results))}")
    for found in failure_text.distinct(group.results):
        evidence = [in_markdown(words.clean(text)) for text in found.evidence if text]
        word = found.word
        if not word:
            lines.append("- pattern: " + "; ".join(["none known", *evidence]))
            continue
        lines += [f"- {word}: {in_markdown(words.clean(found.says))}"] if several else []
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
        in_markdown(failure_text.brief(result) if several else words.clean(result.finding.reason)),
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
            f"\nSmallest detectable error: {whose}{code(sight.case)}: "
            f"{in_markdown(models.sight(sight))}.\n",
            "line",
        )


def _model_lines(found: list[Model]) -> str:
    dtypes = list(dict.fromkeys(dtype for model in found for dtype in model.dtypes))
    parts = models.counted(found)
    names = ["model", "variant", *(models.COUNTED[part] for part in parts)]
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
    lines += [
        f"- {code(words.case(r))}: {in_markdown(words.clean(r.finding.reason))}" for r in told
    ]
    return folded(words.word(model.verdict), f"{name}: {', '.join(counts)}", lines)


def _blame(run: Run) -> Iterator[str]:
    named = len({result.case.implementation for result in run.results}) > 1
    for blamed in models.blamed(run):
        whose = f"{escape(words.clean(blamed.implementation))} · " if named else ""
        name = code(f"{blamed.name}/{blamed.dialect}")
        lines = [f"\nFaulty stages: {whose}{name} ({escape(words.clean(blamed.where))})\n"]
        for found in blamed.blames:
            lines.append(f"- round {found.round}: {in_markdown(models.accusation(found))}")
            lines += [f"  - {in_markdown(text)}" for text in models.said(found)]
        lines += [f"- assumption: {in_markdown(t)}" for t in models.assumptions(blamed.blames)]
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


def _folded_cause(cause: Cause, named: bool) -> str:
    """One cause of failures to unfold: a value that shows it, the evidence, the command."""
    said, first = causes.told(cause, named=named), cause.telling
    facts = failure_text.alone(first).facts
    told = "; ".join(filter(None, (said.element, said.extent)))
    lines = [f"- {words.word(first.finding.verdict)} in {code(clip(words.case(first), SHORT))}"]
    lines += [f"- {_brief(told)}"] if told else []
    lines += [f"- {label}: {_brief(fact)}" for label, fact in facts if label not in QUIET]
    if first.finding.printed.strip():
        lines += ["", "printed:", *fenced(printed.lines(first.finding.printed, printed.FEW))]
    lines += ["", *fenced([said.run], "sh")] if said.run else []
    where = f" ({said.source})" if said.source else ""
    who = clip(f"{said.who}{where}", SHORT)
    return folded(words.word(cause.verdict), who, lines, clip(said.sentence, SHORT))


def _short(name: str) -> str:
    return clip(words.clean(name), SHORT)


def _brief(text: str) -> str:
    """A printable line of foreign text, cut and escaped."""
    return in_markdown(clip(text, SHORT))
