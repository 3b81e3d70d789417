"""Reports of a difference: every format is a pure function of a `Diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gradcheck.report import diff_words
from gradcheck.report.github import MOST, command
from gradcheck.report.github import place as place_of
from gradcheck.report.marked import Capped, code, fenced, folded
from gradcheck.report.page import ANSI, Page, whole
from gradcheck.report.prose import escape, in_markdown
from gradcheck.results import words
from gradcheck.results.diff.change import Mark
from gradcheck.results.stored.plain import dumped, header_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck.report.diff_words import Group, Heap
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.diff.change import Change, Diff, Side

FORMATS: Final = ("terminal", "markdown", "html", "json", "github")
"""The formats by name."""
FEW_ENTRIES: Final = 3
"""Results of each gradient that a terminal and an annotation show."""
ENTRIES: Final = 20
"""Results of each gradient that a page lists."""


def render(diff: Diff, format: str, *, color: bool = False, width: int = 100) -> str:
    """The report in one of `FORMATS`, ending in a newline; colour and width are a terminal's."""
    if format == "terminal":
        return terminal(diff, color=color, width=width)
    renderers = {"markdown": markdown, "html": html, "json": json, "github": github}
    return renderers[format](diff)


def _counted(diff: Diff, group: Group) -> str:
    """A gradient, whose it is, and how many of its results are told."""
    count = words.plural(len(group.entries), "result")
    return f"{diff_words.whose(diff, group)}{group.title}: {count}"


def _heap(heap: Heap) -> str:
    text = f"{words.plural(heap.count, 'result')} of {diff_words.listed(heap)}"
    return f"{text}: {words.clean(heap.reason)}" if heap.reason else text


# ── terminal ─────────────────────────────────────────────────────────────────────────────────

TERMINAL_GROUPS: Final = 12
"""Gradients that are told by themselves."""
NARROWEST: Final = 40


def terminal(diff: Diff, *, color: bool = False, width: int = 100) -> str:
    """A difference as plain text; its last line is `diff.summary`.

    No line is wider than `width` but those that are meant to be copied or parsed.
    """
    page = _Page(color=color, width=max(width, NARROWEST))
    sections = (page.head(diff), *page.told(diff), page.heaps(diff), page.end(diff))
    return whole(sections, diff.summary)


class _Page(Page):
    def head(self, diff: Diff) -> list[str]:
        first, second = diff_words.names(diff)
        facts = [
            (first, diff_words.about(diff.old, diff.pairs)),
            (second, diff_words.about(diff.new, diff.pairs.values())),
        ]
        if differs := diff_words.context(diff):
            facts.append(("differs", "; ".join(differs)))
        column = 2 + max(len(label) for label, _ in facts)
        lines = [
            line
            for label, text in facts
            for line in self.wrap(text, label.ljust(column), " " * column)
        ]
        return [*lines, *self.wrap(note)] if (note := diff_words.by_verdict(diff)) else lines

    def told(self, diff: Diff) -> list[list[str]]:
        """What is told one by one, a paragraph per gradient."""
        groups = diff_words.groups(diff)
        blocks = [self.group(diff, group) for group in groups[:TERMINAL_GROUPS]]
        if rest := groups[TERMINAL_GROUPS:]:
            count = sum(len(group.entries) for group in rest)
            blocks.append(
                self.wrap(
                    f"… and {words.plural(count, 'more result')} of "
                    f"{words.plural(len(rest), 'more gradient')}; -o diff.md shows more, "
                    "-o diff.json all"
                )
            )
        return blocks

    def group(self, diff: Diff, group: Group) -> list[str]:
        """One gradient: what became of it, why, a few results, and how to see it again."""
        lines = self.marked(diff, group.mark, _counted(diff, group), worse=group.worse)
        for found in diff_words.findings(group)[:1]:
            lines += self.wrap(found, "  ", "    ")
        for entry in group.entries[:FEW_ENTRIES]:
            lines += self.entry(diff, entry)
        if len(group.entries) > FEW_ENTRIES:
            lines.append(f"  … and {len(group.entries) - FEW_ENTRIES:,} more")
        if repro := diff_words.repro(group):
            lines.append(f"  run: {repro}")  # to be copied: never broken
        return lines

    def entry(self, diff: Diff, entry: Change) -> list[str]:
        """How one result stood and stands, on one line where there is room."""
        old, new = diff_words.states(diff, entry)
        if entry.why:
            new += f"; {words.clean(entry.why)}"
        whole = f"  {diff_words.place(entry)}: {old} → {new}"
        if len(whole) <= self.width:
            return [whole]
        first = f"{diff_words.place(entry)}: {old} →"
        return [*self.wrap(first, "  ", "    "), *self.wrap(new, "    ", "    ")]

    def heaps(self, diff: Diff) -> list[str]:
        lines = []
        for heap in diff_words.heaps(diff):
            lines += self.marked(diff, heap.mark, _heap(heap), worse=heap.worse)
        return lines

    def end(self, diff: Diff) -> list[str]:
        tone = "bad" if diff.worse or not diff.compared else "good"
        return [self.toned(tone, line) for line in self.wrap(diff_words.verdict_of(diff))]

    def marked(self, diff: Diff, mark: Mark, text: str, *, worse: bool) -> list[str]:
        lead = diff_words.title(diff, mark).upper()
        first, *others = self.wrap(text, f"{lead} ", "  ")
        colored = self.toned(diff_words.tone(mark, worse=worse), lead)
        return [first.replace(lead, colored, 1), *others]

    def toned(self, tone: str, text: str) -> str:
        return f"\x1b[{ANSI[tone]}m{text}\x1b[0m" if self.color else text


