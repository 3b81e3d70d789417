"""The formats that are plain text: tables and failures in full, or a line per failing gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report import outline, run_words
from gradcheck.report.page import Page, clip, clip_end, ended, grid, whole
from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from gradcheck.report.causes import Cause
    from gradcheck.report.failures import Group
    from gradcheck.report.outline import Row, Table
    from gradcheck.report.page import Page
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run

LONGEST: Final = 250
"""Lines above which passing operators are folded into one each."""
ROWS: Final = 8
"""Rows of a long table that a failing run shows."""
CAUSES: Final = 3
"""Causes of failures that are shown in a few lines each."""
CAUSE_LINES: Final = 5
"""Lines of each."""
GAPS: Final = 3
"""Reasons why something was not checked that are shown."""
LISTED: Final = 30
"""Causes that the list at the end names."""
NARROWEST: Final = 40
"""Columns below which nothing is readable any more."""


def render(
    run: Run, *, color: bool = False, width: int = 100, verbosity: int = 0, durations: int = 0
) -> str:
    """The run as plain text; its last line is `run.summary`.

    No line is wider than `width` but those that are meant to be copied or parsed: repro lines
    and the last one. Of a `verbosity` above 0, every case has a row and every failure is shown in
    full. `durations` is the number of slowest cases to name.
    """
    width = max(width, NARROWEST)
    page = _Page(color=color, width=width, verbosity=verbosity, slowest=durations)
    sights: list[list[str]] = []
    blame: list[str] = []
    if any(result.case.kind is Kind.MODEL for result in run.results):
        from gradcheck.report import model_tables

        sights = [*model_tables.sections(page, run, everything=page.verbose)]
        blame = model_tables.blame(page, run)
    found = page.causes(run)
    sections = (
        page.header(run),
        page.smoke(run),
        *page.tables(run),
        *sights,
        *page.failures(run, found),
        blame,
        page.soundness(run, fails=bool(found)),
        page.gaps(run, fails=bool(found)),
        page.noise(run),
        page.baseline(run),
        page.troubles(run),
        page.durations(run),
        page.summary(run, found),
    )
    return whole(sections, run.summary)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What a table shows; each step down gives up the least important thing left."""

    elements: bool = True
    samples: bool = True
    bounds: bool = True
    errors: bool = True
    name: int = 10_000


LAYOUTS: Final = (
    _Layout(),
    _Layout(elements=False),
    _Layout(elements=False, samples=False),
    _Layout(elements=False, samples=False, name=20),
    _Layout(elements=False, samples=False, bounds=False),
    _Layout(elements=False, samples=False, bounds=False, name=16),
    _Layout(elements=False, samples=False, bounds=False, errors=False),
    _Layout(elements=False, samples=False, bounds=False, errors=False, name=16),
    _Layout(elements=False, samples=False, bounds=False, errors=False, name=10),
)


def _measure(layout: _Layout) -> str:
    """What the numbers of a dtype's cells are."""
    return (": rel. err ≤ tol" if layout.bounds else ": rel. err") * layout.errors


