"""A difference as GitHub's annotations: an error where something newly fails, else warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import diff_words
from gradcheck.report.github import MOST, command, place
from gradcheck.results import words
from gradcheck.results.diff.change import Mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck.report.diff_words import Group
    from gradcheck.results.diff.change import Diff

ENTRIES: Final = 3
"""Results of each gradient that are shown."""


def render(diff: Diff) -> str:
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
    """One gradient, at the place where the code stands."""
    mark = diff_words.title(diff, group.mark)
    title = f"{diff_words.whose(diff, group)}{group.title}: {mark}"
    lines = [*diff_words.findings(group)[:1]]
    for entry in group.entries[:ENTRIES]:
        old, new = diff_words.states(diff, entry)
        lines.append(f"{diff_words.place(entry)}: {old} → {new}")
    if len(group.entries) > ENTRIES:
        lines.append(f"… and {len(group.entries) - ENTRIES:,} more")
    if repro := diff_words.repro(group):
        lines.append(f"run: {repro}")
    first = next((e.new for e in group.entries if e.new is not None), None)
    where = place(first) if first is not None else {}
    return command(name, "\n".join(lines), **where, title=title)


def _lost(diff: Diff) -> Iterator[str]:
    """What else is worse: what is lost."""
    for heap in diff_words.heaps(diff):
        if heap.worse:
            text = f"{words.plural(heap.count, 'result')} of {diff_words.listed(heap)}"
            why = f": {words.clean(heap.reason)}" if heap.reason else ""
            yield command("warning", text + why, title=f"gradcheck diff: {heap.mark.value}")