# ── markdown ────────────────────────────────────────────────────────────────────────────────

LIMIT: Final = 60_000
"""Bytes of UTF-8; GitHub takes 65,536 characters in a comment."""
SHORT: Final = 300
"""Characters of one foreign text."""
HINT: Final = "`-o diff.json` has everything"


def markdown(diff: Diff, *, limit: int = LIMIT) -> str:
    """The verdict on the first line, then what is worse, at most `limit` bytes of UTF-8."""
    page = Capped(limit, HINT)
    counts = ", ".join(text for _, text in diff_words.tally(diff))
    page.add(f"**gradcheck diff: {diff_words.headline(diff)}** ({counts})\n\n")
    first, second = diff_words.names(diff)
    for label, side, whose in (
        (first, diff.old, diff.pairs.keys()),
        (second, diff.new, diff.pairs.values()),
    ):
        page.add(f"- {label}: {_brief(diff_words.about(side, whose))}\n")
    if differs := diff_words.context(diff):
        page.add(f"- differs: {_brief('; '.join(differs))}\n")
    if note := diff_words.by_verdict(diff):
        page.add(f"\n{note}\n")
    page.until(0.8)
    groups = diff_words.groups(diff)
    page.add_all((_details(diff, group) for group in groups), "gradient", len(groups))
    page.until(1.0)
    page.add("\n")
    for heap in diff_words.heaps(diff):
        mark = diff_words.title(diff, heap.mark)
        text = f"{words.plural(heap.count, 'result')} of {_brief(diff_words.listed(heap))}"
        why = f": {_brief(words.clean(heap.reason))}" if heap.reason else ""
        mark = f"**{mark}**" if heap.worse else mark
        page.add(f"- {mark}: {text}{why}\n", "line")
    return page.text()


def _details(diff: Diff, group: Group) -> str:
    """One gradient: a line to unfold, a table of results, a line to paste."""
    first, second = diff_words.names(diff)
    found = diff_words.findings(group)
    lead = _cut(found[0]) if found else ""
    lines = [f"- {_brief(other)}" for other in found[1:4]]
    lines += [""] * bool(lines)
    lines += [f"| result | {first} | {second} |", "|---|---|---|"]
    lines += [_line(diff, entry) for entry in group.entries[:ENTRIES]]
    if len(group.entries) > ENTRIES:
        lines += ["", f"… and {len(group.entries) - ENTRIES:,} more"]
    if repro := diff_words.repro(group):
        lines += ["", *fenced([repro], "sh")]
    return folded(diff_words.title(diff, group.mark), _counted(diff, group), lines, lead)


def _line(diff: Diff, entry: Change) -> str:
    old, new = diff_words.states(diff, entry)
    said = (
        f"{in_markdown(new)}; {_brief(words.clean(entry.why))}" if entry.why else in_markdown(new)
    )
    return f"| {code(diff_words.place(entry))} | {escape(old)} | {said} |"


