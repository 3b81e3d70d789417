"""The terminal report: header, one table per implementation, failures, the line for scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_text, failures, notices, outline, run_words
from gradcheck.report.page import Page, clip, grid, whole
from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck.report.failures import Group
    from gradcheck.report.page import Page
    from gradcheck.report.rows import Row
    from gradcheck.results.run import Run

LONGEST: Final = 250
"""Lines above which passing operators are folded into one each."""
NARROWEST: Final = 40
"""Columns below which nothing is readable any more."""


def render(run: Run, *, color: bool = False, width: int = 100, verbosity: int = 0) -> str:
    """The run as plain text; its last line is `run.summary`.

    No line is wider than `width` but those that are meant to be copied or parsed: repro lines
    and the last one. Of a `verbosity` above 0, every case has a row and every failure is shown in
    full; below 0, nothing is said of how the implementations were loaded.
    """
    page = _Page(color=color, width=max(width, NARROWEST), verbosity=verbosity)
    sights: list[list[str]] = []
    blame: list[str] = []
    if any(result.case.kind is Kind.MODEL for result in run.results):
        from gradcheck.report import model_tables

        sights, blame = [*model_tables.sections(page, run)], model_tables.blame(page, run)
    sections = (
        page.header(run),
        page.smoke(run),
        *page.tables(run),
        *sights,
        page.soundness(run),
        page.gaps(run),
        page.noise(run),
        page.failures(run),
        blame,
        page.baseline(run),
        page.troubles(run),
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


@dataclass(frozen=True, slots=True)
class _Page(Page):
    """The sections of a report."""

    verbosity: int = 0

    @property
    def verbose(self) -> bool:
        """Whether all is to be shown, however long that is."""
        return self.verbosity > 0

    def smoke(self, run: Run) -> list[str]:
        """How the implementations were loaded."""
        if self.verbosity < 0 or set(run.header.implementations) <= {"reference"}:
            return []
        return [line for text in notices.load_summary(run) for line in self.wrap(text, "", "  ")]

    def tables(self, run: Run) -> Iterator[list[str]]:
        """A table per implementation, named where there are several."""
        found = outline.tables(run)
        named = len({*run.header.implementations, *(t.implementation for t in found)}) > 1
        for table in found:
            title = self.wrap(words.clean(table.implementation)) if named else []
            if self.verbose:
                from gradcheck.report.rows import spread

                cases = spread(run, table.rows)
                rows = tuple(row for _, row in cases)
                yield title + self.table(rows, table.dtypes, [name for name, _ in cases])
                continue
            if len(table.rows) <= LONGEST:
                yield title + self.table(table.rows, table.dtypes)
                continue
            folded = tuple(outline.folded(table.rows))
            kind = table.kind.value
            flag = words.FLAGS[table.kind]
            note = f"One line per passing {kind}; {flag} NAME or -o report.html shows every row."
            yield title + self.table(folded, table.dtypes) + self.wrap(note)

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
            *dtypes,
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

    def soundness(self, run: Run) -> list[str]:
        """What would have been rejected, whose bounds are wider, whose conventions were found."""
        lines = []
        found = notices.certificate(run)
        if found is not None:
            lines += self.wrap(run_words.rejected(found), "certificate: ", "  ")
        if curves := notices.curves(run):
            from gradcheck.report import remainder  # deferred: only projections have curves

            for of_dtype in curves:
                lines += self.wrap(remainder.curves(*of_dtype), "taylor: ", "  ")
        for name, text in notices.slacks(run):
            lines += self.wrap(words.clean(f"{name}, {text}"), "wider bound: ", "  ")
        for name, texts in notices.conventions(run):
            lines += self.wrap(words.clean(f"{name}, {'; '.join(texts)}"), "convention: ", "  ")
        return lines

    def gaps(self, run: Run) -> list[str]:
        """What was not checked, one paragraph per reason."""
        lines = []
        for gap in notices.gaps(run):
            ops = ", ".join(map(words.clean, gap.named))
            text = f"{words.plural(gap.count, 'result')} of {ops}{gap.others}"
            if gap.reason:
                text += f": {words.clean(gap.reason)}"
            lines += self.judged(gap.verdict, text)
        return lines

    def noise(self, run: Run) -> list[str]:
        """What was printed where all went well."""
        lines = []
        for result, count in notices.talkers(run):
            where = words.clean(f"{result.case.op}/{result.case.dialect}")
            text = f"in {words.plural(count, 'result')}, as in {words.case(result)}"
            lines += self.wrap(text, f"{where} printed ", "  ")
            lines += self.quoted(result.finding.printed)[1:]
        return lines

    def failures(self, run: Run) -> list[str]:
        """What fails, as far as there is room for it."""
        if not any(map(run.fails, run.results)):
            return []

        return lines(self, run, everything=self.verbose)

    def baseline(self, run: Run) -> list[str]:
        """What a baseline makes of the run, and each line of it to correct."""
        return [line for text in run_words.baseline(run) for line in self.wrap(text, "", "  ")]

    def troubles(self, run: Run) -> list[str]:
        """What is required and is not there, or could not be judged; whether the run stopped."""
        lines = [line for text in run_words.unmet(run) for line in self.wrap(text, "", "  ")]
        for trouble in run.troubles:
            lines += self.wrap(words.clean(trouble), "problem: ", "  ")
        if not run.complete:
            lines += self.wrap(f"incomplete: {run_words.incomplete(run)}", "", "  ")
        if not run.footer.checked:
            lines += self.wrap("nothing was checked")
        return lines


GUILTY: Final = 2
"""Stages that blame names and whose failures are shown in full all the same."""
NAMED: Final = 8
"""Others that are named."""
GROUPS: Final = 12
"""Gradients whose failures are shown in full."""
SAMPLES: Final = 3
"""Failures shown of each of them."""
SAMPLES_OF: Final = {Kind.OPERATOR: SAMPLES, Kind.MODEL: 1, Kind.RULE: SAMPLES}
"""A model fails at every size alike, and in many gradients."""


def lines(page: Page, run: Run, *, everything: bool) -> list[str]:
    """Failures by gradient, the worst first: `everything`, or a few, and the others counted."""
    guilty = failures.explained(run, Part.STAGE)
    spoilt = failures.explained(run, Part.GRADIENT)
    if everything:
        guilty = spoilt = []
    brief = [*guilty[GUILTY:], *spoilt]
    groups = [group for group in failures.groups(run) if group not in brief]
    named = len({r.case.implementation for r in run.results}) > 1
    shown = len(groups) if everything else GROUPS
    blocks = [_group(page, group, named=named, everything=everything) for group in groups[:shown]]
    rest = groups[shown:]
    if rest:
        results = sum(len(group.results) for group in rest)
        blocks.append(
            page.wrap(
                f"… and {words.plural(results, 'more result')} of "
                f"{words.plural(len(rest), 'more gradient')}: "
                f"{failure_text.tally(r for group in rest for r in group.results)}; "
                "-o report.html shows them all"
            )
        )
    for lead, few in (("wrong too", guilty[GUILTY:]), ("spoilt by these stages", spoilt)):
        if few:
            names = ", ".join(words.subject(g.output, g.part) for g in few[:NAMED])
            more = f", … and {len(few) - NAMED} more" if len(few) > NAMED else ""
            blocks.append(page.wrap(f"{lead}: {names}{more}; -o report.html shows each"))
    return [line for block in blocks for line in ["", *block]][1:]


def _group(page: Page, group: Group, *, named: bool, everything: bool) -> list[str]:
    """What is wrong with one gradient: a few results in full, the others counted."""
    told = []
    most = 1 if group.part is Part.CONTRACT else SAMPLES_OF[group.kind]
    most = len(group.results) if everything else most
    talker = next((r for r in group.results[:most] if r.finding.printed.strip()), None)
    whose = f"{words.clean(group.implementation)} · " if named else ""
    for said in failure_text.told(group.results[:most]):
        result = said.result
        title = f"{whose}{words.title(result)}"
        told += page.judged(result.finding.verdict, f"{title}: {said.lead}" if said.lead else title)
        for label, text in said.facts:
            if label == "run":
                told += page.quoted(result.finding.printed) if result is talker else []
                told.append(f"  run: {text}")  # to be copied: never broken
            else:
                told += page.wrap(text, f"  {label}: ", "    ")
    rest = group.results[most:]
    if rest:
        where = words.clean(f"{group.op}/{group.dialect}")
        told += page.wrap(
            f"… and {len(rest):,} more of {where} · {words.subject(group.output, group.part)}: "
            f"{failure_text.rest(rest, group.results[:most])}",
            "  ",
            "    ",
        )
    return told
