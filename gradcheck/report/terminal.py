"""The terminal report: header, one table per implementation, failures, the line for scripts."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tabulate import tabulate

from gradcheck.report import outline, words
from gradcheck.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck.record import Cell, Record, Row, Run

GROUPS: Final = 12
"""Gradients whose failures are shown in full."""
SAMPLES: Final = 3
"""Failures shown of each of them."""
LONGEST: Final = 250
"""Lines above which passing operators are folded into one each."""
NARROWEST: Final = 40
"""Columns below which nothing is readable any more."""

COLOR: Final = re.compile("\x1b\\[[0-9]*m")
ANSI: Final = {"good": "32", "bad": "31", "warn": "33", "calm": "33"}


def render(run: Run, *, color: bool = False, width: int = 100) -> str:
    """The run as plain text; its last line is `run.summary`.

    No line is wider than `width` but those that are meant to be copied or parsed: repro lines
    and the last one.
    """
    page = _Page(color=color, width=max(width, NARROWEST))
    sections = (
        page.header(run),
        *page.tables(run),
        page.soundness(run),
        page.gaps(run),
        page.failures(run),
        page.troubles(run),
        [run.summary],
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


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
class _Page:
    """Lines of text for one width, with or without colour."""

    color: bool
    width: int

    def word(self, verdict: Verdict) -> str:
        """A verdict's word, coloured."""
        text = words.word(verdict)
        return f"\x1b[{ANSI[words.tone(verdict)]}m{text}\x1b[0m" if self.color else text

    def wrap(self, text: str, lead: str = "", indent: str = "") -> list[str]:
        """`text` in lines of at most the width, the first one after `lead`."""
        lines = textwrap.wrap(
            text,
            self.width,
            initial_indent=lead,
            subsequent_indent=indent,
            break_on_hyphens=False,  # names hold hyphens, and are to be found by searching
        )
        return lines or [lead.rstrip()]

    def header(self, run: Run) -> list[str]:
        """What was run, on what."""
        facts = words.versions(run)
        column = 2 + max(len(label) for label, _ in facts)
        return [
            line
            for label, text in facts
            for line in self.wrap(text, label.ljust(column), " " * column)
        ]

    def tables(self, run: Run) -> Iterator[list[str]]:
        """A table per implementation, named where there are several."""
        found = outline.tables(run)
        named = len(run.header.implementations) > 1 or len(found) > 1
        for table in found:
            title = self.wrap(words.clean(table.implementation)) if named else []
            if len(table.rows) <= LONGEST:
                yield title + self.table(table.rows, table.dtypes)
                continue
            folded = tuple(outline.folded(table.rows))
            note = "One line per passing operator; --op OP or -o report.html shows every gradient."
            yield title + self.table(folded, table.dtypes) + self.wrap(note)

    def table(self, rows: tuple[Row, ...], dtypes: tuple[str, ...]) -> list[str]:
        """The most telling table that fits the width; several, if none does."""
        for layout in LAYOUTS:
            lines = self.drawn(rows, dtypes, layout)
            if len(lines[1]) <= self.width:  # the rule under the header spans the table
                return lines
        if len(dtypes) > 1:
            half = len(dtypes) // 2
            return [*self.table(rows, dtypes[:half]), "", *self.table(rows, dtypes[half:])]
        return [line[: self.width] for line in lines]

    def drawn(self, rows: tuple[Row, ...], dtypes: tuple[str, ...], layout: _Layout) -> list[str]:
        """One table, in one layout; repeated names are left blank."""
        several = any(row.dialect != "default" for row in rows)
        heads = ["operator", *(["dialect"] if several else []), "gradient", *dtypes]
        heads += ["samples"] * layout.samples + ["elements"] * layout.elements
        body = []
        last: tuple[str, ...] = ("", "")
        for row in rows:
            op = "" if row.op == last[0] else row.op
            dialect = "" if (row.op, row.dialect) == last else row.dialect
            last = (row.op, row.dialect)
            names = [op, dialect] if several else [op]
            line = [_clip(words.clean(name), layout.name) for name in names]
            line.append(_clip(words.gradient(row.output), layout.name))
            line += [self.cell(row.cells.get(dtype), layout) for dtype in dtypes]
            line += [f"{row.samples:,}"] * layout.samples
            line += [f"{row.compared:,}"] * layout.elements
            body.append(line)
        counts = layout.samples + layout.elements
        align = ["left"] * (len(heads) - counts) + ["right"] * counts
        # The heads are a row like others: tabulate would pad those that it knows as such.
        text = tabulate(
            [[words.clean(head) for head in heads], *body],
            tablefmt="plain",
            disable_numparse=True,
            colalign=align,
        )
        head, *lines = text.splitlines()
        rule = "─" * max(len(COLOR.sub("", line)) for line in (head, *lines))
        return [line.rstrip() for line in (head, rule, *lines)]

    def cell(self, cell: Cell | None, layout: _Layout) -> str:
        """A verdict, and how far its worst element is off."""
        if cell is None:
            return "–"
        measured = words.cell(outline.shown(cell), measured=layout.errors, bound=layout.bounds)
        return f"{self.word(cell.verdict)} {measured}".rstrip()

    def soundness(self, run: Run) -> list[str]:
        """What the checks would have rejected, and whose conventions were found on kinks."""
        lines = []
        found = outline.certificate(run)
        if found is not None:
            lines += self.wrap(words.rejected(found), "certificate: ", "  ")
        for name, texts in outline.conventions(run):
            lines += self.wrap(words.clean(f"{name}, {'; '.join(texts)}"), "convention: ", "  ")
        return lines

    def gaps(self, run: Run) -> list[str]:
        """What was not checked, one paragraph per reason."""
        lines = []
        for gap in outline.gaps(run):
            ops = ", ".join(map(words.clean, gap.ops))
            text = f"{words.plural(gap.count, 'result')} of {ops}"
            if gap.reason:
                text += f": {words.clean(gap.reason)}"
            lines += self.judged(gap.verdict, text)
        return lines

    def failures(self, run: Run) -> list[str]:
        """Failures by gradient, the worst first; what is left out is counted."""
        groups = outline.failing(run)
        named = len({r.implementation for r in run.results}) > 1
        blocks = [self.group(group, named) for group in groups[:GROUPS]]
        rest = groups[GROUPS:]
        if rest:
            results = sum(len(group.results) for group in rest)
            blocks.append(
                self.wrap(
                    f"… and {words.plural(results, 'more result')} of "
                    f"{words.plural(len(rest), 'more gradient')}: "
                    f"{_tally(r for group in rest for r in group.results)}; "
                    "-o report.html shows them all"
                )
            )
        return [line for block in blocks for line in ["", *block]][1:]

    def group(self, group: outline.Group, named: bool) -> list[str]:
        """What is wrong with one gradient: a few results in full, the others counted."""
        lines = []
        for result in group.results[:SAMPLES]:
            whose = f"{words.clean(group.implementation)} · " if named else ""
            reason = words.clean(result.reason)
            lines += self.judged(
                result.verdict, f"{whose}{words.title(result)}{': ' if reason else ''}{reason}"
            )
            for label, text in words.facts(result):
                if label == "run":
                    lines.append(f"  run: {text}")  # to be copied: never broken
                else:
                    lines += self.wrap(text, f"  {label}: ", "    ")
        rest = group.results[SAMPLES:]
        if rest:
            where = words.clean(f"{group.op}/{group.dialect}")
            lines += self.wrap(
                f"… and {len(rest):,} more of {where} · {words.gradient(group.output)}: "
                f"{_tally(rest)}",
                "  ",
                "    ",
            )
        return lines

    def judged(self, verdict: Verdict, text: str) -> list[str]:
        """A paragraph that opens with a verdict."""
        lead = words.word(verdict)
        first, *others = self.wrap(text, f"{lead} ", "  ")
        return [first.replace(lead, self.word(verdict), 1), *others]

    def troubles(self, run: Run) -> list[str]:
        """What could not be judged at all, and whether the run stopped early."""
        lines = []
        for trouble in run.troubles:
            lines += self.wrap(words.clean(trouble), "problem: ", "  ")
        if not run.complete:
            lines += self.wrap("incomplete: the run stopped early")
        if not run.footer.checked:
            lines += self.wrap("nothing was checked")
        return lines


def _clip(name: str, most: int) -> str:
    """A name cut in the middle: its end often tells it from its neighbour."""
    tail = most // 3
    return name if len(name) <= most else f"{name[: most - 1 - tail]}…{name[-tail:]}"


def _tally(results: Iterator[Record] | tuple[Record, ...]) -> str:
    found = [result.verdict for result in results]
    return ", ".join(f"{found.count(v):,} {words.word(v)}" for v in Verdict if v in found)
