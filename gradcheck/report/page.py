"""Lines of text for one width, with or without colour: what terminal reports are made of."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.numerics.arrays import Attrs
from gradcheck.report import outline, run_words
from gradcheck.results import words
from gradcheck.results.ci_safe import MARK, inert

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck.report.outline import Cell
    from gradcheck.results.run import Run, Standing
    from gradcheck.results.verdict import Verdict

LAST: Final = re.compile("^RESULT", re.MULTILINE)
"""What the line for scripts begins with."""
COLOR: Final = re.compile("\x1b\\[[0-9]*m")
ANSI: Final = {"good": "32", "bad": "31", "warn": "33", "calm": "33"}

UNLABELLED: Final = ("implementation", "implementations", "dtypes", "on")
"""Facts of a header that need no label."""
LINES: Final = 8
"""Lines that are shown of what the code printed, of one result of each gradient."""


def whole(sections: Iterable[Sequence[str]], last: str) -> str:
    """Sections of lines as one text, and the line for scripts behind them, which is the only one.

    Nothing before it is taken for such a line, or by a CI service for a command.
    """
    return ended("".join("\n".join(lines) + "\n\n" for lines in sections if lines), last)


def ended(text: str, last: str) -> str:
    """A text of whole lines, with the line for scripts behind it, as `whole` has it."""
    return LAST.sub(rf"{MARK}\g<0>", inert(text)) + f"{last}\n"


@dataclass(frozen=True, slots=True)
class Page:
    """Lines of text for one width, with or without colour."""

    color: bool
    width: int

    def word(self, verdict: Standing) -> str:
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
        lines = [""]
        for label, text in run_words.versions(run):
            fact = text if label in UNLABELLED else f"{label} {text}"
            joined = f"{lines[-1]} · {fact}" if lines[-1] else fact
            lines[-1:] = [joined] if len(joined) <= self.width else [lines[-1], fact]
        return [part for line in lines if line for part in self.wrap(line, "", "  ")]

    def listed(self, title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
        """A title and paragraphs, each beside its label, or below it where that is too narrow."""
        column = 4 + max(len(label) for label, _ in rows)
        lines = [title]
        for label, text in rows:
            if column <= self.width // 2:
                lines += self.wrap(text, f"  {label}".ljust(column), " " * column)
            else:
                lines += [f"  {label}", *self.wrap(text, "      ", "      ")]
        return lines

    def first(self, lines: list[str], most: int) -> list[str]:
        """At most so many lines of a paragraph; the last one shows whether there are more."""
        kept = lines[:most]
        return kept if kept == lines else [*kept[:-1], clip_end(f"{kept[-1]} …", self.width)]

    def judged(self, verdict: Verdict, text: str, most: int | None = None) -> list[str]:
        """A paragraph that opens with a verdict, or its first lines."""
        lead = words.word(verdict)
        whole = self.wrap(text, f"{lead} ", "  ")
        first, *others = whole if most is None else self.first(whole, most)
        return [first.replace(lead, self.word(verdict), 1), *others]

    def quoted(self, text: str) -> list[str]:
        """What was printed, each line framed, so that none can be taken for one of ours."""
        from gradcheck.results import printed  # deferred: most code prints nothing

        found = printed.marked(text, "  ", LINES)
        return [
            part
            for line in found
            for part in self.wrap(line.lstrip(), line[: -len(line.lstrip())], f"    {printed.MARK}")
        ]

    def cell(self, cell: Cell | None, *, measured: bool = True, bound: bool = True) -> str:
        """A verdict, and how far its worst element is off."""
        if cell is None:
            return "–"
        if outline.is_contract(cell):
            text = words.kept(cell.results) if measured else ""
        else:
            text = words.cell(outline.shown(cell).finding, measured=measured, bound=bound)
        return f"{self.word(cell.stands)} {text}".rstrip()


def grid(heads: Sequence[str], body: Sequence[Sequence[str]], counts: int) -> list[str]:
    """A head, a rule that spans the table, and a line per row; the last `counts` columns right."""
    rows = [[words.clean(head) for head in heads], *body]
    columns = [_column(cells, right=place >= len(heads) - counts)
               for place, cells in enumerate(zip(*rows, strict=True))]  # fmt: skip
    head, *lines = ("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))
    return [head, "─" * span([head, *lines]), *lines]


def _column(cells: Sequence[str], *, right: bool) -> list[str]:
    """Cells as wide as the widest, as `tabulate` has them: importing it is felt in a short run."""
    widest = span(cells)
    room = [" " * (widest - span([cell])) for cell in cells]
    pairs = zip(cells, room, strict=True)
    return [blank + cell if right else cell + blank for cell, blank in pairs]


def span(lines: Sequence[str]) -> int:
    """Columns of the widest line, colours left out."""
    return max(len(COLOR.sub("", line)) for line in lines)


def clip(name: str, most: int) -> str:
    """A name cut in the middle: its end often tells it from its neighbour."""
    tail = most // 3
    return name if len(name) <= most else f"{name[: most - 1 - tail]}…{name[-tail:]}"


def clip_end(line: str, most: int) -> str:
    """A line cut at its end."""
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


GAP: Final = 2
"""Columns between two cells."""


def wrapped_table(
    heads: Sequence[str],
    body: Sequence[Sequence[object]],
    width: int | None = None,
    align: Sequence[str] | None = None,
    spare: Sequence[str] = (),
) -> str:
    """A table of at most `width` columns (None: as wide as it is), if its longest words allow.

    The widest cells give way first; names are never broken at their hyphens. What is still too
    wide loses the columns whose heads are `spare`, the first of them first.

    >>> print(wrapped_table(["name", "what it says"], [["a", "one two three"]], width=16))
    name  what it
          says
    ----  ----------
    a     one two
          three
    """
    from tabulate import tabulate  # door: most runs print no such table

    rows = [[str(cell) for cell in row] for row in body]
    text = tabulate(rows, heads, disable_numparse=True, colalign=align, tablefmt="simple")
    if width is None or _span(text) <= width:
        return text
    for name in ("", *spare):
        kept = [i for i, head in enumerate(heads) if head != name]
        heads, rows = [heads[i] for i in kept], [[row[i] for i in kept] for row in rows]
        align = None if align is None else [align[i] for i in kept]
        text = _tight(heads, rows, width, align)
        if _span(text) <= width:
            break
    return text


def _tight(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, align: Sequence[str] | None
) -> str:
    """Wrapped cells, and heads without the room that tabulate leaves behind them."""
    limits = _limits([heads, *rows], width)
    wrapped = [
        [_wrapped(cell, limit) for cell, limit in zip(row, limits, strict=True)]
        for row in (heads, *rows)
    ]
    from tabulate import tabulate

    height = max(cell.count("\n") for cell in wrapped[0]) + 1
    text = tabulate(wrapped, disable_numparse=True, colalign=align, tablefmt="plain")
    lines = [line.rstrip() for line in text.splitlines()]
    rule = (" " * GAP).join("-" * limit for limit in limits)
    return "\n".join([*lines[:height], rule, *lines[height:]])


def _limits(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that each cell may have."""
    columns = list(zip(*rows, strict=True))
    limits = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in cell.split(" ")) for column in columns]
    while sum(limits) + GAP * (len(limits) - 1) > width:
        shrinkable = [i for i, limit in enumerate(limits) if limit > least[i]]
        if not shrinkable:
            break
        limits[max(shrinkable, key=limits.__getitem__)] -= 1
    return limits


def _wrapped(cell: str, limit: int) -> str:
    return textwrap.fill(cell, max(limit, 1), break_long_words=False, break_on_hyphens=False)


def _span(text: str) -> int:
    return max(map(len, text.splitlines()))


WIDTH: Final = 96


def section(title: str, entries: Sequence[tuple[str, str]], width: int = WIDTH) -> str:
    """A title and its entries, the texts in one column, or below where that is too narrow."""
    column = max(len(name) for name, _ in entries) + 4
    lines = [title]
    for name, text in entries:
        lead, indent = f"  {name}".ljust(column), " " * column
        if column > width // 2:
            lines += [f"  {name}"] if text else []
            lead = indent = "      " if text else f"  {name}"
        lines += wrapped(text, width, lead, indent) or [lead.rstrip()]
    return "\n".join(lines)


def wrapped(text: str, width: int, lead: str = "", indent: str = "") -> list[str]:
    """Lines of at most `width` columns; names are not broken at their hyphens."""
    return textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False
    )


def attributes(attrs: Attrs) -> str:
    """Attributes as in a call.

    >>> attributes({"axis": -1, "mode": "sum"})
    "axis=-1, mode='sum'"
    """
    return ", ".join(f"{name}={value!r}" for name, value in attrs.items())