@dataclass(frozen=True, slots=True)
class _Page(Page):
    verbosity: int = 0
    slowest: int = 0

    @property
    def verbose(self) -> bool:
        return self.verbosity > 0

    def smoke(self, run: Run) -> list[str]:
        """How implementations were loaded, where one lacks something."""
        told = run_words.load_summary(run, everything=self.verbose)
        return [line for text in told for line in self.wrap(text, "", "  ")]

    def tables(self, run: Run) -> Iterator[list[str]]:
        """A table per implementation, named where there are several."""
        found = outline.tables(run)
        named = outline.are_named(run, found)
        for table in found:
            title = self.wrap(words.clean(table.implementation)) if named else []
            if self.verbose:
                from gradcheck.report.outline import spread

                cases = spread(run, table.rows)
                rows = tuple(row for _, row in cases)
                yield title + self.table(rows, table.dtypes, [name for name, _ in cases])
                continue
            failing = {r.case.op for r in run.results if run.fails(r)}
            if failing and len(table.rows) > 2 * ROWS:
                yield title + self.failing_table(table, failing)
                continue
            if len(table.rows) <= LONGEST:
                yield title + self.table(table.rows, table.dtypes)
                continue
            folded = tuple(outline.folded(table.rows))
            kind = table.kind.value
            flag = words.FLAGS[table.kind]
            note = f"One line per passing {kind}; {flag} NAME or -o report.html shows every row."
            yield title + self.table(folded, table.dtypes) + self.wrap(note)

    def failing_table(self, table: Table, failing: Container[str]) -> list[str]:
        """The first rows of operators that fail; how many others there are."""
        rows = [row for row in table.rows if row.op in failing]
        others = len({row.op for row in table.rows} - {row.op for row in rows})
        noun = table.kind.value
        more = max(len(rows) - ROWS, 0)
        counts = [f"{words.plural(more, 'more row')} of failing {noun}s"] if more else []
        counts += [f"{words.plural(others, noun)} without failures"] if others else []
        note = f"… and {' and '.join(counts)}: -v or -o report.html shows them."
        return self.table(tuple(rows[:ROWS]), table.dtypes) + (self.wrap(note) if counts else [])

    def table(
        self, rows: tuple[Row, ...], dtypes: tuple[str, ...], samples: Sequence[str] = ()
    ) -> list[str]:
        """The most telling table that fits the width; several, if none does.

        `samples` names the one that each row is about, where it is about one alone.
        """
        for layout in LAYOUTS:
            lines = self.drawn(rows, dtypes, layout, samples)
            if len(lines[1]) <= self.width:  # the rule under the header spans the table
                return lines
        if len(dtypes) > 1:
            half = len(dtypes) // 2
            first, second = (
                self.table(rows, some, samples) for some in (dtypes[:half], dtypes[half:])
            )
            return [*first, "", *second]
        return [line[: self.width] for line in lines]

    def drawn(
        self,
        rows: tuple[Row, ...],
        dtypes: tuple[str, ...],
        layout: _Layout,
        samples: Sequence[str] = (),
    ) -> list[str]:
        """One table, in one layout; repeated names are left blank."""
        counted = layout.samples and not samples
        several = any(row.dialect != "default" for row in rows)
        heads = [
            rows[0].kind.value,
            *(["dialect"] if several else []),
            *(["sample"] if samples else []),
            words.OUTPUT[rows[0].kind],
            *(f"{dtype}{_measure(layout)}" for dtype in dtypes),
        ]
        heads += ["samples"] * counted + ["elements"] * layout.elements
        body = []
        last: tuple[str, ...] = ("", "", "")
        for row, sample in zip(rows, samples or [""] * len(rows), strict=True):
            full = (row.op, row.dialect, sample)
            new = [full[: end + 1] != last[: end + 1] for end in range(len(full))]
            last = full
            kept = (True, several, bool(samples))
            names = [
                name if fresh else ""
                for name, fresh, shown in zip(full, new, kept, strict=True)
                if shown
            ]
            line = [clip(words.clean(name), layout.name) for name in names]
            line.append(clip(words.subject(row.output, row.part), layout.name))
            line += [
                self.cell(row.cells.get(dtype), measured=layout.errors, bound=layout.bounds)
                for dtype in dtypes
            ]
            line += [f"{row.samples:,}"] * counted
            line += [f"{row.compared:,}"] * layout.elements
            body.append(line)
        return grid(heads, body, counted + layout.elements)

    def soundness(self, run: Run, *, fails: bool) -> list[str]:
        """What would have been rejected; unless the run `fails`, tolerances and conventions too."""
        lines = []
        found = run_words.certificate(run)
        if found is not None:
            lines += self.wrap(run_words.rejected(found), "self-check: ", "  ")
        if curves := run_words.curves(run):
            from gradcheck.report import plots  # door: only projections have curves

            for of_dtype in curves:
                lines += self.wrap(plots.taylor_curves(*of_dtype), "taylor: ", "  ")
        if fails and not self.verbose:
            return lines
        for name, text in run_words.slacks(run):
            lines += self.wrap(words.clean(f"{name}, {text}"), "wider tolerance: ", "  ")
        for name, texts in run_words.conventions(run):
            text = words.clean(f"{name}, {'; '.join(texts)}")
            lines += self.wrap(text, "subgradient at kinks: ", "  ")
        return lines

    def gaps(self, run: Run, *, fails: bool) -> list[str]:
        """What was not checked; of a run that `fails`, no side conditions that do not apply."""
        lines = []
        found = run_words.gaps(run, side_conditions=self.verbose or not fails)
        shown = found if self.verbose or len(found) <= GAPS + 1 else found[:GAPS]
        for gap in shown:
            ops = ", ".join(map(words.clean, gap.named))
            text = f"{words.plural(gap.count, 'result')} of {ops}{gap.others}"
            if gap.reason:
                text += f": {words.clean(gap.reason)}"
            lines += self.judged(gap.verdict, text)
        if rest := found[len(shown) :]:
            count = words.plural(sum(gap.count for gap in rest), "result")
            lines += self.wrap(f"… and {count} not checked, for {len(rest)} more reasons: -v")
        return lines

    def noise(self, run: Run) -> list[str]:
        lines = []
        for result, count in run_words.talkers(run):
            where = words.clean(f"{result.case.op}/{result.case.dialect}")
            text = f"in {words.plural(count, 'result')}, as in {words.case(result)}"
            lines += self.wrap(text, f"{where} printed ", "  ")
            lines += self.quoted(result.finding.printed)[1:]
        return lines

    def causes(self, run: Run) -> list[Cause]:
        if not any(map(run.fails, run.results)):
            return []
        from gradcheck.report.causes import causes  # door: failures

        return causes(run)

    def failures(self, run: Run, found: Sequence[Cause]) -> Iterator[list[str]]:
        """The first causes, a few lines each; of a verbose report, every failure in full."""
        if found and self.verbose:
            from gradcheck.report import failures  # door: -v

            yield failures.in_full(self, run)
            return
        for cause in found[:CAUSES]:
            yield self.cause(cause, named=_is_several(run))

    def cause(self, cause: Cause, *, named: bool) -> list[str]:
        """One cause in at most `CAUSE_LINES` lines."""
        from gradcheck.report.causes import told  # door: failures

        said = told(cause, named=named)
        where = f" ({said.source})" if said.source else ""
        parts = [part for part in (said.element, said.extent) if part]
        facts = self.wrap("; ".join(parts), "  ", "  ")
        if len(facts) > 1:
            facts = [clip_end(f"  {part}", self.width) for part in parts]
        room = CAUSE_LINES - len(facts) - 1
        lines = self.judged(cause.verdict, f"{said.who}{where}", min(room - 1, 2))
        if said.sentence:
            left = room - len(lines)
            whole = self.wrap(said.sentence, "  ", "  ")
            # What is wrong goes before how sure that is.
            shown = whole if len(whole) <= left else self.wrap(said.what, "  ", "  ")
            lines += self.first(shown, left)
        lines += facts
        if said.printed and len(lines) < CAUSE_LINES - 1:
            lines.append(clip_end(f"  printed: {said.printed}", self.width))
        if said.run:
            lines.append(f"  run: {said.run}")  # to be copied: never broken
        return lines

    def summary(self, run: Run, found: Sequence[Cause]) -> list[str]:
        """Every cause in a line, where not all are shown above, and the run in one sentence."""
        if not found:
            return self.wrap(run_words.sentence(run))
        from gradcheck.report.causes import told  # door: failures

        named = _is_several(run)
        lines = []
        if len(found) > (0 if self.verbose else CAUSES):
            for cause in found[:LISTED]:
                text = told(cause, named=named).line
                room = self.width - len(cause.verdict) - 1
                lines.append(self.judged(cause.verdict, clip_end(text, room))[0])
            if len(found) > LISTED:
                lines += self.wrap(f"… and {words.plural(len(found) - LISTED, 'more cause')}: -v")
        alone = len(found) == 1
        why = f": {told(found[0], named=named).line}" if alone else f", for {len(found):,} reasons"
        return lines + self.wrap(run_words.sentence(run, why))

    def durations(self, run: Run) -> list[str]:
        """The slowest cases, as many as are asked for."""
        if run.timing is None or not self.slowest:
            return []
        taken = sorted(run.timing.cases.items(), key=lambda pair: -pair[1])[: self.slowest]
        return [
            f"{'slowest case' if len(taken) == 1 else f'slowest {len(taken)} cases'}",
            *(
                clip_end(f"  {seconds:8.2f} s  {words.clean(name)}", self.width)
                for name, seconds in taken
            ),
        ]

    def baseline(self, run: Run) -> list[str]:
        return [line for text in run_words.baseline(run) for line in self.wrap(text, "", "  ")]

    def troubles(self, run: Run) -> list[str]:
        """What is required and is not there, or could not be judged; whether the run stopped."""
        lines = [line for text in run_words.unmet(run) for line in self.wrap(text, "", "  ")]
        for trouble in run.troubles:
            lines += self.wrap(words.clean(trouble), "problem: ", "  ")
        if not run.complete:
            lines += self.wrap(f"incomplete: {run_words.incomplete(run)}", "", "  ")
        return lines


def _is_several(run: Run) -> bool:
    return len({r.case.implementation for r in run.results}) > 1


def concise(run: Run, *, verbosity: int = 0) -> str:
    """A line per failing gradient and per reason that the gate is closed, then `run.summary`.

    Of each gradient the worst result is shown, and how many more there are; of a `verbosity` above
    0, each has a line of its own.
    """
    return ended("".join(f"{line}\n" for line in _concise_lines(run, verbosity)), run.summary)


def _concise_lines(run: Run, verbosity: int) -> Iterator[str]:
    if any(map(run.fails, run.results)):
        from gradcheck.report import failures  # deferred:mostrunspass

        named = len({r.case.implementation for r in run.results}) > 1
        for group in failures.groups(run):
            if verbosity > 0:
                yield from (_concise_line(result, named) for result in group.results)
            else:
                yield _concise_line(group.results[0], named) + _others(group)
    yield from run_words.baseline(run)
    yield from run_words.unmet(run)
    yield from (f"problem: {words.clean(trouble)}" for trouble in run.troubles)
    if not run.complete:
        yield f"incomplete: {run_words.incomplete(run)}"
    if not run.footer.checked:
        yield "nothing was checked"


def _concise_line(result: CaseResult, named: bool) -> str:
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
