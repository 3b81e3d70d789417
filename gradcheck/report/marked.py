"""Pieces of GitHub's markdown: foreign text, names, a table's cell, a part to unfold."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

from gradcheck.report import outline, prose
from gradcheck.report.prose import escape
from gradcheck.results import words
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gradcheck.report.outline import Cell, Row
    from gradcheck.results.case_result import CaseResult

LEGEND: Final = (
    "In brackets: the worst error of a pass, in multiples of its tolerance; no brackets: no error."
)
"""What stands below a table of verdicts."""
SHARES: Final = ((1e-3, "< 0.001"), (1e-2, "< 0.01"), (0.1, "< 0.1"), (1.0, "< 1"))
"""A pass's worst error in multiples of its tolerance."""

PLAIN: Final = re.compile(r"[\w./,\[\] -]+", re.ASCII)
"""What can stand in code as it is, in a table too."""


def cell(found: Cell | None) -> str:
    """A verdict, and how its error compares with the tolerance."""
    if found is None:
        return "–"
    result = outline.shown(found)
    if outline.is_contract(found):
        word = words.word(found.stands)
        word = word if found.stands.expected else f"**{word}**"
        return f"{word} {words.kept(found.results)}".rstrip()
    if found.stands is Verdict.PASS:
        return f"PASS {_share(result)}".rstrip()
    word = words.word(found.stands)
    return word if found.stands.expected else f"**{word}** {words.cell(result.finding)}".rstrip()


def _share(result: CaseResult) -> str:
    badness = result.finding.times_bound
    if badness <= 0:
        return ""
    return next((f"({text})" for limit, text in SHARES if badness < limit), "(≥ 1)")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""A table of cells that are markdown already.

    >>> table(["op", "killed"], [["`add`", "3 of 3"]])
    '| op | killed |\n|---|---|\n| `add` | 3 of 3 |'
    """
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def matrix_head(table: outline.Table) -> list[str]:
    """The names of a table's columns, and the rule below them."""
    heads = [
        table.kind.value,
        "variant",
        words.OUTPUT[table.kind],
        *map(code, table.dtypes),
        "samples",
        "elements",
    ]
    rule = ["---"] * (len(heads) - 2) + ["---:"] * 2
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule)]


def matrix_lines(rows: Sequence[Row], dtypes: Sequence[str]) -> Iterator[str]:
    """A table's rows; an operator, and each of its dialects, is named once."""
    last: tuple[str, ...] = ("", "")
    for row in rows:
        key = (row.op, row.dialect)
        line = [
            code(row.op) if row.op != last[0] else "",
            code(row.dialect) if key != last else "",
            code(words.subject(row.output, row.part)),
            *(cell(row.cells.get(dtype)) for dtype in dtypes),
            f"{row.samples:,}",
            f"{row.compared:,}",
        ]
        last = key
        yield f"| {' | '.join(line)} |"


def folded(word: str, text: str, lines: Sequence[str], says: str = "") -> str:
    """A line that unfolds to `lines`: a verdict's word, if there is one, names, and prose.

    Args:
        word: the verdict's word, or empty.
        text: names, shown as they are.
        lines: Markdown.
        says: a sentence behind the names, with `code` between backticks.
    """
    # What stands in <summary> is HTML: GitHub reads no markdown there.
    bold = f"<b>{word}</b> " if word else ""
    named = html.escape(text) + (f": {prose.in_html(says)}" if says else "")
    summary = f"<details><summary>{bold}{named}</summary>"
    return "\n".join(["", summary, "", *lines, "", "</details>", ""])


def fenced(lines: Sequence[str], language: str = "") -> list[str]:
    """Printable lines as they are, in a fence that none of them can close."""
    runs = [len(ticks) for line in lines for ticks in re.findall("`+", line)]
    fence = "`" * (1 + max([2, *runs]))
    return [f"{fence}{language}", *lines, fence]


def code(text: str) -> str:
    r"""A name as code, or escaped where it holds what code cannot.

    >>> code("rms_norm"), code("a|b")
    ('`rms_norm`', 'a\\|b')
    """
    text = words.clean(text)
    return f"`{text}`" if PLAIN.fullmatch(text) else escape(text)


RESERVE: Final = 1_000
"""Bytes kept for saying what was left out."""


class Capped:
    """Whole blocks, at most `limit` bytes of UTF-8 of them; none is ever cut.

    `hint` says where everything is shown.
    """

    def __init__(self, limit: int, hint: str = "") -> None:
        """An empty page."""
        self._limit = self._ceiling = limit - RESERVE
        self._used = 0
        self._hint = f"; {hint}" if hint else ""
        self._parts: list[str] = []
        self._omitted: dict[str, int] = {}

    def until(self, share: float) -> None:
        """Let the page grow to this share of its limit: what follows has the rest for itself."""
        self._ceiling = int(self._limit * share)

    def add(self, text: str, noun: str = "line") -> bool:
        """Append `text` if it fits; after the first that does not, nothing of its kind does.

        A later row that fits would stand under another operator's name.
        """
        size = len(text.encode())
        if self._omitted.get(noun) or self._used + size > self._ceiling:
            self.leave_out(noun, 1)
            return False
        self._used += size
        self._parts.append(text)
        return True

    def add_all(self, texts: Iterable[str], noun: str, count: int) -> None:
        """Append `count` texts as far as they fit; no text is made that cannot."""
        for done, text in enumerate(texts):
            if not self.add(text, noun):
                self.leave_out(noun, count - done - 1)
                return

    def fold(
        self, word: str, text: str, head: Sequence[str], lines: Sequence[str], noun: str
    ) -> None:
        """A block to unfold that holds `head` and as many of `lines` as fit; nothing if none do.

        What is left out is counted as more of `noun`.
        """
        room = self._ceiling - self._used - len(folded(word, text, head).encode())
        kept: list[str] = []
        for line in lines:
            room -= len(line.encode()) + 1
            if room < 0:
                break
            kept.append(line)
        if kept:
            self.add(folded(word, text, [*head, *kept]), noun)
        self.leave_out(noun, len(lines) - len(kept))

    def leave_out(self, noun: str, count: int) -> None:
        """Count what is not on the page."""
        if count:
            self._omitted[noun] = self._omitted.get(noun, 0) + count

    def text(self) -> str:
        """What was added, and how much was not."""
        lines = "".join(
            f"\n… and {words.plural(count, f'more {noun}')}, left out for size{self._hint}\n"
            for noun, count in self._omitted.items()
        )
        return "".join(self._parts) + lines