def _cut(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def _brief(text: str) -> str:
    return in_markdown(_cut(text))


# ── HTML ────────────────────────────────────────────────────────────────────────────────────

GROUPS: Final = 200
"""Gradients that the HTML page tells by themselves."""
OPEN: Final = 12
"""Of them, those that need not be unfolded."""
STYLES: Final = ("page.css", "tables.css", "details.css")


def html(diff: Diff) -> str:
    """One document that needs neither network nor JavaScript; all foreign text is escaped."""
    from gradcheck.report.html import joined, templates  # door: jinja2

    environment = templates()
    groups = diff_words.groups(diff)
    page = environment.get_template("diff.html.j2").render(
        diff=diff,
        said=diff_words,
        words=words,
        worse=diff.worse or not diff.compared,
        groups=groups[:GROUPS],
        rest=len(groups) - GROUPS,
        unfolded=OPEN,
        most=ENTRIES,
        heaps=diff_words.heaps(diff),
        style=joined(environment, STYLES),
    )
    return f"{page}\n"


# ── JSON ────────────────────────────────────────────────────────────────────────────────────

SCHEMA: Final = 1


def json(diff: Diff) -> str:
    """Everything of which there is something to say, an entry a line; the rest is counted."""
    head = {
        "schema": SCHEMA,
        "old": _side(diff.old),
        "new": _side(diff.new),
        "implementations": [{"old": old, "new": new} for old, new in diff.pairs.items()],
        "factor": diff.factor,
        "worse": diff.worse,
        "compared": diff.compared,
        "same": diff.same,
        "counts": {mark.value: diff.counts.get(mark, 0) for mark in Mark},
    }
    entries = ",\n".join(f"    {dumped(_entry(diff, entry))}" for entry in diff.entries)
    first = dumped(head, indent=2).removesuffix("\n}")
    return f'{first},\n  "entries": [\n{entries}\n  ]\n}}\n'


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "complete": side.run.complete,
        "troubles": list(side.run.troubles),
        "header": header_dict(side.run.header),
    }


def _entry(diff: Diff, entry: Change) -> dict[str, Any]:
    of = entry.of
    return {
        "mark": entry.mark.value,
        "worse": entry.worse,
        "why": entry.why or None,
        "name": of.case.name,
        "op": of.case.op,
        "dialect": of.case.dialect,
        "sample": of.case.sample,
        "dtype": of.case.dtype,
        "part": of.finding.part.value,
        "output": of.finding.name,
        "old": _result(diff.old, entry.old),
        "new": _result(diff.new, entry.new),
    }


def _result(side: Side, record: CaseResult | None) -> dict[str, Any] | None:
    """How a result stood; `output` is another than the entry's where it is of the whole call."""
    if record is None:
        return None
    top, known = record.finding.top, side.run.expected(record)
    return {
        "implementation": record.case.implementation,
        "output": record.finding.name,
        "hash": record.case.hash,
        "seed": record.case.seed,
        "verdict": record.finding.verdict.value,
        "known": known.known.value if known is not None and known.known else None,
        "error": top.error if top else None,
        "bound": top.bound if top else None,
        "times_bound": record.finding.times_bound if top else None,
        "class": record.finding.defect or None,
        "reason": record.finding.reason or None,
        "compared": record.finding.compared,
        "repro": record.repro,
    }


# ── GitHub's annotations ────────────────────────────────────────────────────────────────────


def github(diff: Diff) -> str:
    """The difference as workflow commands; the last line is `diff.summary`, which is none.

    GitHub shows ten errors and ten warnings of one step; what is beyond is counted.
    """
    worse = [group for group in diff_words.groups(diff) if group.worse]
    loud = [group for group in worse if group.mark is not Mark.ERROR_GREW]
    quiet = [group for group in worse if group.mark is Mark.ERROR_GREW]
    lost = [*_lost(diff)]
    lines = [_told(diff, group, "error") for group in loud[:MOST]]
    lines += [*(_told(diff, group, "warning") for group in quiet[:MOST]), *lost][:MOST]
    if not diff.compared:
        lines.insert(0, command("error", diff_words.headline(diff), title="gradcheck diff"))
    left_out = max(len(loud) - MOST, 0) + max(len(quiet) + len(lost) - MOST, 0)
    if left_out:
        lines.append(command("notice", f"and {left_out:,} more; -o diff.md shows each"))
    return "\n".join([*lines, diff.summary, ""])


def _told(diff: Diff, group: Group, name: str) -> str:
    mark = diff_words.title(diff, group.mark)
    title = f"{diff_words.whose(diff, group)}{group.title}: {mark}"
    lines = [*diff_words.findings(group)[:1]]
    for entry in group.entries[:FEW_ENTRIES]:
        old, new = diff_words.states(diff, entry)
        lines.append(f"{diff_words.place(entry)}: {old} → {new}")
    if len(group.entries) > FEW_ENTRIES:
        lines.append(f"… and {len(group.entries) - FEW_ENTRIES:,} more")
    if repro := diff_words.repro(group):
        lines.append(f"run: {repro}")
    first = next((e.new for e in group.entries if e.new is not None), None)
    where = place_of(first) if first is not None else {}
    return command(name, "\n".join(lines), **where, title=title)


def _lost(diff: Diff) -> Iterator[str]:
    for heap in diff_words.heaps(diff):
        if heap.worse:
            yield command("warning", _heap(heap), title=f"gradcheck diff: {heap.mark.value}")
