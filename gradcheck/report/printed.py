"""What the code judged has printed, as a few printable lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gradcheck.report import words

if TYPE_CHECKING:
    from gradcheck.record import Record

LINES: Final = 20
"""Lines that are shown, the last ones: what a process says last tells best why it died."""
FEW: Final = 5
"""Lines of what passed, of which there may be thousands."""
TAB: Final = 4
"""Columns from one tabulator to the next."""
WIDEST: Final = 10
"""Characters of the longest escape."""
MORE: Final = re.compile(r"… ([0-9][0-9,]{0,20}) more bytes? before this\n")
"""What a text begins with that has been cut already."""
MARK: Final = "| "
"""What each of them begins with where a report has no other frame: no line of ours does."""


def lines(text: str, most: int = LINES) -> list[str]:
    r"""The last `most` lines, every unprintable character as its escape.

    If they are not all, a first line says how many bytes are left out. What is shown of what is
    shown is the same, so that a report of a stored run is the report of the run.

    >>> lines("a\tb\n\x1b[31mRESULT pass\n")
    ['a   b', '\\x1b[31mRESULT pass']
    >>> lines("one\ntwo\nthree", most=1)
    ['… 8 more bytes before this', 'three']
    """
    count, shown = _tail(text)
    dropped, shown = shown[:-most], shown[-most:]
    if any(dropped):
        count += sum(_bytes(line) + 1 for line in dropped)
    while shown and not shown[0]:
        del shown[0]
    return [f"… {words.plural(count, 'more byte')} before this", *shown] if count else shown


def _tail(text: str) -> tuple[int, list[str]]:
    """The end of a text as at most `LINES` printable lines, and how many bytes stand before."""
    text = text.rstrip()
    before = MORE.match(text)
    count = int(before[1].replace(",", "")) if before else 0
    text = text[before.end() :] if before else text
    tail = text[-words.LONGEST :]
    while (excess := _length(_printable(tail)) - words.LONGEST) > 0:
        tail = tail[excess // WIDEST + 1 :]
    tail = "".join(tail.splitlines(keepends=True)[-LINES:])
    hidden = text[: len(text) - len(tail)]
    count += _bytes(hidden) if hidden.strip() else 0
    shown = _printable(tail)
    while shown and not shown[0]:
        del shown[0]
    return count, shown


def _printable(text: str) -> list[str]:
    return [words.escaped(line.expandtabs(TAB).rstrip()) for line in text.splitlines()]


def _length(lines: list[str]) -> int:
    """Characters that lines have as one text."""
    return sum(len(line) + 1 for line in lines) - 1


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def of(result: Record) -> list[str]:
    """The lines that a report which shows every result can afford of this one."""
    return lines(result.printed, FEW if result.verdict.expected else LINES)


def marked(text: str, indent: str, most: int = LINES) -> list[str]:
    """The same lines for a report in plain text, under a title; none if nothing was printed."""
    found = lines(text, most)
    return [f"{indent}printed:", *(f"{indent}  {MARK}{line}" for line in found)] if found else []
