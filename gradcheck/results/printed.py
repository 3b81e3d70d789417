"""What the code judged has printed, as a few printable lines."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gradcheck.results import words
from gradcheck.results.case_result import CaseResult

LINES: Final = 20
"""Lines that are shown: half of them the first, which often say why it died, half the last."""
FEW: Final = 5
"""Lines of what passed, of which there may be thousands."""
HALF: Final = words.LONGEST // 2 - 1
"""Characters of the first lines, and of the last, where something is left out."""
TAB: Final = 4
"""Columns from one tabulator to the next."""
WIDEST: Final = 10
"""Characters of the longest escape."""
MARK: Final = "| "
"""What each of them begins with where a report has no other frame: no line of ours does."""


def lines(text: str, most: int = LINES) -> list[str]:
    r"""The first and the last lines, `most` together, every unprintable character as its escape.

    If they are not all, a line between them says how many bytes are left out. What is shown of
    what is shown is the same, so that a report of a stored run is the report of the run.

    >>> lines("a\tb\n\x1b[31mRESULT pass\n")
    ['a   b', '\\x1b[31mRESULT pass']
    >>> lines("one\ntwo\nthree\nfour", most=2)
    ['one', '… 10 bytes left out …', 'four']
    """
    begin, count, end = _ends(text)
    if not count:
        if len(begin) <= most:
            return begin
        begin, end = begin[: most // 2], begin[most // 2 :]
    hidden = [*begin[most // 2 :], *end[: -(most - most // 2)]]
    begin, end = begin[: most // 2], end[-(most - most // 2) :]
    count += sum(size(line) + 1 for line in hidden)
    while begin and not begin[-1]:
        del begin[-1]
    return [*begin, told(count), *_from_text(end)]


def _ends(text: str) -> tuple[list[str], int, list[str]]:
    """The first and the last printable lines, up to `LINES`, and the bytes between; or all."""
    first, count, last = Excerpt.of(text.rstrip())
    if not count and (all_of_it := _whole(first)) is not None:
        return all_of_it, 0, []
    begin, end = _begin(first), _end(last if count else first)
    if count:
        hidden = [first[len(begin) :], last[: len(last) - len(end)]]
    else:
        hidden = [first[len(begin) : len(first) - len(end)]]
    count += sum(size(part) for part in hidden if part.strip())
    shown = _from_text(_printable(begin)), _from_text(_printable(end))
    return (shown[0], count, shown[1]) if count else (shown[0] + shown[1], 0, [])


def _whole(text: str) -> list[str] | None:
    """A text's printable lines; None: they are too many or too long to be shown."""
    if len(text) > words.LONGEST:
        return None
    shown = _from_text(_printable(text))
    return shown if len(shown) <= LINES and _length(shown) <= words.LONGEST else None


def _begin(text: str) -> str:
    """As much of a text's beginning as its share of lines and characters can show."""
    blank = len(text) - len(text.lstrip())
    blank = text.rfind("\n", 0, blank) + 1
    head = text[blank : blank + HALF]
    while (excess := _length(_printable(head)) - HALF) > 0:
        head = head[: -(excess // WIDEST + 1)]
    return text[:blank] + "".join(head.splitlines(keepends=True)[: LINES // 2])


def _end(text: str) -> str:
    tail = text[-HALF:]
    while (excess := _length(_printable(tail)) - HALF) > 0:
        tail = tail[excess // WIDEST + 1 :]
    return "".join(tail.splitlines(keepends=True)[-(LINES - LINES // 2) :])


def _printable(text: str) -> list[str]:
    return [words.escaped(line.expandtabs(TAB).rstrip()) for line in text.splitlines()]


def _from_text(lines: list[str]) -> list[str]:
    """Lines without the blank ones before the first that is none."""
    begin = next((i for i, line in enumerate(lines) if line), len(lines))
    return lines[begin:]


def _length(lines: list[str]) -> int:
    """Characters that lines have as one text."""
    return sum(len(line) + 1 for line in lines) - 1


def of(result: CaseResult) -> list[str]:
    """The lines that a report which shows every result can afford of this one."""
    return indented(result.finding.printed, FEW if result.finding.verdict.expected else LINES)


def indented(text: str, most: int = LINES) -> list[str]:
    """The lines that are shown, indented, so that none can be taken for one of ours."""
    return [f"  {line}" for line in lines(text, most)]


def marked(text: str, indent: str, most: int = LINES) -> list[str]:
    """The same lines for a report in plain text, under a title; none if nothing was printed."""
    found = lines(text, most)
    return [f"{indent}printed:", *(f"{indent}  {MARK}{line}" for line in found)] if found else []


FIRST: Final = 1 << 15
"""Bytes that are kept of the beginning."""
LAST: Final = 1 << 15
"""Bytes that are kept of the end."""
CUT: Final = re.compile(r"^… ([1-9][0-9,]{0,20}) bytes? left out …(?:\n|\Z)", re.MULTILINE)


class Excerpt(NamedTuple):
    """A text's `first` and `last` characters, and how many bytes are `left_out` between them.

    Where none are, all of it is `first`.
    """

    first: str
    left_out: int = 0
    last: str = ""

    @classmethod
    def of(cls, text: str) -> Excerpt:
        r"""A text that may be an excerpt; several, one behind the other, become one.

        >>> Excerpt.of("a\n… 1,000 bytes left out …\nb")
        Excerpt(first='a\n', left_out=1000, last='b')
        """
        first, *rest = CUT.split(text)
        if not rest:
            return cls(first)
        cuts = sum(int(count.replace(",", "")) for count in rest[::2])
        return cls(first, cuts + sum(size(part) for part in rest[1:-1:2]), rest[-1])

    def __str__(self) -> str:
        r"""The text that `of` reads.

        >>> str(Excerpt("one", 1234, "two"))
        'one\n… 1,234 bytes left out …\ntwo'
        """
        if not self.left_out:
            return self.first
        ends = "" if self.first.endswith("\n") or not self.first else "\n"
        return f"{self.first}{ends}{told(self.left_out)}\n{self.last}"


class Heard:
    """Bytes as they come, of which the first and the last are kept."""

    def __init__(self) -> None:
        """Nothing is heard yet."""
        self._first, self._last, self._left_out = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        """Hear more."""
        room = FIRST - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        excess = max(0, len(self._last) - LAST)
        self._left_out += excess
        del self._last[:excess]

    def take(self) -> str:
        """What was heard, as the text of an excerpt; it is forgotten."""
        first, left_out, last = self._first, self._left_out, self._last
        self._first, self._last, self._left_out = bytearray(), bytearray(), 0
        if not left_out:
            return (first + last).decode(errors="replace")
        ends = (part.decode(errors="replace") for part in (first, last))
        return str(Excerpt(next(ends), left_out, next(ends)))


def told(left_out: int) -> str:
    """The line that stands for so many bytes."""
    return f"… {left_out:,} byte{'' if left_out == 1 else 's'} left out …"


def shortened(text: str) -> str:
    """A text as an excerpt, where it is longer than one."""
    if len(text) <= FIRST + LAST:
        return text
    first, left_out, last = Excerpt.of(text)
    if not left_out:
        return str(Excerpt(first[:FIRST], size(first[FIRST:-LAST]), first[-LAST:]))
    hidden = size(first[FIRST:]) + size(last[:-LAST])
    return str(Excerpt(first[:FIRST], left_out + hidden, last[-LAST:]))


def size(text: str) -> int:
    """Bytes of a text as UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))
