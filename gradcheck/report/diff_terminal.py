"""A difference in a terminal: what is worse first, the line for scripts last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import diff_words
from gradcheck.report.page import ANSI, Page, whole
from gradcheck.results import words

if TYPE_CHECKING:
    from gradcheck.report.diff_words import Group
    from gradcheck.results.diff.change import Change, Diff, Mark

GROUPS: Final = 12
"""Gradients that are told by themselves."""
ENTRIES: Final = 3
"""Results of each that are shown."""
NARROWEST: Final = 40


def render(diff: Diff, *, color: bool = False, width: int = 100) -> str:
    """A difference as plain text; its last line is `diff.summary`.

    No line is wider than `width` but those that are meant to be copied or parsed.
    """
    page = _Page(color=color, width=max(width, NARROWEST))
    sections = (page.head(diff), *page.told(diff), page.heaps(diff), page.end(diff))
    return whole(sections, diff.summary)


class _Page(Page):
    """The sections of a difference."""

    def head(self, diff: Diff) -> list[str]:
        """The two runs, and what else differs between them."""
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
        blocks = [self.group(diff, group) for group in groups[:GROUPS]]
        if rest := groups[GROUPS:]:
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
        count = words.plural(len(group.entries), "result")
        text = f"{diff_words.whose(diff, group)}{group.title}: {count}"
        lines = self.marked(diff, group.mark, text, worse=group.worse)
        for found in diff_words.findings(group)[:1]:
            lines += self.wrap(found, "  ", "    ")
        for entry in group.entries[:ENTRIES]:
            lines += self.entry(diff, entry)
        if len(group.entries) > ENTRIES:
            lines.append(f"  … and {len(group.entries) - ENTRIES:,} more")
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
        """What is told together."""
        lines = []
        for heap in diff_words.heaps(diff):
            text = f"{words.plural(heap.count, 'result')} of {diff_words.listed(heap)}"
            if heap.reason:
                text += f": {words.clean(heap.reason)}"
            lines += self.marked(diff, heap.mark, text, worse=heap.worse)
        return lines

    def end(self, diff: Diff) -> list[str]:
        """All of it in one line."""
        tone = "bad" if diff.worse or not diff.compared else "good"
        return [self.toned(tone, line) for line in self.wrap(diff_words.verdict_of(diff))]

    def marked(self, diff: Diff, mark: Mark, text: str, *, worse: bool) -> list[str]:
        """A paragraph that opens with a mark."""
        lead = diff_words.title(diff, mark).upper()
        first, *others = self.wrap(text, f"{lead} ", "  ")
        colored = self.toned(diff_words.tone(mark, worse=worse), lead)
        return [first.replace(lead, colored, 1), *others]

    def toned(self, tone: str, text: str) -> str:
        """A text in the colour of a tone."""
        return f"\x1b[{ANSI[tone]}m{text}\x1b[0m" if self.color else text
