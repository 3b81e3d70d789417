"""A difference as GitHub's markdown, short enough for a comment on a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import diff_words
from gradcheck.report.marked import Capped, code, escape, fenced, folded
from gradcheck.results import words

if TYPE_CHECKING:
    from gradcheck.report.diff_words import Group
    from gradcheck.results.diff.change import Change, Diff

LIMIT: Final = 60_000
"""Bytes of UTF-8; GitHub takes 65,536 characters in a comment."""
ENTRIES: Final = 20
"""Results of one gradient that are listed."""
SHORT: Final = 300
"""Characters of one foreign text."""
HINT: Final = "`-o diff.json` has everything"


def render(diff: Diff, *, limit: int = LIMIT) -> str:
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
    count = words.plural(len(group.entries), "result")
    text = f"{diff_words.whose(diff, group)}{group.title}: {count}"
    found = diff_words.findings(group)
    lead = f"; {_cut(found[0])}" if found else ""
    lines = [f"- {_brief(other)}" for other in found[1:4]]
    lines += [""] * bool(lines)
    lines += [f"| result | {first} | {second} |", "|---|---|---|"]
    lines += [_line(diff, entry) for entry in group.entries[:ENTRIES]]
    if len(group.entries) > ENTRIES:
        lines += ["", f"… and {len(group.entries) - ENTRIES:,} more"]
    if repro := diff_words.repro(group):
        lines += ["", *fenced([repro], "sh")]
    return folded(diff_words.title(diff, group.mark), f"{text}{lead}", lines)


def _line(diff: Diff, entry: Change) -> str:
    old, new = diff_words.states(diff, entry)
    said = f"{escape(new)}; {_brief(words.clean(entry.why))}" if entry.why else escape(new)
    return f"| {code(diff_words.place(entry))} | {escape(old)} | {said} |"


def _cut(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def _brief(text: str) -> str:
    return escape(_cut(text))
